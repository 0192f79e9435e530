"""The HTML report: one file, whole, escaped, and with the figures of the run."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from html.parser import HTMLParser

import pytest
import typer
from typer.testing import CliRunner

import fedguard as fg
from fedguard.app.report import render_report as html
from fedguard.app.report import report as write
from fedguard.app.report.document import POLICY
from fedguard.app.report.sections import SECTIONS
from fedguard.bench.gate.verdict import GateVerdict, Judgment
from fedguard.bench.pages.elements import el, table, to_bytes
from fedguard.bench.records.record import to_text
from fedguard.bench.results.run import Run
from fedguard.commands.report import report as command
from fedguard.errors import MissingExtra, StoreError
from fedguard.metrics.figures import FIGURES

#: Small, with all that a report can show: refusals, a swept number, noise, masks, and attacks on the clients' privacy.
SUITE = {
    "name": "everything",
    "clients": {"total": 6, "malicious": 1},
    "task": {"model": {"name": "mlp", "hidden": [8]}},
    "training": {"algorithm": "fedsgd", "rounds": 1, "lr": 0.5, "batch_size": 8},
    "observer": {"server": "malicious", "victims": 1, "candidates": 40},
    "server": {"root_data": 40},
    "seeds": 2,
    "matrix": {
        "protocol": [
            {"secure_aggregation": "none"},
            {"secure_aggregation": "full"},
            {"privacy": {"kind": "record", "clip": 1.0, "noise_multiplier": 2.0, "delta": 1e-5, "sample_rate": 0.1}},
        ],
        "attack": ["none", "sign_flip", "ipm", "robbing_the_fed", "fed_mia"],
        "defense": ["mean", "median"],
    },
    "threat": {"knowledge": ["own_data", "model"]},
}

EVIL = "<script>alert(1)</script></style></svg><img src=http://evil.example/x.png onerror='alert(2)'>&amp;\"'"


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> Run:
    return fg.run(SUITE, store=tmp_path_factory.mktemp("store"), jobs=1)


@pytest.fixture(scope="module")
def page(run) -> Page:
    return Page(html(run))


@pytest.fixture(scope="module")
def swept(tmp_path_factory) -> Run:
    """A small run with a swept number."""
    matrix = {"attack": ["none", "sign_flip"], "defense": ["mean"], "clients.malicious": [0, 2]}
    suite = {"name": "swept", "clients": {"total": 6}, "training": {"rounds": 2}, "seeds": 2, "matrix": matrix}
    return fg.run(suite, store=tmp_path_factory.mktemp("swept"), jobs=1)


@pytest.fixture(scope="module")
def page_of_swept(swept) -> Page:
    return Page(html(swept))


class Page(HTMLParser):
    """What a browser would make of the file: elements with their attributes, ids, and the text of each section and table."""

    VOID = ("meta", "img", "br", "hr", "col", "input", "link")

    def __init__(self, content: bytes) -> None:
        super().__init__()
        self.source = content.decode("utf-8")
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[tuple[str, str | None]] = []
        self.text: dict[str, str] = {}
        self.tables: list[dict] = []
        self.feed(self.source)
        self.close()
        assert not self.open, f"left open: {self.open}"

    def handle_starttag(self, tag, attributes):
        found = dict(attributes)
        self.elements.append((tag, found))
        if tag not in self.VOID:
            self.open.append((tag, found.get("id")))
        if tag == "table":
            self.tables.append({"caption": "", "rows": [], "section": self.section})
        if tag == "tr":
            self.tables[-1]["rows"].append([])
        if tag in ("th", "td"):
            self.tables[-1]["rows"][-1].append("")

    def handle_endtag(self, tag):
        assert self.open.pop()[0] == tag

    def handle_data(self, data):
        tags = [tag for tag, _ in self.open]
        self.text[self.section] = self.text.get(self.section, "") + data
        if "caption" in tags:
            self.tables[-1]["caption"] += data
        if "th" in tags or "td" in tags:
            self.tables[-1]["rows"][-1][-1] += data

    @property
    def section(self) -> str:
        return next((name or "" for tag, name in self.open if tag == "section"), "")

    def titled(self, start: str) -> dict:
        return next(one for one in self.tables if one["caption"].startswith(start))


def test_every_section_is_there_and_in_the_contents(page):
    names = [
        section.name for section in SECTIONS if section.name not in ("breakdown", "cells", "replay", "gate")
    ]  # it has none
    assert names[0] == "overview" and names[-1] == "configuration"  # the answer first
    assert [found["id"] for tag, found in page.elements if tag == "section"] == names
    assert [found["href"] for tag, found in page.elements if tag == "a"] == [f"#{name}" for name in names]
    for section in SECTIONS:
        if section.name in names:
            assert len(page.text[section.name]) > len(section.title)


def harmless(page: Page) -> None:
    """No element that runs or loads anything."""
    for tag, attributes in page.elements:
        assert tag not in ("script", "iframe", "object", "embed", "link", "base", "form", "foreignObject", "use")
        for name, value in attributes.items():
            assert not name.startswith("on")
            if name in ("src", "href", "xlink:href", "srcset", "action"):
                assert value.startswith(("#", "data:image/png;base64,"))
            assert "url(" not in (value or "") or (value or "").startswith("url(#")


def test_nothing_runs_and_nothing_is_loaded(page):
    assert page.source.startswith("<!DOCTYPE html>")
    policies = [found for tag, found in page.elements if tag == "meta" and "http-equiv" in found]
    assert policies == [{"http-equiv": "Content-Security-Policy", "content": POLICY}]
    assert "'none'" in POLICY and "script" not in POLICY and "http" not in POLICY
    assert page.source.index(POLICY) < page.source.index("<title>")
    harmless(page)
    style = re.search(r"<style>(.*?)</style>", page.source, re.DOTALL)[1]
    assert "url(" not in style and "@import" not in style


def test_charts_are_there_with_descriptions_and_ids_of_their_own(page):
    charts = [found for tag, found in page.elements if tag == "svg"]
    assert len(charts) >= 4
    assert all(found["role"] == "img" and found["aria-label"] for found in charts)
    ids = [found["id"] for _, found in page.elements if "id" in found]
    assert len(ids) == len(set(ids))
    for reference in re.findall(r"url\(#([^)]+)\)", page.source):
        assert reference in ids
    assert "cannot be drawn" not in page.source


def test_what_was_refused_has_a_dashed_field_of_its_own(run, page):
    said = page.source[page.source.index('id="matrix"') :]
    said = said[: said.index("</section>")]
    refused = {
        (row["attack"], row["defense"], *(row[key] for key in run.swept))
        for row in run.with_status("refused")
        if row["goal"] in (None, "untargeted")
    }
    assert len(refused) >= 3
    assert said.count("<b>refused</b>") >= len(refused)
    assert said.count('<td class="none"><span><b>refused</b>') == said.count("<b>refused</b>")


def test_tables_say_what_they_hold_and_which_cells_are_headings(page):
    assert all(one["caption"] for one in page.tables)
    assert all(found.get("scope") in ("col", "row") for tag, found in page.elements if tag == "th")


def test_the_values_are_those_of_the_run(run, page):
    """The table of every metric has each value of each matrix, as the matrix itself writes it."""
    whole = next(one for one in page.tables if one["caption"].startswith("Every metric"))
    shown = {(metric, setting, attack): cells for metric, setting, attack, *cells in whole["rows"][1:]}
    seen = 0
    for figure in run.figures:
        for block, attacks in run.table(figure).blocks.items():
            for attack, entries in attacks.items():
                if any(entry.estimate for entry in entries.values()):
                    cells = shown[FIGURES[figure].heading, block, attack]
                    for entry, cell in zip(entries.values(), cells, strict=True):
                        assert cell.split(" ")[0] == (
                            entry.text() if entry.estimate else entry.text().replace("-", "-")
                        )
                        seen += 1
    assert seen > 50


def test_the_report_begins_with_the_verdict_and_has_one_heading_of_the_first_level(run, page):
    assert [tag for tag, _ in page.elements].count("h1") == 1
    assert any(verdict.headline in page.text["overview"] for verdict in run.verdicts.values())
    drawn = page.titled("Accuracy of each defense without attack and under its worst attack")
    assert drawn["section"] == "overview" and len(drawn["rows"]) > 1


def test_what_was_refused_is_told_with_its_reason(run, page):
    reasons = {row["reason"] for row in run.with_status("refused")}
    assert reasons
    for reason in reasons:
        assert reason in page.text["overview"]
    assert any("refused" in cell for one in page.tables for row in one["rows"] for cell in row)


def test_what_was_run_epsilons_masks_and_configuration_are_told(run, page):
    record = next(iter(run.records.values()))
    for said in ("digits", "0, 1", record["environment"]["data"], record["environment"]["torch"]):
        assert said in page.text["run"]
    for facts in filter(None, [one["result"]["privacy"] for one in run.records.values() if one["result"]]):
        assert f"epsilon = {facts['epsilon']:.4g}" in page.text["privacy"]
        for line in facts["assumptions"]:
            assert line in page.text["privacy"]
    assert "full" in page.text["sums"] and "Colluders are not counted" in page.text["sums"]
    assert (run.folder.path / "config.resolved.yaml").read_text() in page.text["configuration"]


def test_reconstructions_are_pictures_in_the_file(page):
    pictures = [found for tag, found in page.elements if tag == "img"]
    assert pictures
    assert all(found["alt"].startswith("Above, inputs; below, what was rebuilt of them") for found in pictures)


@pytest.fixture(scope="module")
def hostile(run, tmp_path_factory) -> Page:
    """The report of a run in which everything that is text is an attack on its reader, and a file leads elsewhere."""
    folder = tmp_path_factory.mktemp("hostile") / "everything"
    shutil.copytree(run.folder.path, folder)
    manifest = json.loads((folder / "manifest.json").read_text())
    manifest["name"] = EVIL
    for position in manifest["positions"]:
        if position["swept"]["attack"] == "ipm":
            position["swept"]["attack"] = EVIL
    (folder / "manifest.json").write_text(json.dumps(manifest))
    for (cell, seed), record in run.records.items():
        card = {**record["threat_card"], "in_words": EVIL}
        changed = {**record, "label": EVIL, "threat_card": card, "reason": EVIL if record["reason"] else None}
        (folder / "cells" / cell / f"seed-{seed:03d}.json").write_bytes(to_text(changed))
    (folder.parent / "secret").write_text("a private key")
    (folder / "config.resolved.yaml").unlink()
    (folder / "config.resolved.yaml").symlink_to(folder.parent / "secret")
    one = Judgment(
        swept={"attack": "none", "defense": EVIL}, cell="c" * 12, figure="final_accuracy", verdict="regressed",
        why="worse by 7.0 points", before=0.9, after=0.83, drop=0.07, margin=0.02, seeds=(0, 1),
    )  # fmt: skip
    (folder / "gate").mkdir()
    for time, judgments in ((1.0, ()), (2.0, (one,))):
        verdict = GateVerdict(run=EVIL, baseline="b", time=time, commit=None, baseline_commit=None, judgments=judgments)
        (folder / "gate" / f"{time}.json").write_text(json.dumps(verdict.as_dict()))
    return Page(html(Run.open(folder)))


def test_the_kinds_of_federation_stand_among_the_threat_cards(page):
    told = page.text["threats"].partition("The kinds of federation, in six words")[2]
    assert all(
        word in told for word in ("motivation", "horizontal", "network", "cross-silo", "masks", "noise", "regulation")
    )


def test_hostile_names_and_reasons_are_text(hostile):
    harmless(hostile)
    for section in ("run", "overview", "matrix", "threats", "gate"):
        assert EVIL in hostile.text[section], section
    assert "<script" not in hostile.source.lower()
    assert [found["id"] for tag, found in hostile.elements if tag == "section"] == [
        one.name for one in SECTIONS if one.name not in ("breakdown", "cells", "replay")
    ]


def test_the_last_verdict_of_a_gate_is_told(hostile):
    assert "Regressed: " in hostile.text["gate"] and "worse by 7.0 points" in hostile.text["gate"]


def test_a_link_out_of_the_run_is_not_followed(hostile):
    assert "a private key" not in hostile.source


def test_a_run_without_a_record_has_its_report(run, tmp_path):
    shutil.copytree(run.folder.path, tmp_path / "everything")
    shutil.rmtree(tmp_path / "everything" / "cells")
    page = Page(html(Run.open(tmp_path / "everything")))
    assert "Nothing ran" in page.text["threats"] and "missing" in page.text["run"]


def test_an_existing_file_is_written_over_only_by_force(swept, page_of_swept, tmp_path):
    path = tmp_path / "report.html"
    path.write_bytes(page_of_swept.source.replace("</main>", "<p>an older one</p></main>").encode())
    with pytest.raises(StoreError, match="is there already"):
        write(swept, path)
    write(swept, path, force=True)
    assert path.read_text(encoding="utf-8") == page_of_swept.source  # and two reports of one run are the same


def test_a_stored_run_is_never_written_over(swept, tmp_path):
    folder = tmp_path / "copied"
    shutil.copytree(swept.folder.path, folder)
    (tmp_path / "link").symlink_to(folder / "manifest.json")
    before = (folder / "manifest.json").read_bytes()
    for path in (folder / "manifest.json", tmp_path / "link", next(folder.glob("cells/*/*.json"))):
        with pytest.raises(StoreError, match="a run is stored in it"):
            write(swept, path, force=True)
    assert (folder / "manifest.json").read_bytes() == before
    write(swept, folder / "report.html")  # beside it is one's own


def test_a_swept_number_has_its_curves(swept, page_of_swept):
    curve = next(one for one in page_of_swept.tables if one["section"] == "breakdown")
    named = {"none": "no attack"}
    entries = {
        f"{named.get(one.attack, one.attack)} against {one.defense}": one.entries for one in swept.breakdown().curves
    }
    assert {cells[0]: cells[3:] for cells in curve["rows"][1:]} | {} == {
        **{name: [entry.text() for entry in found] for name, found in entries.items()},
    }


def test_without_vl_convert_the_extra_is_named(run, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "vl_convert", None)
    with pytest.raises(MissingExtra, match=re.escape("fedguard[dashboard]")):
        write(run, tmp_path / "report.html")


def test_the_command_writes_the_file(swept, tmp_path):
    app = typer.Typer()
    app.command()(command)
    path = tmp_path / "report.html"
    said = CliRunner().invoke(app, [swept.name, "--to", str(path), "--store", str(swept.folder.path.parent)])
    assert said.exit_code == 0, said.output
    assert Page(path.read_bytes()).text["run"]


def test_elements_escape_text_and_attributes():
    made = el("p", EVIL, el("b", "x"), EVIL, title=EVIL)
    parsed = Fragment(to_bytes(made))
    assert parsed.tags == ["p", "b"]
    assert parsed.attributes == {"title": EVIL}
    assert parsed.data == f"{EVIL}x{EVIL}"
    assert to_bytes(el("p", "\ud800")) == b"<p>?</p>"
    rows = Fragment(to_bytes(table(EVIL, [EVIL], [[EVIL]], "l")))
    assert "script" not in rows.tags and rows.data == EVIL * 3


class Fragment(HTMLParser):
    def __init__(self, content: bytes) -> None:
        super().__init__()
        self.tags, self.attributes, self.data = [], {}, ""
        self.feed(content.decode())
        self.close()

    def handle_starttag(self, tag, attributes):
        self.tags.append(tag)
        self.attributes |= dict(attributes)

    def handle_data(self, data):
        self.data += data


def test_the_file_of_a_whole_run_stays_small(page, run):
    assert len(run.rows()) == 60
    assert len(page.source.encode()) < 1_000_000


def test_a_name_with_a_control_character_is_drawn_and_ends_nothing():
    """In a process of its own, since the renderer would take this one with it."""
    names = ["a\x1b[31mred", "\x00", "\x07\x7f", "\ufffe", "\ud800"]
    code = """
import sys
from xml.etree.ElementTree import tostring
import altair as alt
from fedguard.bench.pages.svg import draw_figure
for name in eval(sys.argv[1]):
    values = alt.Data(values=[{"attack": name, "share": 1.0}])
    chart = alt.Chart(values).mark_bar().encode(x="share:Q", y="attack:N")
    print(tostring(draw_figure(chart, "shares"), encoding="unicode"), end="\\f", flush=True)
"""
    said = subprocess.run([sys.executable, "-c", code, ascii(names)], capture_output=True, text=True, check=False)
    *pictures, end = said.stdout.split("\f")
    assert said.returncode == 0 and not end, f"after {len(pictures)} of {names!a}: {said.stderr[-500:]}"
    for name, picture in zip(names, pictures, strict=True):
        assert "<svg" in picture and ascii(name)[1:-1] in picture


def test_paper_holds_no_table_that_a_heatmap_holds_already(page):
    """On paper what is folded is left out: there each heatmap has its table, and all figures have that no attack aims at."""
    tag = r"<details>(?:(?!<details>).)*?</details>"
    paper = page.source
    while re.search(tag, paper, re.DOTALL):  # the innermost ones first
        paper = re.sub(tag, "", paper, flags=re.DOTALL)
    assert paper.count("<table>") < 40
    assert "Every metric" not in paper[paper.index('id="matrix"') : paper.index('id="privacy"')]
    assert "details { display: none; }" in page.source
