"""Asynchronous training against its papers, as a plain loop over what the course says: who trained when from which model."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import islice

import pytest
import torch
from torch import Tensor

from fedguard.architectures.systems.fedasync import FedAsync
from fedguard.architectures.systems.fedbuff import FedBuff
from fedguard.config.cells import PlannedCell
from fedguard.contracts import Setup
from fedguard.simulated.course import AggregationEvent, ServerSimulation
from fedguard.simulated.world import World
from tests.systems.scenes import scene

#: Devices that differ and change their pace, one in four five times slower.
UNEVEN = {
    "compute": {"seconds": 0.01, "spread": 0.6, "jitter": 0.4, "slow": {"share": 0.25, "factor": 5}},
    "link": {"latency": 0.05, "loss": 0.1},
}
#: Malicious clients who answer at once.
QUICK = {**UNEVEN, "malicious_pace": 0.0}
CLOSE = 1e-5
CLIENTS = 8


def course(made: PlannedCell, setup: Setup) -> Iterator[AggregationEvent]:
    """The course of a training, as its seed has it."""
    work = [setup.local_plan.work(size) for size in setup.task.sizes]
    world = World(setup.cell.network, work, 4 * setup.task.dim, setup.rng.child("network"), setup.malicious)
    clients, rng = setup.cell.clients, setup.rng
    barrier = replace(made.architecture.barrier(clients), once=setup.cell.protocol.masked)
    chosen = lambda round: clients.choose(rng.child("participation", round), round)  # noqa: E731
    return ServerSimulation(world, barrier, clients.total, chosen, rng.child("course")).releases()


@dataclass
class Plain:
    """Asynchronous training as the papers have it, one client after the other, in float64 but for the clients' own steps.

    Args:
        step: (model, updates ``[n, d]``, the models that they were trained from, staleness of each) -> the next model.
        scaled: (update, its start, the model now) -> what malicious clients see of it.
    """

    setup: Setup
    step: Callable[[Tensor, Tensor, Tensor, list[int]], Tensor]
    seen: Callable[[Tensor, Tensor, Tensor], Tensor] = lambda update, start, model: update
    tau: float = 0.0

    def models(self, releases: list[AggregationEvent]) -> list[Tensor]:
        setup, last = self.setup, {}
        models = [setup.task.initial_model(setup.rng.child("model"))]
        self.honest_first = 0
        for release in releases:
            honest = {}
            model = models[-1].double()
            for one in release.arrivals:
                if one.client not in setup.malicious or not (
                    last or any(other.client not in setup.malicious for other in release.arrivals)
                ):
                    honest[one] = self.trained(models[one.version], one.client, one.turn)
                    self.honest_first += one.client in setup.malicious
            starts = torch.stack([models[one.version] for one in release.arrivals]).double()
            views = {one: self.seen(update, models[one.version].double(), model) for one, update in honest.items()}
            here = [views[one] for one in views if one.client not in setup.malicious]
            last.update({one.client: view for one, view in views.items() if one.client not in setup.malicious})
            # Inner product manipulation: minus tau times the mean of the honest updates.
            of = here or list(last.values())
            sent = []
            for one, start in zip(release.arrivals, starts, strict=True):
                if one in honest:
                    sent.append(honest[one])
                else:  # what they want to be taken for a difference to the model, whatever it was trained from
                    sent.append(-self.tau * torch.stack(of).mean(0) - self.seen(torch.zeros(()), start, model))
            models.append(self.step(model, torch.stack(sent), starts, list(release.staleness())).float())
        return models

    def trained(self, model: Tensor, client: int, turn: int) -> Tensor:
        setup = self.setup
        out = torch.empty(1, len(model))
        return setup.task.local_updates(model, [client], setup.local_plan, setup.rng.child("round", turn), out)[
            0
        ].double()


def fedasync(alpha: float, s: Callable[[int], float]):
    """Xie et al., Algorithm 1: x_t = (1 - alpha_t) x_(t-1) + alpha_t x_new, alpha_t = alpha s(t - tau)."""

    def step(model, updates, starts, staleness):
        (update,), (start,), (late,) = updates, starts, staleness
        mixed = alpha * s(late)
        return (1 - mixed) * model + mixed * (start + update)

    return step


def fedbuff(lr: float = 1.0):
    """Nguyen et al., Algorithm 1: the mean of the buffer, each update over sqrt(1 + tau)."""

    def step(model, updates, starts, staleness):
        total = sum(update / (1 + late) ** 0.5 for update, late in zip(updates, staleness, strict=True))
        return model + lr * total / len(updates)

    return step


def eventual(n: int):
    """Li et al.: each push counts at once; a push is one n-th of a round."""
    return lambda model, updates, starts, staleness: model + updates.sum(0) / n


def compared(system: str, step, per_round: int, *, seen=None, tau: float = 0.0, rounds: int = 6, **settings):
    """How far the models of a system are from the plain loop's, at most; with the loop, the course and the reports."""
    attack = {"attack": {"name": "ipm", "tau": tau}} if tau else {}
    settings = {"network": UNEVEN, **settings, **attack}
    clients = {"total": CLIENTS, **settings.pop("clients", {})}
    made, setup = scene(system, 1, training={"rounds": rounds}, clients=clients, **settings)
    releases = list(islice(course(made, setup), per_round * rounds))
    plain = Plain(setup, step, **({"seen": seen} if seen else {}), tau=tau)
    reports = list(made.architecture.run(setup))
    models = plain.models(releases)
    ends = [models[(number + 1) * per_round] for number in range(rounds)]
    way = (ends[-1] - models[0]).norm()
    off = max(float((ours.model - theirs).norm() / way) for ours, theirs in zip(reports, ends, strict=True))
    return off, plain, releases, reports


MIXED = {"seen": lambda update, start, model: update + (start - model)}


@pytest.mark.parametrize(
    ("system", "s"),
    [
        ("fedasync(alpha=0.5, staleness='constant')", lambda late: 1.0),
        ("fedasync(alpha=0.5)", lambda late: (1 + late) ** -0.5),
        ("fedasync(alpha=0.5, slope=2)", lambda late: (1 + late) ** -2),
        (
            "fedasync(alpha=0.5, staleness='hinge', slope=3, bound=5)",
            lambda late: 1.0 if late <= 5 else 1 / (3 * (late - 5) + 1),
        ),
    ],
)
def test_fedasync_is_its_papers(system, s):
    off, _, releases, reports = compared(system, fedasync(0.5, s), CLIENTS, **MIXED)
    assert off < CLOSE
    late = [one for release in releases for one in release.staleness()]
    assert max(late) > 10 and min(late) < 5
    assert [one for report in reports for one in report.moment.staleness] == late
    assert compared(system, fedasync(0.5, lambda late: s(late + 1)), CLIENTS, **MIXED)[0] > 100 * CLOSE or s(0) == s(99)


@pytest.mark.parametrize("buffer", [1, 3, 5])
def test_fedbuff_is_its_papers(buffer):
    per_round = -(-CLIENTS // buffer)
    off, _, releases, reports = compared(f"fedbuff(buffer={buffer})", fedbuff(), per_round)
    assert off < CLOSE
    assert all(len(release.arrivals) == buffer for release in releases)
    twice = [len({one.client for one in release.arrivals}) < buffer for release in releases]
    assert any(twice) == (buffer > 1)  # a client twice in one buffer
    assert sum(report.moment.releases for report in reports) == len(releases)
    assert [client for report in reports for client in sorted(report.clients)] == [
        client
        for number in range(len(reports))
        for client in sorted(
            one.client
            for release in releases[number * per_round : (number + 1) * per_round]
            for one in release.arrivals
        )
    ]


def test_an_unscaled_buffer_is_the_plain_mean():
    step = lambda model, updates, starts, staleness: model + updates.mean(0)  # noqa: E731
    assert compared("fedbuff(buffer=3, scaled=False)", step, 3)[0] < CLOSE
    assert compared("fedbuff(buffer=3)", step, 3)[0] > 100 * CLOSE


@pytest.mark.parametrize("consistency", ["'eventual'", "'bounded', tau=2"])
def test_each_push_is_an_nth_of_a_round(consistency):
    system = f"parameter_server(consistency={consistency})"
    off, _, releases, _ = compared(system, eventual(CLIENTS), CLIENTS)
    assert off < CLOSE
    assert max(one for release in releases for one in release.staleness()) > 3


def test_who_is_at_work_gives_its_place_to_another():
    """Three of eight are at work at any time; all have their turn."""
    off, _, releases, _ = compared("fedbuff(buffer=2)", fedbuff(), 2, clients={"per_round": 3}, rounds=12)
    assert off < CLOSE
    assert len({one.client for release in releases for one in release.arrivals}) == CLIENTS
    assert max(one for release in releases for one in release.staleness()) <= 12


def test_clients_that_take_turns_remember_their_own_momentum():
    """m <- beta m + (1 - beta) u, a client's trainings in the order in which it did them."""
    made, setup = scene(
        "fedbuff(buffer=5)", 1, network=UNEVEN, clients={"total": CLIENTS}, training={"worker_momentum": 0.6}
    )
    releases = list(islice(course(made, setup), 8))
    begun = sorted({one.key for release in releases for one in release.begun}, key=lambda key: key[::-1])
    assert max(turn for _, turn in begun) > 4
    starts = {one.key: number for number, release in enumerate(releases) for one in release.begun}
    models, kept, sent = [setup.task.initial_model(setup.rng.child("model"))], {}, {}
    plain = Plain(setup, fedbuff())
    for number, release in enumerate(releases):
        for client, turn in begun:
            if starts[client, turn] == number:
                update = plain.trained(models[number], client, turn)
                kept[client] = 0.6 * kept.get(client, torch.zeros_like(update)) + 0.4 * update
                sent[client, turn] = kept[client]
        updates = torch.stack([sent[one.client, one.turn] for one in release.arrivals])
        models.append(fedbuff()(models[-1].double(), updates, None, list(release.staleness())).float())
    ours = [report.model for report in made.architecture.run(setup)]
    assert (ours[-1] - models[-1]).norm() / (models[-1] - models[0]).norm() < CLOSE


# Malicious clients craft at the moment of an aggregate.

ATTACKED = {"clients": {"malicious": 2}, "tau": 0.7}


@pytest.mark.parametrize("network", [UNEVEN, QUICK], ids=["uneven", "quick"])
def test_in_a_buffer_they_craft_from_what_is_honest_in_it(network):
    def step(model, updates, starts, staleness):
        return fedbuff()(model, updates, starts, staleness)

    off, plain, releases, reports = compared("fedbuff(buffer=3)", step, 3, network=network, **ATTACKED)
    assert off < CLOSE
    bad = plain.setup.malicious
    sides = [{one.client in bad for one in release.arrivals} for release in releases]
    assert {True, False} in sides
    assert ({True} in sides) == (network is QUICK)
    shares = [sum(client in bad for client in report.clients) / len(report.clients) for report in reports]
    assert max(shares) > 0.5 or network is UNEVEN
    assert all(report.malicious <= bad for report in reports)


@pytest.mark.parametrize("network", [UNEVEN, QUICK], ids=["uneven", "quick"])
def test_where_each_counts_by_itself_they_craft_from_the_last_update_of_each(network):
    system = "parameter_server(consistency='eventual')"
    off, plain, _, _ = compared(system, eventual(CLIENTS), CLIENTS, network=network, **ATTACKED)
    assert off < CLOSE
    assert plain.honest_first > 0 or network is UNEVEN  # before they have seen anything they send honest ones


def test_under_fedasync_they_send_the_model_that_they_want_mixed_in():
    s = lambda late: (1 + late) ** -0.5  # noqa: E731
    off, plain, _, _ = compared("fedasync(alpha=0.3)", fedasync(0.3, s), CLIENTS, network=QUICK, **MIXED, **ATTACKED)
    assert off < CLOSE
    assert plain.honest_first > 0


def test_the_weights_are_the_papers():
    assert FedAsync().weight(3) == pytest.approx(0.3)  # 0.6 / sqrt(4)
    assert FedAsync(staleness="constant").weight(99) == 0.6
    hinge = FedAsync(staleness="hinge", slope=0.5, bound=4)
    assert [hinge.weight(late) for late in (0, 4, 6)] == pytest.approx([0.6, 0.6, 0.3])
    assert [FedBuff().weight(late) for late in (0, 3, 8)] == pytest.approx([1, 1 / 2, 1 / 3])
    assert FedBuff(scaled=False).weight(8) == 1
