"""Tuning: equal budgets, other attacks, other seeds, the right winner, and a record of it all."""

from __future__ import annotations

import itertools
import json
import re
import shutil
from dataclasses import dataclass
from statistics import fmean
from typing import ClassVar

import pytest
import yaml

import fedguard as fg
from fedguard.api import lay_out
from fedguard.bench.running.progress import Listener
from fedguard.bench.tuning.candidates import Candidates, as_text
from fedguard.bench.tuning.outcome import TunedDefense, TuningTrial
from fedguard.bench.tuning.tune import Proposal
from fedguard.config import Document, plan, read_suite
from fedguard.contracts import ROWS, Defense, Pipeline, WeightRule
from fedguard.errors import ConfigError, UnknownName
from fedguard.registry import load_registry
from tests.forked import fedguard

PLUGIN = '''
from dataclasses import dataclass
import torch
from fedguard.contracts import ROWS, WeightRule
from fedguard.errors import PreconditionError

@dataclass(frozen=True, kw_only=True)
class Tempted(WeightRule):
    """The mean, unless it is spoilt: every value of its grid is worse than its default."""
    name, needs = "tempted", ROWS
    grid = {"poison": (True,), "broken": (True,), "strict": (True,)}
    poison: bool = False
    broken: bool = False
    strict: bool = False

    def check(self, n, f):
        if self.strict:
            raise PreconditionError("too strict to run.")

    def weights(self, gram, context):
        if self.broken:
            raise RuntimeError("broken on purpose")
        return torch.full((gram.n,), (-1 if self.poison else 1) / gram.n).double()

@dataclass(frozen=True, kw_only=True)
class Mistuned(WeightRule):
    """The mean, scaled: its default walks backwards, and one value of its grid is right."""
    name, needs = "mistuned", ROWS
    grid = {"scale": (-2.0, 0.0, 1.0)}
    scale: float = -1.0

    def weights(self, gram, context):
        return torch.full((gram.n,), self.scale / gram.n).double()

@dataclass(frozen=True, kw_only=True)
class Idle(WeightRule):
    """The mean, with parameters that change nothing: all its settings are equally good."""
    name, needs = "idle", ROWS
    grid = {"a": (1, 2), "b": (1, 2)}
    a: int = 0
    b: int = 0

    def weights(self, gram, context):
        return torch.full((gram.n,), 1 / gram.n).double()
'''

SUITE = """\
name: small
plugins: [plugin_for_tuning]
clients: {total: 6, malicious: 1}
training: {rounds: 2}
seeds: 2
matrix:
  attack: [none, ipm(tau=5), sign_flip, ipm(tau=2), label_flip, free_rider]
  defense: [mean, tempted, mistuned, idle]
"""


class Ear(Listener):
    def __init__(self) -> None:
        self.ran: list[tuple[str, int]] = []

    def note_record(self, record):
        self.ran.append((record["label"], record["seed"]))


@pytest.fixture(scope="module")
def tuned(tmp_path_factory):
    """A suite with planted defenses, tuned with four settings each."""
    folder = tmp_path_factory.mktemp("tuning")
    (folder / "plugin_for_tuning.py").write_text(PLUGIN)
    (folder / "small.yaml").write_text(SUITE)
    tuning = fg.tune(folder / "small.yaml", budget=4, seeds=2, store=folder / "runs")
    return folder, tuning


# What was tried, and what won.


def test_every_defense_gets_the_same_budget(tuned):
    _, tuning = tuned
    assert tuning.budget == 4
    counts = {defense.configured: len(defense.candidates) for defense in tuning.defenses}
    assert counts == {"mean": 1, "tempted": 4, "mistuned": 4, "idle": 4}
    assert [defense.tunable for defense in tuning.defenses] == [False, True, True, True]
    for defense in tuning.defenses:
        assert len({tried.setting for tried in defense.candidates}) == len(defense.candidates)


def test_the_planted_winners_win(tuned):
    _, tuning = tuned
    assert [defense.chosen for defense in tuning.defenses] == ["mean", "tempted", "mistuned(scale=1)", "idle"]
    tempted, mistuned, idle = tuning.defenses[1:]
    why = {tried.setting: re.sub("of /.*/", "of ", tried.why) for tried in tempted.candidates}
    assert why == {
        "tempted": "",
        "tempted(poison=True)": "",
        "tempted(broken=True)": "failed under none: defense 'tempted' of plugin_for_tuning.py: RuntimeError: broken on purpose",
        "tempted(strict=True)": "refused under none: too strict to run.",
    }
    scores = {tried.setting: tried.score for tried in (*tempted.candidates, *mistuned.candidates)}
    assert scores["tempted(broken=True)"] is scores["tempted(strict=True)"] is None
    assert scores["tempted"] > scores["tempted(poison=True)"] + 0.2
    assert scores["mistuned(scale=1)"] == scores["tempted"] > scores["mistuned"] + 0.2
    assert len({tried.score for tried in idle.candidates}) == 1  # a tie, and the configured setting was first
    assert tuning.failed == 3 * 2 + 2  # and the control in which the malicious clients are silent


def test_a_score_is_the_mean_over_seeds_of_the_worst_final_accuracy(tuned):
    folder, tuning = tuned
    rows = fg.open_run("small-tuning", folder / "runs").rows()
    for tried in (tried for defense in tuning.defenses for tried in defense.candidates):
        mine = [row for row in rows if row["defense"] == tried.setting]
        assert {row["attack"] for row in mine} == {"none", "sign_flip", "free_rider"}
        if tried.score is not None:
            worst = [min(row["final_accuracy"] for row in mine if row["seed"] == seed) for seed in (10000, 10001)]
            assert tried.score == pytest.approx(fmean(worst), abs=1e-12)


def test_attacks_and_seeds_of_the_report_are_others(tuned):
    folder, tuning = tuned
    assert tuning.attacks == ("sign_flip", "free_rider")
    assert tuning.held_out == ("ipm(tau=5)", "ipm(tau=2)", "label_flip")
    tuning_run = fg.open_run("small-tuning", folder / "runs")
    _, report = lay_out(folder / "small.tuned.yaml")
    assert set(tuning_run.seeds) == {10000, 10001} and set(report.suite.seeds) == {0, 1}
    tuned_on = {row["attack"] for row in tuning_run.rows()} - {"none"}
    reported = {swept["attack"] for swept, _ in report.positions} - {"none"}
    assert reported == set(tuning.held_out) and not reported & tuned_on


def test_the_tuned_suite_runs_and_its_manifest_tells(tuned):
    folder, tuning = tuned
    run = fg.run(folder / "small.tuned.yaml", store=folder / "runs", jobs=1)
    assert run.name == "small-tuned"
    assert {row["status"] for row in run.rows()} == {"ok"}
    assert list(dict.fromkeys(row["defense"] for row in run.rows())) == ["mean", "tempted", "mistuned(scale=1)", "idle"]
    assert {row["attack"] for row in run.rows()} == {"none", *tuning.held_out}
    told = run.manifest["tuning"]
    assert told["attacks"] == ["sign_flip", "free_rider"]
    assert (told["seeds"], told["budget"], told["run"], told["judged_on"]) == (
        [10000, 10001],
        4,
        "small-tuning",
        "test",
    )
    assert [{tried["setting"]: tried["score"] for tried in defense["candidates"]} for defense in told["defenses"]] == [
        {tried.setting: tried.score for tried in defense.candidates} for defense in tuning.defenses
    ]
    resolved = yaml.safe_load((run.folder.path / "config.resolved.yaml").read_text())
    assert resolved["tuning"] == told
    assert fg.open_run("small-tuning", folder / "runs").manifest["tuning"] is None
    assert [cell.id for cell in lay_out(resolved)[1].cells] == [cell.id for cell in lay_out(tuning.file)[1].cells]


def test_tuning_again_runs_nothing_anew_and_a_larger_budget_only_adds(tuned, tmp_path):
    folder, tuning = tuned
    folder, ear = shutil.copytree(folder, tmp_path / "again"), Ear()
    again = fg.tune(
        folder / "small.yaml", budget=4, seeds=2, store=folder / "runs", out=folder / "again.yaml", listener=ear
    )
    assert ear.ran == []
    assert again.defenses == tuning.defenses
    assert yaml.safe_load((folder / "again.yaml").read_text()) == yaml.safe_load(tuning.file.read_text())
    more = fg.tune(
        folder / "small.yaml",
        budget=5,
        seeds=2,
        store=folder / "runs",
        out=folder / "more.yaml",
        listener=ear,
        jobs=1,
        overrides=["matrix.defense=[mean, idle]"],
    )
    assert len(more.defenses[1].candidates) == 5
    fifth = more.defenses[1].candidates[4].setting
    assert {label.partition(" against ")[2] for label, _ in ear.ran} == {fifth}


def test_a_stored_run_is_never_written_over(tuned):
    folder, tuning = tuned
    stored = next((folder).glob("*/*/manifest.json"))
    before = stored.read_bytes()
    with pytest.raises(ConfigError, match="a run is stored in it"):
        fg.tune(folder / "small.yaml", store=folder / "elsewhere", out=stored, force=True)
    assert stored.read_bytes() == before and not (folder / "elsewhere").exists()


def test_an_existing_file_is_not_written_over(tuned):
    folder, tuning = tuned
    before = tuning.file.read_bytes()
    with pytest.raises(ConfigError, match=r"small.tuned.yaml is there already. Choose another file with --to, or"):
        fg.tune(folder / "small.yaml", store=folder / "elsewhere")
    assert tuning.file.read_bytes() == before
    assert not (folder / "elsewhere").exists()  # nothing was run


def test_the_command(tuned):
    folder, _ = tuned
    done = fedguard("tune", "small.yaml", "--budget", "4", "--seeds", "2", "--force", cwd=folder, columns=120)
    assert done.returncode == 4, done.stdout + done.stderr  # the planted setting fails
    assert "small: at most 4 settings of each defense, 2 tuning seeds" in done.stdout
    assert "Tuned on sign_flip, free_rider and without attack; held out: ipm(tau=5)," in done.stdout
    rows = [line.split() for line in done.stdout.splitlines()]
    assert next(row for row in rows if row[:1] == ["mean"])[2:] == ["nothing", "to", "tune;", "chosen"]
    assert next(row for row in rows if row[:1] == ["mistuned(scale=1)"])[2:] == ["chosen"]
    assert next(row for row in rows if row[:1] == ["tempted(broken=True)"])[1:3] == ["-", "failed"]
    assert "small.tuned.yaml written. Next: fedguard run small.tuned.yaml" in done.stdout


# Which settings are tried.


@dataclass(frozen=True, kw_only=True)
class Gridded(WeightRule):
    """For its grid alone."""

    name, needs = "gridded", ROWS
    grid: ClassVar = {"a": (0.0, 1.0, 2.0, 3.0), "b": (5, 6), "c": (True,)}
    a: float = 1.0
    b: int = 0
    c: bool = False

    def __post_init__(self) -> None:
        if self.c and self.b == 6:
            raise ConfigError("gridded: c excludes b = 6.")

    def weights(self, gram, context):
        raise AssertionError


@pytest.fixture
def gridded(monkeypatch):
    """The defense above, known to every suite."""
    known = load_registry().with_modules([__name__])
    monkeypatch.setattr("fedguard.config.layout.load_registry", lambda: known)
    return Gridded


def settings_of(candidates: Candidates) -> list[tuple]:
    return [(one.rule.a, one.rule.b, one.rule.c) for one in candidates.pipelines]


def test_first_the_configured_setting_then_one_change_then_several(gridded):
    found = Candidates.of(Pipeline((gridded(),)), 100)
    settings, start = settings_of(found), (1.0, 0, False)
    changes = [sum(value != configured for value, configured in zip(one, start, strict=True)) for one in settings]
    assert changes == sorted(changes, key=lambda count: min(count, 2))
    assert changes[:7] == [0, 1, 1, 1, 1, 1, 1]
    every = set(itertools.product((0.0, 1.0, 2.0, 3.0), (0, 5, 6), (False, True)))
    assert set(settings) == {one for one in every if not (one[1] == 6 and one[2])}
    assert len(settings) == len(set(settings)) == 20
    assert found.invalid == 4
    # By turns over a, b and c; and of a the values far from 1 first.
    assert settings[1:7] == [(3.0, 0, False), (1.0, 6, False), (1.0, 0, True), (0.0, 0, False), (1.0, 5, False), (2.0, 0, False)]  # fmt: skip


def test_a_larger_budget_begins_with_the_smaller(gridded):
    pipeline = Pipeline((gridded(),))
    everything = settings_of(Candidates.of(pipeline, 100))
    for budget in range(1, 21):
        assert settings_of(Candidates.of(pipeline, budget)) == everything[:budget]


def test_a_configured_value_outside_the_grid_is_tried_first_and_other_parameters_are_kept(gridded):
    found = settings_of(Candidates.of(Pipeline((gridded(a=9.0, b=5, c=True),)), 6))
    assert found[0] == (9.0, 5, True)
    assert all(sum(x != y for x, y in zip(one, found[0], strict=True)) == 1 for one in found[1:])
    assert {one[0] for one in found[1:]} == {0.0, 1.0, 2.0, 3.0}


def test_combinations_are_spread_over_all_values(gridded):
    """Among the combinations that a modest budget reaches, each value of the longest axis occurs."""
    combined = settings_of(Candidates.of(Pipeline((gridded(),)), 15))[7:]
    assert {a for a, _, _ in combined} == {0.0, 1.0, 2.0, 3.0}
    assert {b for _, b, _ in combined} == {0, 5, 6}


def test_a_grid_is_no_parameter():
    """Though its annotation stands among the fields: it would enter every cell's identity."""
    assert Gridded().spec() == {"name": "gridded", "a": 1.0, "b": 0, "c": False}


def test_every_stage_of_a_pipeline_is_tuned(gridded):
    both = Pipeline((load_registry().build("defense", "nnm"), gridded()))
    texts = [as_text(one) for one in Candidates.of(both, 4).pipelines]
    assert all(text.startswith("nnm") for text in texts)
    assert len(set(texts)) == 4


def test_a_grid_that_names_no_parameter(gridded, monkeypatch):
    monkeypatch.setattr(gridded, "grid", {"aa": (1,)})
    with pytest.raises(UnknownName, match="unknown parameter in the grid of gridded 'aa'. Did you mean 'a'"):
        Candidates.of(Pipeline((gridded(),)), 2)


@pytest.mark.parametrize(
    "text",
    [
        "mean",
        "nnm >> trimmed_mean",
        "centered_clipping(tau=0.30000000000000004, steps=3)",
        "geometric_median(nu=1e-07)",
        "bucketing >> centered_clipping(tau=1e-300)",
    ],
)
def test_a_setting_is_written_to_the_last_digit(text):
    pipeline = load_registry().pipeline(text)
    assert load_registry().pipeline(as_text(pipeline)).spec() == pipeline.spec()


@pytest.mark.parametrize("cls", [cls for _, cls in load_registry().classes(["defense"])], ids=lambda cls: cls.name)
def test_the_grids_of_our_own_defenses(cls):
    """Each value builds beside the defaults, and is not the default under another name."""
    assert issubclass(cls, Defense)
    for parameter, values in cls.grid.items():
        assert len(values) >= 1
        built = [load_registry().build("defense", {"name": cls.name, parameter: value}).spec() for value in values]
        assert len({json.dumps(one) for one in built}) == len(values), (cls.name, parameter)


# What is judged, on made-up results.


class MadeUp:
    """A finished run in which ``final`` says each final accuracy; a text in its place is a status."""

    name, failures = "made-up", ()

    def __init__(self, proposal: Proposal, final) -> None:
        self.records = {}
        for swept, cell in plan(proposal.document, read_suite(proposal.document)).positions:
            for seed in proposal.seeds:
                value = final(swept, seed)
                status = value if isinstance(value, str) else "ok"
                result = None if status != "ok" else {"final_accuracy": value}
                self.records[cell.id, seed] = {"status": status, "reason": "so it is", "result": result}
        self.ran = {trial: record for trial, record in self.records.items() if record["status"] == "ok"}


def proposed(matrix=None, budget=3, attacks=None, seeds=2, **more) -> Proposal:
    matrix = matrix or {"attack": ["none", "alie", "sign_flip"], "defense": ["gridded", "median"]}
    document, laid_out = lay_out({"clients": {"malicious": 4}, "matrix": matrix, **more})
    return Proposal.of(document, laid_out, budget, attacks, seeds)


def judged(proposal: Proposal, final, tmp_path):
    return proposal.judge_run(MadeUp(proposal, final), tmp_path / "out.yaml")


def test_worst_over_attacks_then_mean_over_seeds(gridded, tmp_path):
    table = {
        "gridded": {("none", 10000): 0.9, ("sign_flip", 10000): 0.5, ("none", 10001): 0.3, ("sign_flip", 10001): 0.8},
        "gridded(a=3)": {("none", 10000): 0.9, ("sign_flip", 10000): 0.41, ("none", 10001): 0.4, ("sign_flip", 10001): 1},
    }  # fmt: skip
    tuning = judged(
        proposed(), lambda swept, seed: table.get(swept["defense"], {}).get((swept["attack"], seed), 0.1), tmp_path
    )
    first, second, third = tuning.defenses[0].candidates
    assert first.score == pytest.approx(0.4)
    assert second.score == pytest.approx(0.405)
    assert third.score == pytest.approx(0.1)
    assert tuning.defenses[0].chosen == "gridded(a=3)"


def test_ties_go_to_the_earlier(gridded, tmp_path):
    scores = {"gridded": 0.2, "gridded(a=3)": 0.7, "gridded(b=6)": 0.7}
    tuning = judged(proposed(), lambda swept, seed: scores.get(swept["defense"], 0.0), tmp_path)
    assert tuning.defenses[0].chosen == "gridded(a=3)"


@pytest.mark.parametrize("status", ["failed", "refused"])
def test_one_bad_trial_rules_a_setting_out(gridded, tmp_path, status):
    def final(swept, seed):
        if swept["defense"] == "gridded(a=3)":
            return status if (swept["attack"], seed) == ("sign_flip", 10000) or status == "refused" else 1.0
        return 0.5

    tuning = judged(proposed(), final, tmp_path)
    tried = tuning.defenses[0].candidates[1]
    assert tried.score is None and tried.why.startswith(f"{status} under")
    assert tuning.defenses[0].chosen == "gridded"


def test_where_nothing_is_eligible_the_configured_setting_stays(gridded, tmp_path):
    tuning = judged(proposed(), lambda swept, seed: "refused" if "gridded" in swept["defense"] else 0.5, tmp_path)
    assert tuning.defenses[0].eligible == ()
    assert tuning.defenses[0].chosen == "gridded"
    assert "kept: none is eligible" in str(tuning)
    only_peace = judged(proposed(), lambda swept, seed: 0.5 if swept["attack"] == "none" else "refused", tmp_path)
    assert only_peace.defenses[0].eligible == ()  # nobody is tuned on clean accuracy alone


def test_what_is_refused_with_every_setting_is_left_out_and_said(gridded, tmp_path):
    matrix = {
        "attack": ["none", "alie", "sign_flip"],
        "defense": ["gridded"],
        "clients.malicious": [0, 4],
    }

    def final(swept, seed):
        if swept["attack"] != "none":
            return "refused" if swept["clients.malicious"] == "0" else 0.2
        return 0.6

    tuning = judged(proposed(matrix), final, tmp_path)
    assert tuning.defenses[0].left_out == ("sign_flip, clients.malicious = 0",)
    assert tuning.defenses[0].candidates[0].score == pytest.approx((0.6 + 0.2) / 2)
    assert "Not judged under sign_flip, clients.malicious = 0, where all settings are refused: gridded." in str(tuning)


def test_two_defenses_that_end_alike_stand_once(gridded, tmp_path):
    matrix = {"attack": ["none", "alie", "sign_flip"], "defense": ["gridded", "gridded(a=3)", "median"]}
    proposal = proposed(matrix)
    tuning = judged(proposal, lambda swept, seed: 0.9 if swept["defense"] == "gridded(a=3)" else 0.1, tmp_path)
    proposal.write(tuning)
    assert yaml.safe_load((tmp_path / "out.yaml").read_text())["matrix"]["defense"] == ["gridded(a=3)", "median"]
    assert "2 defenses end in gridded(a=3)" in str(tuning)


def test_what_a_suite_writes_its_own_way_is_left_that_way(gridded, tmp_path):
    own = {"name": "gridded", "b": 5}
    matrix = {"attack": [{"name": "none"}, {"name": "alie", "z": 1.5}, "sign_flip"], "defense": [own]}
    proposal = proposed(matrix, task={"partition": "iid"})
    proposal.write(judged(proposal, lambda swept, seed: 0.5, tmp_path))
    written = yaml.safe_load((tmp_path / "out.yaml").read_text())
    assert written["matrix"] == {"attack": ["none", {"name": "alie", "z": 1.5}], "defense": [own]}
    assert written["task"] == {"partition": "iid"}
    assert re.fullmatch("untitled-[0-9a-f]{8}-tuned", written["name"])


# Which attacks and seeds.


def split(attacks, given=None, **more):
    proposal = proposed({"attack": attacks, "defense": ["mean"]}, attacks=given, **more)
    return list(proposal.attacks), list(proposal.held_out)


def test_every_second_attack_is_tuned_on_and_strengths_of_one_attack_stay_together():
    assert split(["none", "alie", "ipm(tau=5)"]) == (["ipm(tau=5)"], ["alie"])
    assert split(["alie", "mimic", "sign_flip"]) == (["mimic"], ["alie", "sign_flip"])
    assert split(["none", "ipm(tau=1)", "alie", "ipm(tau=2)", "alie(z=4)"]) == (
        ["alie", "alie(z=4)"],
        ["ipm(tau=1)", "ipm(tau=2)"],
    )


def test_given_attacks_are_tuned_on_and_their_names_are_not_held_out():
    listed = ["none", "ipm(tau=1)", "alie", "ipm(tau=2)", "mimic"]
    assert split(listed, ["alie"]) == (["alie"], ["ipm(tau=1)", "ipm(tau=2)", "mimic"])
    assert split(listed, ["ipm"]) == (["ipm(tau=1)", "ipm(tau=2)"], ["alie", "mimic"])
    assert split(listed, ["ipm(tau=9)"]) == (["ipm(tau=9)"], ["alie", "mimic"])
    assert split(listed, ["sign_flip"]) == (["sign_flip"], listed[1:])  # one that the suite does not list


def test_an_ensemble_is_for_the_report():
    worst = {"name": "worst_case", "attacks": ["alie", "mimic"]}
    assert split(["none", "alie", worst, "mimic"]) == (["mimic"], ["alie", worst])
    assert split(["none", "alie", worst]) == (["alie"], [worst])
    chosen, held_out = split(["none", "alie", worst, "ipm"], ["worst_case"])
    assert chosen[0].startswith("worst_case(") and held_out == ["ipm"]  # whose members are tuned on as well


def test_fixed_partitions_are_moved():
    matrix = {"attack": ["alie", "mimic"], "defense": ["mean"]}
    assert proposed(matrix, task={"partition_seed": 3}).document.data["task"]["partition_seed"] == 10003
    swept = proposed({**matrix, "task.partition_seed": [1, 2]}).document.data["matrix"]
    assert swept["task.partition_seed"] == [10001, 10002]
    whole = proposed({**matrix, "task": [{"partition_seed": 1}, {}]}).document.data["matrix"]
    assert whole["task"] == [{"partition_seed": 10001}, {}]


@pytest.mark.parametrize(
    ("suite", "arguments", "message"),
    [
        ({"matrix": {"attack": ["alie", "mimic"]}}, {}, "matrix: expected the defenses to be tuned as a list, matrix.defense; got none."),
        ({"matrix": {"defense": ["mean"]}}, {}, "matrix: expected at least two attacks as a list, matrix.attack; got none."),
        ({}, {"budget": 0}, "budget: expected a whole number of settings of each defense, from 1 to 10,000; got 0."),
        ({}, {"seeds": 0}, "seeds: expected at least 1 tuning seed; got 0."),
        ({}, {"seeds": [1, 7]}, "seeds: expected tuning seeds that are none of the suite's; got [1] in both."),
        ({"seeds": [10001]}, {}, "got [10001] in both. Tuning seeds count from 10000; take other seeds in the suite."),
        ({"matrix": {"attack": ["none", "alie"], "defense": ["mean"]}}, {}, "expected attacks of at least two names, some to tune on and some to hold out for the report; got alie."),
        ({"matrix": {"attack": ["ipm(tau=1)", "ipm(tau=2)"], "defense": ["mean"]}}, {}, "got ipm(tau=1), ipm(tau=2)."),
        ({}, {"attacks": ["alie", "mimic"]}, "got alie, mimic while tuning on alie, mimic."),
        ({}, {"attacks": ["none"]}, "attacks: expected attacks; got none, which every setting is tried without anyway."),
        ({}, {"attacks": ["aile"]}, "attacks: unknown attack 'aile'. Did you mean 'alie'"),
        ({"matrix": {"attack": ["alie", "mimic"], "defense": ["centered_clipping"], "defense.steps": [1, 2]}}, {}, "got the key defense.steps swept beside them."),
        ({}, {"out": "no/such/folder.yaml"}, "no/such/folder.yaml: cannot be written: No such file or directory."),
    ],
)  # fmt: skip
def test_mistakes(suite, arguments, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    base = {"clients": {"malicious": 4}, "matrix": {"attack": ["alie", "mimic"], "defense": ["mean"]}}
    with pytest.raises(ConfigError) as caught:
        fg.tune({**base, **suite}, **arguments)
    assert message in str(caught.value) and "\n" not in str(caught.value)
    assert list(tmp_path.iterdir()) == []  # nothing was run


# The section of the suite.

SECTION = {"attacks": ["alie"], "seeds": [10000], "budget": 2}


def test_the_section_is_no_part_of_a_cells_identity():
    suite = {"clients": {"malicious": 4}, "matrix": {"attack": ["none", "mimic"], "defense": ["mean", "median"]}}
    plain, told = lay_out(suite)[1], lay_out({**suite, "tuning": SECTION})[1]
    assert [cell.id for cell in plain.cells] == [cell.id for cell in told.cells]
    lay_out(
        {**suite, "tuning": {**SECTION, "attacks": ["mimic"]}}
    )  # reporting on a tuned attack is flagged, not refused


@pytest.mark.parametrize(
    ("tuning", "message"),
    [
        ({**SECTION, "seeds": [0]}, "seeds: expected none of the seeds that the defenses were tuned on; got [0]."),
        ({**SECTION, "attacks": ["aile"]}, "tuning.attacks[0]: unknown attack 'aile'. Did you mean 'alie'"),
        ({**SECTION, "attacks": []}, "tuning.attacks: "),
        ({**SECTION, "budget": 0}, "tuning.budget: expected greater than or equal to 1; got 0."),
        ({**SECTION, "bugdet": 2}, "tuning.bugdet: unknown key 'bugdet'. Did you mean 'budget'"),
        ({**SECTION, "defenses": [{"chosen": "krum", "candidates": [{"setting": "mean"}]}]}, "chosen: expected the setting of one of the candidates; got 'krum'."),
        ({**SECTION, "budget": 1, "defenses": [{"chosen": "a", "candidates": [{"setting": "a"}, {"setting": "b"}]}]}, "expected at most budget = 1 candidates for a; got 2."),
    ],
)  # fmt: skip
def test_a_wrong_section(tuning, message):
    with pytest.raises(ConfigError) as caught:
        plan(Document({"tuning": tuning}), read_suite(Document({"tuning": tuning})))
    assert message in str(caught.value)


def tried(*by_seed):
    return TuningTrial(f"krum(m={len(by_seed)}, {by_seed[0]:g})", fmean(by_seed), by_seed=by_seed)


@pytest.mark.parametrize(("settings", "chance", "said"), [
    ([(0.61, 0.55, 0.70), (0.60, 0.58, 0.64)], 0.1, "No single winner on 3 seeds: krum(m=3, 0.61) and krum(m=3, 0.6) cannot be told apart."),
    ([(0.60, 0.55, 0.64), (0.40, 0.36, 0.43)], 0.1, "krum(m=3, 0.6) keeps the most in its worst case: 59.7 % [48.2, 70.2]; next is "
     "krum(m=3, 0.4), 20.0 points lower [17.5, 22.5], p = .0008."),
    ([(0.6, 0.7), (0.4, 0.4)], 0.1, "Two seeds do not rank."),
    ([(0.6,), (0.4,)], 0.1, "One seed: no ranking."),
    ([(0.11, 0.10, 0.09), (0.10, 0.09, 0.10)], 0.1, "Every setting falls to chance (10.0 %) in its worst case: nothing to choose by."),
    ([(0.6, 0.7, 0.65)], 0.1, ""),
])  # fmt: skip
def test_a_choice_is_said_to_be_one_only_where_pairs_say_so(settings, chance, said):
    assert TunedDefense(tuple(tried(*one) for one in settings), True, 0, ()).verdict(chance) == said


def test_tune_says_so_below_its_table(tuned):
    _, tuning = tuned
    assert tuning.chance == pytest.approx(0.1, abs=0.02)
    assert "tempted: Two seeds do not rank." in str(tuning)
