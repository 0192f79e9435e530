"""Cells of an app of other people, as far as they need none of its engines: what they are, what is refused, what is recorded."""

from __future__ import annotations

import inspect
import json
import math

import pytest

from fedguard import Ray, api
from fedguard.bench.records.record import from_text, to_text
from fedguard.bench.running import apps
from fedguard.bench.running.apps import Apps, run_app
from fedguard.bench.running.code import code_of
from fedguard.bench.running.estimate import estimate
from fedguard.bench.running.procedures import PROCEDURES, procedure
from fedguard.config import PlannedCell, build_cell
from fedguard.config.apps import ELSEWHERE, acts_elsewhere
from fedguard.config.schema import CellConfig
from fedguard.contracts import PoisonAttack, Sight
from fedguard.errors import ConfigError
from fedguard.registry import load_registry

#: What an attack may override that an app's messages carry, or that FedGuard asks it wherever it runs.
CARRIED = {"craft", "report", "remember", "notes", "siblings", "backdoor"}
MATRIX = {"attack": ["none", "ipm(tau=5)"], "defense": ["own", "median"]}
#: What a program that runs an app says of a trial; the accuracies are of seven rounds, of which the last five count.
FOUND = {
    **{"metric": "acc", "where": "the honest nodes", "round": [*range(1, 8)], "loss": [None] * 7, "malicious": [3, 1]},
    **{"rounds": 7, "updates": 68, "hostile_share": 0.2, "outvoted": 0, "dropped": 1, "lost": 2, "abandoned": []},
    **{"bytes": 400, "seconds": 1.5, "cpu_seconds": 1.0, "memory": 1000},
    "accuracy": [0.0, 1.0, 0.5, 0.5, 0.6, 0.6, 0.8],
}


def suite(**more):
    return {"app": {"folder": "app"}, "clients": {"total": 10, "malicious": 2}, "matrix": MATRIX, **more}


def cells(**more) -> dict[tuple[str, str], PlannedCell]:
    plan = api.lay_out(suite(**more))[1]
    return {(swept["attack"], swept["defense"]): cell for swept, cell in plan.positions}


def test_each_cell_is_built_again_from_what_its_record_holds():
    found = cells()
    assert set(found) == {(attack, defense) for attack in MATRIX["attack"] for defense in MATRIX["defense"]}
    for cell in found.values():
        again = build_cell(CellConfig.model_validate(json.loads(json.dumps(cell.canonical))), cell.known)
        assert (again.id, again.label, again.own) == (cell.id, cell.label, cell.own)
    assert len({cell.id for cell in found.values()}) == 4
    assert found["none", "own"].label == "no attack against own"


def test_the_four_controls_are_with_and_without_attack_and_rule():
    found = cells()
    controls = found["ipm(tau=5)", "median"].compared_with
    assert {name: cell.id for name, cell in controls.items()} == {
        "clean_mean": found["none", "own"].id,
        "clean_defense": found["none", "median"].id,
        "attack_mean": found["ipm(tau=5)", "own"].id,
    }


def test_what_makes_another_cell():
    usual = cells()["none", "own"].id
    assert cells(clients={"total": 10, "malicious": 3, "assumed_f": 2})["none", "own"].id == usual
    others = [
        {"app": {"folder": "app", "engine": "deployment"}},
        {"app": {"folder": "app", "set": {"lr": 1}}},
        {"app": {"folder": "other"}},
        {"clients": {"total": 9, "malicious": 2}},
    ]
    assert cells(app={"folder": "app", "engine": "inline"})["none", "own"].id == usual
    assert len({usual, *(cells(**other)["none", "own"].id for other in others)}) == 5


def test_who_attacks_an_apps_own_strategy_does_not_know_its_rule():
    found = cells()
    assert Sight.RULE in found["ipm(tau=5)", "median"].threat.grants
    assert Sight.RULE not in found["ipm(tau=5)", "own"].threat.grants


@pytest.mark.parametrize(
    ("attack", "defense", "said"),
    [
        ("label_flip", "own", "label_flip acts on the clients' data, which is the app's own"),
        ("dropout", "own", "dropout acts on who takes part"),
        ("ipm", "client_clipping(bound=1) >> mean", "client_clipping is done by clients, and an app's are its own"),
        (
            "inverting_gradients",
            "own",
            r"inverting_gradients infers the clients' data from updates, for which FedGuard has to know an app's model and data, and "
            "an app names neither. Say in app.training what its nodes train",
        ),
        ("lira", "median", "lira infers the clients' data from updates"),
        ("ipm", "krum", None),
        ("ipm", "fltrust", "fltrust needs"),
    ],
)
def test_what_has_no_place_at_an_app_is_refused(attack, defense, said):
    (cell,) = cells(matrix={"attack": [attack], "defense": [defense]}).values()
    assert (said is None and not cell.verdict.reasons) or said in " ".join(cell.verdict.reasons)


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"training": {"rounds": 3}}, "app: it brings its own training; expected nothing there"),
        ({"task": {"data": "wine"}}, "app: it brings its own task"),
        ({"threat": {"last_round": 3}}, "app: it brings its own threat; expected nothing there but knowledge"),
        (
            {"clients": {"total": 4, "per_round": 2}},
            "app: it brings its own clients; expected nothing there but assumed_f",
        ),
        ({"observer": {"round": 2}}, "observer: an app names neither its model nor its data, so nobody can look"),
        ({"observer": {"seat": "nodes"}}, "observer: an app names neither"),
        (
            {
                "observer": {"seat": "nodes"},
                "app": {"folder": "app", "training": {"model": "a:b", "data": "a:c", "lr": 1}},
            },
            "observer.seat: an app's nodes receive from its server alone; expected server; got nodes",
        ),
        (
            {
                "app": {
                    "folder": "app",
                    "training": {"model": "a:b", "data": "a:c", "lr": 1, "local_epochs": 2, "local_steps": 1},
                }
            },
            "local_steps replaces local_epochs",
        ),
        ({"app": {"folder": "app", "engine": "ray"}}, "app.engine: expected 'inline', 'simulation' or 'deployment'"),
        ({"app": {}}, "app.folder"),
    ],
)
def test_what_an_app_brings_itself_is_no_setting(more, said):
    with pytest.raises(ConfigError, match=said):
        cells(**more)
    with pytest.raises(ConfigError, match="own is the strategy of an app"):
        api.lay_out({"defense": "own"})


LEARNS = {"model": "task:Net", "data": "task:data", "lr": "speed", "batch_size": 8}


def test_who_looks_at_an_app_is_part_of_the_cell_and_nobody_else_is():
    matrix = {"attack": ["none", "dlg", "ipm"], "defense": ["own"]}

    def found(observer=None, **training):
        said = {"app": {"folder": "app", **({"training": {**LEARNS, **training}} if training else {})}}
        return cells(matrix=matrix, **said, **({"observer": observer} if observer else {}))

    usual, told = found(), found(lr=0.5)
    assert [told[attack, "own"].id == usual[attack, "own"].id for attack in matrix["attack"]] == [True, False, True]
    assert not told["dlg", "own"].verdict.reasons and told["dlg", "own"].verdict.inference_sees
    others = [found(lr=0.25), found({"round": 40}, lr=0.5), found({"victims": 2}, lr=0.5)]
    assert len({told["dlg", "own"].id, *(one["dlg", "own"].id for one in others)}) == 4
    assert {one["ipm", "own"].id for one in others} == {usual["ipm", "own"].id}
    for cell in told.values():
        again = build_cell(CellConfig.model_validate(json.loads(json.dumps(cell.canonical))), cell.known)
        assert (again.id, again.label) == (cell.id, cell.label)


def test_who_looks_is_told_to_the_program_and_stands_in_the_card(program, tmp_path):
    says, asked = program
    looked = {"attack": "dlg", "goal": "reconstruction", "server": "curious", "given": None, "targets": [], "score": {}}
    says({"status": "ok", "found": {**FOUND, "inference": looked, "misfit": 0.25}, "log": ""})
    cell = cells(
        app={"folder": "app", "training": LEARNS},
        observer={"victims": 2},
        matrix={"attack": ["dlg"], "defense": ["median"]},
    )["dlg", "median"]
    record, _ = run_app(cell, 7, {}, runner := Apps(), tmp_path)
    runner.close()
    (told,) = asked()
    assert told["attack"] is None and told["looks"]["attack"] == str(cell.inference)
    assert told["looks"]["wants"]["victims"] == 2 and told["looks"]["training"]["lr"] == "speed"
    assert told["looks"]["pictures"] == [str(tmp_path), cell.id, 7]
    assert record["result"]["inference"] == looked and record["result"]["app"]["misfit"] == 0.25
    card = record["threat_card"]
    assert card["observer"]["victims"] == 2 and card["goal"] == "reconstruction"
    assert card["in_words"].startswith("A curious server watches round 1") and "each_update" in card["attack_sees"]
    assert "described_otherwise" in [one["flag"] for one in record["flags"]]


def test_changed_code_of_an_app_is_another_origin(tmp_path):
    (tmp_path / "pyproject.toml").write_text("")
    (tmp_path / "task.py").write_text("lr = 1")
    cell = cells(app={"folder": str(tmp_path)})["none", "own"]
    before = code_of(cell)
    (tmp_path / "task.py").write_text("lr = 2  # another")
    after = code_of(cell)
    assert before.keys() == {"fedguard", "app"} and before["fedguard"] == after["fedguard"]
    assert before["app"] != after["app"]


@pytest.fixture
def program(tmp_path, monkeypatch):
    """A program that says what it is told to, in the place of that which runs apps; it keeps what it was asked."""
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setattr(apps, "PROGRAM", "stand_in")
    monkeypatch.setattr(apps, "without_framework", lambda name: None)

    def says(*answers) -> None:
        lines = [json.dumps(one) for one in answers]
        (tmp_path / "stand_in.py").write_text(
            f"import sys\nfor line in {lines!r}:\n"
            f"    open({str(tmp_path / 'asked')!r}, 'a').write(sys.stdin.readline())\n    print(line, flush=True)\n"
        )

    yield says, lambda: [json.loads(line) for line in (tmp_path / "asked").read_text().splitlines()]


def test_a_record_holds_what_a_trial_came_to(program):
    says, asked = program
    says({"status": "ok", "found": FOUND, "log": "the logs"})
    cell = cells(threat={"knowledge": ["honest_updates", "defense"]})["ipm(tau=5)", "median"]
    runner = Apps()
    record, log = run_app(cell, 7, {"clean_mean": 0.9, "clean_defense": 0.7, "attack_mean": 0.2}, runner)
    runner.close()
    assert from_text(to_text(record)) == record | {"sha256": from_text(to_text(record))["sha256"]}
    result = record["result"]
    assert result["final_accuracy"] == pytest.approx(0.6) and result["best_accuracy"] == 1.0
    assert result["controls"] == {
        "clean_mean": 0.9,
        "clean_defense": 0.7,
        "attack_mean": 0.2,
        "attack_defense": pytest.approx(0.6),
    }
    assert result["accuracy_drop"] == pytest.approx(0.1) and result["robustness_tax"] == pytest.approx(0.2)
    assert result["rounds"]["silent"] == 2 and log == ""
    assert record["threat_card"]["in_words"].startswith(
        "2 of 10 nodes of the Flower app app collude; together they see"
    )
    (told,) = asked()
    assert told | {"app": "", "settings": {}} == {
        **{
            "app": "",
            "settings": {},
            "attack": "ipm(tau=5)",
            "defense": "median",
            "f": 2,
            "assumed_f": 2,
            "nodes": 10,
            "seed": 7,
        },
        **{"metric": None, "knowledge": ["honest_updates", "defense"], "engine": "inline"},
    }


def test_a_node_that_was_lost_stands_in_the_record_and_raises_a_flag(program):
    says, _ = program
    says({"status": "ok", "found": FOUND | {"gone": {"2": 3}, "ended": {"2": "was killed by SIGKILL"}}, "log": ""})
    record, _ = run_app(cells()["none", "own"], 0, {}, runner := Apps())
    runner.close()
    assert from_text(to_text(record))["result"]["app"]["lost"] == [
        {"node": 2, "round": 3, "how": "was killed by SIGKILL"}
    ]
    (said,) = [flag["said"] for flag in record["flags"] if flag["flag"] == "lost_nodes"]
    assert said.startswith(
        "1 of 10 nodes stopped answering: node 2 from round 3 on (its process was killed by SIGKILL)"
    )


@pytest.mark.parametrize(
    ("answers", "status", "said"),
    [
        ([{"status": "refused", "reason": "no place", "log": ""}], "refused", "no place"),
        ([{"status": "mistake", "reason": "no metric", "log": "text"}], "failed", "no metric"),
        ([], "failed", "the process in which apps run ended before it said anything (python -m stand_in)"),
    ],
)
def test_a_trial_that_came_to_nothing_says_why(program, answers, status, said):
    says, _ = program
    says(*answers)
    record, _ = run_app(cells()["none", "own"], 0, {}, runner := Apps())
    runner.close()
    assert (record["status"], record["reason"]) == (status, said)
    from_text(to_text(record))


@pytest.mark.parametrize(("found", "got"), [(None, "it is not installed"), ("1.29.0", "got 1.29.0")])
def test_without_a_flower_that_was_tried_nothing_runs(monkeypatch, tmp_path, found, got):
    def version(name):
        if found is None:
            raise apps.PackageNotFoundError
        return found

    monkeypatch.setattr(apps, "version", version)
    with pytest.raises(ConfigError, match="^app: an app runs on the machine on which the command is started"):
        api.run(suite(seeds=1), store=tmp_path, engine=Ray())
    with pytest.raises(ConfigError, match=f"^app: expected Flower 1.41 or 1.42; {got}. pip install 'fedguard"):
        api.run(suite(seeds=1), store=tmp_path)
    assert not list(tmp_path.iterdir())


def test_what_is_not_run_and_what_is_not_timed():
    """An app's cell is described as its record would be, and no time is promised for it."""
    plan = api.lay_out(suite(seeds=1))[1]
    for cell in plan.cells:
        record = procedure(cell).not_run(cell, 0, "refused", "as planted")
        from_text(to_text(record))
        assert record["threat_card"]["architecture"] == "flower" and record["environment"]["data"] is None
        assert cell.defended == (not cell.own)
    assert math.isnan(estimate(plan, {}, 1).seconds)
    assert set(PROCEDURES) == set(PlannedCell.__subclasses__())


def test_what_an_attack_may_do_is_carried_by_an_apps_messages_or_refused():
    """A new lie that nobody thought of here would run as no attack at all."""
    may = {name for name, held in vars(PoisonAttack).items() if inspect.isfunction(held) and not name.startswith("_")}
    assert may == CARRIED | set(ELSEWHERE)
    for name, kind in load_registry().classes(["attack"]):
        if issubclass(kind, PoisonAttack) and not kind.overrides("craft"):
            assert acts_elsewhere(kind.__new__(kind)), name
    assert acts_elsewhere(load_registry().build("attack", "hermit")) == "what its nodes make of others' values"
