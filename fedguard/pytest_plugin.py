"""The gate as tests: `pytest --fedguard suite.yaml --fedguard-baseline baseline.json`.

There is one test for each metric of each cell, one for each metric over the whole suite, one for the epsilons, and one for
whether run and baseline are comparable. The first of them runs the suite once; stored trials are not run again.

Every pytest loads this module if FedGuard is installed. So it imports nothing heavy, and does nothing unless asked.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from fedguard.errors import ConfigError, FedGuardError
from fedguard.retired import RETIRED_PYTEST, note_renamed

if TYPE_CHECKING:
    from fedguard.bench.gate.verdict import GateVerdict, Word

#: The node of metrics over all cells, beside one for each cell
WHOLE = "whole suite"
VERDICT = "verdict.json"
#: What else may fail, as under `fedguard gate --fail-on`
FAIL_ON = ("inconclusive",)


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("fedguard", "robustness and privacy of federated learning (FedGuard)")
    option = group.addoption
    option("--fedguard", dest="fedguard_suite", metavar="SUITE", help="Run this suite and hold it against a baseline.")
    option("--fedguard-baseline", metavar="FILE", help="The baseline, as `fedguard baseline save` wrote it.")
    option("--fedguard-store", metavar="FOLDER", help="Folder of all runs. What is stored there is not run again.")
    option("--fedguard-fail-on", choices=FAIL_ON, help="A verdict that fails, too; else it is skipped.")
    option("--fedguard-strict", action="store_true", help=argparse.SUPPRESS)
    parser.addini("fedguard_suite", "--fedguard, for calls of pytest that name no path (as testpaths)")
    parser.addini("fedguard_baseline", "--fedguard-baseline, from the folder of this file")
    parser.addini("fedguard_store", "--fedguard-store, from the folder of this file")
    parser.addini("fedguard_fail_on", "--fedguard-fail-on")
    parser.addini("fedguard_strict", "old name of fedguard_fail_on = inconclusive", type="bool", default=False)


@dataclass(frozen=True, kw_only=True)
class GatePlan:
    """What is to be judged.

    Attributes:
        figures: the metrics that the gate will judge, by the label of a cell.
        broad: the metrics over the whole suite.
        fail_on: verdicts that fail beside ``regressed``.
        audited: whether the gate will audit epsilons.
    """

    suite: Path
    baseline: Path
    store: Path
    fail_on: tuple[str, ...]
    figures: Mapping[str, tuple[str, ...]]
    broad: tuple[str, ...]
    audited: bool


_ASKED = pytest.StashKey[GatePlan]()
#: Where all processes of this pytest find the one verdict, once it exists
_SHARED = pytest.StashKey[Path]()
#: The verdict, or why it does not exist
_FOUND = pytest.StashKey["GateVerdict | str"]()


@pytest.hookimpl(tryfirst=True)
def pytest_sessionstart(session: pytest.Session) -> None:
    """Lay out the suite, and check that there is a baseline; with xdist before any worker starts."""
    config = session.config
    suite = _suite(config)
    if suite is None:
        return
    try:
        config.stash[_ASKED] = _load_request(config, suite)
    except FedGuardError as error:
        raise pytest.UsageError(f"fedguard: {error}") from None
    if suite not in _argument_paths(config):
        config.args.append(str(suite))
    shared = getattr(config, "workerinput", {}).get("fedguard_shared")
    if shared is None:
        folder = tempfile.TemporaryDirectory(prefix="fedguard-")
        config.add_cleanup(folder.cleanup)
        shared = folder.name
    config.stash[_SHARED] = Path(shared)


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """For xdist: tell a worker where to find the common verdict."""
    if _SHARED in node.config.stash:
        node.workerinput["fedguard_shared"] = str(node.config.stash[_SHARED])


def pytest_collect_file(file_path: Path, parent: pytest.Collector) -> pytest.Collector | None:
    asked = parent.config.stash.get(_ASKED, None)
    if asked is None or file_path.resolve() != asked.suite:
        return None
    return SuiteFile.from_parent(parent, path=file_path)


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    file = config.stash[_SHARED] / VERDICT if _SHARED in config.stash else None
    if file is None or not file.is_file():
        return
    told = json.loads(file.read_text(encoding="utf-8"))
    terminalreporter.section("fedguard")
    terminalreporter.line(told.get("error") or told["headline"])
    for line in told.get("warnings", ()):
        terminalreporter.line(f"warning: {line}")


class SuiteFile(pytest.File):
    """The suite: judged once, with a node for each cell."""

    def collect(self) -> Iterator[pytest.Item | pytest.Collector]:
        asked = self.config.stash[_ASKED]
        yield ComparabilityItem.from_parent(self, name="comparable with the baseline")
        for label, figures in {**asked.figures, WHOLE: asked.broad}.items():
            yield Group.from_parent(self, name=label, figures=figures)
        if asked.audited:
            yield EpsilonItem.from_parent(self, name="epsilons hold")


class Group(pytest.Collector):
    """The metrics of one cell, or those over the whole suite."""

    def __init__(self, *, figures: tuple[str, ...], **rest: Any) -> None:
        super().__init__(**rest)
        self._figures = figures

    def collect(self) -> Iterator[pytest.Item]:
        for figure in self._figures:
            yield MetricItem.from_parent(self, name=figure)


class VerdictItem(pytest.Item):
    """One part of the verdict."""

    def reportinfo(self) -> tuple[Path, None, str]:
        return self.path, None, self.nodeid.partition("::")[2].replace("::", ": ")

    def runtest(self) -> None:
        found = _verdict(self.config)
        if isinstance(found, str):
            pytest.fail(found, pytrace=False)
        self.judge(found)

    def judge(self, verdict: GateVerdict) -> None:
        """Fail or skip with the verdict's own words."""
        raise NotImplementedError


class MetricItem(VerdictItem):
    """One metric of one cell, or over the whole suite."""

    def judge(self, verdict: GateVerdict) -> None:
        assert self.parent is not None
        found = _worst_first(verdict).get((self.parent.name, self.name))
        if found is None:
            why = next(iter(verdict.incompatible), "the gate found nothing to compare.")
            pytest.fail(f"cannot judge: {why}", pytrace=False)
        word, why = found
        if word == "regressed":
            pytest.fail(why, pytrace=False)
        if word == "missing" or (word == "inconclusive" and verdict.strict):
            pytest.fail(f"cannot judge: {why}", pytrace=False)
        if word == "inconclusive":
            pytest.skip(f"{self.parent.name}, {self.name}: inconclusive: {why}")


class ComparabilityItem(VerdictItem):
    """Whether run and baseline are comparable, and everything that no other test reports."""

    def judge(self, verdict: GateVerdict) -> None:
        asked = self.config.stash[_ASKED]
        spoken = {(label, one) for label, figures in {**asked.figures, WHOLE: asked.broad}.items() for one in figures}
        rest = {key: found for key, found in _worst_first(verdict).items() if key not in spoken}
        lines = [*verdict.incompatible]
        lines += [
            f"{cell}, {figure}: {why}"
            for (cell, figure), (word, why) in rest.items()
            if word in ("regressed", "missing")
        ]
        if lines or not verdict.judgments:
            pytest.fail("\n".join(lines or ["cannot judge: nothing to compare."]), pytrace=False)


class EpsilonItem(VerdictItem):
    """Whether the code keeps the epsilons that it prints."""

    def judge(self, verdict: GateVerdict) -> None:
        if verdict.violated:
            lines = [f"{one['subject']}: {one['words']}" for one in verdict.violated]
            pytest.fail("\n".join(lines), pytrace=False)
        if not verdict.audits:
            pytest.skip("no epsilon was audited")


def _worst_first(verdict: GateVerdict) -> dict[tuple[str, str], tuple[Word, str]]:
    """The verdict of each metric of each cell and over the whole suite; of two cells with one label the worse verdict."""
    from fedguard.bench.gate.verdict import WORDS

    found = [((one.label, one.figure), (one.verdict, one.why)) for one in verdict.judgments]
    found += [((WHOLE, one.figure), (one.verdict, one.why)) for one in verdict.broad]
    return dict(sorted(found, key=lambda one: WORDS.index(one[1][0])))


def _verdict(config: pytest.Config) -> GateVerdict | str:
    """The verdict, or why there is none. The first process that asks computes it for all processes."""
    from filelock import FileLock

    from fedguard.bench.gate.verdict import GateVerdict

    if _FOUND not in config.stash:
        shared = config.stash[_SHARED]
        with FileLock(shared / "lock"):
            if not (shared / VERDICT).is_file():
                told = _run_gate(config)
                (shared / VERDICT).write_text(json.dumps(told), encoding="utf-8")
        told = json.loads((shared / VERDICT).read_text(encoding="utf-8"))
        config.stash[_FOUND] = told["error"] if "error" in told else GateVerdict.from_dict(told)
    return config.stash[_FOUND]


def _run_gate(config: pytest.Config) -> dict[str, Any]:
    """Run the suite and the gate, and print progress. Failed trials run again, as pytest does with failed tests."""
    from rich.console import Console

    from fedguard import api
    from fedguard.bench.gate.work import gate
    from fedguard.bench.running.execute import execute
    from fedguard.bench.running.progress import Lines

    asked = config.stash[_ASKED]
    laid_out = api.lay_out(asked.suite)[1]
    console = Console(stderr=True)
    try:
        folder = api.run_folder(laid_out, asked.store)
        with _aloud(config), warnings.catch_warnings():
            warnings.simplefilter("default")  # that warnings are errors is said of the tests
            run = execute(laid_out, folder, listener=Lines(console), retry_failed=True, same_code=True)
            return gate(run, asked.baseline, fail_on=asked.fail_on, listener=Lines(console)).as_dict()
    except FedGuardError as error:
        return {"error": f"fedguard: {error}"}


@contextmanager
def _aloud(config: pytest.Config) -> Iterator[None]:
    """Print to the terminal, on separate lines, in spite of pytest's capture."""
    capture = config.pluginmanager.getplugin("capturemanager")
    with capture.global_and_fixture_disabled() if capture else nullcontext():
        if reporter := config.pluginmanager.getplugin("terminalreporter"):
            reporter.ensure_newline()
            reporter.flush()
        yield


def _load_request(config: pytest.Config, suite: Path) -> GatePlan:
    """Lay out the suite and read the baseline.

    Raises:
        FedGuardError: either cannot be read, or no baseline is named.
    """
    from fedguard import api
    from fedguard.bench.gate.baseline import read
    from fedguard.bench.gate.pair import select_figures
    from fedguard.bench.results.places import label

    laid_out = api.lay_out(suite)[1]
    baseline = _path(config, "baseline")
    if baseline is None:
        name = laid_out.suite.name
        raise ConfigError(
            f"--fedguard-baseline: expected the baseline to hold {suite.name} against; got none. Make one: "
            f"fedguard run {suite}; fedguard baseline save {name} --to baseline.json."
        )
    before, gate = read(baseline).snapshot, laid_out.suite.gate
    watch = [
        one.figure for one in select_figures(gate, {figure for cell in before.cells.values() for figure in cell.values})
    ]
    places = {one.cell: one for one in reversed(before.positions) if before.cells[one.cell].status != "refused"}
    figures = {
        label(place.swept): tuple(one for one in watch if one in before.cells[cell].values)
        for cell, place in reversed(places.items())
    }
    noisy = any(cell.private and not cell.verdict.reasons for cell in laid_out.cells)
    return GatePlan(
        suite=suite,
        baseline=baseline,
        store=_path(config, "store") or Path(os.environ.get("FEDGUARD_STORE", "runs")).absolute(),
        fail_on=_fail_on(config),
        figures=figures,
        broad=tuple(one for one in watch if one != "epsilon" and any(one in found for found in figures.values())),
        audited=gate.audit and noisy,
    )


def _fail_on(config: pytest.Config) -> tuple[str, ...]:
    """The verdicts that fail, too.

    Raises:
        ConfigError: the ini file names another one.
    """
    if config.getoption("fedguard_strict") or config.getini("fedguard_strict"):
        note_renamed(RETIRED_PYTEST.items())
        return FAIL_ON
    word = config.getoption("fedguard_fail_on") or config.getini("fedguard_fail_on")
    if word and word not in FAIL_ON:
        raise ConfigError(f"fedguard_fail_on: expected {' or '.join(FAIL_ON)}; got {word!r}.")
    return (word,) if word else ()


def _path(config: pytest.Config, name: str) -> Path | None:
    """A path from the command line, relative to where pytest was called, or from the ini file, relative to its folder."""
    folder, given = config.invocation_params.dir, config.getoption(f"fedguard_{name}")
    if not given:
        folder, given = (config.inipath or config.rootpath / "pytest.ini").parent, config.getini(f"fedguard_{name}")
    return Path(folder, given).resolve() if given else None


def _suite(config: pytest.Config) -> Path | None:
    """The requested suite."""
    suite = _path(config, "suite")
    aside = config.args_source is pytest.Config.ArgsSource.ARGS and suite not in _argument_paths(config)
    return None if aside and not config.getoption("fedguard_suite") else suite


def _argument_paths(config: pytest.Config) -> list[Path]:
    """The paths that pytest was called with."""
    return [(config.invocation_params.dir / arg.partition("::")[0]).resolve() for arg in config.args]
