"""The table of faults outside secure aggregation: in rules, attacks, the protocol, accounting and the gate."""

from __future__ import annotations

from dataclasses import dataclass

from tests.mutants.planting import Edit


@dataclass(frozen=True)
class Fault:
    """One planted fault.

    Attributes:
        name: in a few words.
        edits: the mutations that make it, all at once.
        near: the quick tests that run first: files or folders, from the root of the checkout.
    """

    name: str
    edits: tuple[Edit, ...]
    near: tuple[str, ...]


def _row(name: str, file: str, before: str, after: str, *near: str) -> Fault:
    return Fault(name, (Edit(file, before, after),), near)


RULES = ("tests/test_rules.py",)
CENTRAL = ("tests/privacy/test_central.py",)
EPSILON = ("tests/privacy/test_gaussian.py", "tests/privacy/test_accounting.py")
STAGES = ("tests/gate/test_gate_stages.py", "tests/gate/test_gate.py")
ENCODING = ("tests/secagg/test_encoding.py",)
AGENDA = ("tests/simulated/test_agenda.py",)
WORLD = ("tests/simulated/test_world.py",)
COURSE = ("tests/simulated/test_course.py",)
THERE = ("tests/simulated/test_availability.py",)
IN_TIME = ("tests/systems/test_rules_in_time.py",)
BUFFERS = ("tests/systems/test_basgd.py",)
FAILING = ("tests/systems/test_failing_servers.py",)
PROXIES = ("tests/test_tuned_on_proxy.py",)
OWLS = ("tests/simulated/test_night_owls.py",)
EVERYBODYS = ("tests/data/test_shared_examples.py",)
SHARES = ("tests/systems/test_decaf.py",)
LIES = ("tests/systems/test_lies.py",)
PRIVATE_IN_TIME = ("tests/systems/test_privacy_in_time.py",)
ASYNCHRONOUS = ("tests/systems/test_asynchronous.py",)
EQUAL = ("tests/systems/test_equal.py", "tests/systems/test_effects.py")
EFFECTS = ("tests/systems/test_effects.py",)
BACKUPS = ("tests/simulated/test_backups.py",)
SELECTORS = ("tests/simulated/test_selectors.py",)
ENERGY = ("tests/systems/test_energy.py", "tests/simulated/test_world.py")
SPEED_UP = ("tests/simulated/test_speed_up.py",)
BAD_INPUT = ("tests/systems/test_bad_input_in_time.py",)
BUDGETS = ("tests/systems/test_most_trainings.py",)
TARGET = ("tests/test_to_target.py",)
TO_TARGET = ("tests/gate/test_gate_to_target.py",)
CONTRIBUTIONS = ("tests/test_contribution_command.py",)
GOSSIP = ("tests/gossip/test_hearing.py", "tests/gossip/test_gossip_formulae.py")
AT_NODES = ("tests/gossip/test_rules_at_nodes.py",)
GRAPHS = ("tests/gossip/test_topology.py",)
CLAIMS = ("tests/catalogue/test_claims_and_times.py",)

FAULTS = (
    # --- rules
    _row(
        "a trimmed mean that trims one side",
        "defenses/aggregators/trimmed_mean.py",
        "[context.f : len(block) - context.f]",
        "[2 * context.f :]",
        *RULES,
    ),
    _row(
        "the lower median of an even number",
        "defenses/aggregators/median.py",
        "return (ordered[(n - 1) // 2] + ordered[n // 2]) / 2",
        "return ordered[(n - 1) // 2]",
        *RULES,
    ),
    _row(
        "krum with one neighbour too many",
        "defenses/aggregators/krum.py",
        "neighbours = max(gram.n - f - 2, 1)",
        "neighbours = max(gram.n - f - 1, 1)",
        *RULES,
    ),
    _row(
        "nearest neighbours that leave one honest row out",
        "defenses/mixing/nnm.py",
        "gram.n - context.f)",
        "gram.n - context.f - 1)",
        *RULES,
    ),
    _row(
        "centred clipping that forgets its centre",
        "defenses/aggregators/centered_clipping.py",
        'return {"centre": aggregate}',
        "return {}",
        *RULES,
    ),
    _row(
        "trust in clients that point away from the root data",
        "defenses/aggregators/fltrust.py",
        ".nan_to_num(nan=0.0).clamp(min=0)",
        ".nan_to_num(nan=0.0).abs()",
        *RULES,
    ),
    # --- rules, buffers and claims that live in time
    _row(
        "a smoothness that forgets how far the model moved",
        "defenses/aggregators/kardam.py",
        "self._coefficients[client] = changed / moved",
        "self._coefficients[client] = changed",
        *IN_TIME,
    ),
    _row(
        "a client that may pass twice in a row",
        "defenses/aggregators/kardam.py",
        "and client not in self._recent",
        "",
        *IN_TIME,
    ),
    _row(
        "a second answer from the same model that passes unjudged",
        "defenses/aggregators/kardam.py",
        "        if moved > 0:\n            self._coefficients[client] = changed / moved\n",
        "        if moved == 0:\n            return True\n        self._coefficients[client] = changed / moved\n",
        *IN_TIME,
    ),
    _row(
        "a candidate of its own length",
        "defenses/aggregators/zeno_plus_plus.py",
        "torch.where(scores >= -self.epsilon, scale, 0.0)",
        "torch.where(scores >= -self.epsilon, 1.0, 0.0)",
        *IN_TIME,
    ),
    _row(
        "one group for the updates of all models",
        "defenses/aggregators/asyncfilter.py",
        "models = context.round - 1 - context.staleness",
        "models = 0 * context.staleness",
        *IN_TIME,
    ),
    _row(
        "times that stay where they are while the rows move",
        "fedguard/contracts/wire.py",
        "pushes[row] = pushes[kept]",
        "pass",
        *IN_TIME,
    ),
    _row(
        "buffers of which one may be empty",
        "fedguard/simulated/barriers.py",
        "for device in devices}) == self.buffers",
        "for device in devices}) >= self.buffers - 1",
        *BUFFERS,
    ),
    _row(
        "a flood that is held against more buffers than it can reach",
        "fedguard/architectures/systems/basgd.py",
        "return max(0, self.setup.told - len(dropped))",
        "return each.told",
        *BUFFERS,
    ),
    _row(
        "a failed aggregator that loses all devices",
        "fedguard/architectures/systems/google.py",
        "devices[np.isin(dealt, failed)].tolist()",
        "devices[np.isin(dealt, failed) | (len(failed) > 0)].tolist()",
        *FAILING,
    ),
    _row(
        "too few updates after failures that are aggregated",
        "fedguard/architectures/systems/google.py",
        "if release.abandoned is None and arrived < least:",
        "if release.abandoned is None and arrived == 0:",
        *FAILING,
    ),
    _row(
        "a regret that has seen what it is judged by",
        "fedguard/bench/tuning/proxy.py",
        "fsum(values) - values[seed]",
        "fsum(values)",
        *PROXIES,
    ),
    _row(
        "a proxy that is reported on, too",
        "fedguard/bench/tuning/tune.py",
        "            tuning = on_proxy(tuning, proxy)\n",
        "            document = tuning = on_proxy(tuning, proxy)\n",
        *PROXIES,
    ),
    _row(
        "owls that come with the others",
        "fedguard/simulated/availability/day_and_night.py",
        "+= _DAY / 2",
        "+= _DAY",
        *OWLS,
    ),
    _row(
        "classes in no order",
        "fedguard/tasks/partitions/label_ordered.py",
        'rest[np.argsort(labels[rest], kind="stable")]',
        "rest",
        *OWLS,
    ),
    _row(
        "public examples that somebody owns, too",
        "fedguard/tasks/classification.py",
        "dataset.train[order[root_examples + public :]]",
        "dataset.train[order[root_examples:]]",
        *EVERYBODYS,
    ),
    _row(
        "public examples that are no part of a cell",
        "fedguard/config/cells.py",
        '**({"shared": config.task.shared} if config.task.shared else {}),',
        "",
        *EVERYBODYS,
    ),
    _row(
        "a share of the work without the time of messages",
        "fedguard/simulated/fractions.py",
        "left - self._world.messages(device) - _SPARE",
        "left - _SPARE",
        *SHARES,
    ),
    _row(
        "a rate that is hoped for",
        "fedguard/simulated/fractions.py",
        "return max(self._paces[device], default=None)",
        "return min(self._paces[device], default=None)",
        *SHARES,
    ),
    _row(
        "examples that move to whoever is asked first",
        "fedguard/simulated/fractions.py",
        "max(found, key=lambda one: one[0], default",
        "max(found, key=lambda one: -one[1], default",
        *SHARES,
    ),
    _row(
        "work that moved to a malicious device and is honest still",
        "fedguard/architectures/systems/event_run.py",
        "honest = [one for one in arrivals if one.by not in acting]\n        malicious = [one for one in arrivals if one.by in acting]",
        "honest = [one for one in arrivals if one.device not in acting]\n        malicious = [one for one in arrivals if one.device in acting]",
        *SHARES,
    ),
    _row(
        "claims of whole trainings for shares of them",
        "fedguard/contracts/masking.py",
        "[claim * push.share for claim, push in",
        "[claim for claim, push in",
        *SHARES,
    ),
    _row(
        "a lie told before the liar acts",
        "fedguard/contracts/masking.py",
        "said[client] if client in wire.malicious else sizes[client]",
        "said[client]",
        *CLAIMS,
    ),
    _row(
        "a cap that lets more than the share through",
        "defenses/aggregators/capped_mean.py",
        "cut.topk(f).values.sum()",
        "cut.topk(max(f - 1, 0)).values.sum()",
        *CLAIMS,
    ),
    # --- attacks
    _row(
        "a little too little: one supporter more than it takes",
        "attacks/poisoning/alie.py",
        "supporters = max(n // 2 + 1 - f, 1)",
        "supporters = max(n // 2 + 2 - f, 1)",
        "tests/test_attacks.py",
        "tests/catalogue/test_update_attacks.py",
    ),
    _row(
        "an inner product that is not turned",
        "attacks/poisoning/ipm.py",
        "(-self.tau * view.benign.mean(0))",
        "(self.tau * view.benign.mean(0))",
        "tests/test_attacks.py",
        "tests/catalogue/test_update_attacks.py",
    ),
    _row(
        "labels that are shifted and not flipped",
        "attacks/poisoning/label_flip.py",
        "y=view.classes - 1 - examples.y",
        "y=(examples.y + 1) % view.classes",
        "tests/test_attacks.py",
        "tests/catalogue/test_update_attacks.py",
    ),
    _row(
        "a step beyond the farthest two honest updates",
        "attacks/poisoning/min_max.py",
        "step: Tensor = unit * float(gamma)",
        "step: Tensor = unit * float(1.1 * gamma)",
        "tests/test_attacks.py",
        "tests/catalogue/test_update_attacks.py",
    ),
    _row(
        "membership scores of equal ones counted as found",
        "fedguard/metrics/membership.py",
        '"not_numbers": int(scores.isnan().sum()),',
        '"not_numbers": 0,',
        "tests/inference/test_membership_scores.py",
    ),
    # --- what everybody rests on
    _row(
        "random streams that forget whether a name is a number",
        "fedguard/rng.py",
        'f"{type(name).__name__}:{name}"',
        'f"{name}"',
        "tests/test_sight.py",
        "tests/test_tasks.py",
    ),
    _row(
        "a view that may be widened",
        "fedguard/contracts/sight.py",
        "return type(self)(party, granted & self.granted,",
        "return type(self)(party, granted | self.granted,",
        "tests/test_sight.py",
    ),
    _row(
        "an attack that is granted what the architecture hides",
        "fedguard/visibility.py",
        "(threat.grants | PUBLIC) & exposure.clients",
        "threat.grants | exposure.clients",
        "tests/test_sight.py",
        "tests/test_masking.py",
    ),
    _row(
        "a record's seal that is not looked at",
        "fedguard/bench/records/record.py",
        "if seal is None or hashlib",
        "if seal is None and hashlib",
        "tests/fuzz/test_stores.py",
        "tests/test_running.py",
    ),
    # --- protocol
    _row(
        "a clip that counts one step too many",
        "fedguard/secagg/encoding.py",
        "return int(2 ** (self.bits - 1) - 1)",
        "return int(2 ** (self.bits - 1))",
        *ENCODING,
    ),
    _row(
        "a share of clipped coordinates that has no sign",
        "fedguard/secagg/encoding.py",
        "(np.abs(self._rotated(vector, seed)) > self.clip).mean()",
        "(self._rotated(vector, seed) > self.clip).mean()",
        *ENCODING,
    ),
    _row(
        "a field that is not one",
        "fedguard/secagg/shamir.py",
        "PRIME = 2**256 + 297",
        "PRIME = 2**256 + 299",
        "tests/secagg/test_shamir.py",
    ),
    # --- accounting
    _row(
        "noise of half the size at the trusted server",
        "fedguard/privacy/central.py",
        "noise = self.sum_noise * torch.randn",
        "noise = 0.5 * self.sum_noise * torch.randn",
        *CENTRAL,
    ),
    _row(
        "noise of half the size in DP-SGD",
        "fedguard/tasks/engines/private.py",
        "noise_multiplier=noise_multiplier,",
        "noise_multiplier=0.5 * noise_multiplier,",
        "tests/test_private_training.py",
        "tests/privacy/audit/test_planted_faults.py",
    ),
    _row(
        "a replaced unit that counts as one removed",
        "fedguard/privacy/gaussian.py",
        'distance = 2 if relation == "replace" else 1',
        "distance = 1",
        *EPSILON,
    ),
    _row(
        "amplification by public schedules",
        "fedguard/privacy/gaussian.py",
        '(1.0, math.ceil(round(sample_rate * steps, 9))) if sampling == "cyclic"',
        '(sample_rate, math.ceil(round(sample_rate * steps, 9))) if sampling == "cyclic"',
        *EPSILON,
    ),
    _row(
        "an added unit's losses left out",
        "fedguard/privacy/accountants.py",
        "directions.append([law if isinstance(law, _Replaced) else _Added(law) for law in laws])",
        "directions.append(laws)",
        *EPSILON,
    ),
    _row(
        "a cost of the last event alone",
        "fedguard/privacy/accounting.py",
        "total += event.count * event.rdp(ORDERS)",
        "total = event.count * event.rdp(ORDERS)",
        *EPSILON,
    ),
    # --- the gate
    _row(
        "p-values that are not adjusted for their number",
        "fedguard/metrics/stats.py",
        "min(1.0, (len(p_values) - rank) * p_values[index])",
        "min(1.0, p_values[index])",
        "tests/test_stats.py",
        *STAGES,
    ),
    _row(
        "a drop that is confirmed by its size alone",
        "fedguard/bench/gate/stages.py",
        '"regressed" if p_value < alpha else "inconclusive"',
        '"regressed"',
        *STAGES,
    ),
    _row(
        "a margin of no width",
        "fedguard/bench/gate/stages.py",
        "return drop > margin and not",
        "return drop > 0 and not",
        *STAGES,
    ),
    _row(
        "a missing cell that passes",
        "fedguard/bench/gate/verdict.py",
        'if self.incompatible or "missing" in found or',
        "if self.incompatible or",
        *STAGES,
    ),
    # --- simulated time
    _row(
        "ties by number",
        "fedguard/simulated/agenda.py",
        "self._ties.pop(), self._added",
        "float(self._added), self._added",
        *AGENDA,
        *COURSE,
    ),
    _row(
        "events at one time without ranks",
        "fedguard/simulated/agenda.py",
        "(time, rank, self._ties",
        "(time, 0, self._ties",
        *AGENDA,
    ),
    Fault(
        "simulated time that is not whole",
        (
            Edit("fedguard/simulated/agenda.py", "self._now + round(delay * SECOND)", "self._now + delay"),
            Edit("fedguard/simulated/agenda.py", "return self._now / SECOND", "return self._now"),
        ),
        AGENDA,
    ),
    _row(
        "a bandwidth that counts the wrong way round",
        "fedguard/simulated/world.py",
        "self.size / (bandwidth * factor)",
        "self.size / (bandwidth / factor) / 2",
        *WORLD,
    ),
    _row(
        "one jitter for all trainings of a device",
        "fedguard/simulated/world.py",
        "drawn = self._jitter(device, turn)",
        "drawn = self._jitter(device, 1)",
        *WORLD,
    ),
    _row(
        "jitter that all devices share",
        "fedguard/simulated/world.py",
        "drawn = self._jitter(device, turn)",
        "drawn = self._jitter(0, turn)",
        *WORLD,
    ),
    _row(
        "groups of devices that draw alike",
        "fedguard/simulated/draws.py",
        "self._rng.child(group, number)",
        "self._rng.child(number)",
        *WORLD,
    ),
    _row(
        "draws that depend on the order of questions",
        "fedguard/simulated/draws.py",
        "self._rng.child(group, number)",
        "self._rng.child(group, number, len(blocks))",
        *WORLD,
    ),
    _row(
        "twice as many losses",
        "fedguard/simulated/world.py",
        "self._loss(device, turn) < loss",
        "self._loss(device, turn) < 2 * loss",
        *WORLD,
    ),
    _row(
        "malicious devices without a pace",
        "fedguard/simulated/world.py",
        "compute[sorted(quick)] *= network.malicious_pace",
        "compute[sorted(quick)] *= 1.0",
        *WORLD,
    ),
    _row(
        "work that was interrupted and is paid for in full",
        "fedguard/simulated/world.py",
        "self._computed(min(max(left - down, 0.0), computing))",
        "self._computed(computing)",
        *WORLD,
    ),
    _row(
        "a device that starts later than it comes",
        "fedguard/simulated/course.py",
        "self._agenda.after(wait, self._start",
        "self._agenda.after(wait + 1.0, self._start",
        *COURSE,
    ),
    _row(
        "interrupted work that arrives",
        "fedguard/simulated/course.py",
        "self._arrive if arrives else self._leave",
        "self._arrive",
        *COURSE,
    ),
    _row(
        "an empty round that waits for ever",
        "fedguard/simulated/course.py",
        'self._agenda.after(0.0, self._close, self._round, "nobody was chosen", rank=Rank.DECIDE)',
        "pass",
        *COURSE,
    ),
    _row(
        "k of n that waits for more than are chosen",
        "fedguard/simulated/barriers.py",
        "return min(self.count, chosen) if self.fresh else self.count",
        "return self.count",
        *COURSE,
    ),
    _row(
        "too few updates that make an aggregate",
        "fedguard/simulated/course.py",
        "self._barrier.fresh and arrived < least",
        "self._barrier.fresh and arrived < 1",
        *COURSE,
    ),
    _row(
        "a deadline before what arrives at it",
        "fedguard/simulated/course.py",
        "self._agenda.after(self._barrier.deadline, self._close, self._round, rank=Rank.DECIDE)",
        "self._agenda.after(self._barrier.deadline, self._close, self._round, rank=Rank.DELIVER)",
        *COURSE,
    ),
    _row(
        "bounded delay by one more",
        "fedguard/simulated/barriers.py",
        "return done - slowest <= self.ahead",
        "return done - slowest <= self.ahead + 1",
        *COURSE,
    ),
    _row(
        "devices that wait for the slowest and are forgotten",
        "fedguard/simulated/places.py",
        "go = [waiting for one in free for waiting in self._parked.pop(one)]",
        "go = [self._parked.pop(one)[0] for one in free]",
        *COURSE,
    ),
    _row(
        "a free place for the lowest number",
        "fedguard/simulated/places.py",
        "chosen = int(self._drawn.pop() * len(idle))",
        "chosen = idle.index(min(idle))",
        *COURSE,
    ),
    _row(
        "interrupted trainings that count as done",
        "fedguard/simulated/places.py",
        '        """Who starts after this device has left: itself, for it has not done this training."""\n        return (device,)',
        "        return tuple(self.sent(device) or [device])",
        *COURSE,
    ),
    _row(
        "old updates in a common round",
        "fedguard/simulated/course.py",
        "        self._busy.clear()\n",
        "",
        *COURSE,
    ),
    _row(
        "on_off that starts with everybody there",
        "fedguard/simulated/availability/on_off.py",
        "exp(-draw(device, 0)) < on / (on + off)",
        "True",
        *THERE,
    ),
    _row(
        "on_off that is away for as long as it stays",
        "fedguard/simulated/availability/on_off.py",
        "end + off * draw(device, drawn)",
        "end + on * draw(device, drawn)",
        *THERE,
    ),
    _row(
        "on_off in which all come and go together",
        "fedguard/simulated/availability/on_off.py",
        "self._draw = law, Draws(rng, exponential)",
        "self._draw = law, lambda device, k: Draws(rng, exponential)(0, k)",
        *THERE,
    ),
    _row(
        "on_off with stretches of one length",
        "fedguard/simulated/availability/on_off.py",
        "end = begin + on * draw(device, drawn + 1)",
        "end = begin + on",
        *THERE,
    ),
    _row(
        "nights that begin over half of the hours",
        "fedguard/simulated/availability/day_and_night.py",
        "rng.numpy().random(devices) * law.spread",
        "0.5 * rng.numpy().random(devices) * law.spread",
        *THERE,
    ),
    _row(
        "days of twelve hours",
        "fedguard/simulated/availability/day_and_night.py",
        "_HOUR, _DAY = 3600.0, 86400.0",
        "_HOUR, _DAY = 3600.0, 43200.0",
        *THERE,
    ),
    _row(
        "a trace that is not repeated from its end",
        "fedguard/simulated/availability/trace.py",
        "for those in stretches.values() for _, end in those)",
        "for those in stretches.values() for end, _ in those)",
        *THERE,
    ),
    _row(
        "a trace whose stretches overlap",
        "fedguard/simulated/availability/trace.py",
        "if those and begin < those[-1][1]:",
        "if those and begin < those[-1][0]:",
        *THERE,
    ),
    _row(
        "a trace that lacks a device",
        "fedguard/simulated/availability/trace.py",
        "        if lacking is not None:\n",
        "        if lacking is not None and lacking >= devices:\n",
        *THERE,
    ),
    _row(
        "who leaves during a training and is said to stay",
        "fedguard/contracts/availability.py",
        "return None if now + seconds <= end else end - now",
        "return None if now <= end else end - now",
        *THERE,
    ),
    _row(
        "a law that is no part of a cell",
        "fedguard/config/cells.py",
        "named = there.spec() if there.fields() else there.name",
        "named = there.name",
        *THERE,
    ),
    _row(
        "a clip that grows with age",
        "defenses/mixing/staleness_clipping.py",
        "** -self.slope",
        "** self.slope",
        "tests/systems/test_staleness_clipping.py",
    ),
    _row(
        "lengths that are clipped after they were scaled for their age",
        "defenses/mixing/staleness_clipping.py",
        "lengths = gram.norms() / context.scale",
        "lengths = gram.norms()",
        "tests/systems/test_staleness_clipping.py",
    ),
    _row(
        "devices that check in as they were told, whatever they say",
        "fedguard/simulated/selectors.py",
        "comes = self._lies.comes_in(device, round, self._comes_in(device))",
        "comes = self._comes_in(device)",
        *LIES,
    ),
    _row(
        "a server that does not wait for who never reports",
        "fedguard/simulated/course.py",
        "        if away:\n            return\n",
        "        if away:\n            del self._busy[device]\n            self._enough = min(self._enough, len(self._busy))\n            return\n",
        *LIES,
    ),
    _row(
        "malicious clients that lie before they act",
        "fedguard/architectures/times.py",
        "Lies(acting=setup.acting,",
        "Lies(acting=lambda round: setup.malicious,",
        *LIES,
    ),
    # --- privacy in simulated time
    _row(
        "first K of N that claim the amplification of a draw",
        "fedguard/privacy/kinds/client.py",
        "        if federation.meeting is not None:\n            return self._counted(federation, private, reports, facts)\n",
        "",
        *PRIVATE_IN_TIME,
    ),
    _row(
        "two updates in one buffer that count as one",
        "fedguard/architectures/systems/event_run.py",
        "weights[one.device] = weights.get(one.device, 0.0) + weight",
        "weights[one.device] = weight",
        *PRIVATE_IN_TIME,
    ),
    _row(
        "two updates in one buffer that count as if in two",
        "fedguard/privacy/ledger.py",
        "squares.get(client, 0.0) + weight**2",
        "squares.get(client, 0.0) + weight",
        *PRIVATE_IN_TIME,
    ),
    _row(
        "the median client's epsilon for the worst one's",
        "fedguard/privacy/kinds/client.py",
        'epsilon = each.get("most")',
        'epsilon = each.get("median")',
        *PRIVATE_IN_TIME,
    ),
    _row(
        "old updates that weigh more than the ledger says",
        "fedguard/architectures/systems/event_run.py",
        "weights = torch.tensor([push.scale for push in received.truth.pushes])",
        "weights = torch.ones(len(received.truth.pushes))",
        *PRIVATE_IN_TIME,
    ),
    _row(
        "trainings whose update the network lost, and that nobody counts",
        "fedguard/privacy/ledger.py",
        "for span in moment.spans)",
        'for span in moment.spans if span.fate != "lost")',
        *PRIVATE_IN_TIME,
    ),
    _row(
        "shared noise in buffers that counts rounds and not sums",
        "fedguard/privacy/kinds/distributed.py",
        "share.spent([min(contributors)] * most)",
        "share.spent(list(contributors))",
        *PRIVATE_IN_TIME,
    ),
    _row(
        "times that tell how many examples a client has",
        "fedguard/architectures/times.py",
        "if setup.meeting is not None and setup.protocol.private:",
        "if setup.meeting is not None and setup.protocol.masked:",
        *PRIVATE_IN_TIME,
    ),
    _row(
        "a server that hides who comes by a draw, and loses who is slow",
        "fedguard/architectures/server.py",
        "if cell.network is not None and cell.network.loses:",
        "if cell.network is not None and cell.network.loses and not cell.protocol.private:",
        *PRIVATE_IN_TIME,
    ),
    # --- systems in simulated time, what they cost, and what they take to a target
    _row(
        "an update that is older than it is",
        "fedguard/architectures/systems/event_run.py",
        "age = release.version - one.version",
        "age = release.version - one.version + 1",
        *ASYNCHRONOUS,
    ),
    _row(
        "weights of age that count twice",
        "fedguard/architectures/systems/event_run.py",
        "part.mul_(torch.tensor(weights, dtype=part.dtype)[:, None])",
        "part.mul_(torch.tensor(weights, dtype=part.dtype)[:, None] ** 2)",
        *ASYNCHRONOUS,
    ),
    _row(
        "a buffer that divides by its age what is divided already",
        "fedguard/architectures/systems/fedbuff.py",
        "return (1 + staleness) ** -0.5 if self.scaled else 1.0",
        "return 1 / (1 + staleness) if self.scaled else 1.0",
        *ASYNCHRONOUS,
    ),
    _row(
        "a server that mixes updates and not models",
        "fedguard/architectures/systems/fedasync.py",
        "return updates + (starts - model)",
        "return updates",
        *ASYNCHRONOUS,
    ),
    _row(
        "a push that counts like a round",
        "fedguard/architectures/systems/parameter_server.py",
        'return 1.0 if self.consistency == "sequential" else 1 / clients.expected',
        "return 1.0",
        *ASYNCHRONOUS,
    ),
    _row(
        "trainings that all begin with the oldest model",
        "fedguard/architectures/systems/trainings.py",
        "common = all(start is starts[0] for start in starts)",
        "common = True",
        *ASYNCHRONOUS,
    ),
    _row(
        "malicious clients that act before they have seen anything",
        "fedguard/architectures/systems/event_run.py",
        "if not honest and not self._last:",
        "if False:",
        *ASYNCHRONOUS,
    ),
    _row(
        "a client that trains once more than its budget",
        "fedguard/simulated/course.py",
        "return self._turns[device] >= self._most",
        "return self._turns[device] > self._most",
        *BUDGETS,
    ),
    _row(
        "noise for one update of a client in a buffer, which may hold several",
        "fedguard/architectures/systems/event_server.py",
        "in_one=int(min(barrier.count, ahead))",
        "in_one=1",
        *BUDGETS,
    ),
    _row(
        "attacks that never act and are reported all the same",
        "fedguard/architectures/systems/event_run.py",
        "if self._unarmed and not self._armed:",
        "if False:",
        *BAD_INPUT,
    ),
    _row(
        "ranges that all remember what the first does",
        "fedguard/architectures/systems/parameter_server.py",
        "kept = states[index * each : (index + 1) * each]",
        "kept = states[:each]",
        *EQUAL,
    ),
    _row(
        "a range without its last coordinate",
        "fedguard/architectures/systems/parameter_server.py",
        "part = slice(int(keys[0]), int(keys[-1]) + 1)",
        "part = slice(int(keys[0]), max(int(keys[-1]), 1))",
        *EQUAL,
    ),
    _row(
        "over-selection that is told a share of those that were asked",
        "fedguard/contracts/masking.py",
        "self.setup.told_among(len(arrived)) - len(not_finite)",
        "self.setup.told_among(round(1.3 * len(arrived))) - len(not_finite)",
        *EFFECTS,
    ),
    _row(
        "over-selection that asks for as many as it needs",
        "fedguard/architectures/systems/google.py",
        "round(self.over * clients.expected)",
        "clients.expected",
        *EFFECTS,
    ),
    _row(
        "a late update that counts",
        "fedguard/simulated/course.py",
        "if self._busy.get(device) is not training:\n            return  # the round went on without it\n        del self._busy[device]",
        "self._busy.pop(device, None)",
        *COURSE,
    ),
    _row(
        "combiners that are dealt once for all rounds",
        "fedguard/architectures/systems/mapreduce.py",
        'self.setup.rng.child("combiners", sent.round)',
        'self.setup.rng.child("combiners")',
        *EFFECTS,
    ),
    _row(
        "a copy that runs on the device that is slow",
        "fedguard/simulated/course.py",
        "other = (training.device + 1) % len(self._turns)",
        "other = training.device",
        *BACKUPS,
    ),
    _row(
        "a round that starts with too few devices",
        "fedguard/simulated/selectors.py",
        "if len(found) >= self._selection.least:",
        "if len(found) >= 1:",
        *SELECTORS,
    ),
    _row(
        "a selection that does not end at its goal",
        "fedguard/simulated/selectors.py",
        "if len(self._checked_in) == self._selection.goal:",
        "if False:",
        *SELECTORS,
    ),
    _row(
        "joules without the radio of what is received",
        "fedguard/simulated/world.py",
        "        self.spent.bytes_down += self.size\n        self.spent.joules += self.network.link.joules * self.size\n",
        "        self.spent.bytes_down += self.size\n",
        *ENERGY,
    ),
    _row(
        "joules of computing by the mean device",
        "fedguard/simulated/world.py",
        "self.spent.joules += self.network.compute.watts * seconds",
        "self.spent.joules += self.network.compute.watts * self.network.compute.seconds",
        *ENERGY,
    ),
    _row(
        "curves over joules that stand over bytes",
        "fedguard/metrics/moments.py",
        "report.moment.bytes_up, report.moment.joules)",
        "report.moment.bytes_up, report.moment.bytes_up)",
        *ENERGY,
    ),
    _row(
        "exponential times of twice the mean",
        "fedguard/simulated/world.py",
        'drawn if speeds.jitter == "exponential"',
        '2 * drawn if speeds.jitter == "exponential"',
        *SPEED_UP,
    ),
    _row(
        "a deadline that the quickest device alone has to meet",
        "fedguard/architectures/systems/event_server.py",
        "seconds = least[barrier.least - 1]",
        "seconds = least[0]",
        *BAD_INPUT,
    ),
    _row(
        "a deadline that is refused for the luck of a draw",
        "fedguard/simulated/world.py",
        "drawn = speeds.spread > 0 or speeds.jitter != 0",
        "drawn = speeds.spread > 0",
        *BAD_INPUT,
    ),
    _row(
        "a target that is reached at its first touch",
        "fedguard/metrics/figures.py",
        "first = below[-1] + 1 if below else 0",
        'first = next((n for n, one in enumerate(curve["accuracy"]) if one >= self.target), len(curve["accuracy"]))',
        *TARGET,
    ),
    _row(
        "a target that is never reached and counts as reached at the end",
        "fedguard/metrics/figures.py",
        "else AtLeast(places[-1])",
        "else places[-1]",
        *TARGET,
    ),
    _row(
        "a gate that takes never for the end of the training",
        "fedguard/bench/gate/watch.py",
        "if any(never):",
        "if False:",
        *TO_TARGET,
    ),
    _row(
        "a baseline that forgets who never got there",
        "fedguard/bench/gate/baseline.py",
        '"values": values, "never": never',
        '"values": values, "never": cell.never',
        *TO_TARGET,
    ),
    _row(
        "a sign test of more than k",
        "fedguard/bench/gate/stages.py",
        "for i in range(k, n + 1)",
        "for i in range(k + 1, n + 1)",
        *TO_TARGET,
    ),
    _row(
        "intervals of shares that forget all rounds but one",
        "fedguard/bench/audits/contribution.py",
        "squares[client] += error * error",
        "squares[client] = error * error",
        *CONTRIBUTIONS,
    ),
    # --- without a server
    _row(
        "lies that remember what they told another node",
        "fedguard/architectures/gossip/nodes.py",
        "return self.node, self.trackers",
        "return EVERYBODY, self.trackers",
        *GOSSIP,
    ),
    _row(
        "a node that trusts whom it hears with all of its own weight",
        "fedguard/architectures/gossip/nodes.py",
        "found[own] = 1 - (found.sum() - found[own])",
        "found[own] = found[own] + 0",
        *GOSSIP,
    ),
    _row(
        "a rule at a node that is told the f of all",
        "fedguard/architectures/gossip/nodes.py",
        "told = setup.told_among(len(wire.clients))",
        "told = setup.told",
        *GOSSIP,
    ),
    _row(
        "figures of nodes that count the liars",
        "fedguard/architectures/gossip/nodes.py",
        "self.honest = tuple(node for node in range(self._n) if node not in malicious)",
        "self.honest = tuple(range(self._n))",
        *GOSSIP,
    ),
    _row(
        "a node that waits for all others",
        "fedguard/architectures/gossip/nodes.py",
        "for source in np.flatnonzero(heard[node]):",
        "for source in range(self._n):",
        *GOSSIP,
    ),
    _row(
        "what is broadcast as lies to each",
        "fedguard/architectures/gossip/nodes.py",
        "said = self._said_to_all(values, about, at, trackers) if self._broadcast and self._acting else {}",
        "said = {}",
        *GOSSIP,
    ),
    _row(
        "D^2 without its memory",
        "fedguard/architectures/gossip/d2.py",
        "nodes.mixed(2 * x - before + u - last, about=x)",
        "nodes.mixed(x + u, about=x)",
        *GOSSIP,
    ),
    _row(
        "trackers that add each update whole",
        "fedguard/architectures/gossip/dsgt.py",
        "u - kept * before",
        "u",
        *GOSSIP,
    ),
    _row(
        "push-sum that forgets its weights",
        "fedguard/architectures/gossip/sgp.py",
        "            w = w_next\n",
        "            w = np.ones(len(w))\n",
        *GOSSIP,
    ),
    _row(
        "gossip that hurries the wrong way",
        "fedguard/architectures/gossip/detag.py",
        "values, before = (1 + c) *",
        "values, before = (1 - c) *",
        *GOSSIP,
    ),
    _row(
        "Metropolis weights that forget the node itself",
        "fedguard/simulated/topology.py",
        "1 / (1 + np.maximum(",
        "1 / (0.5 + np.maximum(",
        *GRAPHS,
    ),
    _row(
        "malicious nodes that are seated anywhere",
        "fedguard/simulated/topology.py",
        'if places == "drawn" or not malicious:',
        "if True:",
        *GRAPHS,
    ),
    _row(
        "a second eigenvalue that is the third",
        "fedguard/simulated/topology.py",
        "np.abs(self._eigenvalues[0]) ** (1 /",
        "np.abs(self._eigenvalues[-1]) ** (1 /",
        *GRAPHS,
    ),
    _row(
        "a radius for one malicious neighbour less",
        "defenses/aggregators/cs_plus.py",
        "1 - 2 * hostile_weight",
        "1 - hostile_weight",
        *AT_NODES,
    ),
    _row(
        "a node that trims its own value",
        "defenses/aggregators/bridge.py",
        "if row != context.own]",
        "if row != 0]",
        *AT_NODES,
    ),
    _row(
        "the nearest to the first row",
        "defenses/aggregators/nna.py",
        "gram.unit(context.own)",
        "gram.unit(0)",
        *AT_NODES,
    ),
    _row(
        "neighbours that are good if they are near",
        "defenses/aggregators/ubar.py",
        "looked_at[losses <= least]",
        "looked_at",
        *AT_NODES,
    ),
)
