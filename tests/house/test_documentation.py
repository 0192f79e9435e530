"""The site: it builds, it loads nothing from elsewhere, its links lead somewhere, and its reference is complete."""

from __future__ import annotations

import dataclasses
import json
import os
import posixpath
import re
import subprocess
import sys
from collections import defaultdict
from html.parser import HTMLParser
from urllib.parse import unquote, urldefrag

import pytest
from typer.main import get_command

from fedguard import cli
from fedguard.architectures.masking.group_testing import GroupTesting
from fedguard.architectures.masking.groups import Groups
from fedguard.bench.docstrings import prose
from fedguard.bench.explain.settings import settings
from fedguard.config.schema import Suite
from fedguard.privacy.kinds.client import Bands, ClientNoise
from fedguard.privacy.kinds.distributed import DistributedNoise
from fedguard.privacy.kinds.record import PrivacyLevel, RecordNoise
from fedguard.registry import KINDS, load_registry

pytest.importorskip("mkdocs")

from markdown import markdown

from docs_tools import algorithms, suite
from docs_tools import commands as commands_page
from docs_tools.formulae import set_in
from tests.root import ROOT

#: Those of mkdocs.yml that the pages of the reference need.
EXTENSIONS = ["attr_list", "pymdownx.arithmatex", "pymdownx.superfences", "tables", "toc"]
GENERIC = {"pymdownx.arithmatex": {"generic": True}}


class Page(HTMLParser):
    """What a test asks of a built page: what it loads, where it links, its headings with the text and tables under each."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.loads: list[str] = []
        self.links: list[str] = []
        self.ids: set[str] = set()
        self.twice: set[str] = set()
        self.text: dict[str, str] = defaultdict(str)
        self.rows: dict[str, list[list[str]]] = defaultdict(list)
        self.formulae: dict[str, int] = defaultdict(int)
        self.prose = ""
        self._section, self._cell, self._quiet, self._set = "", False, 0, 0
        self.feed(html)

    def handle_starttag(self, tag, attrs):
        given = {name: value or "" for name, value in attrs}
        if "id" in given:
            (self.twice if given["id"] in self.ids else self.ids).add(given["id"])
        if tag in ("h1", "h2", "h3", "h4", "h5", "h6"):
            self._section = given.get("id", self._section)
        if tag == "a":
            self.links.append(given.get("href", ""))
        elif tag == "link" and given.get("rel") not in ("canonical", "prev", "next"):
            self.loads.append(given["href"])
        self.loads += [given[name] for name in ("src", "srcset", "poster", "data", "xlink:href") if name in given]
        self.loads += re.findall(r"url\((.*?)\)", given.get("style", ""))
        if tag == "tr":
            self.rows[self._section].append([])
        self._cell = tag == "td" or (self._cell and tag != "tr")
        if tag == "td":
            self.rows[self._section][-1].append("")
        self._quiet += tag in ("script", "style")
        self._set += tag in ("code", "pre", "math")
        self.formulae[self._section] += tag == "math"

    def handle_endtag(self, tag):
        self._cell = self._cell and tag != "td"
        self._quiet -= tag in ("script", "style")
        self._set -= tag in ("code", "pre", "math")

    def handle_data(self, data):
        if self._quiet:
            self.loads += re.findall(r"@import[^;]*|url\((?!data:)(.*?)\)", data)
            return
        self.text[self._section] += data
        self.prose += "" if self._set else data
        if self._cell:
            self.rows[self._section][-1][-1] += data


@pytest.fixture(scope="session")
def folder(tmp_path_factory):
    """The site, built as `make docs` builds it."""
    out = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(out)]
    done = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, env={**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    )
    assert done.returncode == 0, done.stderr
    return out


@pytest.fixture(scope="session")
def site(folder):
    return {path.relative_to(folder).as_posix(): Page(path.read_text()) for path in folder.rglob("*.html")}


@pytest.fixture(scope="module", params=["by themselves", pytest.param("on the site", marks=pytest.mark.slow)])
def made(request):
    """The pages that are made from the code: set by the extensions of the site without the rest of it, and as they stand on it."""
    if request.param == "on the site":
        return request.getfixturevalue("site")
    return {
        address.replace(".md", ".html"): Page(
            set_in(markdown(text, extensions=EXTENSIONS, extension_configs=GENERIC), docstrings=True)
        )
        for source in (algorithms, suite, commands_page)
        for address, text in source.pages().items()
    }


@pytest.fixture(scope="module", params=["by themselves", pytest.param("on the site", marks=pytest.mark.slow)])
def documents(request):
    """The documents in the same two ways."""
    if request.param == "on the site":
        return request.getfixturevalue("site")
    return {
        path.relative_to(ROOT / "docs").with_suffix(".html").as_posix(): Page(
            set_in(markdown(path.read_text(), extensions=EXTENSIONS, extension_configs=GENERIC), docstrings=False)
        )
        for path in (ROOT / "docs").rglob("*.md")
    }


def said(text: str) -> str:
    return " ".join(text.split())


@pytest.mark.slow
def test_a_page_loads_nothing_from_elsewhere(folder, site):
    assert len(site) > 25
    for name, page in site.items():
        assert page.loads, name  # the style sheet at least, else this looks at nothing
        assert not [one for one in page.loads if "//" in one], name
    for path in folder.rglob("*.css"):
        assert not re.search(r"url\([\"']?(https?:)?//|@import", path.read_text()), path


@pytest.mark.slow
def test_what_a_page_loads_and_links_to_is_there(folder, site):
    for name, page in site.items():
        if name == "404.html":  # it stands anywhere, so its links are those of a server's root
            continue
        for target in [*page.links, *page.loads]:
            address, anchor = urldefrag(unquote(target))
            if address.startswith(("http:", "https:", "data:", "mailto:")):
                continue
            path = (folder / name).parent.joinpath(address).resolve() if address else folder / name
            assert path.is_file(), f"{name}: {target}"
            if anchor and path.suffix == ".html":
                assert anchor in site[path.relative_to(folder.resolve()).as_posix()].ids, f"{name}: {target}"


def test_each_anchor_of_a_page_is_there_once(made, documents):
    for name, page in {**made, **documents}.items():
        assert page.ids and not page.twice, name


def test_anchors_that_documents_link_to_are_there(made, documents):
    """Where a link goes to a place within a page: one of `made` or another document."""
    known, seen = {**made, **documents}, 0
    for name, page in documents.items():
        for address, anchor in map(urldefrag, page.links):
            place = posixpath.normpath(posixpath.join(posixpath.dirname(name), address)) if address else name
            shown = known.get(place.replace(".md", ".html"))
            if anchor and shown is not None and "//" not in address:
                assert anchor in shown.ids, f"{name}: {address}#{anchor}"
                seen += 1
    assert seen > 20


def test_documents_and_their_style_load_nothing_from_elsewhere(documents):
    assert len(documents) > 25
    for name, page in documents.items():
        assert not [one for one in page.loads if "//" in one], name
    assert not re.search(r"url\([\"']?(https?:)?//|@import", (ROOT / "docs/site.css").read_text())
    assert "\n  font: false" in (ROOT / "mkdocs.yml").read_text()


def test_each_defense_names_the_file_that_it_is_defined_in(made):
    page = made["reference/defenses.html"]
    for _, cls in load_registry().classes(["defense"]):
        (file,) = re.findall(r"defenses/[\w/]+\.py", page.text[cls.name])
        assert f"class {cls.__name__}(" in (ROOT / file).read_text(), file


@pytest.mark.slow
def test_no_source_of_the_site_is_in_it(folder):
    assert not [path for path in folder.rglob("*") if path.suffix in (".py", ".md", ".yml", ".yaml")]


PAGE_OF = {
    "attack": "attacks", "trigger": "attacks", "inference": "inference", "protocol": "protocol_attacks",
    "defense": "defenses", "algorithm": "algorithms", "masking": "modes", "noise": "noises", "data": "tasks", "partition": "tasks",
    "model": "tasks", "architecture": "tasks", "availability": "availabilities",
    "evasion": "evasions", "statistics": "statistics", "adapters": "adapters",
}  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
def test_each_algorithm_has_its_entry_with_source_and_parameters(made, kind):
    page = made[f"reference/{PAGE_OF[kind]}.html"]
    for _, cls in load_registry().classes([kind]):
        if load_registry().origin(kind, cls.name) != "built in":
            continue
        text, rows = said(page.text[cls.name]), page.rows[cls.name]
        assert cls.summary().replace("`", "") in text, cls.name
        assert said(cls.source or "-") in text, cls.name
        for field in cls.fields():
            (row,) = [row for row in rows if len(row) == 4 and row[0] == field.name]
            if field.default is not dataclasses.MISSING:
                assert row[2] == str(field.default), (cls.name, field.name)
            assert row[3], f"{cls.name}: {field.name} is not explained"


@pytest.mark.parametrize("kind", KINDS)
def test_each_formula_of_an_algorithm_is_set(made, kind):
    page, seen = made[f"reference/{PAGE_OF[kind]}.html"], 0
    for _, cls in load_registry().classes([kind]):
        if load_registry().origin(kind, cls.name) == "built in":
            said = prose(cls.__doc__ or "") + "".join(one.meaning for one in settings(cls))
            assert page.formulae[cls.name] == said.count("$") / 2, cls.name
            seen += page.formulae[cls.name]
    assert seen > {"attack": 100, "defense": 150, "inference": 80, "protocol": 20}.get(kind, -1)


def test_formulae_of_documents_are_set_and_no_source_of_one_is_left(documents):
    for document in (ROOT / "docs").rglob("*.md"):
        text = re.sub(r"^```.*?^```|`[^`]*`", "", document.read_text(), flags=re.DOTALL | re.MULTILINE)
        shown = documents[document.relative_to(ROOT / "docs").with_suffix(".html").as_posix()]
        assert sum(shown.formulae.values()) >= len(re.findall(r"\$\$?[^$]+\$\$?", text)), document.name
    assert sum(documents["read_result.html"].formulae.values()) == 3
    assert sum(documents["concepts.html"].formulae.values()) == 1
    for name, page in documents.items():
        assert not re.findall(r".*\$.*|.*\\[a-z({].*", page.prose), name


def keys(page: Page, section: str) -> dict[str, list[str]]:
    return {row[0]: row for row in page.rows[section] if len(row) == 4}


def test_each_key_of_a_suite_stands_in_the_reference_with_its_default(made):
    page, seen = made["reference/suite.html"], 0

    def compare(section, settings):
        nonlocal seen
        listed = keys(page, section)
        assert set(listed) == set(settings), section
        for key, default in settings.items():
            assert listed[key][3], f"{section}: {key} is not explained"
            inner = key if section == "top" else f"{section}-{key}"
            if isinstance(default, dict) and default:
                compare(inner, default)
            else:
                spelled = default if isinstance(default, str) and default else json.dumps(default)
                assert listed[key][2] == spelled, (section, key)
            seen += 1

    compare("top", Suite().model_dump(mode="json", by_alias=True))
    assert seen > 50


@pytest.mark.parametrize(
    ("section", "kind"),
    [
        ("protocol-secure_aggregation--groups", Groups),
        ("protocol-secure_aggregation--group_testing", GroupTesting),
        ("protocol-privacy--kind-record", RecordNoise),
        ("protocol-privacy--kind-client", ClientNoise),
        ("protocol-privacy--kind-distributed", DistributedNoise),
        ("protocol-privacy-levels", PrivacyLevel),
        ("protocol-privacy-noise", Bands),
    ],
)
def test_mappings_that_may_stand_at_a_key_are_there_too(made, section, kind):
    listed = keys(made["reference/suite.html"], section)
    for field in dataclasses.fields(kind):
        assert listed[field.name][3]
        if field.default is not dataclasses.MISSING:
            assert listed[field.name][2] == (
                field.default if isinstance(field.default, str) else json.dumps(field.default).replace("()", "[]")
            )


def commands(group=None, name="fedguard"):
    """(name, command) of every command."""
    for word, command in (group or get_command(cli.app)).commands.items():
        if hasattr(command, "commands"):
            yield from commands(command, f"{name} {word}")
        else:
            yield f"{name} {word}", command


def test_each_command_is_there_with_its_options(made):
    page, known = made["reference/commands.html"], dict(commands())
    assert {"fedguard run", "fedguard show", "fedguard secagg attack"} <= set(known)
    for name, command in known.items():
        if command.hidden:
            continue
        section = name.replace(" ", "-")
        text, rows = said(page.text[section]), page.rows[section]
        assert said(command.help).split(". ")[0].replace("`", "") in text, name
        for parameter in command.params:
            if parameter.param_type_name != "option":
                continue
            (row,) = [row for row in rows if row and re.search(rf"{re.escape(parameter.opts[0])}\b", row[0])]
            assert said(parameter.help or "").replace("`", "") in row[1], (name, parameter.name)
            if isinstance(parameter.default, int | float) and not isinstance(parameter.default, bool):
                assert float(row[2]) == parameter.default, (name, parameter.name)


@pytest.mark.slow
def test_the_front_door_is_documented(site):
    import fedguard

    assert {f"fedguard.{name}" for name in fedguard.__all__} <= site["reference/python.html"].ids
