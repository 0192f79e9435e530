"""Maps of the product: the docstrings of packages, ARCHITECTURE.md and CONTRIBUTING.md name what is there, and all of it."""

from __future__ import annotations

import ast
import re
from functools import cache
from importlib import import_module
from pathlib import Path

import pytest

from fedguard import cli
from tests.house.test_house import FOLDERS, modules
from tests.house_counts import files
from tests.root import ROOT

#: A line of a map: one or more files or folders, two spaces, what they are.
ROW = re.compile(r"(?m)^ *(?:[\w/]+(?:\.py|/) +)+ \S")
#: A file or a folder, from the folder of the map; of a path in backticks, what stands before it is of somebody else.
NAMED = re.compile(r"(?<![\w/.`])([\w/]+?)(\.py\b|/(?!\w))")
ARCHITECTURE = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")


@cache
def packages() -> dict[str, tuple[Path, str]]:
    """Of each package with a docstring: its folder and the docstring."""
    found = {name: path for name, path in modules().items() if path.name == "__init__.py"}
    texts = {name: ast.get_docstring(ast.parse(path.read_text())) or "" for name, path in found.items()}
    texts["docs_tools"] = ast.get_docstring(ast.parse((ROOT / "docs_tools" / "__init__.py").read_text())) or ""
    return {name: (found.get(name, ROOT / "docs_tools" / "x").parent, text) for name, text in texts.items() if text}


def is_map(text: str) -> bool:
    return len(ROW.findall(text)) > 1


def is_there(path: Path, ending: str) -> bool:
    return path.with_suffix(".py").is_file() if ending == ".py" else (path / "__init__.py").is_file()


def left_out(folder: Path, text: str) -> set[str]:
    """Files and folders of a package that its map does not name."""
    own = {path.stem for path in folder.glob("[!_]*.py")} | {path.parent.name for path in folder.glob("*/__init__.py")}
    return own - {name.partition("/")[0] for name, _ in NAMED.findall(text)}


@pytest.mark.parametrize("package", [name for name, (_, text) in packages().items() if is_map(text)])
def test_the_map_of_a_package_is_whole_and_names_what_is_there(package: str) -> None:
    folder, text = packages()[package]
    assert [name + ending for name, ending in NAMED.findall(text) if not is_there(folder / name, ending)] == []
    assert left_out(folder, text) == set()


def test_most_packages_of_several_kinds_have_a_map_and_a_file_that_it_lacks_is_noticed() -> None:
    assert sum(is_map(text) for _, text in packages().values()) > 20
    folder, text = packages()["fedguard.secagg"]
    assert left_out(folder, re.sub(r"shamir\.py", "", text)) == {"shamir"}


@pytest.mark.parametrize("name", ["fedguard.contracts"])
def test_the_classes_that_a_map_names_are_in_the_file_beside_them(name: str) -> None:
    folder, text = packages()[name]
    rows = re.findall(r"(?m)^ +(\w+)\.py +((?:[A-Z]\w+, )*(?:and )?[A-Z]\w+)", text)
    assert len(rows) > 15
    for file, classes in rows:
        tree = ast.parse((folder / f"{file}.py").read_text())
        names = {one.name for one in tree.body if isinstance(one, ast.ClassDef)} | {
            target.id for one in tree.body if isinstance(one, ast.Assign) for target in one.targets
            if isinstance(target, ast.Name)
        }  # fmt: skip
        assert set(classes.split(", ")) <= names, file


@pytest.mark.parametrize("package", packages())
def test_names_in_the_docstring_of_a_package_exist(package: str) -> None:
    """In backticks: a module of the package or a name in it, a command, or something of FedGuard by its whole name."""
    folder, text = packages()[package]
    commands = {
        command.name or command.callback.__name__ for command in cli.app.registered_commands if command.callback
    }
    for name in re.findall(r"(?<!`)`([\w.]+)`(?!`)", text):
        first = name.partition(".")[0]
        own = is_there(folder / first, ".py") or hasattr(import_module(package), first)
        assert own or first in commands or exists(name), name


def exists(name: str) -> bool:
    """Whether a module or what is in one has this name, from ``fedguard.`` or a module of it on."""
    for whole in (name, f"fedguard.{name}"):
        module = whole
        while module and module not in modules():
            module = module.rpartition(".")[0]
        found = import_module(module) if module else None
        for part in whole.removeprefix(module).lstrip(".").split("."):
            found = found if not part else getattr(found, part, None)
        if found is not None:
            return True
    return False


@pytest.mark.parametrize("document", ["ARCHITECTURE.md", "CONTRIBUTING.md"])
def test_files_and_folders_that_a_page_names_are_there(document: str) -> None:
    """From the root, or, as in the walk of a trial, from any folder of the product on."""
    text = (ROOT / document).read_text(encoding="utf-8")
    there = {f"/{path.relative_to(ROOT)}" for folder in FOLDERS for path in (ROOT / folder).rglob("*.py")}
    folders = {f"{path.rpartition('/')[0]}/" for path in there}
    named = set(re.findall(r"(?<![\w/.:{}])((?:\w+/)+(?:\w+\.py)?|\w+\.py)(?![\w.])", text))
    assert len(named) > (60 if document == "ARCHITECTURE.md" else 20)
    assert [
        name for name in sorted(named)
        if not (ROOT / name).exists() and not any(path.endswith(f"/{name}") for path in there | folders)
    ] == []  # fmt: skip


def test_classes_and_methods_that_the_architecture_names_exist() -> None:
    classes = {one.name: one for file in files() for one in file.classes}
    named = [
        (name, method)
        for name, method in re.findall(r"`(?:\w+\.)?([A-Z][a-z]\w+)(?:\.(\w+))?[`(]", ARCHITECTURE)
    ]  # fmt: skip
    assert len(named) > 8
    for name, method in named:
        assert name in classes, name
        own = {
            getattr(one, "name", None) or getattr(getattr(one, "target", None), "id", "") for one in classes[name].body
        }
        assert not method or method in own, f"{name}.{method}"


def test_the_tree_of_imports_names_each_part_of_the_product() -> None:
    """What is in parentheses, as a whole line may end, is a remark."""
    tree = ARCHITECTURE.partition("## Who may import whom")[2].split("```")[1]
    named = set(re.findall(r"\w+", re.sub(r"\([^)]*\)", "", tree)))
    remarks = set(re.findall(r"\w+", " ".join(re.findall(r"\(([^)]*)\)", tree))))
    parts = {name.split(".")[1] for name in modules() if name.count(".")}
    rooms = {name.split(".")[2] for name in modules() if name.startswith("fedguard.bench.")}
    assert named - parts - rooms == set()
    assert parts - named - remarks == set()


def test_the_tables_that_contributing_names_are_in_their_files() -> None:
    """In a row of the table of parts: `NAME` in a file, which is said whole or, as its file, by the folder before it."""
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    named = []
    for row in re.findall(r"(?m)^\|.*\|$", text):
        folders = re.findall(r"`(fedguard/[\w/]+/)`", row)
        for name, its, file in re.findall(r"`([A-Z]+)` (?:in|of) (its )?`([\w/.]+\.py)`", row):
            path = ROOT / (f"{folders[0]}{file}" if its else file)
            assert re.search(rf"(?m)^{name}\b.*=", path.read_text()), (name, path)
            named.append(name)
    assert len(named) > 12
