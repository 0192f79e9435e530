"""The order of published results by label skew, on a small part of Fashion-MNIST: of examples/anchors/niid_bench.yaml in short form.

Where the data set is not installed, the tests that train are skipped (docs/data.md says how to get it).
"""

from __future__ import annotations

import sys
from pathlib import Path
from statistics import fmean

import pytest

import fedguard as fg
from fedguard.api import lay_out
from fedguard.tasks.data.fashion_mnist import FOLDERS
from fedguard.tasks.models.lenet5 import LeNet5
from tests.root import ROOT

SUITE = ROOT / "examples" / "anchors" / "niid_bench.yaml"
#: The short form: 30 passes instead of 500, over 2,000 images instead of 60,000, with larger steps.
SHORT = [
    "task.subset={train: 2000, test: 1000}",
    "task.partition_seed=1",
    "training.rounds=15",
    "training.local_epochs=2",
    "training.batch_size=32",
    "training.lr=0.05",
    "seeds=1",
    "matrix.task.partition=[iid, pathological(classes=2), pathological(classes=1)]",
]

here = pytest.mark.skipif(
    not any(Path(folder).expanduser().is_dir() for folder in FOLDERS),
    reason="Fashion-MNIST is not installed (docs/data.md)",
)


@pytest.fixture(autouse=True)
def forgotten():
    """The suite's module and its folder, which another test's module of that name must not meet."""
    yield
    sys.modules.pop("niid_bench", None)
    sys.path[:] = [path for path in sys.path if path != str(SUITE.parent)]


def trained_accuracy(tmp_path, *settings: str) -> dict[str, float]:
    """Mean accuracy of the last evaluations by partition."""
    run = fg.run(SUITE, overrides=[*SHORT, *settings], store=tmp_path, jobs=1)
    rows = run.rows()
    assert all(row["status"] == "ok" for row in rows)
    return {row["task.partition"]: row["final_accuracy"] for row in rows}


def test_the_suite_is_the_published_setting():
    """50 rounds of ten passes in batches of 64, ten clients, five partitions."""
    _, laid = lay_out(SUITE)
    cells = {str(cell.config.task.partition): cell.config for cell in laid.cells}
    assert len(cells) == 5
    for cell in cells.values():
        training = cell.training
        assert (training.rounds, training.local_epochs, training.batch_size, training.lr, training.momentum) == (
            50,
            10,
            64,
            0.01,
            0.9,
        )
        assert cell.clients.total == 10


def test_its_network_is_the_published_one():
    """Unpadded convolutions: 156 + 2,416 + 256 * 120 + 120 + 10,164 + 850 = 44,426 parameters; LeNet-5 pads and has 61,706."""
    sys.path.insert(0, str(SUITE.parent))
    from niid_bench import cnn

    def sizes(network) -> list[int]:
        return [parameter.numel() for parameter in network.parameters()]

    assert sizes(cnn((1, 28, 28), 10)) == [150, 6, 2400, 16, 256 * 120, 120, 120 * 84, 84, 840, 10]
    assert sum(sizes(cnn((1, 28, 28), 10))) == 44_426
    assert sum(sizes(LeNet5().build((1, 28, 28), 10))) == 61_706


@here
def test_a_round_of_it_trains(tmp_path):
    accuracy = trained_accuracy(
        tmp_path, "training.rounds=1", "training.local_epochs=1", "task.subset={train: 200, test: 100}"
    )
    assert len(accuracy) == 3
    assert 0 < fmean(accuracy.values()) < 1


@here
@pytest.mark.slow
def test_the_more_skewed_the_labels_the_lower_the_accuracy(tmp_path):
    """Published at full length: 89.2 for IID, 78.1 for two classes each, 28.4 for one; here 70, 37 and 10 in 42 CPU seconds."""
    accuracy = trained_accuracy(tmp_path)
    iid, two, one = (accuracy[name] for name in ("iid", "pathological(classes=2)", "pathological(classes=1)"))
    assert iid > 0.6
    assert iid > two + 0.15
    assert two > one + 0.15
