"""DLion beside plain loops: who takes how much, what each link carries, whose model is handed to all, and who lies about it."""

from __future__ import annotations

from math import ceil
from typing import Any

import numpy as np
import pytest
import torch

import fedguard as fg
from fedguard.architectures.gossip.dlion import DLion
from fedguard.architectures.gossip.parcels import block
from fedguard.contracts import LocalPlan
from fedguard.metrics.stats import CensoredValue
from tests.gossip.test_ako import Exact
from tests.gossip.test_gossip_formulae import DIM, EXACT, NODES, ROUNDS, STEP, d_psgd, ours, server
from tests.root import ROOT
from tests.systems.scenes import cell, models, off, reports, scene

ROUNDING = 1e-5
STEPS = {"local_steps": 2, "batch_size": 16}
LARGE = 32


class Unlike(Exact):
    """Nodes of unlike capability, of which smaller batches give noisier gradients, with room for so many bytes on each link."""

    def __init__(self, rates: Any = (1.0,) * NODES, room: Any = np.inf) -> None:
        super().__init__("complete")
        self.rates, self.batch_size = np.array(rates, dtype=np.float64), LARGE
        self.links = np.broadcast_to(np.asarray(room, dtype=np.float64), (NODES, NODES))

    #: Nobody lies.
    acting = frozenset()
    #: Examples of each node.
    samples = np.array([60.0, 90, 120, 150] * 2)

    def gradient(self, turn, node, x, batch=LARGE, faster=1.0):
        return -STEP * faster * (x - self.goals[node] + self.noise[turn, node] * LARGE / batch)

    def updates(self, models, batches=None, faster=1.0):
        taken = batches or [LARGE] * NODES
        rows = [self.gradient(self.taken, node, models[node].numpy(), taken[node], faster) for node in range(NODES)]
        self.taken += 1
        return torch.from_numpy(np.stack(rows))

    def examples(self, batches):
        return np.array(batches, dtype=np.float64)

    def seconds(self, batches):
        return max(batch / rate for batch, rate in zip(batches, self.rates, strict=True))

    def room(self, seconds):
        return self.links * seconds

    def by_links(self, updates, parcels, *, models, matrix):
        rows = []
        for i in range(NODES):
            own = matrix[i, i] * updates[i]
            others = [parcels(j, i).packed(updates[j][None])[0] * matrix[i, j] for j in range(NODES) if j != i]
            rows.append(own + sum(others))
        return torch.stack(rows)

    def losses(self, models):
        return self.own_losses(models)

    def own_losses(self, models):
        return np.array([loss(self, i, models[i].numpy()) for i in range(NODES)])

    def mix_by_claims(self, values, about, matrix):
        return about + torch.from_numpy(matrix) @ values - torch.from_numpy(matrix.sum(1)[:, None]) * about


def loss(nodes: Unlike, i: int, x: np.ndarray) -> float:
    return float(((x - nodes.goals[i]) ** 2).sum() / 2)


def paper(
    nodes: Unlike,
    *,
    by_capability=True,
    growth=0.0,
    most=0.1,
    rate="constant",
    top=None,
    transfer=0,
    step=0.75,
    checked=False,
    weighted=True,
    feedback=False,
) -> np.ndarray:
    x, found = [row.copy() for row in nodes.start.numpy()], []
    owed = np.zeros((NODES, NODES, DIM))
    capable = nodes.rates if by_capability else np.ones(NODES)
    for turn in range(ROUNDS):
        grown = 1.0
        for _ in range(turn):
            grown = grown + growth * grown
        grown = max(1.0, min(grown, most * sum(nodes.samples) / (NODES * LARGE)))
        batch = [max(1, round(grown * NODES * LARGE * capable[j] / sum(capable))) for j in range(NODES)]
        computing = max(batch[j] / nodes.rates[j] for j in range(NODES))
        faster = {"constant": 1, "linear": grown, "sqrt": grown**0.5}[rate]
        u = [nodes.gradient(turn, j, x[j], batch[j], faster) for j in range(NODES)]
        moved = []
        for i in range(NODES):
            total = x[i].copy()
            for j in range(NODES):
                whole = u[j] + owed[i, j] if i != j else u[j]
                largest = sorted(range(DIM), key=lambda c, whole=whole: -abs(whole[c]))
                if top is not None:
                    count = ceil(top * DIM - 1e-9)
                elif nodes.links[i, j] * computing >= 4 * DIM:
                    count = DIM
                else:
                    count = max(1, min(DIM, int(nodes.links[i, j] * computing / 8)))
                share = batch[j] / sum(batch) if weighted else 1 / NODES
                for c in range(DIM) if i == j else largest[:count]:
                    total[c] += share * whole[c]
                if feedback and i != j:
                    owed[i, j] = [0 if c in largest[:count] else whole[c] for c in range(DIM)]
            moved.append(total)
        x = moved
        if transfer and (turn + 1) % transfer == 0:
            best = min(range(NODES), key=lambda i: loss(nodes, i, x[i]))
            merged = [x[i] - step * (x[i] - x[best]) for i in range(NODES)]
            kept = [not checked or loss(nodes, i, merged[i]) < loss(nodes, i, x[i]) for i in range(NODES)]
            x = [merged[i] if kept[i] else x[i] for i in range(NODES)]
        found.append(np.array(x))
    return np.array(found)


RATES = (1.0, 2, 3, 5, 8, 13, 1, 2)
ROOM = np.random.default_rng(3).uniform(0.2, 6, (NODES, NODES))
WORDS: list[dict[str, Any]] = [
    {},
    {"by_capability": False},
    {"top": 0.4},
    {"top": 1.0, "transfer": 3},
    {"transfer": 2, "step": 0.5},
    {"transfer": 1, "step": 1.0},
    {"transfer": 2, "checked": True},
    {"growth": 0.1, "most": 1.0},
    {"growth": 0.3, "most": 0.5, "rate": "linear"},
    {"growth": 0.3, "most": 0.2, "rate": "linear"},
    {"growth": 0.2, "most": 0.9, "rate": "sqrt", "by_capability": False},
    {"weighted": False},
    {"feedback": True},
    {"feedback": True, "top": 0.4, "weighted": False, "transfer": 3},
]


@pytest.mark.parametrize("words", WORDS, ids=str)
def test_it_is_its_formula_node_by_node_and_link_by_link(words):
    theirs = paper(Unlike(RATES, ROOM), **words)
    spec = {"name": "dlion", "transfer": 0, **words}
    assert np.abs(ours(spec, Unlike(RATES, ROOM)) - theirs).max() < EXACT * np.abs(theirs).max()


def test_each_technique_makes_a_difference():
    usual = paper(Unlike(RATES, ROOM), transfer=2)
    for words in (
        {"by_capability": False, "transfer": 2},
        {"top": 1.0, "transfer": 2},
        {},
        {"transfer": 2, "checked": True},
        {"transfer": 2, "growth": 0.3, "most": 0.9},
        {"transfer": 2, "growth": 0.3, "most": 0.9, "rate": "linear"},
        {"transfer": 2, "growth": 0.3, "most": 0.9, "rate": "sqrt"},
    ):
        assert np.abs(paper(Unlike(RATES, ROOM), **words) - usual).max() > STEP / 100


@pytest.mark.parametrize("room", [np.inf, 4.0 * DIM])
def test_equal_nodes_with_room_for_all_and_no_transfer_are_the_server_and_d_psgd(room):
    end = ours("dlion(transfer=0)", Unlike(room=room))[-1]
    for theirs in (server(Unlike())[-1], np.array(list(d_psgd(Unlike(), "adapt_first")))[-1]):
        assert np.abs(end - theirs).max() < EXACT * np.abs(theirs - 3.0).max()
    assert np.abs(ours("dlion(transfer=0, top=0.4)", Unlike())[-1] - server(Unlike())[-1]).max() > STEP / 100


@pytest.mark.parametrize(
    ("settings", "most"),
    [
        ({}, ROUNDING),
        ({"training": {"worker_momentum": 0.5}}, ROUNDING),
        ({"training": {"algorithm": "fedprox", "mu": 0.1}}, ROUNDING),
        ({"attack": "sign_flip", "clients": {"malicious": 1}}, ROUNDING),
        ({"attack": "label_flip", "clients": {"malicious": 1}}, ROUNDING),
    ],
)
def test_equal_real_nodes_are_the_server(settings, most):
    told = settings | {"training": STEPS | settings.get("training", {})}
    assert off(models("dlion(transfer=0)", **told), models(**told)) < most


def nodes_of(system: Any, **changes: Any) -> Any:
    from fedguard.architectures.gossip.nodes import Nodes

    made, setup = scene(system, **{"training": STEPS} | changes)
    found = Nodes(setup, made.architecture.topology(setup.cell.clients.total), broadcast=False)
    found.begin(1)
    return made.architecture, found, setup


SLOW = {"compute": {"seconds": 0.01, "spread": 1.0}, "link": {"up": 2000}}


def test_all_are_done_at_once_and_train_on_what_was_dealt():
    """Batches in proportion to the rates, but for rounding, and each its examples: a plain step on so many."""
    system, found, setup = nodes_of("dlion", network=SLOW)
    batches = system._batches(found, 6 * 16.0)
    exact = 6 * 16 * found.said.rates / found.said.rates.sum()
    assert len(set(batches)) > 3 and all(abs(b - e) <= 0.5 or b == 1 for b, e in zip(batches, exact, strict=True))
    rows = found.updates(found.start, batches)
    seconds = [2 * b / rate for b, rate in zip(batches, found.said.rates, strict=True)]
    assert found.traffic._clocks == pytest.approx(seconds)
    even = [2 * 16 / rate for rate in found.said.rates]
    assert max(seconds) < 0.7 * max(even)
    for node, batch in enumerate(batches):
        plan = setup.cell.plan
        (row,) = setup.task.local_updates(
            found.start[0],
            (node,),
            type(plan)(lr=plan.lr, batch_size=batch, steps=2),
            setup.rng.child("round", 1),
            torch.empty(1, setup.task.dim),
        )
        assert torch.allclose(rows[node], row, atol=1e-6)


def test_a_total_that_grows_is_dealt_out_and_step_sizes_follow_it():
    """Real nodes in their second round: a step on a quarter more, of a length that grows as the rule says."""
    for rate, power in (("constant", 0), ("linear", 1), ("sqrt", 0.5)):
        system, found, setup = nodes_of({"name": "dlion", "growth": 0.25, "most": 0.5, "rate": rate}, network=SLOW)
        asked: list[Any] = []
        train = found.updates

        def heard(models, batches=None, faster=1.0, train=train, asked=asked):
            asked.append((models, batches, train(models, batches, faster)))
            return asked[-1][2]

        found.updates = heard
        rounds = system.models(found)
        next(rounds), next(rounds)
        models, batches, rows = asked[1]
        assert sum(batches) == pytest.approx(1.25 * sum(asked[0][1]), abs=3)
        for node, batch in enumerate(batches):
            plan = LocalPlan(lr=0.1 * 1.25**power, batch_size=batch, steps=2)
            of_round, out = setup.rng.child("round", 2), torch.empty(1, setup.task.dim)
            (row,) = setup.task.local_updates(models[node], (node,), plan, of_round, out)
            assert torch.allclose(rows[node], row, atol=1e-6)


def test_each_link_of_real_nodes_carries_its_own_part_and_a_node_keeps_all_of_its_own():
    _, found, setup = nodes_of("dlion")
    updates = torch.randn(6, setup.task.dim, generator=torch.Generator().manual_seed(2))
    weights = np.tile(np.arange(1.0, 7) / 21, (6, 1))
    made = found.by_links(
        updates, lambda source, node: block(650, 6, (source + 2 * node) % 6), models=found.start, matrix=weights
    )
    for i in range(6):
        want = weights[i, i] * updates[i]
        for j in set(range(6)) - {i}:
            part = np.array_split(np.arange(650), 6)[(j + 2 * i) % 6]
            want[part] += weights[i, j] * updates[j, part]
        assert torch.allclose(made[i], want, atol=1e-5)


def test_messages_fit_into_the_time_of_a_step():
    """Bytes of each link: as many coordinates of eight bytes as go through it meanwhile, and 1 % at least."""
    system, found, setup = nodes_of("dlion", network=SLOW | {"link": {"up": 2000, "spread": 2.0}})
    batches = system._batches(found, 6 * 16.0)
    links, computing = system._links(found, batches), found.traffic.seconds(batches)
    sizes = {}
    for j in range(6):
        for i in range(6):
            if i != j:
                size = sizes[j, i] = links(j, i).size
                up = found._world.up[j]
                taken = 5 * size / up
                assert taken <= computing or size == 8 * 7
                assert size == 4 * 650 or size + 8 > computing * up / 5 or size == 8 * 7
    assert len(set(sizes.values())) > 2


def test_bytes_are_those_of_the_links_and_of_the_best_model():
    """Five rounds of 65 coordinates from each of six to five others; and twice one model to five."""
    *_, last = reports("dlion(top=0.1, transfer=2)", training=STEPS | {"rounds": 5})
    assert last.moment.bytes_up == 5 * 30 * 65 * 8 + 2 * 5 * 2600
    assert last.nodes.messages == 5 * 30 + 2 * 5
    assert sum(last.nodes.traffic) == last.moment.bytes_up and len(last.nodes.traffic) == 30


def test_a_transfer_brings_the_nodes_together():
    apart = [r.nodes.consensus for r in reports("dlion(top=0.02, transfer=2, step=1.0)", training=STEPS)]
    assert apart[0] > 1e-3 and apart[2] > 1e-3
    assert apart[1] < 1e-5 and apart[3] < 1e-5


# Lies.

FEW = {
    "clients": {"total": 8, "malicious": 1},
    "training": STEPS | {"rounds": 20, "lr": 0.2},
    "evaluation": {"every": 20},
}


def end(system: Any, **changes: Any) -> float:
    *_, last = reports(system, **FEW | changes)
    return min(last.nodes.accuracy)


def test_who_understates_its_loss_leads_all_back_unless_its_model_is_tried():
    lie, overstated = "understated_loss(scale=3)", "understated_loss(scale=3, factor=100)"
    assert end("dlion(transfer=5)", attack=lie) < 0.7 < 0.8 < end("dlion(transfer=5, checked=True)", attack=lie)
    assert end("dlion(transfer=5)", attack=overstated) > 0.8  # never the best: what it sends is one update of eight


def test_who_overstates_its_rate_takes_the_batch_and_the_weight_and_a_cap_gives_part_of_it_back():
    system, found, setup = nodes_of("dlion", attack="overstated_rate(factor=20)", clients={"malicious": 1})
    (liar,) = setup.malicious
    batches = system._batches(found, 6 * 16.0)
    assert batches[liar] == round(6 * 16 * 20 / 25) and sum(batches) - batches[liar] == 5 * 4
    lie, cap = "overstated_rate(factor=50)", "capped_mean(share=0.2)"
    assert end("dlion(transfer=0)", attack=lie) < 0.3 < 0.6 < end("dlion(transfer=0)", attack=lie, defense=cap)


def test_who_overstates_its_batch_gets_its_weight_alone_and_a_cap_gives_it_back():
    system, found, setup = nodes_of("dlion", attack="inflated_samples(factor=20)", clients={"malicious": 1})
    (liar,) = setup.malicious
    batches = system._batches(found, 6 * 16.0)
    assert set(batches) == {16}
    assert found.said.examples(batches).tolist() == [16 * 20 if node == liar else 16 for node in range(6)]
    lie, cap = "inflated_samples(factor=50)", "capped_mean(share=0.2)"
    assert end("dlion(transfer=0)", attack=lie) < 0.3 < 0.8 < end("dlion(transfer=0)", attack=lie, defense=cap)


def test_what_is_not_finite_is_never_the_best():
    system, found, setup = nodes_of("dlion")
    broken = found.start.clone()
    broken[2] = torch.nan
    losses = found.said.losses(broken)
    assert losses[2] == np.inf and np.isfinite(np.delete(losses, 2)).all()
    every = torch.full_like(found.start, torch.nan)
    assert system._transfer_best_model(found, every, found.start) is every


REFUSED: list[tuple[dict[str, Any], dict[str, Any], str]] = [
    ({}, {"defense": "median"}, "sparse, each in other places"),
    ({}, {"defense": "nnm >> mean"}, "sparse, each in other places"),
    ({"graph": "ring"}, {}, "Leave out graph and weight"),
    ({"weight": 0.5}, {}, "Leave out graph and weight"),
    ({"broadcast": True}, {}, "Leave out broadcast"),
    ({"rate": "linear"}, {}, "Set growth, or leave out rate"),
    ({}, {"training": {"local_epochs": 1}}, "Set training.local_steps and training.batch_size"),
    ({}, {"training": {"batch_size": None, "local_steps": 1}}, "Set training.local_steps and training.batch_size"),
    ({"transfer": 0}, {"attack": "understated_loss", "clients": {"malicious": 1}}, "Use dlion with transfer"),
    ({"by_capability": False}, {"attack": "overstated_rate", "clients": {"malicious": 1}}, "Use decaf or dlion"),
    (
        {},
        {
            "protocol": {
                "privacy": {"kind": "record", "clip": 1.0, "noise_multiplier": 1.0, "delta": 1e-5, "sample_rate": 0.2}
            }
        },
        "which no noise hides",
    ),
]


@pytest.mark.parametrize(("words", "settings", "why"), REFUSED)
def test_what_is_refused(words, settings, why):
    given = {"training": STEPS} | settings
    assert why in " ".join(cell({"name": "dlion", **words}, **given).verdict.reasons)


def test_what_is_none_is_no_part_of_a_cells_name():
    assert "top" not in DLion().spec() and DLion(top=0.5).spec()["top"] == 0.5
    assert not {"growth", "most", "rate"} & set(DLion(most=0.5).spec())
    assert DLion(growth=0.1, rate="sqrt").spec().items() >= {"growth": 0.1, "most": 0.1, "rate": "sqrt"}.items()


# What docs/gossip_network.md has in its table.

#: As in examples/dlion.yaml.
UNLIKE_LINKS = {
    "clients": {"total": 8},
    "training": {"local_steps": 1, "batch_size": 32, "lr": 0.2},
    "network": {"compute": {"seconds": 0.001, "spread": 1.0}, "link": {"up": 50_000, "spread": 1.0}},
}


def spent(system: Any, rounds: int, seed: int = 0) -> tuple[float, float, float]:
    """Simulated seconds, mean accuracy and how far apart nodes are, after so many rounds."""
    training = UNLIKE_LINKS["training"] | {"rounds": rounds}
    given = UNLIKE_LINKS | {"training": training, "evaluation": {"every": rounds}}
    *_, last = reports(system, seed, **given)
    return last.moment.seconds, last.evaluation.accuracy, last.nodes.consensus


@pytest.mark.slow
def test_what_each_technique_saves_in_seconds_or_gives_in_accuracy():
    """The cheap sibling: twenty rounds on one seed."""
    seconds, accuracy, apart = spent("dlion", 20)
    assert spent("dlion(by_capability=False)", 20)[0] > 1.3 * seconds
    assert spent("dlion(top=1.0)", 20)[0] > 3 * seconds
    assert spent("dlion(transfer=0)", 20)[2] > 2 * apart
    grown = spent("dlion(growth=0.05, most=0.5, rate='linear')", 20)
    assert seconds < grown[0] < 3 * seconds and grown[1] > accuracy + 0.01


@pytest.mark.slow
def test_each_technique_switched_off_costs_what_the_table_says(tmp_path):
    """Seconds to 85 % for good on two seeds: with all of them least, without the transfer on no seed."""
    run = fg.run(ROOT / "examples" / "dlion.yaml", store=tmp_path, jobs=1, overrides=["seeds=2"])
    took: dict[str, list[float]] = {}
    for row in run.rows("seconds_to(0.85)"):
        seconds = row["seconds_to(0.85)"]
        took.setdefault(row["architecture"], []).append(np.inf if isinstance(seconds, CensoredValue) else seconds)
    mean = {system: float(np.mean(values)) for system, values in took.items()}
    assert mean["dlion"] < mean["dlion(by_capability=False)"] < mean["dlion(top=1)"]
    assert min(took["dlion(transfer=0)"]) == np.inf > max(took["dlion"])
    grown = {rate: mean[f"dlion(growth=0.05, most=0.5, rate={rate})"] for rate in ("linear", "sqrt")}
    assert grown["linear"] < grown["sqrt"] < mean["dlion(growth=0.05, most=0.5)"]
    assert grown["linear"] < mean["dlion"]


def test_links_that_owe_send_it_later_and_lies_are_no_debt():
    """With a fifth of the coordinates per message nodes end nearer to those that send all; of a liar nothing is kept."""
    words: dict[str, Any] = {"name": "dlion", "top": 0.2, "transfer": 0}
    changes: dict[str, Any] = {"training": {"rounds": 20, "lr": 0.1, **STEPS}, "network": {}}
    whole = models({**words, "top": 1.0}, **changes)
    lossy, owing = (models({**words, "feedback": feedback}, **changes) for feedback in (False, True))
    assert off(owing, whole) < 0.7 * off(lossy, whole)
    lying = {**changes, "attack": "sign_flip(scale=10)", "clients": {"malicious": 1}}
    *_, last = reports({**words, "feedback": True}, **lying)
    assert last.model.isfinite().all() and len(last.malicious) == 1


def test_what_is_lost_on_its_way_is_no_debt():
    """A node does not hear of it: e is what was not sent, whatever has come."""
    words = {"name": "dlion", "top": 0.2, "transfer": 2, "feedback": True}
    changes: dict[str, Any] = {"training": {"rounds": 6, **STEPS}, "network": {"link": {"loss": 0.3}}}
    assert models(words, **changes).isfinite().all()


def test_cells_without_these_words_are_what_they_were():
    plain = cell({"name": "dlion"}, training=STEPS)
    assert not {"weighted", "feedback"} & set(plain.canonical["architecture"])
    assert plain.id == cell({"name": "dlion", "feedback": False, "weighted": True}, training=STEPS).id
