"""Actors in suites: what is refused and why, what a record holds, and what is said of it."""

from __future__ import annotations

from typing import Any

import pytest
from rich.console import Console

from fedguard.bench.flags.answer import answers
from fedguard.bench.pages.blocks import Chart
from fedguard.bench.pages.overview import OVERVIEW
from fedguard.bench.pages.terminal import render_terminal
from fedguard.bench.records.record import curve, reproducible
from fedguard.bench.results.answer import standings
from fedguard.bench.results.run import Run
from fedguard.bench.running.trial import run_trial
from fedguard.errors import ConfigError
from fedguard.metrics.flags import find_red_flags
from fedguard.metrics.returns import in_shares, normalize_return
from fedguard.tasks.playing import EnvironmentTask
from tests.rl.acting import cell, settings


@pytest.mark.parametrize(
    ("architecture", "changes", "why"),
    [
        ("server", {"training": {"algorithm": "fedavg"}}, "fedavg trains on examples. Set training.algorithm: actor_critic."),
        ("a3c", {"training": {"algorithm": "fedsgd"}}, "the clients of a3c are actors, and under fedsgd they train on examples."),
        ("a3c", {"task": {"data": "digits", "model": "softmax"}}, "actor_critic learns from acting, and digits is a data set."),
        ("a3c", {"defense": "median", "clients": {"malicious": 1}, "attack": "sign_flip"}, "use mean, a2c, or fedbuff."),
        ("a2c", {"attack": "label_flip", "clients": {"malicious": 1}}, "label_flip changes examples, and the actors of cartpole"),
        ("all_reduce", {"attack": "split_brain", "clients": {"malicious": 1}}, "split_brain leaves each node of all_reduce with"),
        ("a2c", {"attack": "dlg"}, "dlg replays the local steps of fedavg and fedsgd, and actor_critic takes others."),
        (
            "a2c",
            {"evaluation": {"evasion": "pgd"}, "task": {"data": "pendulum"}},
            "pgd makes a model choose another of a few actions, and those of pendulum are a range.",
        ),
        (
            "a2c",
            {"protocol": {"privacy": {"name": "record", "clip": 1.0, "noise_multiplier": 1.0}}},
            "no step is a record of its own. Use privacy of the unit client, which is here an actor.",
        ),
    ],
)  # fmt: skip
def test_what_actors_cannot_do_is_refused_with_its_reason(architecture: str, changes: dict[str, Any], why: str) -> None:
    reasons = cell(architecture, **changes).verdict.reasons
    assert any(why in reason for reason in reasons), reasons


def test_a_scale_of_rewards_stands_in_a_cells_identity_only_where_there_is_one() -> None:
    plain, one = cell("a2c"), cell("a2c", training={"algorithm": "actor_critic(t_max=4, reward_scale=1.0)"})
    scaled = cell("a2c", training={"algorithm": "actor_critic(t_max=4, reward_scale=0.1)"})
    assert plain.id == one.id != scaled.id
    assert "reward_scale" not in plain.canonical["training"] and scaled.canonical["training"]["reward_scale"] == 0.1


def test_rewards_are_changed_of_actors_alone() -> None:
    wrong = cell("server", task={"data": "digits", "model": "softmax"}, training={"algorithm": "fedavg"},
                 attack="reward_flip", clients={"malicious": 1})  # fmt: skip
    assert any(
        "what its actors are rewarded with, and in digits nobody acts" in reason for reason in wrong.verdict.reasons
    )
    assert not cell("a2c", attack="reward_flip", clients={"malicious": 1}).verdict.reasons


def test_an_actor_is_the_unit_of_privacy_at_a_trusted_server() -> None:
    noisy = {"name": "client", "clip": 0.5, "noise_multiplier": 1.0, "delta": 0.01}
    made = cell("server", protocol={"privacy": noisy}, training={"rounds": 2})
    assert not made.verdict.reasons, made.verdict.reasons
    record, _ = run_trial(made, 0, {})
    assert record["threat_card"]["epsilon"] > 0
    assert record["result"]["privacy"]["unit"] == "client"


def test_a_record_holds_returns_in_place_of_accuracies_and_a_seed_makes_it_again() -> None:
    made = cell("a3c", evaluation={"every": 2})
    record, _ = run_trial(made, 3, {"clean_mean": 30.0})
    again, _ = run_trial(made, 3, {"clean_mean": 30.0})
    assert reproducible(record) == reproducible(again)
    result = record["result"]
    assert not {"final_accuracy", "best_accuracy"} & set(result)
    returns, points = result["returns"], [value for _, value in curve(record, "returns")]
    assert len(points) == 3
    assert returns["final"] == pytest.approx(sum(points) / 3)
    assert returns["best"] == max(points)
    assert returns["normalized"] == pytest.approx((returns["final"] - returns["guess"]) / (500 - returns["guess"]))
    assert curve(record, "accuracy") == []
    assert record["threat_card"]["dissimilarity"] is None


@pytest.mark.parametrize("architecture", ["a2c", "a3c", "server"])
def test_returns_stand_over_the_steps_of_environments_that_were_learned_from(
    architecture: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A round is an update of each of four actors, evaluated each second round; under a3c some act whom it no longer hears."""
    taken, rollouts = list[int](), EnvironmentTask.rollouts

    def counted(self: EnvironmentTask, *given: Any) -> Any:
        found = rollouts(self, *given)
        taken.extend(one.rewards.numel() for one in found[0])
        return found

    monkeypatch.setattr(EnvironmentTask, "rollouts", counted)
    record, _ = run_trial(cell(architecture, evaluation={"every": 2}), 0, {})
    held = record["result"]["curve"]
    assert [at for at, _ in curve(record, "returns", "steps")] == [4 * taken[0] * round for round in held["round"]]
    assert sum(taken) >= held["steps"][-1] == sum(taken[: 4 * held["round"][-1]])
    assert ("updates" in held) == (architecture != "server")


def test_who_listens_hears_mean_returns_while_actors_learn() -> None:
    heard = list[tuple[int, float | None]]()
    made = cell("a2c", evaluation={"every": 2})
    record, _ = run_trial(made, 0, {}, progress=lambda round, rounds, score: heard.append((round, score)))
    assert [(round, score) for round, score in heard if score is not None] == curve(record, "returns")
    assert [round for round, _ in heard] == list(range(1, 7))


def test_what_the_attack_took_is_told_in_returns_and_judged_in_shares() -> None:
    made = cell("a2c", attack="reward_flip", defense="median", clients={"malicious": 1})
    controls = {
        "clean_defense": 120.0,
        "silent_defense": 100.0,
        "clean_mean": 140.0,
        "silent_mean": 1.0,
        "attack_mean": 2.0,
    }
    returns = run_trial(made, 0, controls)[0]["result"]["returns"]
    final = returns["final"]
    told = [returns[name] for name in ("drop", "absence", "harm", "tax")]
    assert told == pytest.approx([120 - final, 20, 100 - final, 20])
    shares = in_shares({"returns": returns, "controls": {}})
    span = 500 - returns["guess"]
    assert shares["final_accuracy"] == normalize_return(final, returns["guess"], 500)
    assert shares["controls"]["clean_mean"] == pytest.approx((140 - returns["guess"]) / span)
    assert [shares[name] for name in ("accuracy_drop", "harm")] == pytest.approx([told[0] / span, told[2] / span])


def test_a_task_that_is_not_learned_raises_the_flag_of_weak_tasks() -> None:
    record, _ = run_trial(cell("a2c"), 0, {})
    found = {flag["flag"]: flag["said"] for flag in record["flags"]}
    assert "of the way from guessing to a perfect return, less than half" in found["weak_task"]
    good = dict(record["result"]["returns"])
    good["controls"] = {**good["controls"], "clean_mean": 400.0}
    learned = {**record["result"], "returns": good}
    assert "weak_task" not in {flag["flag"] for flag in find_red_flags(learned, record["threat_card"])}


def test_a_run_is_judged_by_returns_and_says_so(run_of_actors: Run) -> None:
    assert (run_of_actors.score, run_of_actors.share) == ("final_return", "normalized_return")
    assert run_of_actors.table().figure == "final_return"
    *_, answer = answers(run_of_actors).values()
    assert answer.headline.startswith("No answer yet: the mean without attack comes to ")  # of two rounds
    standing = next(one for one in standings(run_of_actors) if one.measured)
    assert "% normalized return (reward_flip)" in standing.words()
    console = Console(width=200, record=True)
    with console.capture() as said:
        console.print(render_terminal(OVERVIEW.blocks(run_of_actors, {})))
    assert "accuracy" not in said.get().partition("Before you quote this")[0]
    curves = run_of_actors.breakdown()
    assert curves.figure == "normalized_return"
    assert all(one.until for one in curves.curves)


@pytest.fixture(scope="module")
def run_of_actors(tmp_path_factory: pytest.TempPathFactory) -> Run:
    import fedguard.api as fg

    suite = settings("a2c", name="actors", seeds=2, training={"rounds": 2}) | {
        "matrix": {"attack": ["none", "reward_flip"], "defense": ["mean", "median"], "clients.malicious": [0, 1]}
    }
    return fg.run(suite, store=tmp_path_factory.mktemp("runs"), jobs=1)


def test_the_picture_of_the_overview_has_normalized_returns(run_of_actors: Run) -> None:
    (chart,) = (one for one in OVERVIEW.blocks(run_of_actors, {}) if isinstance(one, Chart))
    rows = chart.spec["data"]["values"]
    assert all(
        -5 <= row[name] < 50 for row in rows for name in ("clean", "worst")
    )  # returns of 8 would be drawn as perfect
    assert chart.spec["hconcat"][0]["title"]["text"] == "Normalized return, %" and len(chart.spec["hconcat"]) == 1


def test_actors_have_no_loss_to_draw(run_of_actors: Run) -> None:
    assert all(curve(record, "loss") == [] and curve(record, "returns") for record in run_of_actors.ran.values())


def test_the_report_draws_returns(run_of_actors: Run) -> None:
    from fedguard.app.report import render_report

    text = render_report(run_of_actors).decode()
    assert "Normalized return, %" in text
    assert "Normalized return of each defense without attack and under its worst attack" in text


def test_an_ensemble_chooses_by_normalized_returns(tmp_path) -> None:
    import fedguard.api as fg

    attack = {"name": "worst_case", "attacks": ["sign_flip", "reward_flip", "ipm(tau=5)"], "selection_seeds": 2}
    suite = settings("a2c", name="worst", seeds=1, training={"rounds": 2}, clients={"malicious": 1})
    run = fg.run(suite | {"matrix": {"attack": [attack], "defense": ["mean"]}}, store=tmp_path, jobs=1)
    record = next(one for one in run.ran.values() if "worst_case" in one["result"])
    found = record["result"]["worst_case"]
    scores = [one["accuracy"] for one in found["scores"]]
    assert len(scores) == 3 and all(-1 < one < 1 for one in scores)  # a return would be 8 or more
    assert found["chosen"] == found["scores"][0]["attack"] or len({one["seeds"] for one in found["scores"]}) > 1
    assert record["result"]["returns"]["final"] > 1


def test_defenses_are_tuned_on_normalized_returns(tmp_path, monkeypatch) -> None:
    import fedguard.api as fg

    monkeypatch.chdir(tmp_path)
    suite = settings("a2c", name="tuned", seeds=1, training={"rounds": 2}, clients={"malicious": 1}) | {
        "matrix": {"attack": ["none", "sign_flip", "ipm(tau=5)"], "defense": ["trimmed_mean", "mean"]}
    }
    tuning = fg.tune(suite, budget=2, seeds=1, store=tmp_path / "runs", jobs=1)
    scores = [one.score for defense in tuning.defenses for one in defense.eligible]
    assert len(scores) == 2 and all(-1 < one < 1 for one in scores)  # a return would be 8 or more


def test_nobody_is_told_what_an_actor_is_worth() -> None:
    from fedguard.bench.audits.contribution import contribution

    with pytest.raises(ConfigError, match="valued by what accuracy gains, and a policy in cartpole has none"):
        contribution(cell("a2c"), 0)


def test_actors_that_do_worse_than_at_random_have_permuted_no_labels() -> None:
    record, _ = run_trial(cell("a2c"), 0, {})
    worse = {**record["result"], "returns": {**record["result"]["returns"], "final": 5.0, "normalized": -0.03}}
    assert in_shares(worse)["final_accuracy"] < 0
    assert "below_chance" not in {flag["flag"] for flag in find_red_flags(worse, record["threat_card"])}
