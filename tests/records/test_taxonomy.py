"""The six words of a record follow from what its cell is, in both editions, and nothing of them is stored."""

from __future__ import annotations

import json
from typing import Any

import pytest
import torch

from fedguard.bench.pages.cell_facts import kind
from fedguard.bench.records.record import from_text
from fedguard.bench.records.taxonomy import LINEAR, in_words, taxonomy
from fedguard.bench.running.card import threat_card
from fedguard.config import build_cell
from fedguard.config.schema import CellConfig
from fedguard.contracts import Model
from fedguard.registry import load_registry
from tests.root import ROOT

OLD = sorted((ROOT / "tests" / "first_edition").glob("cells/*/*.json"))

NOISE = {"kind": "record", "clip": 1.0, "epsilon": 10, "delta": 1e-5, "sample_rate": 0.1}


def record(**changes: Any) -> dict[str, Any]:
    """What a record of this cell would tell before it runs."""
    made = build_cell(CellConfig.model_validate({"clients": {"total": 10}, **changes}), load_registry())
    assert not made.verdict.reasons, made.verdict.reasons
    return {"config": made.canonical, "threat_card": threat_card(made)}


def told(**changes: Any) -> dict[str, str]:
    return {one.aspect: one.word for one in taxonomy(record(**changes))}


def test_the_usual_cell():
    assert told() == {
        "data": "horizontal", "model": "linear", "privacy mechanism": "none", "architecture": "centralized",
        "scale": "cross-silo", "motivation": "incentive",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("changes", "aspect", "word"),
    [
        ({"task": {"model": "mlp"}}, "model", "network"),
        ({"protocol": {"secure_aggregation": "full"}}, "privacy mechanism", "masks"),
        ({"architecture": "fate"}, "privacy mechanism", "masks"),
        ({"protocol": {"privacy": NOISE}}, "privacy mechanism", "noise"),
        (
            {"protocol": {"secure_aggregation": "full", "privacy": {"kind": "distributed", "noise_multiplier": 1.0}}},
            "privacy mechanism",
            "masks and noise",
        ),
        ({"protocol": {"secure_aggregation": "full"}}, "motivation", "regulation"),
        ({"architecture": "fedbuff(buffer=3)"}, "architecture", "centralized"),
        ({"architecture": "parameter_server(ranges=3)"}, "architecture", "sharded"),
        ({"architecture": "d_psgd"}, "architecture", "decentralized"),
        ({"architecture": "all_reduce(topology='ring')"}, "architecture", "decentralized"),
        ({"architecture": "btard"}, "architecture", "decentralized"),
        ({"architecture": "mapreduce(combiners=5)"}, "architecture", "hierarchical"),
        ({"architecture": "google(aggregators=2, aggregator_fails=0.1)"}, "architecture", "hierarchical"),
        ({"clients": {"total": 100}}, "scale", "cross-silo"),
        ({"clients": {"total": 101}}, "scale", "cross-device"),
        ({"clients": {"total": 20, "per_round": 15}}, "scale", "cross-silo"),
    ],
)
def test_what_changes_a_word(changes, aspect, word):
    assert told(**changes)[aspect] == word


def affine(module: torch.nn.Module, shape: tuple[int, ...]) -> bool:
    """Whether f(a + b) - f(a) - f(b) + f(0) = 0, for inputs that reach beyond the kinks of an activation."""
    made = torch.Generator().manual_seed(0)
    a, b = (5 * torch.randn(8, *shape, generator=made) for _ in range(2))
    with torch.no_grad():
        zero, by_a, by_b = module(torch.zeros(8, *shape)), module(a), module(b)
        off = module(a + b) - by_a - by_b + zero
        return float(off.abs().max()) < 1e-3 * float((by_a - zero).abs().max())


def test_linear_are_the_models_whose_logits_are():
    shapes = {"fedavg_cnn": (1, 28, 28), "lenet5": (1, 28, 28), "resnet20": (3, 32, 32)}
    found = set[str]()
    for name in set(load_registry().names("model")) - {"transformer", "module"}:  # texts; a network of the user's own
        model: Model = load_registry().build("model", name)
        shape = shapes.get(name, (1, 8, 8))
        found |= {name} if affine(model.build(shape, 3), shape) else set()
    assert found == LINEAR


@pytest.mark.parametrize("path", OLD, ids=lambda path: path.parent.name)
def test_records_of_the_first_edition_have_their_words(path):
    old = from_text(path.read_bytes())
    found = taxonomy(old)
    assert len(found) == 6 and found[1].since == old["config"]["task"]["model"]["name"]
    assert [row[1] for row in kind(old).rows] == [one.word for one in found]
    assert "taxonomy" not in json.dumps(old), "derived as it is read"


def test_a_run_tells_each_word_once():
    swept = [record(), record(protocol={"secure_aggregation": "full"}), record(task={"model": "mlp"})]
    assert in_words(swept) == (
        "data horizontal, model linear or network, privacy mechanism none or masks, architecture centralized, "
        "scale cross-silo, motivation incentive or regulation"
    )


def test_an_architecture_that_nobody_can_read_is_taken_for_one_server():
    for odd in (None, 3, {"name": "parameter_server", "ranges": "many"}):
        assert taxonomy({**record(), "config": {**record()["config"], "architecture": odd}})[3].word == "centralized"
