"""A federated algorithm is one class: a plug-in's runs in a suite, is listed and explained, and is refused where it does not go."""

from __future__ import annotations

import ast
import json
import re
from pathlib import Path

import pytest
from typer.testing import CliRunner

import fedguard as fg
from fedguard import cli
from fedguard.api import lay_out
from fedguard.bench.running.references import references
from fedguard.config import build_cell
from fedguard.config.schema import CellConfig
from fedguard.errors import FedGuardError
from fedguard.registry import load_registry
from tests.pages import shown
from tests.root import ROOT

MODULE = shown("add_algorithm.md", "decayed.py")
CLASHING = '''

@dataclass(frozen=True, kw_only=True)
class Clashing(FederatedAlgorithm):
    """Its parameter is called like a key of every training."""

    name = "clashing"

    lr: float = 1.0
'''
SUITE = """
name: decayed
plugins: [decayed]
seeds: 1
clients: {total: 6}
training:
  algorithm: decayed
  rounds: 2
  decay: 0.25
matrix: {defense: [mean, median]}
"""


@pytest.fixture
def suite(tmp_path, monkeypatch):
    """The path of a suite with the module beside it."""
    monkeypatch.chdir(tmp_path)
    Path("decayed.py").write_text(MODULE + CLASHING)
    Path("suite.yaml").write_text(SUITE)
    return "suite.yaml"


def laid_out(suite, *settings):
    return [cell for _, cell in lay_out(suite, settings)[1].positions]


def test_a_plug_ins_algorithm_runs_stands_in_the_record_and_is_refused(suite):
    run = fg.run(suite, jobs=1)
    ran, refused = sorted(run.records.values(), key=lambda record: str(record["status"]))
    assert ran["threat_card"]["algorithm"] == "decayed"
    assert {key: ran["config"]["training"][key] for key in ("algorithm", "decay", "rounds")} == {
        "algorithm": "decayed", "decay": 0.25, "rounds": 2,
    }  # fmt: skip
    assert "decayed" in ran["environment"]["code"]
    assert (refused["status"], refused["reason"]) == ("refused", "decayed is made for the mean. Use mean.")
    # the first round is FedAvg's, the second is not
    (plain,) = fg.run(
        suite, overrides=["training={algorithm: fedavg, rounds: 2}", "matrix={}"], name="plain", jobs=1
    ).records.values()
    (whole,) = fg.run(suite, overrides=["training.decay=1", "matrix={}"], name="whole", jobs=1).records.values()
    losses = [one["result"]["curve"]["loss"] for one in (ran, plain, whole)]
    assert losses[0][0] == losses[1][0] and losses[0][1] != losses[1][1] and losses[1] == losses[2]


def test_its_parameter_stands_beside_the_keys_of_a_training_or_with_its_name(suite):
    forms = (
        [],
        ["training={rounds: 2, algorithm: decayed(decay=0.25)}"],
        ["training={rounds: 2, algorithm: {name: decayed, decay: 0.25}}"],
        ["training.decay=0.1", "matrix.training.decay=[0.25]"],
        ["training={rounds: 2}", "matrix.training.algorithm=[{name: decayed, decay: 0.25}]"],
    )
    ids = {laid_out(suite, *form)[0].id for form in forms}
    assert len(ids) == 1
    assert laid_out(suite, "training.decay=0.5")[0].id not in ids
    (unset,) = {
        laid_out(suite, f"training={{rounds: 2, algorithm: decayed{more}}}")[0].id for more in ("", ", decay: null")
    }
    assert unset not in ids
    cell = laid_out(suite)[0]
    assert build_cell(CellConfig.model_validate(cell.canonical), cell.known).id == cell.id


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (["training.decay=2"], "training: decayed: decay: expected a number in (0, 1]; got 2.0."),
        (["training.decay=true"], "decayed: decay: expected a number; got True."),
        (["training.dekay=0.5"], "--set training.dekay: unknown key 'dekay'. Did you mean 'decay'?"),
        (["training.algorithm=fedavg"], "training: decay is a parameter of decayed; got algorithm: fedavg."),
        (["training.algorithm=decayed(decay=0.5)"], "suite.yaml:9: training.decay: decay is given twice"),
        (["training.momentum=0.5"], "training: decayed has no momentum; set momentum: 0."),
        (["training={algorithm: clashing}"], "training: clashing has a parameter lr, which is a key of training. Rename"),
        (["training={algorithm: 3}"], "training.algorithm: expected"),
        (["training={}", "matrix.training.algorithm=[fedavg, decaied]"], "unknown algorithm 'decaied'. Did you mean 'decayed'"),
        (["matrix.training.dekay=[1]"], "--set matrix.training.dekay[0] (training.dekay): unknown key 'dekay'."),
    ],
)  # fmt: skip
def test_what_it_does_not_have_is_said_in_one_line(suite, settings, message):
    with pytest.raises(FedGuardError) as caught:
        laid_out(suite, *settings)
    assert message in str(caught.value) and "\n" not in str(caught.value)


def test_what_it_says_of_itself_decides_with_what_it_goes(suite):
    """Nobody vouched for it, so nothing that is proven for plain updates holds for it."""
    noise = "{name: client, clip: 1.0, noise_multiplier: 1.0, delta: 1e-5}"
    for settings, reason in (
        (["protocol.privacy=" + noise], "and decayed works with more"),
        (["attack=inverting_gradients"], "replays the local steps of fedavg and fedsgd, and decayed takes others"),
        (["server.root_data=20", "matrix.defense=[fltrust]"], "and decayed sends another kind of update"),
    ):
        assert reason in " ".join(laid_out(suite, *settings)[0].verdict.reasons)
    alone = []
    references(laid_out(suite, "server.root_data=20")[0], lambda cell: alone.append(cell) or 0.0)
    assert alone[0].algorithm == load_registry().build("algorithm", "fedavg")


def test_it_is_listed_and_explained(suite):
    listed = CliRunner().invoke(cli.app, ["list", "algorithm", "--plugin", "decayed", "--json"])
    names = [one["name"] for one in json.loads(listed.stdout)]
    assert sorted(names[:-2]) == sorted(load_registry().names("algorithm")) and sorted(names[-2:]) == [
        "clashing",
        "decayed",
    ]
    said = CliRunner().invoke(cli.app, ["explain", "decayed", "--plugin", "decayed"]).stdout
    for part in (
        "clients keep",
        "the number of the round",
        "the step size goes to",
        "{algorithm: decayed, decay: ...}",
    ):
        assert part in said


def test_no_file_but_its_own_names_a_federated_algorithm():
    """Whoever deals with one deals with any: no class is named elsewhere, and no name is compared with."""
    classes = {cls.__name__: cls for _, cls in load_registry().classes(["algorithm"])}
    del classes["FedAvg"]  # a class of Flower has the same name
    names = set(load_registry().names("algorithm"))
    files = [
        file
        for part in ("fedguard", "app", "attacks", "defenses", "docs_tools")
        for file in (ROOT / part).rglob("*.py")
    ]
    assert len(classes) == 13 and len(files) > 300
    named = re.compile(rf"\b({'|'.join((*classes, *names))})\b")
    for file in files:
        if (ROOT / "fedguard" / "algorithms") in file.parents:
            continue
        if file == ROOT / "docs_tools" / "pictures.py":  # which holds suites, as the examples do
            continue
        if file == ROOT / "fedguard" / "bridges" / "nvflare" / "job.py":  # a controller of NVFlare has the same name
            continue
        text = file.read_text()
        if not named.search(text):
            continue
        for node in ast.walk(ast.parse(text)):
            assert getattr(node, "id", getattr(node, "attr", getattr(node, "name", None))) not in classes, file
            if isinstance(node, ast.Compare | ast.Match | ast.Dict):
                said = {
                    one.value for one in ast.walk(node) if isinstance(one, ast.Constant) and isinstance(one.value, str)
                }
                assert not said & names, (file, said & names)
