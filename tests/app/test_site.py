"""The static site: each link leads to a file that is there, files hold what they say, and nothing else is touched."""

from __future__ import annotations

import re
import shutil
from html.parser import HTMLParser

import pytest
from typer.testing import CliRunner

import fedguard as fg
from fedguard.app import site as module
from fedguard.app.site import MARK, site
from fedguard.bench.pages.blocks import Choice, Verdict
from fedguard.bench.pages.page import PAGES, page
from fedguard.cli import app
from fedguard.errors import StoreError

SUITE = {
    "seeds": 2, "clients": {"total": 6, "malicious": 1}, "training": {"rounds": 1, "lr": 0.5},
    "matrix": {"attack": ["none", "ipm"], "defense": ["mean", "median"], "training.lr": [0.1, 0.5]},
}  # fmt: skip


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    store = tmp_path_factory.mktemp("site") / "runs"
    names = ("first", "second")
    return [fg.run({**SUITE, "name": name}, store=store, jobs=1) for name in names]


class Links(HTMLParser):
    """Collects links, and whatever a browser would load or execute."""

    def __init__(self):
        super().__init__()
        self.links, self.loads = [], []

    def handle_starttag(self, tag, attrs):
        found = dict(attrs)
        if tag == "a" and not found["href"].startswith("#"):
            self.links.append(found["href"])
        if tag == "script" or any(name.startswith("on") for name in found):
            self.loads.append(tag)
        self.loads += [value for name in ("src",) if (value := found.get(name)) and not value.startswith("data:")]


def read(file):
    parser = Links()
    parser.feed(file.read_text("utf-8"))
    return parser


def test_every_link_leads_to_a_file_and_every_file_is_linked(runs, tmp_path):
    assert site(runs, tmp_path / "site") == 0
    root = (tmp_path / "site").resolve()
    files, linked = (
        {file.resolve() for file in root.rglob("*")} - {root / "first", root / "second"},
        {root / "index.html"},
    )
    for file in files:
        found = read(file)
        assert not found.loads and MARK in file.read_text("utf-8")
        targets = {(file.parent / link).resolve() for link in found.links}
        assert targets <= files
        linked |= targets
    assert linked == files
    for run in ("first", "second"):
        assert {f"{name}.html" for name in PAGES} <= {file.name for file in (root / run).iterdir()}


def test_a_choice_is_a_file_with_what_was_chosen(runs, tmp_path):
    """Of every choice of the overview: the file that its link opens has the verdict of that choice, and no other's."""
    site(runs[:1], tmp_path / "site")
    blocks = list(page("overview").blocks(runs[0], {}))
    (choice,) = (block for block in blocks if isinstance(block, Choice))
    assert len(choice.options) == 2
    overview = (tmp_path / "site" / "first" / "overview.html").read_text("utf-8")
    for option in set(choice.options) - {choice.chosen}:
        (href,) = re.findall(rf'<a href="(overview-\w+\.html)">{re.escape(option)}</a>', overview)
        (verdict,) = (one for one in page("overview").blocks(runs[0], {choice.key: option}) if isinstance(one, Verdict))
        text = (tmp_path / "site" / "first" / href).read_text("utf-8")
        assert verdict.headline.split(":")[0] in text and f"<b>{option}</b>" in text


def test_what_is_too_much_is_left_out_and_counted(runs, tmp_path, monkeypatch):
    monkeypatch.setattr(module, "MOST", len(PAGES))
    assert site(runs[:1], tmp_path / "site") > 0
    names = {file.name for file in (tmp_path / "site" / "first").iterdir()}
    assert names == {f"{name}.html" for name in PAGES}
    done = CliRunner().invoke(app, ["site", str(runs[0].folder.path), "--to", str(tmp_path / "other")])
    assert done.exit_code == 0 and "views are left out" in " ".join(done.output.split())


def test_an_earlier_site_is_replaced_only_if_asked_and_other_files_never(runs, tmp_path):
    there = tmp_path / "site"
    site(runs, there)
    with pytest.raises(StoreError, match="there is a site already"):
        site(runs, there)
    site(runs[1:], there, force=True)
    assert not list((there / "first").glob("*")) and (there / "second" / "overview.html").is_file()
    (there / "mine.html").write_text("<p>mine")
    before = {file: file.read_bytes() for file in there.rglob("*.html")}
    with pytest.raises(StoreError, match=r"it has mine\.html"):
        site(runs, there, force=True)
    assert before == {file: file.read_bytes() for file in there.rglob("*.html")}
    with pytest.raises(StoreError, match="expected a new folder"):
        site(runs, runs[0].folder.path.parent, force=True)


def test_one_name_twice_is_refused(runs):
    folder = str(runs[0].folder.path)
    done = CliRunner().invoke(app, ["site", folder, folder])
    assert "more than once" in str(done.exception)


def test_a_damaged_run_beside_it_stops_no_site_and_is_no_choice(runs, tmp_path):
    store = tmp_path / "runs"
    shutil.copytree(runs[0].folder.path.parent, store)
    (store / "second" / "manifest.json").write_text("{")
    assert site([fg.open_run("first", store=store)], tmp_path / "pages") == 0
    pages = [path.read_text() for path in (tmp_path / "pages" / "first").glob("compare*.html")]
    assert len(pages) == 1 and "its manifest cannot be read" in pages[0]
