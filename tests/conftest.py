"""Every test runs with one torch thread, as trials do; and trials run in the test's own process unless it is marked
`processes` or `forked`.

Files and the tests of each are shuffled, by a seed that pytest prints: none may depend on what ran before it. `--order SEED` repeats an
order; `--order written` keeps that of the files. Hypothesis looks at few examples, at more with `--hypothesis-profile=deep`. They are
the same at each run but for the constants it reads out of the modules that are imported by then, so that a law which fails at one
draw in a thousand fails in some orders only: `--hypothesis-profile=drawn` looks at many, and at others each time.
"""

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")

import gc
import random
import subprocess
import sys
from copy import deepcopy
from functools import cache
from itertools import groupby
from types import SimpleNamespace

import pytest
from hypothesis import HealthCheck, settings

# torch and FedGuard are imported where they are used: the process that deals tests out to others would take seconds for it
for _profile, _examples in {"quick": 20, "deep": 60, "drawn": 300}.items():
    settings.register_profile(
        _profile,
        deadline=None,
        max_examples=_examples,
        suppress_health_check=[HealthCheck.too_slow],
        derandomize=_profile != "drawn",
    )
settings.load_profile("quick")


def pytest_addoption(parser):
    parser.addoption("--order", metavar="SEED", help="the seed by which tests are shuffled, or `written`")


def pytest_configure(config):
    """One seed for all processes of pytest-xdist."""
    given = getattr(config, "workerinput", {}).get("order", config.option.order)
    config.option.order = given or str(random.SystemRandom().randrange(10**6))


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node):
    node.workerinput["order"] = node.config.option.order


def pytest_terminal_summary(terminalreporter, config):
    terminalreporter.write_line(f"Order of the tests: --order {config.option.order}")


#: Files with a fixture or a test of a minute. They come first, together with the browser's: what stands at the end of a process's list is
#: taken over by others that have nothing left to do, and what they share would be made twice.
LONG = tuple(
    f"test_{name}.py" for name in ("anchor", "memory", "mapped", "dreams_come_true", "solved", "documentation")
)


def _rank(tests):
    """Where a file stands: one of minutes before others with slow tests, and these before the quick."""
    if tests[0].path.name in LONG or any(test.get_closest_marker("e2e") for test in tests):
        return 0
    return 1 if any(test.get_closest_marker("slow") for test in tests) else 2


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config, items):
    """Shuffle files, and the tests of each; afterwards pytest puts those together that share a fixture of several parameters.

    Long files come first: were one drawn last, the other processes would wait for it.
    """
    if config.option.order != "written":
        draw = random.Random(config.option.order)
        files = [list(tests) for _, tests in groupby(items, key=lambda item: item.path)]
        for tests in files:
            draw.shuffle(tests)
        draw.shuffle(files)
        files.sort(key=_rank)
        items[:] = [test for tests in files for test in tests]


def pytest_collection_finish():
    """What imports and the list of all tests have made stays to the end: no garbage collection looks through it again.

    Streamlit collects after each page that is shown, and took a second for it.
    """
    import torch

    torch.set_num_threads(1)
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session")
def started_once(tmp_path_factory):
    """To be called by a fixture with its name: an error where another process of pytest-xdist has started the same already.

    With `--dist loadfile` that is so where two files use it. A cluster takes as much of a machine as all of its tests.
    """
    folder = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        folder = folder.parent

    def start(name):
        (folder / f"{name}.started").touch(exist_ok=False)

    return start


@pytest.fixture(autouse=True, scope="module")
def inline(request):
    """Workers are processes, which take seconds to start; where none is tested, their code runs here."""
    from tests.inline import pool

    with pytest.MonkeyPatch.context() as patch:
        if request.node.get_closest_marker("processes") is None:
            patch.setattr("fedguard.bench.running.execute.LocalPool", pool)
        yield


@pytest.fixture(autouse=True, scope="module")
def components():
    """For each page that is shown, Streamlit's AppTest looks for components in all installed packages; once is enough."""
    with pytest.MonkeyPatch.context() as patch:
        if "streamlit" in sys.modules:
            from streamlit.components.v2 import manifest_scanner

            patch.setattr(
                manifest_scanner, "scan_component_manifests", _once(manifest_scanner.scan_component_manifests)
            )
        yield


@pytest.fixture(autouse=True, scope="module")
def digits():
    """For each run of a suite, the digits are read from their file and unpacked; once is enough."""
    with pytest.MonkeyPatch.context() as patch:
        if "sklearn.datasets" in sys.modules:
            datasets = sys.modules["sklearn.datasets"]
            read = _once(datasets.load_digits)
            patch.setattr(datasets, "load_digits", lambda **how: deepcopy(read(**how)))
        yield


@pytest.fixture(autouse=True, scope="module")
def disk():
    """Nobody cuts the power: what is written need not reach the disk, for which each record would wait some milliseconds."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("os.fsync", lambda file: None)
        yield


#: The same function with its answer kept; one for each function.
_once = cache(cache)


@pytest.fixture(autouse=True)
def processes(request, inline, monkeypatch):
    forks = request.node.get_closest_marker("forked") is not None
    if not forks and request.node.get_closest_marker("processes") is None:
        return
    from fedguard.bench.running.engines import local

    monkeypatch.setattr("fedguard.bench.running.execute.LocalPool", local.LocalPool)
    if forks:
        from tests.forked import Forked

        monkeypatch.setattr(local, "subprocess", SimpleNamespace(Popen=Forked, PIPE=subprocess.PIPE))
