"""The worst case: how it is chosen, that giving up members early changes nothing, and what its record says."""

from __future__ import annotations

import itertools
import random
from statistics import fmean

import pytest

import fedguard as fg
from fedguard.api import lay_out
from fedguard.bench.records.record import reproducible
from fedguard.bench.running.selection import AttackSelection, saturation
from fedguard.contracts import PoisonAttack
from fedguard.errors import ConfigError
from fedguard.registry import load_registry
from tests.forked import fedguard

#: What sets its own strength against rules at nodes without a server.
AGAINST_NODES = {"dissensus", "spectral_dissensus", "receiver_ipm"}

MEMBERS = ("sign_flip", "ipm(tau=0.1)", "ipm(tau=5)", "alie(z=-4)", "gaussian(scale=10)", "free_rider")


def suite(name="worst", **changes):
    settings = {
        "name": name,
        "task": {"data": "wine", "partition": "iid"},
        "clients": {"total": 8, "malicious": 2},
        "training": {"algorithm": "fedsgd", "rounds": 3, "lr": 0.3, "batch_size": 8},
        "seeds": 2,
        "matrix": {
            "attack": ["none", {"name": "worst_case", "attacks": list(MEMBERS), "selection_seeds": 2}],
            "defense": ["mean", "median"],
        },
    }
    return {**settings, **changes}


@pytest.fixture(scope="module")
def cell():
    laid_out = lay_out(suite())[1]
    return next(cell for cell in laid_out.cells if cell.ensemble and str(cell.pipeline) == "median")


def test_the_ensemble_holds_what_was_seen_to_win_at_every_strength_and_all_that_search():
    """A worst case is no worse than its members, so none may go missing unnoticed."""
    known = load_registry()
    held = [known.build("attack", text) for text in known.build("attack", "worst_case").members()]
    assert len({str(one) for one in held}) == len(held)
    strengths = {
        name: {one.parameters()[key] for one in held if one.name == name}
        for name, key in (("ipm", "tau"), ("alie", "z"))
    }
    assert strengths == {"ipm": {0.1, 0.4, 0.8, 1, 1.2, 2, 5, 10, 20, 64}, "alie": {-8, -4, -1.5, 1.5, 4}}
    for name in ("min_max", "min_sum", "agr_tailored"):
        assert {one.direction for one in held if one.name == name} == {"std", "unit", "sign"}
    assert {one.form for one in held if one.name == "fang"} == {"coordinate", "krum"}
    assert {one.objective for one in held if one.name == "gram_search"} == {"deviation", "progress"}
    assert {one.decorrelated for one in held if one.name == "sybil"} == {True, False}
    mixtures = {(one.unit, one.sign, one.std, one.back, one.length) for one in held if one.name == "mixed_step"}
    assert mixtures == {(1, 1, 0, 1, 1), (1, 1, 0, 0.5, 1), (1, 0, 0, 0.5, 1), (1, 1, 2, 0, 2)}
    assert {one.scale for one in held if one.name == "gaussian"} == {10}
    assert {one.factor for one in held if one.name == "huge_value"} == {-1e6}
    names = {one.name for one in held}
    attacks = [cls for _, cls in known.classes(["attack"]) if issubclass(cls, PoisonAttack)]
    searching = {cls.name for cls in attacks if cls.adaptive and cls.goal == "untargeted"}
    assert names >= searching - AGAINST_NODES
    assert names >= {"sign_flip", "mimic", "poisoned_fl", "label_flip", "dynamic_flip"}


def finals_of(cell, scores):
    """Final accuracies by trial from ``{attack: (first seed, second seed)}``; a missing second seed was not run."""
    members = {str(member.attack): member.id for member in cell.members}
    return {
        (members[attack], 1_000_000 + number): value
        for attack, values in scores.items()
        for number, value in enumerate(values)
    }


def test_all_are_run_on_the_first_seed_and_the_dangerous_ones_on_the_second(cell):
    race = AttackSelection.of(cell)
    assert [seed for _, seed in race.due_trials({})] == [1_000_000] * len(MEMBERS)
    first = dict(
        zip(
            map(str, (m.attack for m in race.members)),
            [(0.5,), (0.61,), (0.55,), (0.9,), (0.58,), (0.92,)],
            strict=True,
        )
    )
    finals = finals_of(cell, first)
    names = {member.id: str(member.attack) for member in race.members}
    assert {names[id] for id, _ in race.due_trials(finals)} == {
        name for name, (value,) in first.items() if value <= 0.6
    }
    assert race.choice(finals) is None


def test_the_lowest_mean_over_the_selection_seeds_wins(cell):
    race = AttackSelection.of(cell)
    names = [str(member.attack) for member in race.members]
    scores = dict(zip(names, [(0.5, 0.7), (0.9,), (0.55, 0.58), (0.9,), (0.9,), (0.9,)], strict=True))
    finals = finals_of(cell, scores)
    assert race.due_trials(finals) == []
    assert str(race.choice(finals).attack) == names[2]  # not the one that looked worst on the first seed
    report = race.report(finals)
    assert report["chosen"] == names[2]
    assert report["selection_accuracy"] == pytest.approx(0.565)
    assert report["given_up"] == 4
    assert report["closest_given_up"] == pytest.approx(0.9 - 0.55)
    assert [score["attack"] for score in report["scores"]][:2] == [names[2], names[0]]


def test_members_that_failed_cannot_win_and_are_named(cell):
    race = AttackSelection.of(cell)
    names = [str(member.attack) for member in race.members]
    finals = finals_of(cell, {name: (None,) if i == 0 else (0.8 + i / 100, 0.8) for i, name in enumerate(names)})
    assert str(race.choice(finals).attack) == names[1]
    assert [score["attack"] for score in race.report(finals)["scores"] if score["failed"]] == [names[0]]
    everything_failed = finals_of(cell, dict.fromkeys(names, (None,)))
    assert race.choice(everything_failed) is None
    assert race.due_trials(everything_failed) == []


def test_giving_up_members_does_not_change_the_answer_while_seeds_differ_by_less_than_half_the_margin(cell):
    """Two seeds that each shift a score by less than margin / 2: whoever is given up could not have won."""
    race = AttackSelection.of(cell)
    names = [str(member.attack) for member in race.members]
    draw = random.Random(0)
    saved = 0
    for _ in range(300):
        true = [draw.random() for _ in names]
        full = {
            name: tuple(mean + draw.uniform(-0.049, 0.049) for _ in range(2))
            for name, mean in zip(names, true, strict=True)
        }
        everything, run = finals_of(cell, full), {}
        while wanted := race.due_trials(run):
            run |= {trial: everything[trial] for trial in wanted}
        saved += len(everything) - len(run)
        best = min(full, key=lambda name: fmean(full[name]))
        assert str(race.choice(run).attack) == best
    assert saved > 300


def test_saturation_is_the_expected_minimum_of_a_random_subset():
    scores = [0.2, 0.5, 0.3, 0.9]
    found = saturation(scores)
    for size, expected in enumerate(found["curve"], start=1):
        assert expected == pytest.approx(fmean(min(some) for some in itertools.combinations(scores, size)))
    assert found["last_gain"] == pytest.approx((0.3 - 0.2) / 4)  # the gap to the second, with probability 1 / k
    assert found["further"] == pytest.approx(3 / 4 * 0.1)
    assert saturation([0.4]) is None
    assert saturation([0.4, 0.4, 0.8])["further"] == 0


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return fg.run(suite(), store=tmp_path_factory.mktemp("runs"), jobs=2)


def choices(run):
    return {label: record["result"]["worst_case"] for label, record in records(run).items()}


def records(run):
    """By defense and seed, the records of the ensemble's cells."""
    return {
        (record["label"].split(" against ")[1], record["seed"]): record
        for record in run.records.values()
        if (record["result"] or {}).get("worst_case")
    }


def test_the_record_names_the_winner_and_every_score(run):
    assert len(records(run)) == 4
    for (_, seed), record in records(run).items():
        choice = record["result"]["worst_case"]
        assert seed not in choice["selection_seeds"]
        assert record["threat_card"]["attack"] == choice["chosen"]
        assert record["threat_card"]["ensemble"].startswith("worst_case")
        assert {score["attack"] for score in choice["scores"]} <= set(MEMBERS)
        assert len(choice["scores"]) == len(MEMBERS)
        scored = [score["accuracy"] for score in choice["scores"] if score["seeds"] == 2]
        assert choice["selection_accuracy"] == min(scored)
        assert record["result"]["controls"]["clean_defense"] is not None


def test_the_winner_is_what_it_would_be_alone(run, tmp_path):
    """The held-out result is that of the chosen attack in an ordinary suite, to the last bit."""
    (defense, seed), record = next(iter(records(run).items()))
    chosen = record["result"]["worst_case"]["chosen"]
    alone = fg.run(suite("alone", seeds=[seed], matrix={"attack": [chosen], "defense": [defense]}), store=tmp_path)
    (twin,) = [one for one in alone.records.values() if one["threat_card"]["attack"] == chosen]
    assert twin["result"]["curve"] == record["result"]["curve"]


def test_without_giving_anybody_up_the_same_attack_wins(run, tmp_path):
    changed = suite("patient")
    changed["matrix"]["attack"][1]["margin"] = 1.0
    patient = fg.run(changed, store=tmp_path, jobs=2)
    assert all(choice["given_up"] == 0 for choice in choices(patient).values())
    assert {key: choice["chosen"] for key, choice in choices(patient).items()} == {
        key: choice["chosen"] for key, choice in choices(run).items()
    }


def test_a_member_may_stand_in_the_matrix_itself(run, tmp_path):
    """Then it is run on the suite's seeds and on the selection seeds, and neither waits for the other."""
    changed = suite("both")
    changed["matrix"]["attack"] += ["sign_flip", "ipm(tau=5)"]
    both = fg.run(changed, store=tmp_path, jobs=2)
    assert not both.with_status("missing")
    assert choices(both) == choices(run)


def test_resumed_it_is_the_same_and_nothing_runs_twice(run, tmp_path):
    import shutil

    from fedguard.bench.records.store import RunFolder

    store = tmp_path / "runs"
    shutil.copytree(run.folder.path, store / "worst")
    folder = RunFolder(store / "worst")
    lost = [path for number, path in enumerate(sorted(folder.path.glob("cells/*/*.json"))) if number % 3 == 0]
    kept = {path: path.stat().st_mtime_ns for path in folder.path.glob("cells/*/*.json") if path not in lost}
    for path in lost:
        path.unlink()
    again = fg.run(suite(), store=store, jobs=2)
    assert {trial: reproducible(record) for trial, record in again.records.items()} == {
        trial: reproducible(record) for trial, record in run.records.items()
    }
    assert kept == {path: path.stat().st_mtime_ns for path in kept}


def test_what_the_threat_model_refuses_is_no_member():
    laid_out = lay_out(suite(threat={"knowledge": []}))[1]
    ensembles = [cell for cell in laid_out.cells if cell.ensemble]
    assert {str(member.attack) for cell in ensembles for member in cell.members} == {
        "gaussian(scale=10)",
        "free_rider",
    }
    only = suite(threat={"knowledge": []})
    only["matrix"]["attack"][1]["attacks"] = ["sign_flip", "alie"]
    refused = [cell.verdict.reasons for cell in lay_out(only)[1].cells if cell.ensemble]
    assert all("none of the attacks of worst_case may run here" in reasons[0] for reasons in refused)


def test_nothing_is_reported_on_a_seed_on_which_it_was_chosen():
    with pytest.raises(ConfigError, match=r"expected none of the seeds on which worst_case.* got \[1000001\]"):
        lay_out(suite(seeds=[1, 1_000_001]))


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"selection_seeds": 0}, "selection_seeds: expected at least 1"),
        ({"margin": 2.0}, "margin: expected a number in"),
        ({"attacks": ["alie"]}, "attacks: expected at least 2"),
        ({"attacks": ["alie", "worst_case"]}, "got worst_case itself"),
        ({"attacks": ["alie", "nonsense"]}, "unknown attack 'nonsense'"),
    ],
)
def test_bad_ensembles_are_refused_in_one_line(parameters, message):
    changed = suite()
    changed["matrix"]["attack"] = [{"name": "worst_case", **parameters}]
    with pytest.raises(ConfigError, match=message):
        lay_out(changed)


def test_it_can_be_asked_for_on_the_command_line(tmp_path):
    (tmp_path / "suite.yaml").write_text("name: s\ntask: {data: wine}\nclients: {total: 8, malicious: 2}\nseeds: 1\n")
    done = fedguard("run", "suite.yaml", "--attack", "worst_case", "--dry-run", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "worst_case against mean" in done.stdout
    assert "ipm(tau=5) against mean" in done.stdout
