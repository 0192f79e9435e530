"""`fedguard lint`: a run, and other people's tables, read as far as their columns tell."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

import pytest

import fedguard as fg
from fedguard import cli
from fedguard.bench.flags.foreign import read_results
from fedguard.bench.flags.lint import lint, results_named
from fedguard.bench.flags.results import results_of
from fedguard.bench.results.export import write_rows
from fedguard.errors import ConfigError, StoreError

PAPER = """\
Attack,Aggregator,N,Byzantine,Assumed F,Acc,Best Acc,ASR,Dirichlet Alpha,SecAgg,Eps
No Attack,FedAvg,20,4,4,91.2,91.5,,0.5,off,
No Attack,Krum,20,4,4,80.0,82.0,,0.5,off,
ALIE,FedAvg,20,4,4,90.0,91.0,,0.5,off,
ALIE,Krum,20,4,6,70.0,81.0,,0.5,off,
Sign Flip,FedAvg,20,4,4,89.0,90.0,,0.5,off,
Sign Flip,Krum,20,9,9,9.0,13.0,,0.5,off,
Backdoor,Multi-Krum,20,4,4,89.0,90.0,97,0.5,full,3
"""

SUITE = {
    "name": "tiny",
    "task": {"partition": {"kind": "label_sorted"}},
    "clients": {"total": 8, "malicious": 2},
    "training": {"rounds": 6},
    "seeds": 2,
    "matrix": {"attack": ["none", "ipm(tau=5)", "model_replacement"], "defense": ["mean", "median"]},
}


@pytest.fixture
def table(tmp_path):
    """Writes a table and reads it."""

    def write(content, name="paper.csv"):
        path = tmp_path / name
        path.write_text(content if isinstance(content, str) else json.dumps(content))
        return read_results(path)

    return write


def flags(results):
    return {(finding.number, finding.flag) for finding in lint(results).findings}


def why(results):
    return {one.flag: one.why for one in lint(results).not_judged}


def test_a_papers_table(table):
    results = table(PAPER)
    assert flags(results) == {
        (4, "timid_alie"),
        (5, "nothing_hurts"),
        (7, "wrong_assumed_f"),
        (7, "unproven"),
        (8, "read_beyond"),
        (10, "past_its_best"),
        (16, "epsilon_without_proof"),
        (17, "backdoor_without_baseline"),
        (22, "heterogeneity_unmeasured"),
    }
    by_flag = {finding.flag: finding for finding in lint(results).findings}
    assert "krum needs n >= 2f + 3, with f = 9: 21 updates; got n = 20" in by_flag["unproven"].said
    assert by_flag["past_its_best"].cell.startswith("alie against krum")
    assert by_flag["past_its_best"].said.startswith("best 81.0 %, final 70.0 %")
    assert "multi_krum would have to see what secure_aggregation: full hides" in by_flag["read_beyond"].said
    assert "a success of 97.0 %" in by_flag["backdoor_without_baseline"].said
    assert "Accuracies and rates were read as percent" in results.notes[0]


def test_what_no_column_tells_is_listed(table):
    missing = why(table(PAPER))
    assert missing["class_lost"] == "it would take a column worst_class_accuracy"
    assert missing["few_seeds"] == "it would take a column seed"
    assert missing["below_chance"] == "it would take a column chance, or classes"
    assert missing["outvoted"] == "it would take what happened in each round"
    assert missing["order_matters"] == "it would take the code of the defenses"
    assert missing["target_inputs_counted"] == "it would take a column counts_target"
    assert "add gaussian" in missing["weaker_than_noise"]


def test_controls_are_found_in_other_rows(table):
    cases = {(case.named, case.defense): case.result["controls"] for case in table(PAPER).cases}
    assert cases["alie", "krum"]["clean_mean"] == pytest.approx(0.912)
    assert cases["alie", "krum"].get("clean_defense") == pytest.approx(0.80)  # though it was told another f
    assert cases["sign_flip", "krum"]["attack_mean"] is None  # nobody ran 9 of 20 against the mean
    assert cases["sign_flip", "mean"]["attack_mean"] == pytest.approx(0.89)


def test_a_column_goes_before_other_rows(table):
    rows = [
        {"attack": None, "defense": "krum", "seed": 0, "accuracy": 0.8},
        {"attack": "ipm", "defense": "krum", "seed": 0, "accuracy": 0.7, "clean_accuracy": 0.75},
    ]
    (_, attacked) = table(rows, "rows.json").cases
    assert attacked.result["controls"]["clean_defense"] == 0.75


def test_seeds_are_paired(table):
    rows = [
        {"attack": attack, "defense": "krum", "seed": seed, "accuracy": value}
        for attack, values in (("none", (0.70, 0.80, 0.75)), ("mimic", (0.73, 0.83, 0.78)))
        for seed, value in enumerate(values)
    ]
    assert (2, "attack_helps") in flags(table(rows, "rows.json"))
    unnamed = [{key: value for key, value in row.items() if key != "seed"} for row in rows]
    results = table(unnamed, "rows.json")
    assert (2, "attack_helps") in flags(results)
    assert "taken for its seeds" in results.notes[0]


def test_shares_stay_shares(table):
    rows = [{"attack": "ipm", "defense": "krum", "acc": "0.04", "classes": 10, "loss": "nan", "Worst Class": 0.01}]
    assert {(20, "below_chance"), (11, "diverged"), (12, "class_lost")} <= flags(table(rows, "rows.json"))


def test_a_fraction_of_clients_is_counted(table):
    rows = [{"attack": "ALIE", "defense": "krum", "n": 50, "malicious_fraction": 0.2, "assumed_f": 10, "acc": 0.5}]
    (case,) = table(rows, "rows.json").cases
    assert (case.card["malicious"], case.card["assumed_f"]) == (10, 10)


def test_names_are_read_in_many_spellings(table):
    rows = [
        {"Attack-Name": "ALIE", "defence": "NNM >> Trimmed-Mean", "z": 0.2, "Test Acc": "81.5%", "task.model": "mlp"}
    ]
    (case,) = table(rows, "rows.json").cases
    assert (case.named, case.defense) == ("alie(z=0.2)", "nnm >> trimmed_mean")
    assert case.result["final_accuracy"] == pytest.approx(0.815)


def test_tuning_columns(table):
    rows = [
        {"attack": attack, "defense": "krum", "accuracy": 0.8, "tuned_on": "test set", "tuning_attack": "ALIE"}
        for attack in ("alie", "ipm")
    ]
    assert {(14, "tuned_on_test"), (18, "tuned_as_reported")} <= flags(table(rows, "rows.json"))


def test_columns_without_meaning_are_named(table):
    assert "Not used: colour." in table("attack,defense,acc,colour\nnone,mean,0.9,red\n").notes


@pytest.mark.parametrize(
    ("content", "name", "message"),
    [
        ("", "a.csv", "expected at least one row"),
        ("attack,acc\n", "a.csv", "expected at least one row"),
        ("attack,acc\nnone,high\n", "a.csv", "row 1: acc: expected a number; got 'high'"),
        ("attack,acc\nnone,91 ± 2\n", "a.csv", "row 1: acc: expected a number"),
        ("attack,acc\nnone,0.9\nnone,101\n", "a.csv", "row 2: final_accuracy: expected a share in [0, 1], or percent"),
        ("attack,acc\nnone,0.9,7\n", "a.csv", "row 1: expected as many values"),
        ("attack,acc,test_acc\nnone,0.9,0.8\n", "a.csv", "columns 'acc' and 'test_acc' both mean final_accuracy"),
        ("attack,speed\nnone,0.9\n", "a.csv", "expected a column final_accuracy"),
        ("attack,acc,status\nnone,0.9,failed\n", "a.csv", "no row has the status ok"),
        ("{", "a.json", "not valid JSON"),
        ('{"attack": "none"}', "a.json", "expected a list of objects"),
        ("[]", "a.json", "expected at least one row"),
        ("[1]", "a.json", "expected a list of objects"),
    ],
)
def test_bad_tables_are_one_line(table, content, name, message):
    with pytest.raises(ConfigError) as caught:
        table(content, name)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


# A run.


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return fg.run(SUITE, store=tmp_path_factory.mktemp("store"), jobs=1)


def test_an_export_is_judged_like_the_run(run, tmp_path):
    """Whatever can be judged from the columns of an export comes out as it does from the records."""
    for form in ("csv", "json"):
        write_rows(run, tmp_path / f"tiny.{form}", form)
        results = read_results(tmp_path / f"tiny.{form}")
        ours, theirs = lint(results_of(run)), lint(results)
        judged = set(theirs.clear) | {finding.flag for finding in theirs.findings}
        open_here = {one.flag for one in theirs.not_judged}
        assert "past_its_best" in judged and open_here >= {"not_converged"}  # an export has no curves
        shared = judged - open_here - {"past_its_best"}
        assert {"class_lost", "nothing_hurts", "tax_above_benefit", "attack_helps"} <= shared

        def cells(found, shared=shared):
            """Without the controls in which the malicious clients send nothing, which an export has no rows of."""
            return sorted(
                (one.flag, one.cell, one.seed, one.said)
                for one in found.findings
                if one.flag in shared and "trained to compare with" not in one.cell
            )

        assert cells(theirs) == cells(ours)
        assert len(cells(ours)) > 5
        assert "backdoor_without_baseline" not in judged  # an export's success has the clean model's taken off


def test_what_is_trained_to_compare_with_says_so(run):
    cells = {one.cell for one in results_of(run).trials}
    assert {
        "ipm(tau=5) against median",
        "silent malicious clients against median, not in the matrix, trained to compare with",
    } <= cells
    assert not [one for one in cells if one.startswith("dropout")]


def test_results_named(run, tmp_path):
    assert results_named("tiny", run.folder.path.parent).name == "tiny"
    assert results_named(str(run.folder.path), tmp_path).name == "tiny"
    with pytest.raises(StoreError, match="not found"):
        results_named("nothing", run.folder.path.parent)
    with pytest.raises(ConfigError, match=r"none\.csv: cannot be read: No such file"):
        results_named("none.csv", run.folder.path.parent)


def command(monkeypatch, capsys, *arguments):
    """What the command line says, and its exit code."""
    monkeypatch.setattr(sys, "argv", ["fedguard", *map(str, arguments)])
    monkeypatch.setattr("fedguard.commands.options.console._width", 200)  # COLUMNS is read when the module is loaded
    monkeypatch.setattr("signal.signal", lambda *_: None)
    with pytest.raises(SystemExit) as end:
        cli.main()
    said = capsys.readouterr()
    return end.value.code, said.out, said.err


def test_the_command(run, monkeypatch, capsys):
    store = run.folder.path.parent
    code, said, _ = command(monkeypatch, capsys, "lint", "tiny", "--store", store)
    assert code == 0
    for part in (
        "Raised, each with one example, what to do, and all cells:",
        "class_lost (",
        "Judged and not raised:",
        "Not yet judged",
        "  an inversion that knows",
    ):
        assert part in said
    code, said, _ = command(monkeypatch, capsys, "lint", "tiny", "--store", store, "--json")
    told = json.loads(said)
    assert set(told) == {"name", "trials", "notes", "flags", "not_judged", "clear", "not_yet"}
    assert {"number", "flag", "cell", "seed", "said"} == set(told["flags"][0])
    assert told["trials"] == 16
    assert command(monkeypatch, capsys, "lint", "tiny", "--store", store, "--fail-on", "flags")[0] == 3


def test_the_command_on_files(monkeypatch, capsys, tmp_path):
    path = tmp_path / "paper.csv"
    path.write_text(PAPER)
    code, said, _ = command(monkeypatch, capsys, "lint", path)
    assert code == 0
    assert "paper.csv: 7 trials judged" in said
    assert command(monkeypatch, capsys, "lint", path, "--fail-on", "flags")[0] == 3
    sound = tmp_path / "sound.json"
    sound.write_text(json.dumps([{"attack": "none", "defense": "mean", "accuracy": 0.9, "seed": s} for s in range(3)]))
    assert command(monkeypatch, capsys, "lint", sound, "--fail-on", "flags")[0] == 0
    path.write_text("attack,acc\nnone,high\n")
    code, said, error = command(monkeypatch, capsys, "lint", path)
    assert (code, said, error.count("\n")) == (2, "", 1)
    assert error.startswith("fedguard: ")
    assert command(monkeypatch, capsys, "lint", Path("none.csv"))[0] == 2


def test_show_holds_the_flags_of_the_run(run, monkeypatch, capsys):
    said = command(monkeypatch, capsys, "show", "tiny", "--all", "--store", run.folder.path.parent)[1]
    assert "Before you quote this" in said
    assert "class_lost (" in said
    raised = {finding.flag for finding in lint(results_of(run)).findings}
    assert all(flag in said for flag in raised)
    assert re.search(r"To compare with: chance \d+\.\d %, honest clients alone \d+\.\d %", said)


def test_figures_of_filters_and_rounds(run, monkeypatch, capsys):
    store = run.folder.path.parent
    for figure, heading in (
        ("kappa", "Kappa: the largest that a round showed"),
        ("honest_excluded", "Honest updates that the filter excluded in %"),
        ("durability", "No cell has a value of this metric: how long a backdoor outlived the attack"),
    ):
        assert heading in command(monkeypatch, capsys, "show", "tiny", "--store", store, "--metric", figure)[1]
    rows = {(row["attack"], row["defense"], row["seed"]): row for row in run.rows()}
    records = {(record["label"], record["seed"]): record["result"] for record in run.records.values()}
    clean = rows["none", "mean", 0]
    assert clean["honest_excluded"] == 0
    assert clean["filter_recall"] is None  # there is nobody to find
    assert rows["none", "median", 0]["honest_excluded"] is None  # the median weighs nobody
    assert clean["kappa"] == pytest.approx(0, abs=1e-9)
    assert rows["ipm(tau=5)", "median", 1]["kappa"] == records["ipm(tau=5) against median", 1]["aggregate"]["kappa"] > 0


def test_durability_and_precision_stand_in_the_rows(tmp_path):
    suite = {
        **SUITE,
        "threat": {"last_round": 2},
        "seeds": 1,
        "matrix": {"attack": ["model_replacement"], "defense": ["mean", "krum"]},
    }
    rows = {row["defense"]: row for row in fg.run(suite, store=tmp_path, jobs=1).rows()}
    assert rows["mean"]["durability"] is not None
    assert 0 <= rows["mean"]["durability"] <= 4
    assert 0 <= rows["krum"]["filter_precision"] <= 1
    assert rows["krum"]["honest_excluded"] > 0.5


def _headings(said: str) -> dict[str, str]:
    """The text below each heading."""
    parts = re.split(r"^(\w.*):$", said, flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def test_every_case_of_a_flag_is_listed_and_each_flag_stands_below_one_heading(run, monkeypatch, capsys):
    store = run.folder.path.parent
    monkeypatch.setenv("COLUMNS", "500")
    said = command(monkeypatch, capsys, "lint", "tiny", "--store", store)[1]
    found, below = lint(results_of(run)), _headings(said)
    raised = below["Raised, each with one example, what to do, and all cells"]
    several = {flag: cases for (_, flag), cases in found.flags().items() if len(cases) > 1}
    assert len(several) >= 2
    for flag, cases in several.items():
        listed = raised[raised.index(f" {flag} (") :].splitlines()[1:]
        for cell in {one.cell for one in cases}:
            seeds = [str(one.seed) for one in cases if one.cell == cell and one.seed is not None]
            assert f"       {cell}" + (f": seed{'s' * (len(seeds) > 1)} {', '.join(seeds)}" if seeds else "") in listed
    partly = {one.flag for one in found.not_judged} & {*found.clear, *(one.flag for one in found.findings)}
    assert partly, "a flag that is judged in some cases only"
    for flag in {*found.clear, *(one.flag for one in found.findings), *(one.flag for one in found.open)}:
        assert sum(bool(re.search(rf"\b{flag}\b", text)) for text in below.values()) == 1, flag
