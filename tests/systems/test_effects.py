"""What systems are built for, and what it opens: stragglers, rules for each range, more devices than are needed."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import Any

import pytest
import torch

from fedguard.attacks.poisoning.one_range import OneRange
from fedguard.contracts import Fate, PoisonAttack, PoisonView, Sight
from fedguard.simulated.course import ServerSimulation
from fedguard.simulated.world import World
from tests.systems.scenes import reports, scene

TEN = {"total": 10}

# Stragglers.


def straggler(lasting: bool) -> dict[str, Any]:
    """One device in ten, or one training in ten, takes five times as long."""
    return {
        "compute": {"seconds": 0.001, "slow": {"share": 0.1, "factor": 5, "lasting": lasting}},
        "link": {"latency": 0.05},
    }


def seconds_to(accuracy: float, system: str, lasting: bool) -> list[float]:
    """Simulated seconds until the model is so good, by seed."""
    training = {"rounds": 80, "lr": 0.05}
    found = [reports(system, seed, network=straggler(lasting), clients=TEN, training=training) for seed in range(3)]
    return [next(one.moment.seconds for one in each if one.evaluation.accuracy >= accuracy) for each in found]


@pytest.mark.slow
def test_bounded_delay_does_not_help_against_a_lasting_straggler_and_no_waiting_does():
    """Who may be four ahead of the slowest is four ahead after a while, and from then on goes at its pace."""
    bsp = seconds_to(0.9, "parameter_server", lasting=True)
    bounded = seconds_to(0.9, "parameter_server(consistency='bounded', tau=4)", lasting=True)
    eventual = seconds_to(0.9, "parameter_server(consistency='eventual')", lasting=True)
    assert 0.85 * sum(bsp) < sum(bounded) < 1.15 * sum(bsp)
    assert eventual[0] < bsp[0] / 3 and sum(eventual) < sum(bsp) / 2


@pytest.mark.slow
def test_bounded_delay_helps_against_passing_slowness():
    bsp = seconds_to(0.9, "parameter_server", lasting=False)
    assert sum(seconds_to(0.9, "parameter_server(consistency='bounded', tau=4)", lasting=False)) < 0.75 * sum(bsp)


@pytest.mark.parametrize("lasting", [True, False])
def test_seconds_of_a_round_under_bounded_delay(lasting):
    """The cheap sibling: the pace alone, without a target. In the long run that of the slowest, if it is always the same one."""

    def pace(system: str) -> float:
        training = {"rounds": 40, "local_epochs": 1, "batch_size": 200}
        found = list(
            reports(system, network=straggler(lasting), clients=TEN, training=training, evaluation={"every": 40})
        )
        return (found[-1].moment.seconds - found[19].moment.seconds) / 20

    bsp, bounded = pace("parameter_server"), pace("parameter_server(consistency='bounded', tau=4)")
    assert bounded == pytest.approx(bsp, rel=0.02) if lasting else bounded < 0.75 * bsp
    assert pace("parameter_server(consistency='eventual')") < (0.35 if lasting else 0.65) * bsp


# Rules for each range.


@dataclass(frozen=True, kw_only=True)
class OnPart(PoisonAttack):
    """$x = mu$, but $-tau mu - z sigma sign(mu)$ on the first ``share`` of the coordinates.

    Args:
        share: of the coordinates, from the first.
        tau: in units of the honest mean.
        z: in units of the honest standard deviation.
    """

    name = "on_part"
    goal = "untargeted"
    needs = (Sight.HONEST_UPDATES,)

    share: float = 1.0
    tau: float = -1.0
    z: float = 0.0

    def craft(self, view: PoisonView) -> torch.Tensor:
        mean, deviation = view.benign.mean(0), view.benign.std(0)
        row, part = mean.clone(), slice(0, int(self.share * len(mean)))
        row[part] = -self.tau * mean[part] - self.z * deviation[part] * mean[part].sign()
        return row.expand(view.f, -1)


def accuracy(attack: PoisonAttack, ranges: int, defense: str) -> float:
    made, setup = scene(
        {"name": "parameter_server", "ranges": ranges},
        clients={**TEN, "malicious": 3},
        task={"partition": {"kind": "dirichlet", "alpha": 1.0}},
        training={"rounds": 15},
        defense=defense,
        attack="ipm",
    )
    found = made.architecture.run(setup.with_parts(attack=attack, attack_sees=Sight.HONEST_UPDATES))
    last = [report.evaluation.accuracy for report in found][-5:]
    return sum(last) / len(last)


@pytest.mark.parametrize("defense", ["multi_krum", "krum"])
def test_an_attack_on_one_range_hides_from_whole_vectors_and_not_from_its_server(defense):
    one_range = OneRange(ranges=5, tau=3.0)
    assert accuracy(one_range, 5, defense) > accuracy(one_range, 1, defense) + 0.1


def test_an_attack_on_all_coordinates_is_better_held_by_whole_vectors():
    spread = OnPart(z=2.5)
    assert accuracy(spread, 1, "multi_krum") > accuracy(spread, 5, "multi_krum") + 0.15


def test_each_range_remembers_its_own():
    """Centred clipping, which moves from its last aggregate: by hand on each range of two, as if there were no other."""
    made, setup = scene("parameter_server(ranges=2)", defense="centered_clipping(tau=0.05)", training={"rounds": 3})
    model = setup.task.initial_model(setup.rng.child("model"))
    center, updates = torch.zeros(setup.task.dim, dtype=torch.float64), torch.empty(6, setup.task.dim)
    for report in made.architecture.run(setup):
        setup.task.local_updates(model, range(6), setup.local_plan, setup.rng.child("round", report.round), updates)
        for part in torch.arange(setup.task.dim).tensor_split(2):
            off = updates[:, part].double() - center[part]
            center[part] += (off * (0.05 / off.norm(dim=1, keepdim=True)).clamp(max=1)).mean(0)
        model = model + center.float()
        assert torch.allclose(report.model, model, atol=1e-5)
        model = report.model


# More devices than are needed.


def malicious_share(over: float, malicious: int, pace: float, rounds: int = 200) -> float:
    """Of the updates that count, by the course alone. The goal is 20 of 100."""
    made, setup = scene(
        {"name": "google", "over": over},
        clients={"total": 100, "per_round": 20, "malicious": malicious},
        attack="ipm",
        network={"compute": {"jitter": 0.3}, "malicious_pace": pace},
    )
    work = [setup.local_plan.work(size) for size in setup.task.sizes]
    world = World(setup.cell.network, work, 4 * setup.task.dim, setup.rng.child("network"), setup.malicious)
    chosen = partial(made.architecture.choose_clients, setup)
    course = ServerSimulation(
        world, made.architecture.barrier(setup.cell.clients), 100, chosen, setup.rng.child("course")
    )
    arrived = [one.client for release in islice(course.releases(), rounds) for one in release.arrivals]
    return sum(device in setup.malicious for device in arrived) / len(arrived)


@pytest.mark.parametrize("malicious", [10, 40, 80])
@pytest.mark.parametrize("over", [1.0, 1.3, 2.0])
def test_who_answers_first_has_more_than_its_share_of_a_round(over, malicious):
    f = malicious / 100
    assert malicious_share(over, malicious, pace=0.1) == pytest.approx(min(1, over * f), abs=0.02)
    assert malicious_share(over, malicious, pace=1.0) == pytest.approx(f, abs=0.02)


def test_forty_in_a_hundred_outvote_the_rule():
    """The rule is told 40 % of those that arrived, and more than half are malicious."""
    found = reports(
        "google(over=1.3)",
        clients={"total": 50, "per_round": 10, "malicious": 20},
        attack="ipm",
        defense="median",
        network={"malicious_pace": 0.1},
        training={"rounds": 20},
    )
    found = list(found)
    assert {report.assumed_f for report in found} == {4}
    outvoted = [sum(client in report.malicious for client in report.clients) > 4 for report in found]
    assert [report.moment.outvoted for report in found] == outvoted and sum(outvoted) > 10
    assert all(
        len(report.chosen) == 13 and len(report.clients) == 10 and len(report.of_fate(Fate.LATE)) == 3
        for report in found
    )


def test_the_first_eight_of_ten_never_learn_what_the_slow_two_know():
    slow = {"compute": {"slow": {"share": 0.2, "factor": 5}}}
    classes, times = {}, {}
    for over in (1.0, 1.25):
        *_, last = reports(
            {"name": "google", "over": over},
            clients={"total": 10, "per_round": 8},
            task={"partition": "label_sorted"},
            training={"rounds": 30},
            network=slow,
        )
        classes[over], times[over] = sorted(last.evaluation.class_accuracy), last.moment.seconds
    assert classes[1.0][0] > 0.2
    assert classes[1.25][:2] == [0.0, 0.0]
    assert times[1.25] < times[1.0] / 4


def test_over_selection_saves_rounds_from_being_abandoned():
    """One update in ten is lost, and 19 of 20 are needed within a second."""
    found = {
        over: list(
            reports(
                {"name": "google", "over": over, "window": 1.0, "least": 0.95},
                clients={"total": 60, "per_round": 20},
                training={"rounds": 50},
                network={"compute": {"jitter": 0.5}, "link": {"loss": 0.1}},
                evaluation={"every": 50},
            )
        )
        for over in (1.0, 1.5)
    }
    abandoned = {over: sum(report.abandoned is not None for report in one) for over, one in found.items()}
    assert abandoned[1.0] > 15 and abandoned[1.5] == 0
    assert found[1.5][-1].moment.seconds < found[1.0][-1].moment.seconds / 5


# Combiners.


def test_combiners_show_means_that_a_malicious_client_spoils_whole():
    """Six groups of two with two malicious clients: up to two means are spoiled, and the rule is told two."""
    settings = {"clients": {"total": 12, "malicious": 2}, "attack": "ipm", "defense": "median"}
    found = list(reports("mapreduce(combiners=6)", **settings))
    for report in found:
        assert [len(row) for row in report.behind] == [2] * 6 and report.assumed_f == 2
        assert sorted(client for row in report.behind for client in row) == list(range(12))
        assert report.moment.outvoted == 0
    assert len({report.behind for report in found}) == len(found)  # dealt anew


def test_what_reaches_the_rule_are_the_means_of_the_groups():
    """The mean of four combiners' means is not the clients' mean where groups differ in size."""
    made, setup = scene("mapreduce(combiners=4)", training={"rounds": 1})
    (report,) = made.architecture.run(setup)
    start, updates = setup.task.initial_model(setup.rng.child("model")), torch.empty(6, setup.task.dim)
    setup.task.local_updates(start, range(6), setup.local_plan, setup.rng.child("round", 1), updates)
    assert sorted(map(len, report.behind)) == [1, 1, 2, 2]
    means = torch.stack([updates[list(row)].mean(0) for row in report.behind])
    assert torch.allclose(report.model - start, means.mean(0), atol=1e-6)
    assert not torch.allclose(report.model - start, updates.mean(0), atol=1e-4)


def test_under_weights_by_samples_combiners_weigh_as_the_server_does():
    settings = {"defense": "weighted_mean", "task": {"partition": {"kind": "dirichlet", "alpha": 0.3}}}
    *_, ours = reports("mapreduce(combiners=4)", **settings)
    *_, theirs = reports("server", **settings)
    assert (ours.model - theirs.model).norm() < 1e-5 * theirs.model.norm()


def test_backup_tasks_save_time_and_change_nothing_else():
    """One of ten devices is five times slower: its task ends with a copy elsewhere, with the same update."""
    slow = {"compute": {"seconds": 0.01, "slow": {"share": 0.1, "factor": 5}}}
    (plain, *_), (saved, *_) = (
        list(reports(system, clients=TEN, network=slow, training={"rounds": 1}))
        for system in ("mapreduce", "mapreduce(backup=0.1)")
    )
    assert torch.equal(plain.model, saved.model) and plain.behind == saved.behind
    assert saved.moment.seconds < 0.45 * plain.moment.seconds
    assert saved.moment.computed > plain.moment.computed
