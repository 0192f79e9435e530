"""Part of the data: how many examples are drawn, which ones, what they are compared with, and what is said of them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from fedguard.bench.running.card import threat_card
from fedguard.bench.running.check import explain_refusals, render_plan
from fedguard.bench.running.workbench import Workbench
from fedguard.config import Document, PlannedCell, build_cell, plan, read_suite
from fedguard.config.schema import CellConfig
from fedguard.contracts import Dataset, Examples
from fedguard.errors import ConfigError
from fedguard.registry import load_registry
from fedguard.rng import Rng
from fedguard.tasks.classification import Classification
from fedguard.tasks.data import draw_subset


def cell(task: dict[str, Any] | None = None, **settings: Any) -> PlannedCell:
    config = {"task": task or {}, "clients": {"total": 10, **settings.pop("clients", {})}, **settings}
    return build_cell(CellConfig.model_validate(config), load_registry())


def dealt(subset: dict[str, int], seed: int = 0, **task: Any) -> Classification:
    return Workbench().task(cell({"subset": subset, **task}), seed)


def numbered(train: int, test: int) -> Dataset:
    """Inputs that are their own number."""
    parts = [Examples(torch.arange(float(size))[:, None], torch.arange(size) % 3) for size in (train, test)]
    return Dataset(*parts, 3, (0.0, float(max(train, test))))


def rows(part: Examples) -> list[int]:
    return part.x[:, 0].int().tolist()


def test_without_a_subset_cells_keep_their_identity_and_with_one_they_have_another():
    without = cell()
    assert "subset" not in without.canonical["task"] and "subset" not in threat_card(without)
    for nothing in ({}, {"train": None}, {"train": None, "test": None}):
        assert cell({"subset": nothing}).id == without.id
    some = [cell({"subset": one}) for one in ({"train": 100}, {"test": 100}, {"train": 100, "test": 100})]
    assert len({without.id, *(one.id for one in some)}) == 4
    for one in some:
        assert build_cell(CellConfig.model_validate(one.canonical), load_registry()).id == one.id


def test_this_many_examples_are_dealt_out_and_tested_on_and_all_are_of_the_data():
    whole, some = dealt({}), dealt({"train": 600, "test": 90})
    assert (len(some.dataset.train), len(some.dataset.test), sum(some.sizes)) == (600, 90, 600)
    assert some.classes == whole.classes == 10 and some.value_range == whole.value_range
    for part in ("train", "test"):
        one, other = (
            [(x.numpy().tobytes(), int(y)) for x, y in zip(found.x, found.y, strict=True)]
            for found in (getattr(some.dataset, part), getattr(whole.dataset, part))
        )
        assert set(one) <= set(other) and (part == "test" or len(set(one)) > 590)
    rest = dealt({"train": 600})
    assert len(rest.dataset.test) == len(whole.dataset.test)
    assert torch.equal(rest.dataset.train.x, some.dataset.train.x)  # a part's draw is its own


def test_all_examples_are_the_same_as_no_subset_to_the_bit():
    whole = dealt({})
    same = dealt({"train": len(whole.dataset.train), "test": len(whole.dataset.test)})
    assert all(torch.equal(one.x, other.x) for one, other in zip(whole.parts, same.parts, strict=True))
    assert torch.equal(whole.dataset.test.x, same.dataset.test.x)


def test_each_partition_draws_its_own_and_a_fixed_one_draws_once():
    free = [dealt({"train": 200}, seed).dataset.train.x for seed in (0, 1)]
    assert not torch.equal(*free)
    fixed = [dealt({"train": 200}, seed, partition_seed=7).dataset.train.x for seed in (0, 1)]
    assert torch.equal(*fixed)
    assert torch.equal(dealt({"train": 200}, partition="label_sorted").dataset.train.x, free[0])  # paired


def test_draws_are_uniform_without_replacement_and_nested_by_size():
    data, often = numbered(20, 8), np.zeros(20)
    for seed in range(2000):
        drawn = rows(draw_subset(data, (5, None), Rng(seed)).train)
        assert drawn == sorted(set(drawn)) and len(drawn) == 5
        often[drawn] += 1
        if seed < 50:
            assert set(drawn) <= set(rows(draw_subset(data, (9, None), Rng(seed)).train))
    # Each of 20 with probability 1/4; the standard deviation of a share of 2,000 draws is 0.0097
    assert np.abs(often / 2000 - 0.25).max() < 4.5 * 0.0097


def test_the_values_of_the_examples_do_not_matter():
    """Which examples are drawn depends on how many there are, and never on what they hold."""
    data = numbered(30, 9)
    other = Dataset(Examples(-data.train.x, 2 - data.train.y), data.test, 3, (-30.0, 30.0))
    one, two = (draw_subset(found, (11, 4), Rng(3)) for found in (data, other))
    assert rows(one.train) == [-x for x in rows(two.train)] and rows(one.test) == rows(two.test)


@pytest.mark.parametrize(
    ("subset", "said"),
    [
        ({"train": 1438}, "task.subset.train: expected at most the 1437 train examples of the data; got 1438. Lower it."),
        ({"test": 361}, "task.subset.test: expected at most the 360 test examples of the data; got 361. Lower it."),
    ],
)  # fmt: skip
def test_more_than_there_are_is_refused_in_one_line(subset, said):
    with pytest.raises(ConfigError) as caught:
        dealt(subset)
    assert str(caught.value) == said


@pytest.mark.parametrize(
    "subset", [{"train": 0}, {"test": -1}, {"train": 0.5}, {"train": True}, {"validation": 5}, 6000]
)
def test_a_subset_is_whole_numbers_of_examples(subset):
    with pytest.raises(ValueError, match="subset"):
        cell({"subset": subset})


def test_actors_have_no_examples_to_draw():
    made = cell({"data": "cartpole", "model": "mlp", "subset": {"train": 5}}, training={"algorithm": "actor_critic"})
    assert "task.subset draws examples, and cartpole has none. Leave it out." in made.verdict.reasons


def test_check_and_card_say_how_many_are_drawn():
    suite = {
        "seeds": 1,
        "task": {"subset": {"train": 600, "test": 90}},
        "clients": {"total": 10, "malicious": 2},
        "matrix": {"attack": ["sign_flip"], "defense": ["mean"]},
    }
    document = Document(suite)
    made = plan(document, read_suite(document))
    told = "\n".join(map(str, render_plan(made, explain_refusals(made)).renderables))
    said = "Each trial draws 600 train examples and 90 test examples of the data."
    assert told.count(said) == 1
    card = threat_card(made.cells[0])
    assert card["subset"] == {"train": 600, "test": 90} and card["in_words"].endswith(said)
