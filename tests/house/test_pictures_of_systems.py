"""The pictures of the pages on architectures and gossip: each is there, is shown, and shows the effect that stands beside it."""

from __future__ import annotations

import re
from xml.etree.ElementTree import fromstring

import pytest

pytest.importorskip("altair")

from docs_tools import pictures

PAGES = ("architectures", "servers", "deadlines", "asynchronous", "gossip_algorithms")
PAGE = "".join((pictures.ROOT / "docs" / f"{name}.md").read_text() for name in PAGES)


def test_each_picture_is_shown_and_made_by_the_command_of_the_page():
    assert set(re.findall(r"!\[[^\]]{40,}\]\(pictures/(\w+)\.svg\)", PAGE)) == set(pictures.PICTURES)
    assert {path.stem for path in pictures.FOLDER.iterdir()} == set(pictures.PICTURES)
    assert "python -m docs_tools.pictures" in PAGE
    for path in pictures.FOLDER.iterdir():
        text = path.read_text()
        assert fromstring(text).tag.endswith("svg") and "http" not in text.replace("http://www.w3.org", "")


@pytest.mark.parametrize("name", pictures.PICTURES)
def test_each_color_of_a_picture_has_its_name(name):
    text = (pictures.FOLDER / f"{name}.svg").read_text()
    drawn = set(re.findall(r'aria-roledescription="(?:line|point) mark"[^>]* (?:stroke|fill)="(#\w{6})"', text))
    _, legend, names = text.partition('role-legend"')
    assert drawn or name in {"google", "staleness"}  # bars of one color
    assert not drawn or (legend and drawn <= set(re.findall(r'(?:stroke|fill)="(#\w{6})"', names))), drawn


def test_a_picture_that_is_none_is_named(capsys):
    with pytest.raises(SystemExit) as caught:
        pictures.main(["mapreduce", "none"])
    assert caught.value.code == 2
    assert "got none" in capsys.readouterr().err


def test_copies_shorten_rounds_and_are_drawn(tmp_path, monkeypatch):
    points = pictures.mapreduce(tmp_path, rounds=100)
    by = {(one["chance to be slow"], one["copies"]): one["seconds"] for one in points.to_dict("records")}
    assert by["5%", 4] < by["5%", 0] - 1 and by["15%", 4] < by["15%", 0] - 0.7
    monkeypatch.setitem(pictures.PICTURES, "mapreduce", (lambda store: points, pictures.PICTURES["mapreduce"][1]))
    assert pictures.drawn("mapreduce", tmp_path).startswith("<svg")


def test_fedasync_sees_older_updates_than_a_buffer(tmp_path):
    points = pictures.staleness(tmp_path, "training.rounds=5", "evaluation.every=5")
    mean = {
        system: sum(one["staleness"] * one["share"] / 100 for one in part.to_dict("records"))
        for system, part in points.groupby("system")
    }
    assert mean["fedasync"] > 3 * mean["fedbuff(buffer=5)"]
    assert points.groupby("system")["share"].sum().round(6).tolist() == [100.0, 100.0]


@pytest.mark.slow
def test_the_speed_up_lies_on_its_closed_forms(tmp_path):
    points = pictures.speed_up(tmp_path).pivot_table(index="workers", columns="times", values="speed-up")
    assert (points["equal"] / points["n / (1 + c n)"] - 1).abs().max() < 0.02
    assert (points["exponential"] / points["n / (H_n + c n)"] - 1).abs().max() < 0.2


@pytest.mark.slow
def test_over_selection_saves_rounds(tmp_path):
    points = pictures.google(tmp_path).pivot_table(index="over", columns="of", values="value")
    assert points["rounds abandoned, %"].tolist() == sorted(points["rounds abandoned, %"], reverse=True)
    assert points["rounds abandoned, %"][1.0] > 40 and points["rounds abandoned, %"][1.5] == 0
    assert points["rounds done in a simulated minute"][1.3] > 10 * points["rounds done in a simulated minute"][1.0]


@pytest.mark.slow
def test_bounded_delay_helps_against_passing_slowness_alone(tmp_path):
    points = pictures.parameter_server(tmp_path)
    ten = points[points["seconds"].between(8, 12)].groupby(["slowness", "tau"])["loss"].mean()
    lasting, passing = ten["the same device is always slow"], ten["any training may be slow"]
    assert abs(lasting["4"] - lasting["0"]) < 0.15 < lasting["0"] - lasting["infinity"]
    assert abs(passing["4"] - passing["infinity"]) < 0.1 < passing["0"] - passing["4"]


def test_a_share_of_the_work_meets_the_deadlines_that_all_of_it_misses(tmp_path):
    points = pictures.decaf(tmp_path, "training.rounds=10", "evaluation.every=10")
    met = points.pivot_table(index="deadline in seconds", columns="a client does", values="met")
    whole, share = met["all or nothing (google)"], met["a share of the work (decaf)"]
    assert (share >= whole - 10).all() and share[1.0] > whole[1.0] + 30
    assert whole.is_monotonic_increasing and whole[0.5] < 30


@pytest.mark.slow
def test_silent_parties_cost_the_sum_of_fate_and_not_that_of_server(tmp_path):
    """400 rounds: within four deviations of (1 - p)^12."""
    points = pictures.fate(tmp_path).pivot_table(index="chance to be silent", columns="masks", values="summed") / 100
    form = points["fate: (1 - p)^12"]
    assert form[0.05] == pytest.approx(0.54, abs=0.001)
    assert ((points["fate: measured"] - form).abs() <= 4 * (form * (1 - form) / 400) ** 0.5).all()
    assert (points["server: measured"] == 1).all()


@pytest.mark.slow
def test_a_flood_fills_a_buffer_and_not_buffers(tmp_path):
    last = pictures.basgd(tmp_path).groupby("system")["accuracy"].apply(lambda one: one.tail(5).mean())
    assert last["basgd(buffers=5), median"] > last["fedbuff(buffer=5), median"] + 20
    assert last["basgd(buffers=5), mean"] < 20


@pytest.mark.slow
def test_who_comes_first_depends_on_what_is_counted(tmp_path):
    """On data sorted by label over a ring: DeTAG per step, D^2 per exchange, and D-PSGD nowhere."""
    points = pictures.orderings(tmp_path).groupby(["count", "system"])

    def until(count: str, system: str) -> float:
        """How many it takes until the accuracy is 80 % for good."""
        part = points.get_group((count, system))
        below = part[part["accuracy"] < 80]["number"].max()
        after = part[part["number"] > below]["number"] if below == below else part["number"]
        return float(after.min()) if len(after) else float("inf")

    steps, exchanges, examples = ("optimizer steps", "exchanges", "examples of a node")
    assert until(steps, "detag") <= until(steps, "d2") < until(steps, "d_psgd")
    assert until(exchanges, "d2") < until(exchanges, "dsgt") < until(exchanges, "detag")
    assert until(examples, "d2") < until(examples, "detag")
    assert until(exchanges, "d_psgd") == float("inf")


@pytest.mark.slow
def test_the_mean_of_the_models_hides_what_unlike_nodes_lack(tmp_path):
    """At homogeneity 0 D-PSGD's nodes fail and their mean does not; D^2 and tracking hold; who is alone learns one label."""
    points = pictures.homogeneity(tmp_path, "seeds=1").set_index(["of", "system", "data"])["accuracy"]
    worst, mean = points["the worst node"], points["the mean of the models"]
    server = worst["server"]["sorted by label"]
    assert worst["d_psgd"]["sorted by label"] < server - 20 and mean["d_psgd"]["sorted by label"] > server - 5
    for system in ("d2", "dsgt", "detag", "defacto"):
        assert worst[system]["sorted by label"] > server - 3
    assert worst["lone"]["sorted by label"] < 15
    alike = [value for system, value in worst.xs("alike", level="data").items() if system != "lone"]
    assert max(alike) - min(alike) < 2
