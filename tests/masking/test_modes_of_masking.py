"""A mode of masking is one class: what each promises, and a plug-in's, which runs in a suite, is told of, judged and listed."""

from __future__ import annotations

import dataclasses
import json
import re
from pathlib import Path

import pytest
from typer.testing import CliRunner

import fedguard as fg
from fedguard import cli
from fedguard.architectures.server import Server
from fedguard.bench.explain.catalogue import modes
from fedguard.config.protocol import masking
from fedguard.contracts import Protocol, Sight
from fedguard.errors import ConfigError, UnknownName
from fedguard.registry import load_registry
from fedguard.visibility import derive_exposure
from tests.house.test_house import imports
from tests.masking.test_masking import federation, random_round
from tests.pages import shown
from tests.reference import mean
from tests.root import ROOT


@pytest.mark.parametrize("name", modes())
def test_each_mode_keeps_its_promises(name):
    mode = modes()[name](**modes()[name].example)
    assert masking(mode.setting, load_registry(), "") == mode
    assert mode.undefended.undefended == mode.undefended
    seen = derive_exposure(Server.exposes, mode, root_data=True)
    assert (Sight.EACH_UPDATE in seen.server) is (Sight.HONEST_UPDATES in seen.clients) is not mode.masked
    assert (Sight.MASKED in seen.server) is mode.masked
    assert mode.kept_from_rules in seen.server
    setup = federation(Protocol(secure_aggregation=mode, colluding=0.05), clients=24, root=50, told=4)
    wire, updates = random_round(setup, malicious=(1, 2))
    received = mode.receiver(setup).receive(wire)
    assert 0 < len(received.rows) == len(received.behind) <= mode.rows(24)
    assert (received.masked is not None) is mode.masked
    if mode.masked:
        assert received.masked.anonymity == mode.smallest_sum(setup.cell) - setup.cell.protocol.colluders(24) > 1
    for row, behind in zip(received.rows.tolist(), received.behind, strict=True):
        if not mode.overlapping:
            expected = mean([updates[client].tolist() for client in behind])
            assert row == pytest.approx(expected, abs=1e-4)
    assert len({client for behind in received.behind for client in behind}) == sum(map(len, received.behind))


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ({"group": 4}, "here: unknown masking 'group'. Did you mean 'groups' or"),
        ({"groups": 4, "redrawn": True}, "here: unknown parameter of groups 'redrawn'. Did you mean 'redraw'?"),
        ({"group_testing": {"test": 4}}, "here: unknown parameter of group_testing 'test'. Did you mean 'tests'?"),
        ({"group_testing": {}, "redraw": True}, "here: unknown parameter of group_testing 'redraw'."),
        ({"groups": 1}, "here: groups: groups: expected at least 2; got 1."),
        ("groups", "here: groups: expected groups, which has no default: groups(groups=...)."),
        ({"full": 3}, "here: unknown parameter of full 'full'"),
        ({}, "here: expected a mapping with a `name` from `fedguard list masking`"),
    ],
)
def test_a_mode_that_is_misspelt_is_an_error_that_says_how_to_mend_it(spec, message):
    with pytest.raises(ConfigError) as caught:
        masking(spec, load_registry(), "here")
    assert str(caught.value).startswith(message)


def test_a_mode_is_spelt_in_many_ways():
    groups, tests = {"groups": 4, "redraw": False}, {"tests": 8}
    for mode, specs in {
        "groups": (groups, {"name": "groups", **groups}, {"groups": groups}, "groups(groups=4, redraw=False)"),
        "group_testing": ({"group_testing": tests}, {"name": "group_testing", **tests}, "group_testing(tests=8)"),
    }.items():
        (found,) = {masking(spec, load_registry(), "") for spec in specs}
        assert found.name == mode
    assert masking(groups, load_registry(), "").setting == groups
    assert masking({"group_testing": tests}, load_registry(), "").setting["group_testing"]["tests"] == 8


MODULE = shown("add_masking.md", "neighbors.py")
SUITE = """
name: neighbors
plugins: [neighbors]
seeds: 1
clients: {total: 12}
training: {rounds: 2}
protocol: {colluding: 0.0}
matrix:
  protocol.secure_aggregation: [%s]
  defense: [mean, median, krum]
"""


@pytest.fixture
def suite(tmp_path, monkeypatch):
    """Writes the module and a suite with some modes."""
    monkeypatch.chdir(tmp_path)
    Path("neighbors.py").write_text(MODULE)

    def written(modes="neighbors"):
        Path("suite.yaml").write_text(SUITE % modes)
        return "suite.yaml"

    return written


def test_a_plug_ins_mode_runs_and_stands_in_the_card_and_krum_is_refused(suite):
    run = fg.run(suite("{neighbors: {size: 3}}, open_neighbors"), jobs=1)
    found = {
        (row["defense"], record["config"]["protocol"]["secure_aggregation"].popitem()[0]): record
        for row in run.rows()
        for record in [run.records[row["cell"], row["seed"]]]
    }
    ran = found["mean", "neighbors"]
    card, sums = ran["threat_card"], ran["result"]["secure_aggregation"]
    assert (card["secure_aggregation"], card["rows"], card["protocol"]["anonymity"]) == ("neighbors", 4, 3)
    assert card["protocol"]["in_words"] == "The server sees the sum of each few neighbors."
    assert card["protocol"]["session"]["clients"] == 3
    assert (sums["mode"], sums["sessions"], sums["aborted_sessions"], sums["anonymity"]) == ("neighbors", 8, 0, 3)
    assert "neighbors" in ran["environment"]["code"]
    assert "each_update" not in card["server_shown"] and "group_sums" in card["server_shown"]
    for rule in ("krum", "median"):
        refused = found[rule, "neighbors"]
        assert (refused["status"], found[rule, "open_neighbors"]["status"]) == ("refused", "ok")
        assert refused["reason"].startswith(f"{rule} needs each client's update")
        assert "secure_aggregation: neighbors hides it. Use mean or" in refused["reason"]


def test_a_plug_ins_mode_is_checked_spelt_and_listed(suite):
    places = fg.api.lay_out(suite("neighbors, {neighbors: {size: 4}}, neighbors(size=4), {name: neighbors}"))[1]
    assert len({cell.id for _, cell in places.positions}) == 3  # a mean, a median and a krum
    with pytest.raises(ConfigError, match=r"suite.yaml:9.*: .*12 clients cannot be divided into groups of 5"):
        fg.api.lay_out(suite("{neighbors: {size: 5}}"))
    with pytest.raises(ConfigError, match=r"suite.yaml:9.*neighbors: size: expected at least 2; got 1"):
        fg.api.lay_out(suite("{neighbors: {size: 1}}"))
    with pytest.raises(UnknownName, match=r"suite.yaml:9.*unknown masking 'neighbours'. Did you mean 'neighbors'"):
        fg.api.lay_out(suite("{neighbours: {size: 4}}"))
    listed = CliRunner().invoke(cli.app, ["list", "masking", "--plugin", "neighbors", "--json"])
    assert [one["name"] for one in json.loads(listed.stdout)] == [*modes(), "neighbors", "open_neighbors"]
    told = CliRunner().invoke(cli.app, ["explain", "neighbors", "--plugin", "neighbors"])
    assert "The server sees the sum of each few neighbors." in told.stdout and "size" in told.stdout


def test_no_file_but_its_own_names_a_mode():
    """Whoever deals with masks deals with any; that there may be none is all that others know."""
    classes, names = {cls.__name__ for cls in modes().values()} - {"NoMasking"}, "|".join(modes())
    files = [*(ROOT / "fedguard").rglob("*.py"), *(ROOT / "app").rglob("*.py")]
    assert len(classes) >= 3 and len(files) > 250
    for file in files:
        text = file.read_text()
        if file.parent != ROOT / "fedguard" / "architectures" / "masking":
            if re.search(rf"\b({'|'.join(classes)})\b", text):
                assert not classes & {name.rpartition(".")[2] for name in imports(file)}, file
            assert not re.search(r"isinstance\([^()]*\bNoMasking\b", text), file
        # The Lab may leave out a default by its name.
        assert not re.search(rf"(?<!self\.)\b(mode|masking|aggregation)(\.name)? ([!=]=|in) .?\"({names})\"", text), (
            file
        )


def test_what_a_mode_does_not_say_is_hidden():
    bare = type("Bare", (modes()["full"],), {"name": "bare"})
    assert derive_exposure(Server.exposes, bare).server == derive_exposure(Server.exposes, modes()["full"]).server
    showing = type("Showing", (modes()["full"],), {"name": "showing", "hides": Sight.NOTHING, "shows": ~Sight.NOTHING})
    shown = derive_exposure(dataclasses.replace(Server.exposes, server=Sight.SUM), showing)
    assert not shown.server & (Sight.EACH_UPDATE | Sight.HONEST_UPDATES)
