"""What the documents in docs/ show is true: their commands exist, their examples run, and what a command says is what they quote.

A block with a title is a file, or, if the title is a command, what that command says. A page's own files stand beside each
other in a folder, where its Python runs and where the commands that name one of them run for real.
"""

from __future__ import annotations

import re
import runpy
import shlex
import sys
from functools import cache
from pathlib import Path

import pytest
from typer.main import get_command
from typer.testing import CliRunner

from fedguard import cli
from tests.pages import Block, blocks
from tests.root import ROOT

PAGES = sorted(path.relative_to(ROOT).as_posix() for path in (ROOT / "docs").rglob("*.md"))

#: What a document runs, cut to seconds.
SHORT = {
    'fg.run("examples/quick.yaml")': 'fg.run("examples/quick.yaml", overrides=["training.rounds=2", "seeds=1"])',
    'fg.run("examples/quantization.yaml")': """fg.run("examples/quantization.yaml", overrides=[
        "training.rounds=1", "seeds=2", "matrix.protocol.encoding.clip=[1.0]", "matrix.protocol.encoding.bits=[4, 20]"
    ])""",
    "training: {rounds: 10, lr: 0.5}\nseeds: 1\nplugins: [moons]": "training: {rounds: 2, lr: 0.5}\nseeds: 1\nplugins: [moons]",
}


def lines_of(document: str) -> list[str]:
    """The commands of a page, one for each line of its shell blocks, without comments."""
    shown = [line for block in blocks(document) if block.language == "sh" for line in block.text.splitlines()]
    return [words for line in shown if (words := shlex.join(shlex.split(line, comments=True)))]


def called(command: str) -> list[str]:
    """The arguments of a `fedguard` command."""
    return shlex.split(command)[1:]


@cache
def ours():
    """The command `fedguard`, which takes a moment to build."""
    return get_command(cli.app)


def is_ours(command: str) -> bool:
    return Path(shlex.split(command)[0]).name == "fedguard"


def parsed(arguments: list[str]) -> None:
    """Parse as the command line does, and run nothing. A word or an option that does not exist raises."""
    command, name, context = ours(), "fedguard", None
    while True:
        context = command.make_context(name, list(arguments), parent=context)
        if not hasattr(command, "commands"):
            return
        name, command, arguments = command.resolve_command(
            context, [*getattr(context, "_protected_args", ()), *context.args]
        )


@pytest.mark.parametrize("document", PAGES)
def test_commands_exist_with_their_options(document):
    targets = set(re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    for line in lines_of(document):
        if is_ours(line):
            parsed(called(line))
        elif line.startswith("make "):
            assert set(shlex.split(line)[1:]) <= targets, line


def test_a_command_that_is_not_there_is_noticed():
    for line in ("fedguard rum x.yaml", "fedguard run x.yaml --jops 3", "fedguard secagg attack", "fedguard show"):
        with pytest.raises(Exception, match=r"(?i)no such|missing"):
            parsed(called(line))


@pytest.mark.parametrize("document", PAGES)
def test_commands_in_sentences_exist(document):
    known = ours().commands
    for line in re.findall(r"`(fedguard [a-z][^`]*)`", (ROOT / document).read_text()):
        words = line.split()[1:]
        command = known[words[0]]
        if hasattr(command, "commands") and len(words) > 1:
            command = command.commands[words[1]]
        options = {option for parameter in getattr(command, "params", ()) for option in parameter.opts}
        assert {word for word in words if word.startswith("--")} <= options, line


@pytest.mark.parametrize("document", PAGES)
def test_files_that_are_named_are_there(document):
    text = (ROOT / document).read_text()
    for target in re.findall(r"\]\(([^)#\s]+)", text):
        if "://" not in target:
            assert ((ROOT / document).parent / target).exists(), target
    for path in re.findall(r"`((?:fedguard|attacks|defenses|examples|tests|benchmarks|app|docs)/[\w/.-]+)`", text):
        assert (ROOT / path).exists(), path


def with_code() -> list[str]:
    return [page for page in PAGES if any(block.language == "python" or is_said(block) for block in blocks(page))]


def is_said(block: Block) -> bool:
    return block.language == "text" and block.title.startswith("fedguard ")


def squeezed(text: str) -> str:
    return " ".join(text.split())


#: Its suite is the one that everybody meets first, which takes a while.
LONG = "docs/quick_start.md"


@pytest.mark.parametrize(
    "document", [pytest.param(page, marks=[pytest.mark.slow] * (page == LONG)) for page in with_code()]
)
def test_what_a_page_shows_runs(document, tmp_path, monkeypatch):
    """Its files are written, its commands on them run, its quotes are what they say, and its Python runs."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.setattr(
        "fedguard.bench.running.execute.default_jobs", lambda: 1
    )  # a worker takes longer to start than these trials take
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    found = blocks(document)
    files = [block.title for block in found if block.title and not is_said(block)]
    for block in found:
        if block.title in files:
            (tmp_path / block.title).write_text(shortened(block.text))
    for line in lines_of(document):
        if is_ours(line) and {Path(name).stem for name in files} & {Path(word).stem for word in called(line)}:
            answered(line)
    for block in filter(is_said, found):
        whole = squeezed(answered(block.title))
        for quote in block.text.split("\n\n"):
            assert squeezed(quote) in whole, f"{block.title}: {squeezed(quote)}\n\n{whole}"
    for number, block in enumerate(block for block in found if block.language == "python" and not block.title):
        script = tmp_path / f"block_{number}.py"
        script.write_text(shortened(block.text))
        runpy.run_path(str(script), run_name="__main__")


def shortened(text: str) -> str:
    for long, short in SHORT.items():
        text = text.replace(long, short)
    return text


def answered(line: str) -> str:
    """What a command says; it has to end well."""
    done = CliRunner().invoke(cli.app, called(line))
    assert done.exit_code == 0, f"{line}: {done.output} {done.exception!r}"
    return done.output
