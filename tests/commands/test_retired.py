"""Names of earlier versions: each works or names its successor, no help and no page shows it, and each new name is shown."""

from __future__ import annotations

import json
import os
import re

import pytest
import typer.main
from typer.testing import CliRunner

import fedguard as fg
from fedguard import cli
from fedguard.bench.results.export import write_rows
from fedguard.bench.tuning.tune import resolve_output_file
from fedguard.commands.command import Command
from fedguard.commands.options import files_of
from fedguard.errors import ConfigError, FedGuardError
from fedguard.retired import RETIRED_ARGUMENTS, RETIRED_COMMANDS, RETIRED_KINDS, RETIRED_OPTIONS, RetiredOption
from tests import forked

GROUP = typer.main.get_command(cli.app)
OPTIONS = [(command, row) for row in RETIRED_OPTIONS for command in row.commands]


def command_of(path: str) -> Command:
    found = GROUP
    for name in path.split():
        found = found.commands[name]
    return found


def parsed(path: str, *arguments: str) -> dict[str, object]:
    """The values that a command gets, without running it."""
    context = command_of(path).make_context(f"fedguard {path}", [*arguments])
    return {name: value for name, value in context.params.items() if value not in (None, (), [], False)}


def words_of(row: RetiredOption, value: str) -> list[str]:
    return [row.old, value] if row.has_value else [row.old]


def value_of(row: RetiredOption) -> str:
    return "3" if row.new.split()[0] in ("--clients", "--malicious") else "x.json"


@pytest.mark.parametrize(("path", "row"), OPTIONS, ids=lambda one: getattr(one, "old", one))
def test_an_old_option_works_or_names_the_new_one(path, row, capsys):
    needed = ["-b", "base.json"] if path == "gate" else []
    needed += {
        "compare": ["a", "b"],
        "secagg params": [],
        "secagg demo": [],
        "conform": ["server", "--engine", "ray"],
    }.get(path, ["RUN"])
    value = value_of(row)
    if not row.accepted:
        with pytest.raises(typer.BadParameter.__mro__[2], match=re.escape(row.successor)):
            parsed(path, *needed, *words_of(row, value))
        return
    old = parsed(path, *needed, *words_of(row, value))
    said = capsys.readouterr().err
    assert said == f"fedguard: {row.old} is now {row.successor}; the old name works for one more version.\n"
    assert old == parsed(path, *needed, *row.translate(value))
    assert capsys.readouterr().err == ""
    if row.has_value:
        assert old == parsed(path, *needed, f"{row.old}={value}")


@pytest.mark.parametrize(("path", "row"), OPTIONS, ids=lambda one: getattr(one, "old", one))
def test_help_shows_the_new_option_alone(path, row):
    shown = CliRunner().invoke(cli.app, [*path.split(), "--help"], env={"COLUMNS": "200", "TERM": "dumb"}).output
    shown = re.sub(r"\x1b\[[\d;]*m", "", shown)
    options = set(re.findall(r"(?<![\w-])--?[a-z][a-z-]*", shown))
    assert row.new.split()[0] in options
    flag = next((one for one in command_of(path).params if row.old in one.opts), None)
    assert (flag is None and row.old not in options) or row.old == "--json"


def test_an_option_given_under_both_names_is_refused():
    with pytest.raises(typer.BadParameter.__mro__[2], match="--figure is the old name of --metric"):
        parsed("show", "RUN", "--figure", "kappa", "--metric", "harm")
    with pytest.raises(typer.BadParameter.__mro__[2], match="--n is the old name of --clients"):
        parsed("kappa", "krum", "--n", "9", "-n", "10")


def test_a_repeatable_option_takes_both_names():
    assert parsed("export", "RUN", "--csv", "a.csv", "--to", "b.json")["to"] == ["csv:a.csv", "b.json"]
    assert parsed("tune", "s.yaml", "--attacks", "alie", "--attack", "ipm")["attack"] == ["alie", "ipm"]


def test_a_short_option_with_its_value_attached_counts_as_given():
    with pytest.raises(typer.BadParameter.__mro__[2], match="--n is the old name of --clients"):
        parsed("kappa", "krum", "--n", "9", "-n10")


def test_an_old_option_without_value_takes_none():
    with pytest.raises(typer.BadParameter.__mro__[2], match="'--strict' does not take a value"):
        parsed("lint", "RUN", "--strict=no")


def test_a_file_is_written_in_one_form(tmp_path):
    one = str(tmp_path / "rows")
    with pytest.raises(ConfigError, match="expected one form of each file"):
        files_of([f"csv:{one}", f"json:{one}"], ("csv", "json"), force=True)
    assert len(files_of([f"csv:{one}", f"csv:{one}"], ("csv", "json"), force=False)) == 2


def test_an_impossible_file_is_named_in_one_line():
    with pytest.raises(ConfigError, match="too long"):
        files_of([f"{'x' * 300}.csv"], ("csv",), force=False)
    with pytest.raises(ConfigError, match="not standard output here"):
        files_of(["csv:-"], ("csv",), force=True)
    assert [str(path) for _, path in files_of(["md:-"], ("md",), force=True, pipes=True)] == ["-"]


@pytest.mark.parametrize("stored", ["manifest.json", "cells/x/seed-000.json"])
def test_a_stored_run_is_never_written_over(stored, tmp_path):
    (tmp_path / "mine" / "cells" / "x").mkdir(parents=True)
    for name in ("manifest.json", "cells/x/seed-000.json", "rows.json"):
        (tmp_path / "mine" / name).write_text("{}")
    with pytest.raises(ConfigError, match="in which a run is stored"):
        files_of([str(tmp_path / "mine" / stored)], ("json",), force=True)
    assert files_of([str(tmp_path / "mine" / "rows.json")], ("json",), force=True)


def test_a_verdict_is_never_written_over_its_baseline(tmp_path):
    (tmp_path / "base.json").write_text("{}")
    done = forked.fedguard("gate", "mine", "-b", "base.json", "--to", "./base.json", cwd=tmp_path)
    assert done.returncode == 2 and "expected another file than the baseline" in done.stderr
    assert (tmp_path / "base.json").read_text() == "{}"


@pytest.mark.parametrize(
    ("beside", "said"),
    [(("--to", "nowhere/x.yaml"), "nowhere/x.yaml: cannot be written"), (("--app-config", "a=[1"), "a value in YAML")],
)
def test_a_check_of_an_app_answers_mistakes_in_one_line(beside, said, tmp_path):
    done = forked.fedguard("flower", "check", "app", *beside, cwd=tmp_path)
    assert done.returncode == 2 and said in done.stderr and done.stderr.count("\n") == 1


def test_a_pipe_is_written_to_and_stays_a_pipe(tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    run = fg.run({"seeds": 1, "training": {"rounds": 1}, "matrix": {"defense": ["mean"]}}, jobs=1, store=tmp_path)
    try:
        write_rows(run, pipe, "csv")
        assert os.read(reader, 4096).startswith(b"cell,attack,") and pipe.is_fifo()
    finally:
        os.close(reader)
    done = forked.fedguard("show", run.name, "--json", "--to", "x.svg", "--store", ".", cwd=tmp_path)
    assert json.loads(done.stdout) and "Picture written to x.svg" in done.stderr and (tmp_path / "x.svg").is_file()


def test_a_tuned_suite_is_refused_in_place_of_a_folder(tmp_path):
    with pytest.raises(ConfigError, match="Is a directory"):
        resolve_output_file(None, "mine", tmp_path, force=True)


def test_a_page_is_shown_without_a_profile(tmp_path):
    done = forked.fedguard("show", "mine", "--page", "privacy", "--profile", cwd=tmp_path)
    assert done.returncode == 2 and "expected no --page beside it" in done.stderr


def test_a_value_that_looks_like_an_old_option_stays_a_value(capsys):
    assert parsed("run", "--name", "--no-cache", "s.yaml")["name"] == "--no-cache"
    assert parsed("run", "s.yaml", "--set", "--no-cache")["settings"] == ["--no-cache"]
    assert str(parsed("run", "--", "--no-cache")["suite"]) == "--no-cache"
    assert capsys.readouterr().err == ""


def test_json_is_a_flag_before_a_run_and_a_file_after_it(capsys):
    assert parsed("gate", "--json", "tiny", "-b", "base.json")["as_json"] is True
    assert capsys.readouterr().err == ""
    assert parsed("gate", "tiny", "-b", "base.json", "--json", "-")["to"] == ["json:-"]


def test_completion_offers_no_old_option():
    done = CliRunner().invoke(
        cli.app,
        ["show"],
        env={"_FEDGUARD_COMPLETE": "complete_bash", "COMP_WORDS": "fedguard show --", "COMP_CWORD": "2"},
        prog_name="fedguard",
    )
    assert "--metric" in done.output and "--figure" not in done.output


@pytest.mark.parametrize(("old", "new"), RETIRED_COMMANDS.items())
def test_an_old_command_works_and_is_not_listed(old, new, tmp_path):
    listed = CliRunner().invoke(cli.app, ["--help"]).output
    assert not re.search(rf"\b{old}\b", listed) and re.search(rf"\b{new}\b", listed)
    done = forked.fedguard(old, "nothing", cwd=tmp_path)
    assert done.returncode == 2 and done.stderr.startswith(f"fedguard: {old} is now {new};")


@pytest.mark.parametrize(("old", "new"), RETIRED_KINDS.items())
def test_an_old_kind_writes_the_same_files(old, new, tmp_path):
    for kind in (old, new):
        (tmp_path / kind).mkdir()
        done = forked.fedguard("new", kind, "mine", cwd=tmp_path / kind)
        assert done.returncode == 0 and (f"new {old} is now new {new}" in done.stderr) == (kind == old)
    assert {path.name: path.read_text() for path in (tmp_path / old).iterdir()} == {
        path.name: path.read_text() for path in (tmp_path / new).iterdir()
    }


X = [[1.0, 0.0], [0.0, 2.0], [3.0, 4.0], [0.5, 0.5]]
CALLS = {
    "run": (
        fg.run,
        {"suite": {"seeds": 1, "training": {"rounds": 1}}, "jobs": 1, "name": "mine"},
        ["training.batch_size=8"],
    ),
    "audit": (fg.audit, {"suite": {"seeds": 1}}, ["seeds=1"]),
    "tune": (fg.tune, {"suite": {"seeds": 1}}, ["seeds=1"]),
    "kappa": (fg.kappa, {"n": 5, "f": 1, "effort": 0.01}, "median"),
    "craft": (fg.craft, {"attack": "alie(z=1)", "honest": X, "f": 1}, "median"),
}


def outcome(call, arguments):
    """What a call returns or raises, in words."""
    try:
        return str(call(**arguments))
    except FedGuardError as error:
        return f"{type(error).__name__}: {error}"


@pytest.mark.parametrize(("function", "old", "new"), RETIRED_ARGUMENTS)
def test_an_old_argument_of_python_works_with_a_warning(function, old, new, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    call, beside, value = CALLS[function]
    with pytest.warns(
        DeprecationWarning, match=re.escape(f"{function}({old}=...) is now {function}({new}=...)")
    ) as caught:
        before = outcome(call, {**beside, old: value})
    assert caught[0].filename == __file__
    assert before == outcome(call, {**beside, new: value})
    with pytest.raises(TypeError, match="beside"):
        call(**beside, **{old: value, new: value})
