"""Examples that everybody has: who holds which of them, what is refused beside them, and what they do for one-class clients."""

from __future__ import annotations

from typing import Any

import pytest

from fedguard.bench.running.card import threat_card
from fedguard.bench.running.workbench import Workbench, malicious_clients
from fedguard.config import PlannedCell, build_cell
from fedguard.config.schema import CellConfig
from fedguard.contracts import ROOT, Examples
from fedguard.errors import ConfigError
from fedguard.registry import load_registry
from fedguard.tasks.classification import Classification
from tests.systems.scenes import reports


def cell(shared: float | None, task: dict[str, Any] | None = None, **settings: Any) -> PlannedCell:
    given = {"partition": "label_sorted", **(task or {}), **({} if shared is None else {"shared": shared})}
    clients = {"total": 10, **settings.pop("clients", {})}
    return build_cell(CellConfig.model_validate({"task": given, "clients": clients, **settings}), load_registry())


def dealt(made: PlannedCell, seed: int = 0) -> Classification:
    return Workbench().task(made, seed)


def counted(*parts: Examples) -> dict[tuple[int, bytes], int]:
    """How often each example is there."""
    found: dict[tuple[int, bytes], int] = {}
    for part in parts:
        for x, y in zip(part.x, part.y.tolist(), strict=True):
            key = y, x.numpy().tobytes()
            found[key] = found.get(key, 0) + 1
    return found


@pytest.mark.parametrize("settings", [{}, {"server": {"root_data": 50}}, {"clients": {"malicious": 3}, "attack": "sign_flip"}, {"clients": {"malicious": 3}, "attack": "sign_flip", "task": {"partition_among": "honest"}}])  # fmt: skip
def test_everybody_has_the_same_public_examples_and_nobody_else_owns_them(settings):
    made = cell(0.05, **settings)
    task = dealt(made)
    examples, public = len(task.dataset.train), round(0.05 * len(task.dataset.train))
    parts = [task.examples(client) for client in range(10)]
    last = {len(part) - public: counted(part[range(len(part) - public, len(part))]) for part in parts}
    assert len({tuple(sorted(found)) for found in last.values()}) == 1  # malicious clients among them
    root = made.config.server.root_data
    copies = malicious_clients(made, 0) if made.copied else frozenset()
    own = [part[range(len(part) - public)] for client, part in enumerate(parts) if client not in copies]
    whole = counted(
        parts[0][range(len(parts[0]) - public, len(parts[0]))], *own, *([task.examples(ROOT)] if root else [])
    )
    assert whole == counted(task.dataset.train)
    assert sum(map(len, own)) == examples - public - root


def test_without_them_cells_and_what_they_deal_are_as_before():
    without, none = cell(None), cell(0.0)
    assert without.id == none.id and "shared" not in without.canonical["task"]
    assert cell(0.05).id not in (without.id, cell(0.1).id)
    assert counted(*(dealt(without).examples(client) for client in range(10))) == counted(dealt(without).dataset.train)


def test_a_cell_is_built_again_from_its_canonical_form():
    made = cell(0.05)
    assert build_cell(CellConfig.model_validate(made.canonical), load_registry()).id == made.id


def test_the_card_says_that_everybody_knows_them():
    card = threat_card(cell(0.05, clients={"malicious": 2}, attack="sign_flip"))
    assert card["shared"] == 0.05 and card["in_words"].endswith("Everybody has 0.05 of the examples.")
    assert card["attacker_data"].endswith("and what is public")
    assert "shared" not in threat_card(cell(None))


@pytest.mark.parametrize(
    ("shared", "root", "said"), [(0.0001, 0, "got 0. Raise it."), (0.999, 100, "got 1436. Lower it.")]
)
def test_too_few_and_too_many_are_a_line(shared, root, said):
    with pytest.raises(ConfigError, match="task.shared: expected from 1 of 1437 training examples") as error:
        dealt(cell(shared, server={"root_data": root}))
    assert str(error.value).endswith(said) and "\n" not in str(error.value)


@pytest.mark.parametrize("shared", [-0.1, 1.0, "some"])
def test_a_share_is_a_share(shared):
    with pytest.raises(ValueError, match="shared"):
        cell(shared)


NOISE = {"privacy": {"kind": "record", "epsilon": 5.0}}


def test_who_hides_records_or_looks_for_them_must_not_count_public_ones():
    refused = " ".join(cell(0.05, protocol=NOISE).verdict.reasons)
    assert "are among them. Set shared: 0, or hide whole clients." in refused
    assert not any("shared" in why for why in cell(0.0, protocol=NOISE).verdict.reasons)
    whole = cell(0.05, protocol={"privacy": {"kind": "client", "noise_multiplier": 1.0}})
    assert not any("shared" in why for why in whole.verdict.reasons)
    refused = " ".join(cell(0.05, attack="dlg").verdict.reasons)
    assert "are nobody's secret. Set shared: 0." in refused


def accuracy(shared: float, seed: int, rounds: int, partition: str = "label_sorted") -> float:
    """After the last round, of one-class clients that make five passes over what they have."""
    *_, last = reports(
        "server", seed, network=None, clients={"total": 10}, evaluation={"every": rounds},
        task={"partition": partition, "model": {"name": "mlp", "hidden": [32]}, "shared": shared},
        training={"rounds": rounds, "local_epochs": 5, "batch_size": 16},
    )  # fmt: skip
    return last.evaluation.accuracy


@pytest.mark.slow
def test_a_few_shared_examples_give_back_most_of_what_one_class_clients_lose():
    """Zhao et al. report up to 55 points lost, and about 30 given back by 5 %, on CIFAR-10."""
    for seed in range(3):
        alike, none, some = (accuracy(*given) for given in ((0.0, seed, 30, "iid"), (0.0, seed, 30), (0.05, seed, 30)))
        assert none < alike - 0.15
        assert some - none > 0.6 * (alike - none)
        assert accuracy(0.2, seed, 30) > some


def test_a_few_shared_examples_help_one_class_clients_in_few_rounds():
    assert accuracy(0.05, 0, 4) > accuracy(0.0, 0, 4) + 0.2
