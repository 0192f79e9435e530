"""Where the time goes: sums and shares over records written by hand, older records, a run, and the commands."""

from __future__ import annotations

import json
import shutil

import pytest

import fedguard as fg
from fedguard.bench.records.record import from_text, to_text
from fedguard.bench.results.profile import WHOLE, meanings, profile, together
from tests.flags.test_lint import command

SUITE = {
    "name": "timed",
    "clients": {"total": 6, "malicious": 1},
    "training": {"rounds": 3},
    "seeds": 2,
    "matrix": {"attack": ["none", "sign_flip"], "defense": ["median", "krum"]},
}


def record(stages, rounds=10, label="alie against krum"):
    """A record with what profiles read; ``{stage: (seconds, CPU seconds, calls)}``, or None as an older one."""
    cost = {"seconds": sum(seconds for seconds, *_ in (stages or {}).values())}
    if stages is not None:
        names = ("seconds", "cpu_seconds", "calls")
        cost["stages"] = {stage: dict(zip(names, spent, strict=True)) for stage, spent in stages.items()}
    return {"label": label, "cost": cost, "result": {"rounds": {"total": rounds}}}


def position(cell, attack="alie", defense="krum", **swept):
    return {"cell": cell, "swept": {"attack": attack, "defense": defense, **swept}}


ONE = {"training": (1.0, 0.8, 10), "aggregation": (3.0, 2.0, 10), "attack": (0.0, 0.0, 0)}
TWO = {"training": (2.0, 1.0, 10), "evaluation": (2.0, 2.0, 2)}


def test_the_figures_of_a_cell_are_means_over_its_trials_and_rounds():
    """Two trials of 10 rounds, 8 s: 3 s of aggregation are 1.5 s per trial, 150 ms per round and 3/8 of the time."""
    found = profile("made", {("a", 0): record(ONE), ("a", 1): record(TWO)}, [position("a")])
    (cell,) = found.cells
    assert (cell.trials, cell.rounds, cell.seconds) == (2, 20, 8.0)
    assert cell.cpu_seconds == pytest.approx(5.8)
    assert cell.ms_per_round == pytest.approx(400)
    rows = {row.pop("stage"): row for row in cell.rows()}
    assert rows["aggregation"] == {
        "share": 3 / 8,
        "ms_per_round": 150.0,
        "seconds_per_trial": 1.5,
        "cpu_seconds_per_trial": 1.0,
        "calls_per_trial": 5.0,
    }
    assert rows["training"]["seconds_per_trial"] == 1.5
    assert "attack" not in rows  # it took no time
    assert sum(row["share"] for row in rows.values()) == pytest.approx(1)


def test_the_stage_that_took_most_comes_first_and_so_does_the_slowest_cell():
    """Rounds of 100 ms and of 200 ms; the first cell took longer in all, since it has more of them."""
    many, slow = record(ONE, rounds=40), record({"training": (0.75, 0.1, 1), "evaluation": (1.25, 0.1, 1)})
    found = profile("made", {("a", 0): many, ("b", 0): slow}, [position("a"), position("b", "ipm")])
    assert [cell.place for cell in found.cells] == ["ipm against krum", "alie against krum"]
    assert [cell.ms_per_round for cell in found.cells] == [200, 100]
    assert [stage.name for stage in found.cells[0].stages] == ["evaluation", "training"]
    assert [(stage.name, stage.seconds) for stage in found.whole.stages] == [
        ("aggregation", 3.0),
        ("training", 1.75),
        ("evaluation", 1.25),
    ]


def test_the_whole_run_weighs_each_second_alike():
    """4 s over 40 rounds and 2 s over 10: 120 ms per round, not the mean of 100 and 200."""
    found = profile(
        "made",
        {("a", 0): record(ONE, rounds=40), ("b", 0): record({"training": (2.0, 1.0, 1)})},
        [position("a"), position("b", "ipm")],
    )
    assert (found.whole.place, found.whole.trials, found.whole.rounds) == (WHOLE, 2, 50)
    assert found.whole.ms_per_round == pytest.approx(120)
    assert together(found.cells[:1]).seconds == 2.0


def test_a_cell_at_several_positions_counts_once_and_has_what_they_share_as_its_place():
    """Without attack it does not matter how many would have attacked."""
    positions = [position("a", "none", **{"clients.malicious": f, "task.model": "mlp"}) for f in ("1", "2")]
    found = profile("made", {("a", 0): record(ONE)}, positions)
    (cell,) = found.cells
    assert cell.place == "no attack against krum, task.model = mlp"
    assert cell.setting == "task.model = mlp"
    assert found.whole.trials == 1


def test_a_control_that_is_not_in_the_matrix_is_a_cell_too():
    found = profile("made", {("c", 0): record(ONE, label="no attack against mean")}, [])
    assert (found.cells[0].place, found.cells[0].swept) == ("no attack against mean, a control", {})


def test_older_records_are_counted_and_left_out():
    records = {("a", 0): record(ONE), ("a", 1): record(None), ("b", 0): record(None)}
    found = profile("made", records, [position("a"), position("b", "ipm")])
    assert (found.untimed, found.whole.trials, found.whole.seconds) == (2, 1, 4.0)
    assert "2 trials were run by an older FedGuard, which did not time stages, and are left out." in str(found)


def test_a_run_of_older_records_is_told_in_a_line():
    found = profile("made", {("a", 0): record(None)}, [position("a")])
    assert found.whole is None and found.as_dict()["whole"] is None
    said = " ".join(str(found).split())
    assert said.startswith("made: where the time goes 1 trial was run by an older FedGuard")
    assert "training" not in said
    assert "No trial of this run has a result" in str(profile("made", {}, []))


def test_the_line_of_words_names_what_takes_a_twentieth_and_adds_up():
    stages = {
        "training": (70.0, 1.0, 1),
        "client_defense": (26.0, 1.0, 1),
        "attack": (2.5, 1.0, 1),
        "data": (1.5, 1.0, 1),
    }
    (cell,) = profile("made", {("a", 0): record(stages)}, [position("a")]).cells
    said = "1 trial, 100.0 s, of which a processor worked 4.0 s; 70 % training, 26 % client defense, 4 % the rest"
    assert cell.words() == said


def test_a_narrow_terminal_keeps_the_total_and_sums_up_what_does_not_fit(monkeypatch):
    stages = dict.fromkeys(meanings(), (1.0, 1.0, 1))
    found = profile("made", {("a", 0): record(stages)}, [position("a")])
    monkeypatch.setattr(type(found), "columns", 60)
    line = next(line for line in str(found).splitlines() if "alie against krum" in line)
    all_of_it, *shown = (float(text.replace(",", "")) for text in line.split("krum")[1].split())
    assert all_of_it == pytest.approx(100 * len(stages)) and 1 < len(shown) < len(stages)
    assert sum(shown) == pytest.approx(all_of_it)


def test_names_of_a_suite_are_no_markup():
    found = profile("[bold]made[/]", {("a", 0): record(ONE)}, [position("a", "[red]alie[/red]")])
    assert "[red]alie[/red] against krum" in str(found) and "[bold]made[/]" in str(found)


# ------------------------------------------------------------------------------------------------------------ a run


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return fg.run(SUITE, store=tmp_path_factory.mktemp("store"), jobs=1)


@pytest.fixture
def older(run, tmp_path):
    """The run as it would be had an older FedGuard run its first record."""
    shutil.copytree(run.folder.path, tmp_path / "timed")
    path = min((tmp_path / "timed").glob("cells/*/*.json"))
    body = from_text(path.read_bytes())
    del body["cost"]["stages"]
    path.write_bytes(to_text(body))
    return fg.open_run("timed", store=tmp_path)


def test_the_stages_of_a_run_add_up_to_what_its_trials_cost(run):
    found = run.profile()
    costs = [record["cost"] for record in run.records.values()]
    assert found.whole.trials == len(costs) and found.untimed == 0
    assert found.whole.seconds == pytest.approx(sum(cost["seconds"] for cost in costs))
    assert found.whole.cpu_seconds == pytest.approx(sum(cost["cpu_seconds"] for cost in costs))
    assert found.whole.rounds == 3 * len(costs)
    assert {stage.name for stage in found.whole.stages} <= set(meanings())
    attacked = [
        {stage.name for stage in cell.stages} for cell in found.cells if cell.swept.get("attack") == "sign_flip"
    ]
    clean = [{stage.name for stage in cell.stages} for cell in found.cells if cell.swept.get("attack") == "none"]
    assert len(attacked) == len(clean) == 2
    assert all({"attack", "training", "aggregation", "evaluation"} <= stages for stages in attacked)
    assert {cell.cell for cell in found.cells} == {cell for cell, _ in run.records}


def test_show_prints_it_and_gives_it_as_json(run, monkeypatch, capsys):
    store = run.folder.path.parent
    code, said, _ = command(monkeypatch, capsys, "show", "timed", "--profile", "--store", store)
    assert code == 0
    assert "timed: where the time goes" in said and "sign_flip against median" in said
    assert meanings()["training"] in said  # a wide terminal
    code, said, _ = command(monkeypatch, capsys, "show", "timed", "--profile", "--json", "--store", store)
    told = json.loads(said)
    assert code == 0 and told == json.loads(json.dumps(run.profile().as_dict()))
    cell = next(cell for cell in told["cells"] if cell.get("attack") == "sign_flip")
    assert sum(stage["share"] for stage in cell["stages"]) == pytest.approx(1)
    assert sum(stage["ms_per_round"] for stage in told["whole"]["stages"]) == pytest.approx(
        told["whole"]["ms_per_round"]
    )


def test_show_tells_what_is_left_out(older, monkeypatch, capsys):
    code, said, _ = command(monkeypatch, capsys, "show", "timed", "--profile", "--store", older.folder.path.parent)
    assert code == 0
    assert "1 trial was run by an older FedGuard" in said and "where the time goes" in said


@pytest.mark.parametrize("other", [("--metric", "kappa"), ("--to", "picture.svg")])
def test_show_has_one_subject_at_a_time(run, monkeypatch, capsys, other):
    store = run.folder.path.parent
    code, _, error = command(monkeypatch, capsys, "show", "timed", "--profile", *other, "--store", store)
    assert code == 2 and f"show {other[0]}: expected neither --profile nor --page" in error


def test_the_html_report_has_the_stages_of_all_trials(run, older, tmp_path, monkeypatch, capsys):
    for which, untimed in ((run, False), (older, True)):
        page = tmp_path / "page.html"
        code, *_ = command(
            monkeypatch, capsys, "report", which.name, "--to", page, "--force", "--store", which.folder.path.parent
        )
        text = " ".join(page.read_text().split())
        assert code == 0 and which.profile().whole.words() in text and meanings()["aggregation"] in text
        assert ("1 trial was run by an older FedGuard" in text) is untimed


def test_run_prints_it_in_the_end_and_alone_when_quiet(run, tmp_path, monkeypatch, capsys):
    store = run.folder.path.parent
    suite = run.folder.path / "config.resolved.yaml"
    arguments = ("run", suite, "--name", "timed", "--store", store, "--profile")
    code, said, _ = command(monkeypatch, capsys, *arguments)
    assert code == 0 and said.index("What was trained") < said.index("where the time goes") < said.index("Next:")
    code, said, _ = command(monkeypatch, capsys, *arguments, "--quiet")
    assert code == 0 and said.startswith("timed: where the time goes") and "What was trained" not in said
