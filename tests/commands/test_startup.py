"""What reads a run starts without the libraries that compute: a command of a second would spend most of it on their import."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

import fedguard as fg
from fedguard.bench.explain.listing import summary
from fedguard.registry import load_registry
from tests.house.test_house import modules

#: What no reader needs; scipy.special alone, for intervals, is a tenth of scipy.stats.
HEAVY = (
    "torch",
    "sklearn",
    "scipy.stats",
    "scipy.optimize",
    "opacus",
    "streamlit",
    "pandas",
    "matplotlib",
    "altair",
    "flwr",
)

#: Rooms whose modules can be loaded without them, and the modules in these rooms that compute.
READING_ROOMS = (
    "fedguard.bench.records",
    "fedguard.bench.results",
    "fedguard.bench.flags",
    "fedguard.bench.pages",
    "fedguard.bench.terminal",
    "fedguard.commands",
)
#: A page that plays a round of the protocol, and its charts: no run is needed for it, and no reading command loads it
COMPUTING = ("fedguard.bench.flags.permutation", "fedguard.bench.pages.protocol", "fedguard.bench.pages.protocol_chart")

PLUGIN = """\
import torch
from fedguard.contracts import WeightRule, Sight
class Equal(WeightRule):
    \"\"\"The plain mean.\"\"\"
    name, needs = "equal", (Sight.GROUP_SUMS,)
    def weights(self, gram, context):
        return torch.full((gram.n,), 1 / gram.n, dtype=torch.float64)
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a run against FedGuard's own rules, and one against a rule of a plug-in."""
    path = tmp_path_factory.mktemp("work")
    (path / "equal_rule.py").write_text(PLUGIN)
    small = "clients: {total: 6, malicious: 1}\ntraining: {rounds: 2}\nseeds: 2\n"
    matrix = "matrix: {attack: [none, ipm], defense: [mean, %s]}\n"
    (path / "own.yaml").write_text(small + matrix % "krum")
    (path / "foreign.yaml").write_text(small + "plugins: [equal_rule]\n" + matrix % "equal")
    for suite in ("own", "foreign"):
        fg.run(path / f"{suite}.yaml", store=path / "runs", jobs=1)
    return path


def loaded(folder: Path, *commands: str) -> dict[str, list[str]]:
    """The heavy libraries that a process has loaded after each command, each of which must succeed."""
    script = (
        "import contextlib, io, json, sys\nfrom fedguard.cli import app\nfound = {}\n"
        f"for command in {commands!r}:\n"
        "    with contextlib.redirect_stdout(io.StringIO()):\n"
        "        assert not app(command.split(), standalone_mode=False, prog_name='fedguard'), command\n"
        f"    found[command] = [name for name in {HEAVY!r} if name in sys.modules]\n"
        "print(json.dumps(found))\n"
    )
    done = subprocess.run([sys.executable, "-c", script], cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    found: dict[str, list[str]] = json.loads(done.stdout.splitlines()[-1])
    return found


def test_commands_that_read_a_run_load_nothing_that_computes(folder: Path) -> None:
    commands = ["--version", "show --help", "run --help", "gate --help"]
    for run in ("own", "foreign"):
        commands += [
            f"show {run}",
            f"show {run} --json",
            f"show {run} --profile",
            f"show {run} --metric worst_class_accuracy",
        ]
        commands += [f"lint {run}", f"export {run} --json", f"export {run} --to {run}.csv", f"compare {run} own"]
    commands += ["schema record", "examples", "init suite.yaml", "new defense my_rule", "list", "list attack", "doctor"]
    commands += ["dashboard --help", "figure --help"]
    assert loaded(folder, *commands) == {command: [] for command in commands}
    assert loaded(folder, "report own --to own.html") == {"report own --to own.html": ["altair"]}  # its charts


def test_the_front_door_opens_and_judges_a_run_without_what_computes(folder: Path) -> None:
    script = (
        "import fedguard as fg, sys\nrun = fg.open_run('own')\n"
        "str(run.table()), run.rows(), str(run.verdict()), str(fg.lint(run)), str(fg.compare(run, run)), fg.names('attack')\n"
        f"assert not set(sys.modules) & set({HEAVY!r}), set(sys.modules) & set({HEAVY!r})"
    )
    done = subprocess.run([sys.executable, "-c", script], cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_modules_that_read_can_be_loaded_without_what_computes() -> None:
    rooms = [name for name in modules() if name.startswith(READING_ROOMS) and name not in COMPUTING]
    rooms += [
        "fedguard.bench.explain.listing",
        "fedguard.registry",
        "fedguard.lookup",
        "fedguard.config.document",
        "fedguard.config.schema",
        "fedguard.bench.audits.suites",
        "fedguard.bench.gate.baseline",
        "fedguard.bench.gate.judge",
        "fedguard.bench.gate.verdict_store",
        "fedguard.metrics.flags",
    ]
    assert len(rooms) > 60 and set(COMPUTING) <= set(modules())
    script = (
        "import importlib, sys\n"
        f"for name in {rooms!r}:\n"
        "    importlib.import_module(name)\n"
        f"    assert not (found := set(sys.modules) & set({HEAVY!r})), (name, found)\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_a_rule_of_a_plugin_is_named_where_its_order_cannot_be_judged(folder: Path) -> None:
    """A store may name any module, so none is loaded to read it; that the rule is unknown is said without it."""
    assert "unknown defense 'equal'" in " ".join(str(fg.lint("foreign", store=folder / "runs")).split())


def test_the_list_reads_the_first_line_of_every_docstring_from_the_source(monkeypatch: pytest.MonkeyPatch) -> None:
    known = load_registry()
    truth = {(kind, cls.name): cls.summary() for kind, cls in known.classes()}
    monkeypatch.setattr(type(known), "get", None)  # so that none is loaded in place of its source
    assert {(kind, name): summary(known, kind, name) for kind, name in truth} == truth
