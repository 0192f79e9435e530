"""Figures for papers: each form holds what it says, at its width, with its caption; names of runs and rules stay text."""

from __future__ import annotations

import csv
import re
import struct
from xml.etree import ElementTree

import pytest
from typer.testing import CliRunner

import fedguard as fg
from fedguard.bench.pages.blocks import Bar, Chart, Field, Heading, Heatmap, Key, More, Panel, Prose, TableBlock
from fedguard.bench.pages.figure import WIDTHS, caption, draw, escape_latex, figures, find_figure
from fedguard.cli import app
from fedguard.errors import ConfigError

MARKS = {"mark": "point", "encoding": {"x": {"field": "a", "type": "quantitative", "title": "accuracy, %"}}}
SPEC = {**MARKS, "data": {"values": [{"a": 1.5}, {"a": 80}]}, "width": 1000, "height": 100}
TABLE = TableBlock(
    [Heading("defense_a & b"), Heading("accuracy, %", number=True)],
    [["krum", 50.123456789012], ["a >> b", None]],
    bars=[Bar(50.123456789012, 40.0, 60.5, 90.0), None],
)
CHART = Chart(
    {**SPEC, "config": {"point": {"color": "var(--blue)"}}}, {**SPEC, "width": 300, "mark": {"type": "point", "color": "var(--blue)"}},
    "Krum keeps 50 %", TABLE, "How far & low", keys=[Key("dot", "orange", "worst attack")],
)  # fmt: skip


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    settings = {
        "name": "quick", "seeds": 3, "clients": {"total": 6, "malicious": 2}, "training": {"rounds": 1},
        "matrix": {"attack": ["none", "ipm"], "defense": ["mean", "median"]},
    }  # fmt: skip
    return fg.run(settings, store=tmp_path_factory.mktemp("figures"), jobs=1)


@pytest.mark.parametrize("width", WIDTHS)
def test_a_pdf_has_the_width_of_a_column_and_its_fonts(run, width):
    content = draw(CHART, "pdf", run, width)
    ((across, up),) = re.findall(rb"/MediaBox \[0 0 ([\d.]+) ([\d.]+)\]", content)
    assert float(across) == pytest.approx(72 * WIDTHS[width], abs=0.6) and float(up) > 0
    fonts = set(re.findall(rb"/BaseFont /([\w+-]+)", content))
    assert fonts and all(b"+" in name for name in fonts), "a subset of each font is embedded"
    assert content.count(b"/FontFile") == len(fonts)


def test_an_svg_has_the_width_in_inches_and_colors_of_paper(run):
    root = ElementTree.fromstring(draw(CHART, "svg", run, "column"))
    assert root.get("width") == "3.35in"
    across, up = map(float, (root.get("viewBox") or "").split()[2:])
    assert float((root.get("height") or "").removesuffix("in")) == pytest.approx(3.35 * up / across, rel=1e-3)
    text = ElementTree.tostring(root, encoding="unicode")
    assert "var(--" not in text and "#1f6fae" in text and "<script" not in text


def test_a_png_has_300_pixels_in_an_inch(run):
    content = draw(CHART, "png", run, "page")
    assert content.startswith(b"\x89PNG")
    across, up = struct.unpack(">II", content[16:24])
    assert abs(across - 6.9 * 300) <= 1 and 0 < up < across


def test_the_values_are_whole_and_have_their_intervals(run):
    head, *rows = csv.reader(draw(CHART, "csv", run).decode().splitlines())
    assert head == ["defense_a & b", "accuracy, %", "value", "low", "high", "reference"]
    assert rows == [
        ["krum", "50.123456789012", "50.123456789012", "40.0", "60.5", "90.0"],
        ["a >> b", "", "", "", "", ""],
    ]


def test_what_latex_interprets_is_escaped(run):
    text = draw(CHART, "tex", run).decode()
    assert r"defense\_a \& b & accuracy, \% \\" in text and r"a \textgreater{}\textgreater{} b &  \\" in text
    assert text.count(r"\begin{") == text.count(r"\end{") == 2
    assert r"\begin{tabular}{lr}" in text and r"\caption{How far \& low." in text
    assert escape_latex("\\input{x}$^~#") == r"\textbackslash{}input\{x\}\$\textasciicircum{}\textasciitilde{}\#"


def test_the_caption_says_what_was_trained_and_what_symbols_mean(run):
    said = caption(CHART, run)
    for part in (
        "How far & low.",
        "Dot (orange): worst attack.",
        "2 of 6 clients malicious",
        "3 seeds",
        "95 % interval",
    ):
        assert part in said
    assert said.endswith(".") and ".." not in said


def test_blocks_are_named_by_their_titles_and_found_by_a_beginning():
    prose, folded = Prose(["nothing"]), More("more", [CHART, TABLE])
    found = figures([prose, CHART, folded])
    assert list(found) == ["how-far-low", "how-far-low-2", "table"]
    assert find_figure([prose, CHART, folded], None, "overview") is CHART
    assert find_figure([folded], "tab", "overview") is TABLE
    with pytest.raises(
        ConfigError, match=r"expected one of overview:how-far-low, overview:how-far-low-2, overview:table; got 'how'"
    ):
        find_figure([prose, CHART, folded], "how", "overview")
    with pytest.raises(ConfigError, match="it has none for this run"):
        find_figure([prose], None, "gate")
    with pytest.raises(ConfigError, match="Name one of them"):
        find_figure([TABLE, TABLE], None, "gate")


def test_a_table_is_no_picture(run):
    with pytest.raises(ConfigError, match=r"expected \.tex or \.csv for a table; got \.pdf"):
        draw(TABLE, "pdf", run)


def test_the_command_lists_writes_and_never_overwrites(run, tmp_path):
    def call(*arguments):
        return CliRunner().invoke(app, ["figure", str(run.folder.path), *arguments])

    listed = call("overview")
    assert listed.exit_code == 0 and "overview:how-far-each-defense-falls  chart" in listed.output
    files = [tmp_path / f"a.{form}" for form in ("pdf", "svg", "png", "tex", "csv")]
    done = call("overview:how-far", *(part for file in files for part in ("--to", str(file))))
    assert done.exit_code == 0 and "Caption: How far each defense falls." in " ".join(done.output.split())
    assert all(file.stat().st_size > 100 for file in files)
    assert "median" in files[-1].read_text() and "2 of 6 clients malicious" in files[-2].read_text()
    before = files[0].read_bytes()
    assert "there already" in str(call("overview", "--to", str(files[0])).exception) and files[0].read_bytes() == before
    assert call("overview", "--to", str(files[0]), "--force").exit_code == 0
    assert "expected one of the pages" in str(call("nonsense").exception)


FIELDS = [Field("92.0", "[90.0, 94.0]", 0.0), Field("refused", heat=None)]
HEATMAP = Heatmap(
    [
        Panel("f = 1", ["mean", "a >> b"], [("none", FIELDS), ("worst", [Field("10.0", heat=0.9), Field("71.0", heat=0.2)])], 1),
        Panel("f = 2", ["mean"], [("ipm_<b>", [Field("9.0", "", 1.0)])]),
    ],
    "attack", "Final accuracy in %", "Color: lost",
)  # fmt: skip


def test_a_heat_map_is_a_chart_with_all_of_its_fields(run):
    ((name, made),) = figures([HEATMAP]).items()
    assert name == "final-accuracy-in" and find_figure([HEATMAP, TABLE], None, "matrix") == made
    assert made.alt == "f = 1, worst attack: mean 10.0, a >> b 71.0."
    rows = list(csv.reader(draw(made, "csv", run).decode().splitlines()))
    assert rows == [
        ["panel", "attack", "mean", "a >> b"],
        ["f = 1", "none", "92.0 [90.0, 94.0]", "refused"],
        ["f = 1", "worst", "10.0", "71.0"],
        ["f = 2", "ipm_<b>", "9.0", ""],
    ]


@pytest.mark.parametrize("width", WIDTHS)
def test_a_drawn_heat_map_has_darker_fields_for_larger_losses_and_none_for_no_value(run, width):
    (made,) = figures([HEATMAP]).values()
    root = ElementTree.fromstring(draw(made, "svg", run, width))
    texts = [one.text for one in root.iter() if one.tag.endswith("text") and one.text]
    assert {"92.0", "refused", "10.0", "71.0", "9.0", "ipm_<b>", "f = 1", "f = 2", "a >> b"} <= set(texts)
    assert ("[90.0, 94.0]" in texts) is (width == "page")
    squares = [one for one in root.iter() if one.get("fill") == "#c24e00"]
    assert sorted(float(one.get("opacity") or 1) for one in squares) == pytest.approx([0.0, 0.14, 0.63, 0.7])
    assert len([one for one in root.iter() if one.get("stroke-dasharray") == "3,3"]) == 1


def test_the_command_draws_the_matrix_of_a_run(run, tmp_path):
    to = tmp_path / "matrix.csv"
    done = CliRunner().invoke(app, ["figure", str(run.folder.path), "matrix", "--to", str(to)])
    assert done.exit_code == 0, done.output
    head, *rows = csv.reader(to.read_text().splitlines())
    assert head == ["attack", "mean", "median"] and [row[0] for row in rows] == ["none", "ipm"], (
        "one attack is its own worst"
    )
