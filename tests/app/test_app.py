"""Every page of the dashboard, over an empty store, a run in which everything occurs, damaged runs and malicious names."""

from __future__ import annotations

import html
import importlib.util
import re
from pathlib import Path

import pytest
from streamlit.testing.v1 import AppTest
from streamlit.util import calc_hash

from tests import stores
from tests.views import VIEWS, View

MAIN = Path(importlib.util.find_spec("fedguard.app.main").origin)
WITH_A_RUN = [view for view in VIEWS if view.page.reads == "run"]

#: What shows its text as it is. Everything else that Streamlit draws takes text for Markdown, labels included.
AS_IT_IS = {"html", "text", "code", "dataframe", "arrow_vega_lite_chart", "vega_lite_chart", "json", "text_area"}

#: Widgets whose choices are shown as they are, but not their label and their help.
CHOICES_AS_THEY_ARE = {"selectbox", "multiselect"}

#: Parts of `stores.HOSTILE` that mean something where no backslash stands before them.
MEANT = re.compile(r"(?<!\\)(<img|\*\*bold|\$x|:red\[|\]\(javascript|!\[x)")


@pytest.fixture(scope="module")
def store(tmp_path_factory) -> Path:
    made = tmp_path_factory.mktemp("dashboard") / "store"
    stores.all_kinds(made)
    return made


def visit(store: Path, monkeypatch, view: View = VIEWS[0], **query: str) -> AppTest:
    """A page as its address shows it. The first page has none of its own."""
    monkeypatch.setenv("FEDGUARD_STORE", str(store))
    test = AppTest.from_file(MAIN, default_timeout=60)
    # `switch_page` knows pages by their files alone, and ours are functions.
    test._page_hash = calc_hash("" if view.page is VIEWS[0].page else view.name)
    test.query_params.update(view.query | query)
    test.run()
    assert not test.exception, test.exception[0].stack_trace
    return test


def nodes(test: AppTest):
    return [node for part in (test.main, test.sidebar) for node in part]


def text_of(test: AppTest) -> str:
    """All that is written on a page, and what its charts and tables are called."""
    written = [html.unescape(node.proto.body) for node in nodes(test) if node.type == "html"]
    return "\n".join([*written, *(str(getattr(node, "value", "")) for node in nodes(test) if hasattr(node, "value"))])


def heading(test: AppTest) -> str:
    """The one heading of the first level."""
    written = re.findall(r"<h1>(.*?)</h1>", " ".join(node.proto.body for node in nodes(test) if node.type == "html"))
    (found,) = [*(title.value for title in test.title), *written]
    return found


def taken_for_markdown(node) -> str:
    """The text of an element that is drawn as Markdown."""
    if node.type in AS_IT_IS or node.proto is None:
        return ""
    if node.type in CHOICES_AS_THEY_ARE:
        return f"{node.proto.label}\n{node.proto.help}"
    return str(node.proto)


def test_no_folder_beside_the_script_is_called_pages():
    """Streamlit would run its files as pages of its own when a fresh server is asked for one of them first."""
    assert not (MAIN.parent / "pages").exists()


def test_the_first_page_is_the_overview(store, monkeypatch):
    test = visit(store, monkeypatch)
    assert heading(test)
    assert set(test.sidebar.selectbox[0].options) == set(stores.KINDS)


#: `everything` is shown quickly under its hostile name, by a copy of all that it holds.
@pytest.mark.parametrize(
    "run", [pytest.param(one, marks=[pytest.mark.slow] * (one == "everything")) for one in stores.KINDS]
)
@pytest.mark.parametrize("view", VIEWS, ids=str)
def test_every_page_shows_every_kind_of_run_and_takes_nothing_of_it_for_markdown(store, monkeypatch, view, run):
    test = visit(store, monkeypatch, view, run=run)
    assert heading(test)
    assert test.sidebar.selectbox[0].value == run
    drawn = [node.type for node in test.main if node.type not in ("main", "title", "caption")]
    assert drawn, "nothing but a title"
    for node in nodes(test):
        found = MEANT.search(taken_for_markdown(node))
        assert found is None, f"{node.type}: {found.string[max(0, found.start() - 80) : found.end() + 80]}"


@pytest.mark.parametrize("view", VIEWS, ids=str)
def test_an_empty_store(tmp_path, monkeypatch, view):
    test = visit(tmp_path, monkeypatch, view)
    assert heading(test)
    assert not test.sidebar.selectbox
    if view.page.reads == "run" or view.name in ("overview", "gate"):
        assert any(code.value.startswith("fedguard ") for code in test.code), "the empty state names no command"


@pytest.mark.parametrize("view", VIEWS, ids=str)
def test_a_store_that_is_not_there(tmp_path, monkeypatch, view):
    visit(tmp_path / "nowhere", monkeypatch, view)


@pytest.mark.parametrize("view", WITH_A_RUN, ids=str)
def test_a_broken_manifest_is_told_in_one_line(store, monkeypatch, view):
    test = visit(store, monkeypatch, view, run="broken-manifest")
    assert "manifest.json: cannot be read" in text_of(test)
    assert "Traceback" not in text_of(test)


def test_the_overview_counts_what_is_damaged_refused_and_failed(store, monkeypatch):
    text = text_of(visit(store, monkeypatch, run="broken-record"))
    assert re.search(r"\b1 (damaged )?record", text)
    text = text_of(visit(store, monkeypatch, run="everything"))
    assert "median needs each client's update" in text
    assert f"ValueError: {stores.HOSTILE}" in text


def test_a_link_to_a_run_that_is_not_there_says_so(store, monkeypatch):
    test = visit(store, monkeypatch, run="gone **bold**")
    assert any("no such run in this store" in one.value for one in test.warning)
    assert any(one.value == "gone **bold**" for one in test.code)
    assert not any("no such run" in one.value for one in visit(store, monkeypatch, run="short").warning)
