"""The page of a cell as a list of blocks: the numbers are those of the records, and of their partners with the same seed."""

from __future__ import annotations

import json
import shutil
import time
from copy import deepcopy
from statistics import fmean

import pytest
import yaml
from typer.testing import CliRunner

import fedguard as fg
from fedguard.bench.pages.blocks import Chart, Choice, Code, Columns, Facts, More, Prose, TableBlock, Verdict
from fedguard.bench.pages.cell import CELL, find_cell, read_log, worst_cells
from fedguard.bench.pages.cell_chart import axes, classes, curves, waterfall
from fedguard.bench.pages.cell_events import lay_out_nodes
from fedguard.bench.pages.cell_facts import card, fates, sights, trials
from fedguard.bench.pages.cell_scores import CellScores, partners
from fedguard.bench.pages.cell_verdict import _shares
from fedguard.bench.records.record import from_text, to_text
from fedguard.bench.results.answer import standings
from fedguard.cli import app
from fedguard.errors import UnknownName
from fedguard.metrics.stats import estimate

SUITE = {
    "name": "tiny",
    "clients": {"total": 8, "malicious": 2},
    "training": {"rounds": 3},
    "seeds": 3,
    "matrix": {"attack": ["none", "alie", "sign_flip"], "defense": ["mean", "median", "fltrust"]},
}


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return fg.run(SUITE, store=tmp_path_factory.mktemp("store"), jobs=1)


@pytest.fixture(scope="module")
def swept(tmp_path_factory):
    matrix = {"clients.malicious": [0, 1, 2], "attack": ["none", "sign_flip"], "defense": ["mean", "median"]}
    suite = {**SUITE, "name": "swept", "seeds": 2, "clients": {"total": 8}, "matrix": matrix}
    return fg.run(suite, store=tmp_path_factory.mktemp("swept"), jobs=1)


@pytest.fixture
def copy(run, tmp_path):
    shutil.copytree(run.folder.path, tmp_path / "tiny")
    return fg.open_run("tiny", store=tmp_path)


def page(run, **address):
    return list(CELL.blocks(run, address))


def flat(blocks):
    for block in blocks:
        yield block
        if isinstance(block, Columns | More):
            yield from flat(block.blocks)


def titled(blocks, start):
    return next(one for one in flat(blocks) if getattr(one, "title", "").startswith(start))


def cell_of(run, **place):
    return next(one["cell"] for one in run.manifest["positions"] if place.items() <= one["swept"].items())


def records_of(run, **place):
    return [run.records[cell_of(run, **place), seed] for seed in run.seeds]


def results_of(run, **place):
    return [record["result"] for record in records_of(run, **place)]


def changed(run, attack, defense, **changes):
    """Write another record, properly sealed, for seed 0 of a cell, and open the run again."""
    path = run.folder.record_path(cell_of(run, attack=attack, defense=defense), 0)
    path.write_bytes(to_text({**from_text(path.read_bytes()), **changes}))
    return fg.open_run(run.folder.path)


# --------------------------------------------------------------------------------------------------- which cell


def test_the_address_names_attack_and_defense_or_as_in_earlier_links_the_hash(run):
    for address in (
        {"attack": "sign_flip", "defense": "median"},
        {"cell": cell_of(run, attack="sign_flip", defense="median")},
    ):
        choices = {one.key: one.chosen for one in page(run, **address) if isinstance(one, Choice)}
        assert choices == {"attack": "sign_flip", "defense": "median"}
    both = page(run, attack="alie", defense="mean", cell=cell_of(run, attack="sign_flip", defense="median"))
    assert [one.chosen for one in both if isinstance(one, Choice)] == ["alie", "mean"]


def test_without_an_address_the_cell_in_which_an_attack_did_most_harm_is_shown(run):
    means = {
        (attack, defense): fmean(one["final_accuracy"] for one in results_of(run, attack=attack, defense=defense))
        for attack in ("alie", "sign_flip")
        for defense in ("mean", "median")
    }
    choices = {one.key: one.chosen for one in page(run) if isinstance(one, Choice)}
    assert tuple(choices.values()) == min(means, key=means.get)


@pytest.mark.parametrize("address", [{"cell": "0123456789ab"}, {"attack": "<b>none</b>"}, {"defense": "no such"}])
def test_an_unknown_cell_is_told(run, address):
    assert any("not in this run" in chip.text for chip in page(run, **address)[0].chips)
    assert not any("not in this run" in chip.text for chip in page(run, attack="alie")[0].chips)


def test_a_swept_key_is_a_choice_and_selects_among_positions_that_share_a_cell(copy):
    both = [
        {"cell": one["cell"], "swept": {"threat.first_round": first, **one["swept"]}}
        for first in ("1", "2")
        for one in copy.manifest["positions"]
    ]
    manifest = {**copy.manifest, "swept": ["threat.first_round", *copy.manifest["swept"]], "positions": both}
    (copy.folder.path / "manifest.json").write_text(json.dumps(manifest))
    found = page(fg.open_run(copy.folder.path), attack="none", defense="mean", **{"threat.first_round": "2"})
    assert [one.chosen for one in found if isinstance(one, Choice)] == ["none", "mean", "2"]


def test_the_terminal_names_a_cell_by_attack_and_defense(run):
    assert find_cell(run, "sign_flip, median") == {"attack": "sign_flip", "defense": "median"}
    with pytest.raises(UnknownName, match="alie,median"):
        find_cell(run, "alie,medain")
    command = ["show", str(run.folder.path), "--cell", "sign_flip,median"]
    said = CliRunner().invoke(app, command, env={"COLUMNS": "200"})
    assert said.exit_code == 0
    assert page(run, attack="sign_flip", defense="median")[0].headline in " ".join(said.output.split())
    assert "How to run it again" not in said.output
    assert "How to run it again" in CliRunner().invoke(app, [*command, "--all"], env={"COLUMNS": "200"}).output


# ------------------------------------------------------------------------------------------------------- verdict


def test_the_verdict_states_the_paired_loss_and_the_controls(run):
    results = results_of(run, attack="sign_flip", defense="median")
    four = [one["controls"] for one in results]
    lost = estimate(
        [one["clean_defense"] - own["final_accuracy"] for one, own in zip(four, results, strict=True)], (-1, 1)
    )
    verdict = page(run, attack="sign_flip", defense="median")[0]
    assert f"{100 * abs(lost.mean):.1f} points [" in verdict.headline.replace("\N{MINUS SIGN}", "")
    assert verdict.headline.startswith("No loss is separated") == (lost.low <= 0 <= lost.high)
    plain = fmean(one["clean_mean"] - one["attack_mean"] for one in four)
    assert f"the plain mean would lose {100 * plain:.1f} points".replace("-", "\N{MINUS SIGN}") in verdict.headline
    left, clean = (
        fmean(values) for values in ([one["final_accuracy"] for one in results], [one["clean_defense"] for one in four])
    )
    assert verdict.lead[0].startswith(f"{100 * left:.1f} % [") and f"of {100 * clean:.1f} % [" in verdict.lead[0]
    harm = fmean(one["silent_defense"] - own["final_accuracy"] for one, own in zip(four, results, strict=True))
    assert f"the attack itself costs {100 * harm:.1f} points".replace("-", "\N{MINUS SIGN}") in verdict.lead[1]


def test_without_attack_the_cost_of_the_defense_is_stated(run):
    verdict = page(run, attack="none", defense="median")[0]
    assert verdict.headline.startswith("Without attack, median reaches ")
    own, mean = (results_of(run, attack="none", defense=name) for name in ("median", "mean"))
    cost = fmean(one["final_accuracy"] - other["final_accuracy"] for one, other in zip(mean, own, strict=True))
    assert f"{100 * cost:.1f} points".replace("-", "\N{MINUS SIGN}") in verdict.lead[0]


def test_two_seeds_have_no_interval(swept):
    found = page(swept, attack="sign_flip", defense="median", **{"clients.malicious": "2"})
    assert "[" not in found[0].headline and any(chip.text == "2 seeds: no intervals" for chip in found[0].chips)
    assert "no intervals" in titled(found, "Where the accuracy went").about
    assert not any("low" in row for row in titled(found, "Over the training").spec["data"]["values"])


def test_a_refused_cell_says_who_would_need_to_see_what(run):
    found = page(run, attack="alie", defense="fltrust")
    assert found[0].headline.startswith("Refused: alie against fltrust") and "server.root_data" in found[0].lead[0]
    rows = titled(found, "What the rule needs").rows
    assert ["fltrust", "root data"] in [[row[0], row[2]] for row in rows]
    assert not any(isinstance(one, Chart) for one in flat(found))


def test_a_cell_of_which_a_seed_failed_has_curves_and_its_log_and_no_mean(copy):
    hostile = "<img src=x onerror=alert(1)> **bold**"
    failed = changed(copy, "alie", "median", status="failed", reason=hostile, result=None, cost=None, flags=[])
    failed.folder.log_path(cell_of(copy, attack="alie", defense="median"), 0).write_text(f"Traceback\n{hostile}")
    found = page(failed, attack="alie", defense="median")
    assert found[0].headline == "Failed: alie against median, 1 of 3 seeds."
    assert hostile in found[0].lead and "--retry-failed" in found[0].actions[0].command
    assert titled(found, "Over the training").keys[0].meaning == "this cell"
    assert not any(getattr(one, "title", "").startswith(("Where the accuracy", "Metrics")) for one in flat(found))
    assert f"Traceback\n{hostile}" in [one.text for one in flat(found) if isinstance(one, Code)]


def test_a_cell_that_was_not_run_names_the_command(copy):
    shutil.rmtree(copy.folder.path / "cells" / cell_of(copy, attack="alie", defense="median"))
    found = page(fg.open_run(copy.folder.path), attack="alie", defense="median")
    assert found[0].headline.startswith("Not run yet: alie against median, 3 of 3")
    assert found[0].actions[0].command.startswith("fedguard run ")


def test_a_long_log_is_shown_from_its_end(tmp_path):
    (tmp_path / "log").write_text("first" + 30_000 * "x" + "last")
    assert read_log(tmp_path / "log").endswith("last") and "first" not in read_log(tmp_path / "log")
    assert read_log(tmp_path / "none").startswith("There is no log")


# ------------------------------------------------------------------------------------------------------ controls


def test_the_steps_are_those_of_the_controls_and_add_up(run):
    scores = CellScores(records_of(run, attack="alie", defense="median"))
    steps = list(scores.steps())
    assert [step.name for step in steps] == [
        "no attack, plain mean", "cost of the defense", "2 malicious silent", "the attack itself", "left",
    ]  # fmt: skip
    four = [one["controls"] for one in results_of(run, attack="alie", defense="median")]
    assert list(steps[0].values) == [one["clean_mean"] for one in four]
    assert steps[2].values == [one["clean_defense"] - one["silent_defense"] for one in four]
    assert steps[0].found.mean - sum(step.found.mean for step in steps[1:-1]) == pytest.approx(steps[-1].found.mean)
    table = waterfall(scores, "said").table
    assert [row[2] for row in table.rows] == pytest.approx(
        [100 * (step.values[0] if step.total else -step.values[0]) for step in steps]
    )
    assert next(step.name for step in CellScores(records_of(run, attack="alie", defense="mean")).steps()) == "no attack"


def test_controls_of_actors_are_those_of_their_returns(run):
    """Guessing returns 20 and the best policy 220; the controls of accuracies stand empty beside them."""
    record = deepcopy(records_of(run, attack="alie", defense="median")[0])
    controls = {"clean_mean": 200, "clean_defense": 180, "attack_mean": 40, "attack_defense": 120}
    controls |= {"silent_mean": 170, "silent_defense": 160}
    record["result"]["controls"] = dict.fromkeys(controls)
    record["result"]["returns"] = {
        "final": 120, "best": 130, "last": 120, "normalized": 0.5, "guess": 20, "perfect": 220, "episodes": 100,
        "bounds": [0, 250], "controls": controls, "drop": 60, "absence": 20, "harm": 40, "tax": 20,
    }  # fmt: skip
    scores = CellScores([record])
    assert [(step.name, step.found.mean) for step in scores.steps()] == [
        ("no attack, plain mean", 200), ("cost of the defense", 20), ("2 malicious silent", 20), ("the attack itself", 40), ("left", 120),
    ]  # fmt: skip
    assert waterfall(scores, "").title == "Where the return went"
    assert scores.of("own")[0].bounds == (0, 250)


@pytest.mark.parametrize(("silent", "says"), [
    (0.7, "Silence of the malicious clients would cost 10.0 points, so the attack itself costs 20.0 points."),
    (0.9, "Silence of the malicious clients would gain 10.0 points, so the attack itself costs 40.0 points."),
    (0.4, "Silence of the malicious clients would cost 40.0 points, so the attack itself gains 10.0 points."),
])  # fmt: skip
def test_a_loss_below_zero_is_called_a_gain(run, silent, says):
    record = deepcopy(records_of(run, attack="alie", defense="median")[0])
    record["result"]["final_accuracy"] = 0.5
    record["result"]["controls"] |= {"clean_defense": 0.8, "silent_defense": silent}
    assert list(_shares(CellScores([record]))) == [says]


def test_older_records_without_silent_controls_have_one_step_for_the_attack(run):
    records = deepcopy(records_of(run, attack="alie", defense="median"))
    for record in records:
        record["result"]["references"]["oracle_mean"] = record["result"]["controls"].pop("silent_mean")
        del record["result"]["controls"]["silent_defense"]
    scores = CellScores(records)
    assert [step.name for step in scores.steps()][-2:] == ["the attack", "left"]
    assert scores.mean("silent_mean") and not scores.mean("silent_defense")


def test_the_partners_are_the_same_training_without_attack_and_the_plain_mean_under_it(run, swept):
    for chosen, place in (
        (run, {"attack": "alie", "defense": "median"}),
        (swept, {"attack": "sign_flip", "defense": "median", "clients.malicious": "1"}),
        (swept, {"attack": "sign_flip", "defense": "median", "clients.malicious": "2"}),
    ):
        records = records_of(chosen, **place)
        for attacked, control in ((False, "clean_defense"), (True, "attack_mean")):
            found = {
                one["seed"]: one["result"]["final_accuracy"] for one in partners(chosen, records, attacked=attacked)
            }
            assert found == {one["seed"]: one["result"]["controls"][control] for one in records}
    assert partners(run, records_of(run, attack="none", defense="median"), attacked=False) == []


# -------------------------------------------------------------------------------------------------------- charts


def test_the_curves_are_those_of_the_records_with_the_interval_of_their_means(run):
    records = records_of(run, attack="alie", defense="median")
    chart = curves({"this cell": records}, "accuracy", "round")
    rows = chart.spec["data"]["values"]
    last = [record["result"]["curve"]["accuracy"][-1] for record in records]
    found = estimate(last, (0, 1))
    end = [row for row in rows if "mean" in row][-1]
    assert (end["at"], end["mean"], end["low"], end["high"]) == pytest.approx(
        (3, 100 * found.mean, 100 * found.low, 100 * found.high)
    )
    assert [row["one"] for row in rows if row.get("at") == 3 and "one" in row] == pytest.approx(
        [100 * one for one in last]
    )
    assert chart.alt.endswith(f"this cell ends at {100 * found.mean:.3g}.") and axes(records) == ["round"]


def test_a_long_training_keeps_its_last_evaluation(run):
    record = deepcopy(records_of(run, attack="alie", defense="median")[0])
    record["result"]["curve"] = {
        "round": list(range(1, 1002)),
        "accuracy": [0.5] * 1000 + [0.25],
        "backdoor": [],
        "loss": [],
    }
    rows = curves({"this cell": [record]}, "accuracy", "round").spec["data"]["values"]
    assert rows[-1]["at"] == 1001 and rows[-1]["mean"] == 25 and len(rows) < 200


def test_classes_stand_beside_those_without_attack(run):
    records = records_of(run, attack="alie", defense="median")
    clean = partners(run, records, attacked=False)
    chart = classes(records, clean)
    for number, row in enumerate(chart.table.rows):
        for cell, its in zip(row[1:], (records, clean), strict=True):
            values = [record["result"]["class_accuracy"][number] for record in its]
            assert cell.startswith(f"{100 * fmean(values):.1f} [") if None not in values else cell == "no test examples"


def test_a_class_without_test_examples_is_said_and_not_drawn(run):
    record = deepcopy(records_of(run, attack="alie", defense="median")[0])
    record["result"]["class_accuracy"] = [0.5, None]
    chart = classes([record], [])
    assert chart.table.rows[1] == ["1", "no test examples"]
    assert {row["class"] for row in chart.spec["data"]["values"]} == {"0"}
    record["result"]["class_accuracy"] = []
    assert classes([record], []) is None


def test_what_stands_behind_the_cell_is_of_its_records(run):
    found = page(run, attack="alie", defense="median")
    records = records_of(run, attack="alie", defense="median")
    facts = {row[0]: row[1] for row in card(records[0]["threat_card"]).rows}
    assert facts["malicious clients"] == "2" and facts["attack"] == "alie"
    seen = {row[0]: row[1:] for row in sights(records[0]["threat_card"]).rows}
    assert seen["each update"][3] == "yes" and seen["each update"][0] == "-"
    costs = {row[0]: row[1:] for row in trials(records).rows}
    assert costs["seconds"] == [f"{record['cost']['seconds']:.2f}" for record in records]
    assert isinstance(titled(found, "What the attack and the rule did"), Facts)
    assert len(
        next(one for one in flat(found) if isinstance(one, More) and one.title.startswith("Red flags")).blocks[0].rows
    ) == sum(len(record["flags"]) for record in records)
    (times,) = [one for one in found if isinstance(one, More) and one.title.startswith("Where the time went")]
    (own,) = [one for one in run.profile().cells if one.cell == records[0]["cell"]]
    assert [row[1] for row in times.blocks[0].rows] == [f"{100 * row['share']:.1f}" for row in own.rows(0.0005)]


def test_the_suite_to_run_it_again_is_this_very_cell(run, tmp_path):
    (code,) = [one for one in flat(page(run, attack="alie", defense="median")) if isinstance(one, Code)]
    again = fg.run(yaml.safe_load(code.text), store=tmp_path, jobs=1)
    assert {one["cell"] for one in again.manifest["positions"]} == {cell_of(run, attack="alie", defense="median")}
    assert again.rows()[0]["final_accuracy"] == results_of(run, attack="alie", defense="median")[0]["final_accuracy"]


def test_older_records_say_that_they_were_not_timed(copy):
    for seed in copy.seeds:
        path = copy.folder.record_path(cell_of(copy, attack="alie", defense="median"), seed)
        body = from_text(path.read_bytes())
        del body["cost"]["stages"]
        path.write_bytes(to_text(body))
    found = page(fg.open_run(copy.folder.path), attack="alie", defense="median")
    assert any(isinstance(one, Prose) and "older FedGuard" in one.paragraphs[0] for one in found)


# -------------------------------------------------------------------------------------------------- other kinds of runs


def test_a_cell_in_simulated_time_shows_who_trained_when(tmp_path):
    """Every other training is lost, and three of eight are late: the bars are those of the record."""
    suite = {
        **SUITE, "name": "timed", "seeds": [5], "architecture": "google(over=1.6, least=0.1)",
        "clients": {"total": 8, "malicious": 2, "per_round": 5}, "matrix": {"attack": ["sign_flip"], "defense": ["mean"]},
        "network": {"compute": {"spread": 0.5}, "link": {"latency": 0.1, "loss": 0.3}},
    }  # fmt: skip
    run = fg.run(suite, store=tmp_path, jobs=1)
    _, record = next(iter(run.trials()))
    found = record["result"]["time"]["timeline"]
    chart = titled(page(run), "Who trained when")
    bars = chart.spec["data"]["values"]
    assert [(bar["began"], bar["ended"], bar["fate"]) for bar in bars] == list(
        zip(found["began"], found["ended"], found["fate"], strict=True)
    )
    assert {bar["fate"] for bar in bars} == {"arrived", "late", "lost"}
    assert {bar["client"] for bar in bars if "malicious" in bar["client"]} == {
        f"{client} malicious" for client in found["malicious"]
    }
    assert [row["end"] for row in chart.spec["layer"][0]["data"]["values"]] == found["rounds"] and len(
        found["rounds"]
    ) == 3
    assert "All trainings" in chart.about
    over = next(one for one in page(run) if isinstance(one, Choice) and one.key == "over")
    assert "seconds" in over.options
    assert "simulated seconds" in titled(page(run, over="seconds"), "Over the training").alt


def test_a_cell_without_a_server_shows_its_nodes(tmp_path):
    """A ring of six of which one is malicious."""
    suite = {
        **SUITE, "name": "linked", "seeds": [5], "architecture": "d_psgd", "clients": {"total": 6, "malicious": 1},
        "matrix": {"attack": ["sign_flip"], "defense": ["mean"]},
    }  # fmt: skip
    run = fg.run(suite, store=tmp_path, jobs=1)
    _, record = next(iter(run.trials()))
    found = record["result"]["nodes"]
    points = lay_out_nodes(found)
    assert [point["node"] for point in points if point["who"] == "malicious"] == found["malicious"]
    assert [point["accuracy"] for point in points if point["who"] == "honest"] == [
        100 * value for value in found["accuracy"]
    ]
    radii = [point["x"] ** 2 + point["y"] ** 2 for point in points]
    assert max(radii) - min(radii) < 0.05  # a ring is drawn as one
    chart = titled(page(run), "The nodes")
    assert f"The worst of 5 honest nodes ends with {100 * found['worst']:.1f} %" in chart.alt
    links = chart.spec["layer"][0]["data"]["values"]
    assert 2 * len(links) == len(found["links"]) == 12  # a line for both directions
    rows = titled(page(run), "The nodes over the training").spec["data"]["values"]
    assert [row["mean"] for row in rows if row["group"] == "worst node"] == [
        100 * value for value in found["curve"]["worst"]
    ]


def test_links_are_as_wide_as_what_they_carry(tmp_path):
    """Two sites of three: within a site whole vectors in each round, and between them a tenth in every second."""
    suite = {
        **SUITE, "name": "sites", "seeds": [5], "architecture": {"name": "wide_area", "every": 2, "top": 0.1},
        "clients": {"total": 6}, "matrix": {"attack": ["none"], "defense": ["mean"]},
    }  # fmt: skip
    run = fg.run(suite, store=tmp_path, jobs=1)
    _, record = next(iter(run.trials()))
    rounds = record["result"]["rounds"]["total"]
    near, far = 2 * 2.6 * rounds, 2 * 0.52 * (rounds // 2)
    drawn = titled(page(run), "The nodes").spec["layer"][0]
    assert sorted(row["kB"] for row in drawn["data"]["values"]) == pytest.approx([far] * 9 + [near] * 6)
    assert drawn["encoding"]["size"]["field"] == "kB"


def test_a_cell_with_a_server_has_neither_nodes_nor_a_timeline(run):
    titles = [getattr(one, "title", "") for one in flat(page(run, attack="alie", defense="median"))]
    assert not {"The nodes", "Who trained when"} & set(titles)


def test_five_thousand_records_take_less_than_a_second(run):
    class Large(type(run)):
        pass

    large = Large(run.folder, {**run.manifest, "positions": [], "seeds": run.manifest["seeds"]})
    positions, ran = [], {}
    for number in range(600):
        for one in run.manifest["positions"]:
            if one["swept"]["defense"] != "fltrust":
                cell = f"{one['cell'][:6]}{number:06d}"
                positions.append({"cell": cell, "swept": {**one["swept"], "training.lr": str(number)}})
                ran |= {(cell, seed): {**run.ran[one["cell"], seed], "cell": cell} for seed in run.seeds}
    large.manifest.update(positions=positions, swept=["attack", "defense", "training.lr"])
    large.__dict__.update(_read=(ran, {}), ran=ran)
    large.rows()
    start = time.process_time()
    assert isinstance(page(large, attack="alie", defense="median", **{"training.lr": "7"})[0], Verdict)
    assert time.process_time() - start < 1
    assert len(ran) >= 5000


def test_tables_have_as_many_cells_as_headings(run, swept):
    for one in (*flat(page(run)), *flat(page(run, attack="none", defense="median")), *flat(page(swept))):
        table = one.table if isinstance(one, Chart) else one
        if isinstance(table, TableBlock):
            assert {len(row) for row in table.rows} <= {len(table.columns)}


def test_the_report_has_the_leading_defenses_under_their_worst_attacks(run):
    found = list(worst_cells(run))
    group = [one for one in standings(run) if one.worst and one.defense in run.verdict().group]
    assert len([one for one in found if isinstance(one, Prose)]) == len(group)
    for one, said in zip(group, [one for one in found if isinstance(one, Prose)], strict=True):
        assert f"{one.worst.attack} takes" in said.title and one.defense in said.title


def test_the_curves_stand_beside_no_attack_and_the_plain_mean_under_the_same_attack(run):
    rows = titled(page(run, attack="alie", defense="median"), "Over the training").spec["data"]["values"]
    ends = {row["group"]: row["mean"] for row in rows if "mean" in row}
    places = {
        "this cell": ("alie", "median"),
        "no attack": ("none", "median"),
        "plain mean, same attack": ("alie", "mean"),
    }
    for name, (attack, defense) in places.items():
        last = [one["curve"]["accuracy"][-1] for one in results_of(run, attack=attack, defense=defense)]
        assert ends.pop(name) == pytest.approx(100 * fmean(last))
    assert not ends


def test_the_statistics_of_other_fates_are_a_table(copy):
    """The means over the seeds, with the training's own fate first; nothing where no fate is compared."""
    ran = [deepcopy(one) for key, one in copy.ran.items() if key[0] == copy.manifest["positions"][0]["cell"]]
    assert fates(ran) is None
    for record, accuracy in zip(ran, (0.5, 0.6, 0.7), strict=True):
        record["result"]["final_accuracy"] = accuracy
        record["result"]["statistics"] = {"fate": "weighted", "compared": {"local": accuracy - 0.2}}
    table = fates(ran)
    assert [row[0] for row in table.rows] == ["weighted", "local"]
    assert table.rows[0][1].startswith("60.0") and table.rows[1][1].startswith("40.0")
