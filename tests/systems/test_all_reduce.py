"""All-reduce is the synchronous server without a server: the same models, counted bytes, and what may run where."""

from __future__ import annotations

import re

import numpy as np
import pytest
import torch

from fedguard.architectures.masking.inputs import Inputs
from fedguard.architectures.systems.sums import SumRun
from fedguard.bench.running.card import threat_card
from fedguard.bench.running.trial import set_up
from fedguard.bench.running.workbench import Workbench
from fedguard.contracts import SentRound
from fedguard.secagg.encoding import Encoding
from tests.root import ROOT
from tests.systems.scenes import EVEN, cell, models, off, reports, scene

SUMS = ("all_reduce", "all_reduce(topology='reduce_broadcast')", "all_reduce(topology='hierarchical', group=3)")
ALL = "all_reduce(topology='all_to_all')"
MASKED = "all_reduce(masks=20)"
UNLIKE = {"task": {"partition": {"kind": "dirichlet", "alpha": 0.3}}}
SETTINGS = {
    "plain": {},
    "momentum": {"training": {"momentum": 0.9}},
    "worker momentum": {"training": {"worker_momentum": 0.5}},
    "server momentum": {"training": {"server_momentum": 0.5}},
    "adam": {"training": {"server_optimizer": {"name": "adam"}}},
    "fedprox": {"training": {"algorithm": "fedprox", "mu": 0.1}},
    "unlike clients": UNLIKE,
    "weights by samples": UNLIKE | {"defense": "weighted_mean"},
}


@pytest.mark.parametrize("settings", SETTINGS)
@pytest.mark.parametrize("system", SUMS)
def test_it_is_the_server_but_for_the_order_of_additions(system, settings):
    ours, theirs = models(system, **SETTINGS[settings]), models(**SETTINGS[settings])
    assert off(ours, theirs) < 1e-5
    assert not torch.equal(ours, theirs)  # or nothing was added up in another order


@pytest.mark.parametrize("settings", SETTINGS)
def test_all_to_all_is_the_server_to_the_last_bit(settings):
    assert torch.equal(models(ALL, **SETTINGS[settings]), models(**SETTINGS[settings]))


@pytest.fixture
def doubled():
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


@pytest.mark.parametrize("settings", ["plain", "momentum", "fedprox", "weights by samples"])
def test_in_float64_it_is_the_server_to_twelve_digits(doubled, settings):
    bench = Workbench()

    def trained(system):
        given = SETTINGS[settings]
        made = cell(system, **{**given, "training": {**given.get("training", {}), "dtype": "float64"}})
        setup = set_up(made, 0, bench.task(made, 0))
        start = setup.task.initial_model(setup.rng.child("model"))
        found = torch.stack([start, *(report.model.clone() for report in made.architecture.run(setup))])
        assert found.dtype == torch.float64
        return found

    server = trained("server")
    for system in (*SUMS, ALL):
        assert off(trained(system), server) < 1e-12


@pytest.mark.parametrize("defense", ["krum", "nnm >> trimmed_mean", "centered_clipping", "median", "foolsgold"])
@pytest.mark.parametrize("attack", ["ipm", "label_flip"])
def test_where_each_has_all_updates_any_rule_runs(defense, attack):
    settings = {"defense": defense, "attack": attack, "clients": {"malicious": 2}}
    assert torch.equal(models(ALL, **settings), models(**settings))


@pytest.mark.parametrize("system", [*SUMS, MASKED])
@pytest.mark.parametrize("defense", ["krum", "median", "nnm >> mean", "foolsgold", "clip >> mean"])
def test_where_there_is_one_sum_rules_on_single_updates_are_refused(system, defense):
    reasons = cell(system, defense=defense, clients={"assumed_f": 1}).verdict.reasons
    assert reasons and "this architecture does not show it" in reasons[0]
    assert not cell(system).verdict.reasons


@pytest.mark.parametrize("system", SUMS)
def test_attacks_move_it_as_they_move_the_mean_of_a_server(system):
    settings = {"attack": "ipm(tau=0.5)", "clients": {"malicious": 2}}
    assert off(models(system, **settings), models(**settings)) < 1e-5
    assert off(models(system, **settings), models()) > 0.1


# Bytes and seconds.


@pytest.mark.parametrize("system", [*SUMS, ALL])
@pytest.mark.parametrize("defense", ["mean", "weighted_mean"])
def test_bytes_are_the_formulae(system, defense):
    """Of 6 nodes and 650 coordinates, which 6 does not divide, and the number of examples where it counts."""
    n, rounds = 6, 4
    last = list(reports(system, defense=defense))[-1]
    width = 650 + (defense == "weighted_mean")
    sizes = [width // n + (chunk < width % n) for chunk in range(n)]
    total = {
        SUMS[0]: sum(2 * width - sizes[(i + 1) % n] - sizes[(i + 2) % n] for i in range(n)),
        SUMS[1]: 2 * (n - 1) * width,
        SUMS[2]: 2 * (n - 1) * width,
        ALL: n * (n - 1) * width,
    }[system]
    assert last.moment.bytes_up == last.moment.bytes_down == 4 * rounds * total


@pytest.mark.parametrize(
    ("system", "steps", "elements"),
    [
        # latency in each step, and for each step what the busiest link carries: chunks of 108 and 109 coordinates
        (SUMS[0], 10, 10 * 109),
        (SUMS[1], 2, 2 * 5 * 650),
        (ALL, 1, 5 * 650),
    ],
)
def test_seconds_are_steps_of_latency_and_the_busiest_link(system, steps, elements):
    bandwidth, latency = 1000.0, 3.0
    network = {"compute": {"seconds": 0}, "link": {"latency": latency, "up": bandwidth, "down": bandwidth}}
    last = list(reports(system, network=network))[-1]
    assert last.moment.seconds == pytest.approx(4 * (steps * latency + 4 * elements / bandwidth), rel=1e-9)


def test_a_ring_is_quicker_than_a_root_where_bandwidth_is_short_and_slower_where_latency_is_long():
    short = {"compute": {"seconds": 0}, "link": {"up": 1000.0, "down": 1000.0}}

    def seconds(system, network):
        return list(reports(system, network=network, training={"rounds": 1}))[-1].moment.seconds

    assert seconds(SUMS[0], short) < seconds(SUMS[1], short) / 2
    assert seconds(SUMS[0], EVEN) == 5 * seconds(SUMS[1], EVEN)


def test_all_wait_for_the_slowest():
    slow = {"compute": {"seconds": 0.01, "slow": {"share": 0.2, "factor": 9}}}
    last, even = (
        list(reports(SUMS[0], network=network))[-1].moment.seconds for network in (slow, {"compute": {"seconds": 0.01}})
    )
    assert last == pytest.approx(9 * even, rel=0.02)  # the slowest has as many examples as others, within one or two


# What fails.


def test_one_value_that_is_not_finite_costs_the_sum():
    attacked = list(reports(SUMS[0], attack="nan", clients={"malicious": 1}, training={"rounds": 2}))
    assert [report.abandoned for report in attacked] == ["1 of 6 nodes sent what is not finite, and so was the sum"] * 2
    kept = list(reports(ALL, attack="nan", clients={"malicious": 1}, training={"rounds": 2}))
    assert [report.abandoned for report in kept] == [None] * 2


@pytest.mark.parametrize("system", [*SUMS, ALL])
def test_nodes_that_are_silent_are_closed_up_over(system):
    settings = {"attack": "dropout", "clients": {"malicious": 2}}
    found = list(reports(system, **settings))
    assert all(len(report.clients) == 4 and not report.abandoned for report in found)
    assert off(models(system, **settings), models(**settings)) < 1e-5


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"clients": {"per_round": 3}}, "Set clients.per_round: 1.0"),
        ({"clients": {"schedule": [{"clients": 2, "joins": 2}]}}, "leave out clients.schedule"),
        ({"protocol": {"dropout": {"rate": 0.1}}}, "one silent node holds up all others"),
        ({"protocol": {"secure_aggregation": "full"}, "clients": {"total": 12}}, "all_reduce has none"),
        ({"training": {"algorithm": "scaffold", "local_steps": 3}}, "carries updates alone"),
        ({"network": {"link": {"loss": 0.1}}}, "for ever"),
        ({"architecture": "all_reduce(group=3)"}, "Set both of all_reduce, or neither"),
        ({"architecture": "all_reduce(topology='hierarchical')"}, "Set both of all_reduce, or neither"),
        ({"architecture": "all_reduce(topology='hierarchical', group=4)"}, "Set group of all_reduce to a divisor of 6"),
        ({"architecture": "all_reduce(topology='all_to_all', masks=20)"}, "it gets each update"),
        ({"architecture": "all_reduce(clip=1.0)"}, "leave out clip"),
        ({"architecture": MASKED, "clients": {"total": 2}}, "Set clients.total to at least 3"),
        ({"architecture": "all_reduce(masks=24)", "clients": {"total": 400}}, "Lower bits"),
        ({"clients": {"total": 501}}, "Set clients.total to 500 at most"),
        ({"attack": "dlg"}, "watches rounds of server"),
        (
            {"protocol": {"privacy": {"kind": "client", "clip": 1.0, "noise_multiplier": 1.0}}},
            "no server that could be",
        ),
    ],
)
def test_what_does_not_fit_is_refused_with_its_remedy(settings, reason):
    reasons = cell(**({"architecture": "all_reduce"} | settings)).verdict.reasons
    assert any(reason in one for one in reasons), reasons


def test_parameters_that_are_off_are_no_part_of_a_cell():
    assert cell("all_reduce").canonical["architecture"] == {"name": "all_reduce", "topology": "ring"}


def test_the_card_says_what_a_neighbor_reads():
    assert "1/n of the updates of the two beside it" in threat_card(cell("all_reduce"))["in_words"]
    assert "masked" in threat_card(cell(MASKED))["in_words"]
    assert threat_card(cell("all_reduce"))["server_shown"] == ["sum", "model"]


# Masks.


@pytest.mark.parametrize("settings", ["plain", "weights by samples"])
@pytest.mark.parametrize("topology", ["ring", "reduce_broadcast"])
def test_under_masks_the_sum_is_that_of_the_encoding(topology, settings):
    system = f"all_reduce(topology='{topology}', masks=20)"
    found = list(reports(system, **SETTINGS[settings]))
    assert all(report.masked.error < 2e-3 and report.masked.anonymity == 6 for report in found)
    assert off(models(system, **SETTINGS[settings]), models(**SETTINGS[settings])) < 1e-3


def test_what_a_neighbor_gets_under_masks_tells_nothing():
    """Messages of a masked ring look uniform, also where k nodes pool what they have; and all of them sum to the sum."""
    _, setup = scene(MASKED)
    run = SumRun(cell(MASKED).architecture, setup)
    updates = 0.01 * torch.randn(6, setup.task.dim, generator=torch.Generator().manual_seed(1))
    sent = SentRound(1, run.model, updates, tuple(range(6)))
    received = run.receive_updates(sent)
    assert float((received.rows[0] - updates.mean(0)).abs().max()) < 4 / 2**19
    inputs = Inputs(sent, Encoding(), None, [1] * 6, setup.rng.child("masking"), "all")
    messages = [run.message(inputs, node, sent) for node in range(6)]
    partial = np.zeros_like(messages[0])
    for node, message in enumerate(messages[:-1]):
        partial = partial + message
        for seen in (message, partial):
            bits = (seen >> 31).mean()
            assert abs(float(bits) - 0.5) < 5 * 0.5 / len(seen) ** 0.5
            plain = updates[node].numpy()
            assert abs(float(np.corrcoef(seen[:-1].view(np.int32).astype(float), plain)[0, 1])) < 5 / len(seen) ** 0.5
    whole = (partial + messages[-1]).view(np.int32)
    assert np.abs(whole[:-1]).max() < 2**19 and whole[-1] == 6


def test_under_masks_malicious_nodes_see_no_honest_update():
    assert "honest_updates" in cell("all_reduce", attack="ipm", clients={"malicious": 1}).verdict.attack_sees.names()
    masked = cell(MASKED, attack="ipm", clients={"malicious": 1})
    assert "honest_updates" not in masked.verdict.attack_sees.names() and not masked.verdict.reasons


def test_keys_are_handed_out_once():
    (one,) = reports(MASKED, training={"rounds": 1})
    last = list(reports(MASKED, training={"rounds": 3}))[-1]
    d, n = 650, 6
    elements = 2 * (n - 1) * (d + 1)
    assert one.masked.bytes_up == 4 * elements + 32 * n * (n - 1)
    assert last.masked.bytes_up == 4 * elements
    assert last.moment.bytes_up == 3 * 4 * elements + 32 * n * (n - 1)


# Names.


def named():
    """The rows of the page: name, spec of the architecture, and whether it is for one node."""
    page = (ROOT / "docs" / "collectives.md").read_text()
    table = page.split("## What the field calls it")[1].split("\n## ")[0]
    for row in re.findall(r"^\| ([A-Z][\w, ]+) \| `(.+?)`(?: with .*?)? \| (.+?) \|$", table, re.MULTILINE):
        yield pytest.param(row[1], row[2], id=row[0])


def test_all_names_are_there():
    text = " ".join(str(row.id) for row in named())
    names = "MirroredStrategy MultiWorkerMirroredStrategy DDP Horovod CentralStorage ParameterServer OneDevice"
    assert all(name in text for name in names.split())


@pytest.mark.parametrize(("system", "equals"), list(named()))
def test_what_the_field_calls_it_is_what_the_table_says(system, equals):
    """Step by step, as these systems add up gradients."""
    one = {"the synchronous server": {}, "the synchronous server with one client": {"clients": {"total": 1}}}[equals]
    for steps in ({"algorithm": "fedsgd"}, {"local_steps": 1}):
        settings = one | {"training": {"rounds": 12, **steps}}
        assert off(models(system, **settings), models(**settings)) < 1e-5
