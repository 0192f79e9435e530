"""Names of earlier versions: each works or names its successor, no help and no page shows it, and each new name is shown."""

from __future__ import annotations

import json
import os
import re
from contextlib import redirect_stderr
from io import StringIO

import pytest
import typer.main
import yaml
from typer.testing import CliRunner

import fedguard as fg
from fedguard import api, cli
from fedguard.bench.gate.baseline import Baseline, read
from fedguard.bench.gate.snapshot import Snapshot, plan_of
from fedguard.bench.results.compare import compare
from fedguard.bench.results.export import write_rows
from fedguard.bench.tuning.tune import resolve_output_file
from fedguard.commands.command import Command
from fedguard.commands.options import files_of
from fedguard.config import Document, read_suite
from fedguard.config.layout import build_cell
from fedguard.config.renaming import renew
from fedguard.config.schema import CellConfig
from fedguard.errors import ConfigError, FedGuardError
from fedguard.registry import load_registry
from fedguard.retired import (
    RETIRED_ARGUMENTS,
    RETIRED_COMMANDS,
    RETIRED_KINDS,
    RETIRED_OPTIONS,
    RetiredOption,
    renew_position,
)
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
    with pytest.raises(ConfigError, match="expected each file once"):
        files_of([f"csv:{one}", f"json:{one}"], ("csv", "json"), force=True)


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
    done = forked.fedguard("gate", "mine", "-b", "base.json", "--to", "./base.json", "--force", cwd=tmp_path)
    assert done.returncode == 2 and "expected another file than the baseline" in done.stderr
    assert (tmp_path / "base.json").read_text() == "{}"


@pytest.mark.parametrize(
    ("beside", "said"),
    [(("--to", "nowhere/x.yaml"), "nowhere/x.yaml: cannot be written"), (("--app-config", "a=[1"), "a value in YAML")],
)
def test_a_check_of_an_app_answers_mistakes_in_one_line(beside, said, tmp_path):
    (tmp_path / "app").mkdir()
    (tmp_path / "app" / "pyproject.toml").write_text("")
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
    "audit": (fg.audit, {"subject": {"seeds": 1}}, ["seeds=1"]),
    "tune": (fg.tune, {"suite": {"seeds": 1}}, ["seeds=1"]),
    "kappa": (fg.kappa, {"n": 5, "f": 1, "effort": 0.01}, "median"),
    "gate": (fg.gate, {"run": "none", "baseline": "base.json"}, True),
    "craft": (fg.craft, {"attack": "alie(z=1)", "honest": X, "f": 1}, "median"),
    "Guard": (fg.Guard, {"defense": "median", "f": 2}, 1),
}


def outcome(call, arguments):
    """What a call returns or raises, in words."""
    try:
        return str(call(**arguments))
    except FedGuardError as error:
        return f"{type(error).__name__}: {error}"


# What needs Flower is tested beside its app
@pytest.mark.parametrize(("function", "old", "new"), [one for one in RETIRED_ARGUMENTS if one[0] in CALLS])
def test_an_old_argument_of_python_works_with_a_warning(function, old, new, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    call, beside, value = CALLS[function]
    beside = {name: given for name, given in beside.items() if name != new}
    with pytest.warns(
        DeprecationWarning, match=re.escape(f"{function}({old}=...) is now {function}({new}=...)")
    ) as caught:
        before = outcome(call, {**beside, old: value})
    assert caught[0].filename == __file__
    assert before == outcome(call, {**beside, new: value})
    with pytest.raises(TypeError, match="beside"):
        call(**beside, **{old: value, new: value})


SMALL = {"name": "mine", "clients": {"total": 6, "malicious": 1}, "training": {"rounds": 2}, "seeds": 1}
TIMED = {**SMALL, "architecture": "fedbuff(buffer=2)", "network": {"compute": {"seconds": 1}}}
ON_OFF = {"name": "on_off", "on": 9.0, "off": 3.0}
#: What is said, a suite of an earlier version, and the same as it is written now
SUITES = [
    ("network.there is now network.availability", {**TIMED, "network": {"there": ON_OFF}}, {**TIMED, "network": {"availability": ON_OFF}}),
    (
        "network.there is now network.availability",
        {**TIMED, "matrix": {"network.there": ["always", ON_OFF]}},
        {**TIMED, "matrix": {"network.availability": ["always", ON_OFF]}},
    ),
    (
        "network.there.on is now network.availability.on",
        {**TIMED, "network": {"availability": ON_OFF}, "matrix": {"network.there.on": [4, 5]}},
        {**TIMED, "network": {"availability": ON_OFF}, "matrix": {"network.availability.on": [4, 5]}},
    ),
    (
        "network.there is now network.availability",
        {**SMALL, "architecture": "fedbuff(buffer=2)", "matrix": {"network": [{"there": "always"}, {"there": ON_OFF}]}},
        {**SMALL, "architecture": "fedbuff(buffer=2)", "matrix": {"network": [{"availability": "always"}, {"availability": ON_OFF}]}},
    ),
    (
        "kind: is now name:",
        {**SMALL, "task": {"partition": {"kind": "dirichlet", "alpha": 0.5}}},
        {**SMALL, "task": {"partition": {"name": "dirichlet", "alpha": 0.5}}},
    ),
    (
        "kind: is now name:",
        {**SMALL, "matrix": {"protocol": [{"privacy": {"kind": "record", "clip": 1.0, "noise_multiplier": 1.0, "delta": 1e-5}}]}},
        {**SMALL, "matrix": {"protocol": [{"privacy": {"name": "record", "clip": 1.0, "noise_multiplier": 1.0, "delta": 1e-5}}]}},
    ),
    (
        "kind: is now name:",
        {**SMALL, "defense": [{"kind": "nnm"}, {"kind": "krum"}]},
        {**SMALL, "defense": [{"name": "nnm"}, {"name": "krum"}]},
    ),
    (
        "secure_aggregation: off is now secure_aggregation: none",
        {**SMALL, "matrix": {"protocol.secure_aggregation": ["off", "full"]}},
        {**SMALL, "matrix": {"protocol.secure_aggregation": ["none", "full"]}},
    ),
    (
        "secure_aggregation: false is now secure_aggregation: none",
        {**SMALL, "protocol": {"secure_aggregation": False}},
        {**SMALL, "protocol": {"secure_aggregation": "none"}},
    ),
    (
        "knowledge: rule is now knowledge: defense",
        {**SMALL, "matrix": {"threat.knowledge": [["model", "rule"], ["rule"]]}},
        {**SMALL, "matrix": {"threat.knowledge": [["model", "defense"], ["defense"]]}},
    ),
    (
        "lira(centre=) is now lira(center=)",
        {**SMALL, "matrix": {"attack": ["lira(online=False, centre='mean')", {"name": "lira", "centre": "mean"}]}},
        {**SMALL, "matrix": {"attack": ["lira(online=False, center='mean')", {"name": "lira", "center": "mean"}]}},
    ),
    (
        "attack.centre is now attack.center",
        {**SMALL, "attack": "lira", "matrix": {"attack.centre": ["mean", "median"]}},
        {**SMALL, "attack": "lira", "matrix": {"attack.center": ["mean", "median"]}},
    ),
    (
        "image_folder(grey=) is now image_folder(gray=)",
        {**SMALL, "task": {"data": {"name": "image_folder", "folder": "grey", "size": [2, 2], "grey": True}}},
        {**SMALL, "task": {"data": {"name": "image_folder", "folder": "grey", "size": [2, 2], "gray": True}}},
    ),
    (
        "false_behaviour is now false_behavior",
        {**SMALL, "matrix": {"attack": ["false_behaviour(shift=1)", "worst_case(attacks=('false_behaviour', 'ipm'))"]}},
        {**SMALL, "matrix": {"attack": ["false_behavior(shift=1)", "worst_case(attacks=('false_behavior', 'ipm'))"]}},
    ),
]  # fmt: skip

#: Identities of cells with renamed algorithms, as earlier versions computed them
EARLIER = {
    "lira(centre='mean')": "b373867b7484",
    "false_behaviour(shift=1)": "d39397adb9bd",
    "worst_case(attacks=('false_behaviour', 'ipm'))": "addc6da5a858",
}


def laid_out(suite, *settings):
    """Swept values and ids of the cells, and what is said on standard error."""
    with redirect_stderr(StringIO()) as said:
        plan = api.lay_out(suite, settings)[1]
    return [(swept, cell.id) for swept, cell in plan.positions], said.getvalue()


@pytest.mark.parametrize(("said", "old", "new"), SUITES)
def test_a_suite_of_an_earlier_version_has_the_same_cells(said, old, new, tmp_path):
    (cells, words), (expected, silent) = laid_out(old), laid_out(new)
    assert cells == expected and silent == ""
    assert words == f"fedguard: {said}; the old name works for one more version.\n"
    # As a file, and as the suite that a run stores and that is run again
    for name, suite in (("old.yaml", old), ("new.yaml", new)):
        (tmp_path / name).write_text(yaml.safe_dump(suite, sort_keys=False))
        assert laid_out(tmp_path / name)[0] == expected
    assert "there" not in read_suite(Document(old)).model_dump_json()


def test_what_a_cell_stores_is_what_earlier_versions_stored_and_builds_it_again():
    for _, old, _ in SUITES:
        for _, cell in api.lay_out(old)[1].positions:
            stored = json.dumps(cell.canonical)
            assert (
                '"availability"' not in stored
                and '"secure_aggregation": "none"' not in stored
                and '"defense"]' not in stored
            )
            with redirect_stderr(StringIO()) as said:
                assert build_cell(CellConfig.model_validate(json.loads(stored)), cell.known).id == cell.id
            assert said.getvalue() == ""


def test_cells_with_renamed_algorithms_keep_their_identity():
    for attack, identity in EARLIER.items():
        ((_, found),), _ = laid_out({**SMALL, "attack": attack})
        assert found == identity


def test_python_may_name_an_algorithm_or_a_parameter_by_its_old_name():
    with redirect_stderr(StringIO()) as said:
        assert load_registry().build("inference", "lira(centre='mean')").center == "mean"
    assert said.getvalue() == "fedguard: lira(centre=) is now lira(center=); the old name works for one more version.\n"


def test_old_names_in_settings_of_the_command_line():
    expected = laid_out({**TIMED, "network": {**TIMED["network"], "availability": "on_off(on=5)"}})
    cells, said = laid_out(TIMED, "network.there=on_off(on=5)")
    assert cells == expected[0] and "network.there is now network.availability" in said
    # They replace the suite's own, under whichever name
    for key in ("there", "availability"):
        suite = {**TIMED, "network": {**TIMED["network"], key: "always"}}
        assert laid_out(suite, "network.there=on_off(on=5)")[0] == expected[0]
        assert laid_out(suite, "network.availability=on_off(on=5)")[0] == expected[0]
    assert laid_out(TIMED, "matrix.network.there=[always]")[0][0][0]["network.availability"] == "always"


def test_both_names_in_one_suite_are_an_error_that_names_the_new_one():
    for suite in (
        {**TIMED, "network": {"there": "always", "availability": "always"}},
        {**TIMED, "matrix": {"network.there": ["always"], "network.availability": ["always"]}},
    ):
        with pytest.raises(ConfigError, match=r"expected network.availability alone; got its old name"):
            api.lay_out(suite)


def test_messages_name_the_new_key_and_its_line(tmp_path):
    path = tmp_path / "suite.yaml"
    path.write_text("architecture: fedbuff\nnetwork:\n  there: on_of\n")
    with pytest.raises(ConfigError, match=r"suite.yaml:3: network.availability: unknown availability 'on_of'"):
        api.lay_out(path)
    with pytest.raises(ConfigError, match="--set network.availability: unknown availability 'on_of'"):
        api.lay_out(TIMED, ["network.there=on_of"])


def test_a_parameter_of_yours_may_be_called_kind(tmp_path):
    (tmp_path / "of_mine.py").write_text(
        "from dataclasses import dataclass\nfrom fedguard.attacks.poisoning.ipm import IPM\n\n\n"
        "@dataclass(frozen=True, kw_only=True)\nclass Mine(IPM):\n    name = 'of_mine'\n    kind_of: int = 1\n"
    )
    document = Document({**SMALL, "plugins": ["of_mine"], "attack": {"kind": "of_mine", "kind_of": 2}}, folder=tmp_path)
    ((_, cell),) = api.lay_out(document)[1].positions
    assert cell.canonical["attack"]["kind_of"] == 2
    assert renew({"attack": {"name": "mine", "kind": 3}}) == ({"attack": {"name": "mine", "kind": 3}}, [])
    axis = {"attack": {"name": "mine"}, "matrix": {"attack.kind": [1, 2]}}
    assert renew(axis) == (axis, [])


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ({"protocol.secure_aggregation": "off"}, {"protocol.secure_aggregation": "none"}),
        ({"protocol.secure_aggregation": "False"}, {"protocol.secure_aggregation": "none"}),
        ({"protocol.secure_aggregation": "(groups=4)"}, {"protocol.secure_aggregation": "(groups=4)"}),
        (
            {"protocol": "(secure_aggregation=off, colluding=0.2)"},
            {"protocol": "(secure_aggregation=none, colluding=0.2)"},
        ),
        (
            {"protocol": "(colluding=0.2, secure_aggregation=off)"},
            {"protocol": "(colluding=0.2, secure_aggregation=none)"},
        ),
        ({"threat.knowledge": "['own_data', 'rule']"}, {"threat.knowledge": "['own_data', 'defense']"}),
        ({"threat": "(knowledge=['rule'], every=2)"}, {"threat": "(knowledge=['defense'], every=2)"}),
        ({"network.there": "on_off(on=5, off=2)"}, {"network.availability": "on_off(on=5, off=2)"}),
        ({"network.there.on": "5"}, {"network.availability.on": "5"}),
        ({"network": "(compute=(seconds=2), there=always)"}, {"network": "(compute=(seconds=2), availability=always)"}),
        ({"attack": "off", "defense": "rule"}, {"attack": "off", "defense": "rule"}),
        ({"network.thereafter": "off"}, {"network.thereafter": "off"}),
        ({"attack": "lira(shadows=8, centre=mean)"}, {"attack": "lira(shadows=8, center=mean)"}),
        ({"attack": "false_behaviour(shift=2)"}, {"attack": "false_behavior(shift=2)"}),
    ],
    ids=str,
)
def test_swept_values_of_earlier_versions_in_words(old, new):
    assert renew_position(old) == new
    assert renew_position(new) == new


def test_runs_and_baselines_of_earlier_versions_have_the_places_of_today(tmp_path):
    suite = {
        **SMALL, "name": "small", "seeds": 2, "training": {"rounds": 1, "algorithm": "fedsgd"}, "attack": "label_flip",
        "clients": {"total": 6, "malicious": 1}, "threat": {"knowledge": ["own_data", "model"]},
        "matrix": {"protocol.secure_aggregation": ["none", "full"], "threat.knowledge": [["own_data", "defense"], ["own_data"]]},
    }  # fmt: skip
    now = fg.run(suite, store=tmp_path / "now", jobs=1)
    fg.run(suite, store=tmp_path / "old", jobs=1)
    manifest = tmp_path / "old" / "small" / "manifest.json"
    text = manifest.read_text().replace('"none"', '"off"').replace("'defense'", "'rule'")
    # An attack that is none was `none` in earlier versions, too; here all are label_flip
    assert text.count('"off"') == 2 and text.count("'rule'") == 2
    manifest.write_text(text)
    old = fg.open_run("small", store=tmp_path / "old")
    places = [position["swept"] for position in now.manifest["positions"]]
    assert [position["swept"] for position in old.manifest["positions"]] == places
    assert {one["protocol.secure_aggregation"] for one in places} == {"none", "full"}
    assert compare(now, old).apart == ()

    baseline = tmp_path / "baseline.json"
    taken = Snapshot.of(now, plan_of(now))
    Baseline.of(taken, None, "test").write(baseline)
    baseline.write_text(baseline.read_text().replace('"none"', '"off"').replace("'defense'", "'rule'"))
    assert [position.swept for position in read(baseline).snapshot.positions] == [one.swept for one in taken.positions]


def test_python_hands_over_knowledge_under_its_old_name():
    with pytest.warns(DeprecationWarning, match="knowledge: 'rule' is now 'defense'") as warned:
        old = fg.Guard(attack="opt_ipm", defense="krum", f=3, knowledge=("honest_updates", "rule"))
    assert warned[0].filename == __file__
    assert repr(old) == repr(fg.Guard(attack="opt_ipm", defense="krum", f=3, knowledge=("honest_updates", "defense")))
