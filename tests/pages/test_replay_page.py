"""The rounds of a trial as a list of blocks, in each renderer, and as a file."""

from __future__ import annotations

import io
import shutil

import numpy as np
import pytest
from typer.testing import CliRunner

import fedguard as fg
from fedguard.bench.pages import figure, html, markdown
from fedguard.bench.pages.blocks import Chart, Choice, More, TableBlock, Verdict
from fedguard.bench.pages.elements import to_bytes
from fedguard.bench.pages.replay import REPLAY
from fedguard.bench.records import replay
from fedguard.bench.results.replay import draw_in_plane
from fedguard.cli import app
from fedguard.errors import ConfigError, FedGuardError, StoreError, UnknownName

SUITE = {
    "name": "kept",
    "clients": {"total": 8, "malicious": 2},
    "training": {"rounds": 4},
    "seeds": 1,
    "replay": {},
    "matrix": {"attack": ["none", "sign_flip", "ipm(tau=5)"], "defense": ["mean", "krum", "median"]},
}


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return fg.run(SUITE, store=tmp_path_factory.mktemp("store"), jobs=1)


def cell(run: fg.Run, attack: str, defense: str) -> str:
    return next(one["cell"] for one in run.rows() if (one["attack"], one["defense"]) == (attack, defense))


def page(run: fg.Run, attack: str = "sign_flip", defense: str = "krum", **address: str) -> list:
    return list(REPLAY.blocks(run, {"cell": cell(run, attack, defense), **address}))


def rounds(run: fg.Run, attack: str = "sign_flip", defense: str = "krum") -> list:
    return draw_in_plane(replay.load(run.folder, cell(run, attack, defense), 0))


def chart(blocks: list) -> Chart:
    return next(one for one in blocks if isinstance(one, Chart))


def test_the_verdict_says_what_malicious_clients_weighed(run):
    weights = [one.malicious_weight for one in rounds(run)]
    none = sum(weight == 0 for weight in weights)
    assert none, "a rule that drops nobody shows nothing"
    said = page(run)[0]
    assert isinstance(said, Verdict)
    assert said.headline == f"Under sign_flip, krum gave the 2 malicious clients no weight in {none} of 4 rounds"
    said = page(run, defense="mean")[0].headline
    assert said == (
        "Under sign_flip, mean gave the 2 malicious clients, who sent 25.0 % of the updates, 25.0 % of the weight (medians of 4 "
        "rounds)"
    )


def test_without_weights_the_verdict_says_where_the_aggregate_went(run):
    made = sorted(one.progress for one in rounds(run, "ipm(tau=5)", "median"))
    median = (made[1] + made[2]) / 2
    said = page(run, "ipm(tau=5)", "median")[0].headline
    assert said.startswith(f"Under ipm(tau=5), the aggregate of median went {median:.2f} of the way to the honest mean")
    assert page(run, "none", "mean")[0].headline.startswith(
        "Without attack, the aggregate of mean went 1.00 of the way"
    )


def test_an_aggregate_that_goes_backward_is_said_to(run):
    back = sum(one.progress < 0 for one in rounds(run, "ipm(tau=5)", "mean"))
    assert back, "a mean of 6 honest updates and 2 of -5 of theirs goes backward"
    assert f"backward in {back}." in " ".join(page(run, "ipm(tau=5)", "mean")[0].lead)


@pytest.mark.parametrize("defense", ["krum", "median"])
def test_the_lead_says_each_thing_once_and_what_the_plane_keeps(run, defense):
    shares = sorted(100 * one.explained for one in rounds(run, "sign_flip", defense))
    verdict = page(run, "sign_flip", defense)[0]
    assert f"The plane keeps {(shares[1] + shares[2]) / 2:.1f} % of the updates' variance" in " ".join(verdict.lead)
    assert " ".join([verdict.headline, *verdict.lead]).count("of the way to the honest mean") == 1


def test_choices_are_in_the_address(run):
    choices = {one.key: one for one in page(run, round="2") if isinstance(one, Choice)}
    assert list(choices) == ["cell", "axes", "round"]
    assert (
        choices["round"].ordered and choices["round"].options == ["1", "2", "3", "4"] and choices["round"].chosen == "2"
    )
    assert "sign_flip against krum" in choices["cell"].titles.values()
    assert len(choices["cell"].options) == 9
    assert chart(page(run, round="9")).title == "The updates of round 4", "an unknown round is the last"


def test_each_client_is_a_mark_with_its_weight_and_role(run):
    for number, one in enumerate(rounds(run), start=1):
        found = chart(page(run, round=str(number)))
        for spec in (found.spec["hconcat"], found.narrow["vconcat"]):
            marks = {row["name"]: row for row in spec[0]["data"]["values"]}
            assert len(marks) == 8 + 3
            for at, client in enumerate(one.kept.clients):
                mark = marks[f"client {client}"]
                assert mark["role"] == ("malicious" if one.kept.malicious[at] else "honest")
                assert (mark["fill"] == 0) == (one.kept.weights[at] == 0)
                assert mark["beyond"] or np.allclose([mark["x"], mark["y"]], one.points[at])
            areas = [marks[f"client {client}"]["area"] for client in one.kept.clients]
            assert np.argmax(areas) == np.argmax(one.kept.weights)
            assert np.allclose([marks["aggregate"]["x"], marks["aggregate"]["y"]], one.aggregate)
        rows = {row[0]: row for row in found.table.rows}
        assert {client for client, row in rows.items() if row[1] == "malicious"} == {
            str(client) for client, bad in zip(one.kept.clients, one.kept.malicious, strict=True) if bad
        }
        assert f"{100 * one.explained:.0f} % of the updates' variance" in found.about
        assert f"fell at {one.progress:.2f}" in found.alt


def test_the_accuracy_is_that_of_the_record(run):
    (record,) = [r for _, r in run.trials() if r["cell"] == cell(run, "sign_flip", "krum")]
    beside = chart(page(run, round="3")).spec["hconcat"][1]
    assert [row["round"] for row in beside["data"]["values"]] == record["result"]["curve"]["round"]
    assert [row["score"] / 100 for row in beside["data"]["values"]] == pytest.approx(
        record["result"]["curve"]["accuracy"]
    )
    assert beside["layer"][1]["data"]["values"] == [{"round": 3}]


def test_one_table_has_all_rounds_and_all_have_one_scale(run):
    (table,) = [one for one in page(run) if isinstance(one, TableBlock)]
    assert [row[0] for row in table.rows] == ["1", "2", "3", "4"]
    assert [row[4] for row in table.rows] == [f"{one.progress:.2f}" for one in rounds(run)]
    scales = [str(chart(page(run, round=n)).spec["hconcat"][0]["layer"][0]["encoding"]["x"]["scale"]) for n in "1234"]
    assert len(set(scales)) == 1
    more = next(one for one in page(run) if isinstance(one, More))
    assert more.title == "4 of 4 rounds beside each other"


def test_under_masks_it_is_the_evaluators_view(tmp_path):
    suite = {
        **SUITE,
        "protocol": {"secure_aggregation": "full"},
        "matrix": {"attack": ["sign_flip"], "defense": ["mean"]},
    }
    said = next(iter(REPLAY.blocks(fg.run(suite, store=tmp_path, jobs=1), {})))
    assert "This is the evaluator's view: under secure aggregation the server sees no single update." in said.lead


def test_an_empty_page_says_which_key_to_add(tmp_path):
    suite = {key: value for key, value in SUITE.items() if key != "replay"} | {"matrix": {}, "training": {"rounds": 1}}
    (said,) = REPLAY.blocks(fg.run(suite, store=tmp_path, jobs=1), {})
    assert said.headline == "This run keeps no rounds to replay" and "`replay: {}`" in said.actions[0].label


def test_every_renderer_draws_it(run):
    for axes in ("round", "first"):
        blocks = page(run, axes=axes)
        drawn = b"".join(to_bytes(one) for one in html.render_html(blocks)).decode()
        assert "no weight in" in drawn and drawn.count("<svg") == 4 and "<script" not in drawn
        assert "no weight in" in markdown.render_markdown(blocks)
    done = CliRunner().invoke(app, ["show", "kept", "--page", "replay", "--store", str(run.folder.path.parent)])
    assert done.exit_code == 0, done.output
    assert "Round by round" in done.output and "at round=" in done.output


def test_a_gif_has_a_picture_for_each_round(run, tmp_path):
    from PIL import Image

    to, store = tmp_path / "r.gif", str(run.folder.path.parent)
    at = f"cell={cell(run, 'sign_flip', 'krum')}"
    done = CliRunner().invoke(app, ["figure", "kept", "replay", "--to", str(to), "--at", at, "--store", store])
    assert done.exit_code == 0, done.output
    with Image.open(io.BytesIO(to.read_bytes())) as found:
        assert found.format == "GIF" and found.n_frames == 4
    charts = figure.sequence(lambda address: REPLAY.blocks(run, address), {}, None, "replay")
    assert [one.title for one in charts] == [f"The updates of round {number}" for number in range(1, 5)]


def test_another_page_has_no_gif(run, tmp_path):
    from fedguard.bench.pages.overview import OVERVIEW

    with pytest.raises(ConfigError, match="expected a page with a sequence for a .gif, such as replay"):
        figure.sequence(lambda address: OVERVIEW.blocks(run, address), {}, None, "overview")


def test_a_damaged_file_hides_no_other_cell(run, tmp_path):
    shutil.copytree(run.folder.path, tmp_path / "kept")
    broken = fg.open_run("kept", store=tmp_path)
    broken.folder.replay_path(cell(run, "sign_flip", "krum"), 0).write_bytes(b"no zip")
    with pytest.raises(StoreError, match=r"cannot be replayed: .*\. Remove it, and run the suite again\.$"):
        replay.load(broken.folder, cell(run, "sign_flip", "krum"), 0)
    verdict, choice = page(broken)
    assert verdict.headline == "The rounds of sign_flip against krum cannot be replayed"
    assert len(choice.options) > 1, "another cell can be chosen"
    assert len(page(broken, "sign_flip", "mean")) > 3, "other cells are shown"
    store = ("--store", str(tmp_path))
    done = CliRunner().invoke(app, ["show", "kept", "--page", "replay", "--cell", "sign_flip,krum", *store])
    assert done.exit_code == 0 and "Remove it, and run the suite again." in " ".join(done.output.split())
    done = CliRunner().invoke(app, ["figure", "kept", "replay", "--to", str(tmp_path / "r.gif"), *store,
                                    "--at", f"cell={cell(run, 'sign_flip', 'krum')}"])  # fmt: skip
    assert isinstance(done.exception, FedGuardError), "one line and exit code 2"


@pytest.mark.parametrize(("attack", "defense"), [("none", "krum"), ("sign_flip", "mean"), ("sign_flip", "krum")])
def test_a_cell_is_found_by_its_attack_and_defense(run, attack, defense):
    by_name = list(REPLAY.blocks(run, {"attack": attack, "defense": defense}))
    assert by_name[0].headline == page(run, attack, defense)[0].headline
    assert next(one.chosen for one in by_name if getattr(one, "key", "") == "cell") == cell(run, attack, defense)


@pytest.mark.parametrize("command", [("show", "kept", "--page", "replay"), ("figure", "kept", "replay")])
@pytest.mark.parametrize(
    ("at", "options"),
    [
        ("axes=zz", "first, round"),
        ("round=99", "1, 2, 3, 4"),
        ("moment=1", "axes, cell, round"),
        ("", "axes, cell, round"),
    ],
)
def test_the_command_line_refuses_a_choice_that_the_page_does_not_offer(run, command, at, options):
    done = CliRunner().invoke(app, [*command, "--at", at, "--store", str(run.folder.path.parent)])
    assert isinstance(done.exception, UnknownName) and str(done.exception).endswith(f"Expected one of: {options}.")
