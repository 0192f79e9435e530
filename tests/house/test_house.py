"""The house itself: who imports whom, what a wheel holds, and that documents tell the truth."""

from __future__ import annotations

import ast
import json
import re
import subprocess
import sys
import zipfile
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from fedguard.bench.running.code import READERS as UNDIGESTED
from fedguard.bench.running.code import READING_ROOMS
from tests.forked import called, fedguard
from tests.root import ROOT

FOLDERS = {
    "fedguard": "fedguard",
    "attacks": "fedguard.attacks",
    "defenses": "fedguard.defenses",
    "app": "fedguard.app",
}

#: What each part may import of FedGuard, beside itself. A part is the longest prefix that stands here.
MAY_IMPORT = {
    "fedguard.errors": set(),
    "fedguard.retired": set(),
    "fedguard.arguments": {"errors"},
    "fedguard.reading": {"errors"},
    "fedguard.rng": set(),
    "fedguard.modules": set(),
    "fedguard.lazy": set(),
    "fedguard.memmap": set(),
    "fedguard.kernels": {"memmap"},
    "fedguard.contracts": {"errors", "lazy", "retired", "rng", "modules", "memmap"},
    "fedguard.rows": {"errors", "kernels", "memmap"},
    "fedguard.aggregation": {"errors", "kernels", "rows", "contracts"},
    "fedguard.adapters": {"errors", "contracts", "kernels", "rows"},
    "fedguard.robustness.shapes": set(),
    "fedguard.robustness": {"arguments", "errors", "rng", "contracts", "aggregation"},
    "fedguard.registry": {"errors", "modules", "contracts", "secagg"},
    "fedguard.visibility": {"errors", "contracts"},
    "fedguard.config": {"adapters", "errors", "lazy", "retired", "rng", "contracts", "registry", "visibility", "secagg", "privacy", "metrics.figures"},
    "fedguard.secagg": {"arguments", "errors", "rng", "contracts"},
    "fedguard.privacy": {"lazy", "arguments", "errors", "rng", "contracts", "secagg"},
    "fedguard.attacks": {"errors", "rng", "kernels", "contracts", "secagg", "privacy"},
    "fedguard.defenses": {"errors", "rng", "kernels", "contracts"},
    "fedguard.tasks": {"errors", "reading", "rng", "contracts", "privacy"},
    "fedguard.inference": {"errors", "rng", "contracts", "tasks"},
    "fedguard.reconstruction": {"arguments", "errors", "reading", "rng", "contracts", "registry", "inference", "metrics"},
    "fedguard.metrics": {"errors", "rng", "contracts"},
    "fedguard.metrics.figures": {"errors", "retired", "metrics.returns", "metrics.stats"},
    "fedguard.metrics.aggregate": {"metrics.quantities"},
    "fedguard.metrics.distance": {"kernels", "metrics.aggregate"},
    "fedguard.metrics.quantities": set(),
    "fedguard.metrics.stats": set(),
    "fedguard.metrics.returns": {"contracts", "metrics.quantities", "metrics.stats"},
    "fedguard.simulated": {"errors", "retired", "rng", "contracts"},
    "fedguard.statistics": {"contracts"},
    "fedguard.algorithms": {"errors", "rng", "contracts"},
    "fedguard.architectures": {"algorithms", "simulated", "errors", "rng", "memmap", "kernels", "contracts", "adapters", "aggregation", "rows", "secagg", "privacy", "metrics.aggregate", "metrics.distance"},
    "fedguard.bench": {
        "retired",
        "arguments", "errors", "rng", "modules", "contracts", "aggregation", "registry", "visibility", "config", "tasks", "metrics",
        "metrics.figures", "metrics.stats", "algorithms", "architectures", "bench", "secagg", "privacy", "inference",
    },
    "fedguard.bench.docstrings": set(),
    "fedguard.bench.pages": {
        "errors", "metrics.figures", "metrics.returns", "metrics.stats", "bench.records", "bench.results", "bench.flags", "bench.terminal",
        "bench.audits", "bench.gate", "bench.explain",
    },
    "fedguard.bench.terminal": set(),
    "fedguard.bench.records": {"errors", "retired", "contracts", "config", "metrics", "bench.docstrings"},
    "fedguard.bench.results": {
        "arguments", "errors", "contracts.stopwatch", "metrics.figures", "metrics.stats", "metrics.membership", "metrics.ranking",
        "metrics.returns", "metrics.plane",
        "bench.records", "bench.terminal",
    },
    "fedguard.bench.running": {
        "arguments", "errors", "kernels", "retired", "rng", "modules", "contracts", "aggregation", "robustness", "registry", "visibility", "config", "tasks", "metrics",
        "adapters", "algorithms", "architectures", "secagg", "privacy", "inference", "bench.records", "bench.results.run",
    },
    "fedguard.bench.conformance": {
        "errors", "contracts", "config", "registry", "architectures", "bench.running", "bench.terminal", "bridges.flower.inline",
        "bridges.flower.deployment",
    },
    "fedguard.bench.acceptance": {
        "arguments", "errors", "kernels", "rng", "modules", "contracts", "aggregation", "registry", "config", "metrics.stats", "bench.records",
        "bench.results", "bench.running", "bench.pages.escape",
    },
    "fedguard.bench.controls": {"metrics.figures", "metrics.stats", "bench.results", "bench.pages"},
    "fedguard.bench.flags": {
        "errors", "retired", "rng", "contracts", "aggregation", "registry", "visibility", "architectures.server", "metrics",
        "bench.records", "bench.results", "bench.terminal",
    },
    "fedguard.lookup": {"arguments", "errors", "registry", "bench"},
    "fedguard.api": {"arguments", "errors", "retired", "rng", "registry", "modules", "config", "bench", "privacy.blackbox"},
    "fedguard.arrays": {
        "retired", "arguments", "errors", "reading", "rng", "memmap", "kernels", "contracts", "aggregation", "robustness", "registry", "secagg",
        "states", "guarded_statistics",
    },
    "fedguard.states": {"errors", "reading"},
    "fedguard.bridges": {
        "errors", "rng", "contracts", "guard", "states", "registry", "config", "tasks", "metrics", "bench",
    },
    "fedguard.bridges.flower": {
        "arguments", "errors", "rng", "contracts", "secagg", "guard", "guarded_statistics", "states", "registry", "bridges", "retired",
    },
    "fedguard.bridges.nvflare": {"errors", "rng", "contracts", "guard", "states", "bridges"},
    "fedguard.flower": {"bridges.flower"},
    "fedguard.guarded_statistics": {"arguments", "errors", "rng", "contracts", "aggregation", "registry", "states"},
    "fedguard.guard": {
        "arguments", "errors", "retired", "rng", "kernels", "contracts", "aggregation", "registry", "config", "states", "guarded_statistics",
    },
    "fedguard.commands": {"arrays", "retired", "errors", "config", "contracts", "api", "app", "bench", "registry", "secagg", "privacy"},
    "fedguard.cli": {"errors", "api", "bench", "commands", "retired"},
    "fedguard.pytest_plugin": {"errors", "retired", "api", "bench"},
    "fedguard.app": {"arguments", "errors", "bench", "registry", "metrics.figures", "metrics.returns", "metrics.stats"},
    "fedguard.app.lab": {  # it alone runs something
        "errors", "bench", "registry", "app", "api", "arrays", "", "metrics.figures", "metrics.returns", "metrics.stats",
    },
    "fedguard.app.views.lab": {"errors", "bench", "app", "app.lab"},
    "fedguard": {"lazy", "api", "lookup", "arrays", "guard", "app", "bench", "privacy", "reconstruction"},
}  # fmt: skip


def modules() -> dict[str, Path]:
    """Every module by its installed name."""
    found = {}
    for folder, package in FOLDERS.items():
        for path in (ROOT / folder).rglob("*.py"):
            parts = path.relative_to(ROOT / folder).with_suffix("").parts
            parts = parts[:-1] if parts[-1] == "__init__" else parts
            found[".".join((package, *parts))] = path
    return found


def part_of(module: str) -> str:
    return max((part for part in MAY_IMPORT if module == part or module.startswith(f"{part}.")), key=len)


@cache
def imports(path: Path) -> frozenset[str]:
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
    return frozenset(found)


def test_every_part_imports_only_what_it_may():
    known = modules()
    assert len(known) > 80
    for module, path in known.items():
        part = part_of(module)
        for imported in imports(path):
            if imported.split(".")[0] != "fedguard":
                continue
            inside = imported == part or imported.startswith(f"{part}.")
            allowed = [f"fedguard.{one}".removesuffix(".") for one in MAY_IMPORT[part]]
            known_to_it = [
                one for one in allowed if imported == one or (one != "fedguard" and imported.startswith(f"{one}."))
            ]
            assert inside or known_to_it or imported.rpartition(".")[0] in allowed, f"{module} imports {imported}"


def test_files_that_docstrings_name_are_there():
    """From where the docstring stands, or from the root; a file of somebody else stands in double backticks or after a path."""
    named = 0
    for folder in (*FOLDERS, "tests", "docs_tools", "benchmarks"):
        for path in (ROOT / folder).rglob("*.py"):
            text = ast.get_docstring(ast.parse(path.read_text())) or ""
            for name in re.findall(r"(?m)(?:^|(?<=[ `(]))([\w/]+\.py)\b", text):
                if name in OF_OTHERS:
                    continue
                named += 1
                assert (path.parent / name).is_file() or (ROOT / name).is_file(), (
                    f"{path.relative_to(ROOT)} names {name}"
                )
    assert named > 100


#: Files of other people that docstrings name.
OF_OTHERS = {"server_app.py", "benchmark/train.py"}

#: Readers of results. They know records and the table of figures, and so do all that they import.
READERS = (
    "fedguard.bench.results.run", "fedguard.bench.results.compare", "fedguard.bench.results.answer", "fedguard.bench.results.export", "fedguard.bench.results.disclosure",
    "fedguard.bench.flags.results", "fedguard.bench.gate.verdict", "fedguard.bench.gate.stages", "fedguard.bench.pages.cell_facts", "fedguard.bench.pages.cell_chart", "fedguard.bench.pages.cell_events",
    "fedguard.app.report.costs", "fedguard.app.report.threats",
)  # fmt: skip


def test_readers_of_results_know_neither_architectures_nor_tasks():
    known, waiting, seen = modules(), list(READERS), set()
    unknown = {"architectures", "tasks", "inference", "aggregation", "attacks", "defenses"}
    while waiting:
        module = waiting.pop()
        seen.add(module)
        for imported in imports(known[module]):
            assert not (imported.startswith("fedguard.") and imported.split(".")[1] in unknown), (
                f"{module} imports {imported}"
            )
            found = imported if imported in known else imported.rpartition(".")[0]
            waiting += [found] if found in known.keys() - seen else []
    assert "fedguard.metrics.figures" in seen


def test_attacks_and_defenses_do_not_know_each_other_nor_does_the_core_know_them():
    for module, path in modules().items():
        for imported in imports(path):
            for side in ("fedguard.attacks", "fedguard.defenses"):
                if imported.startswith(side):
                    assert module.startswith(side), f"{module} imports {imported}"


#: A line that may import one of the folders, or by a relative name; whether it does, its syntax tree tells.
_SIDES = re.compile(r"\b(import\b.*\b(attacks|defenses|app)\b|from +(attacks\b|defenses\b|app\b|\.))")


def test_nobody_imports_the_top_level_folders_by_their_bare_names():
    folders = [one for one in ROOT.iterdir() if one.is_dir() and one.name not in (".venv", "build")]
    files = [*ROOT.glob("*.py"), *(path for one in folders for path in one.rglob("*.py"))]
    assert ROOT / "setup.py" in files and ROOT / "tests" / "conftest.py" in files
    for path in files:
        if "build" not in path.parts and _SIDES.search(path.read_text()):
            assert not {name.split(".")[0] for name in imports(path)} & {"attacks", "defenses", "app"}, path


def test_each_test_is_in_the_folder_of_the_package_that_it_tests():
    """What tests a module of fedguard/ itself is in tests/ itself, under the name of the module."""
    packages = {name.rpartition(".")[2] for name, path in modules().items() if path.name == "__init__.py"}
    alone = tuple(f"test_{path.stem}" for path in (ROOT / "fedguard").glob("[!_]*.py"))
    found = [path.relative_to(ROOT / "tests") for path in (ROOT / "tests").rglob("test_*.py")]
    assert len(found) > 250 and len({path.name for path in found}) == len(found)
    assert [path for path in found if len(path.parts) == 1 and not path.stem.startswith(alone)] == []
    assert {path.parts[0] for path in found if len(path.parts) > 1} - packages == {"house"}


def test_nothing_reads_a_pickle():
    for module, path in modules().items():
        text = path.read_text()
        assert "pickle" not in text.replace("allow_pickle=False", "").replace("is pickled", ""), module
        assert (
            "torch.load" not in text
            and "yaml.load(" not in text
            and "eval(" not in text.replace("literal_eval(", "").replace("model.eval()", "")
        ), module


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    """The wheel, built from a copy of the tracked files."""
    source, out = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("wheel")
    files = subprocess.run(
        ["git", "ls-files", "-co", "--exclude-standard"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    for name in files.stdout.split():
        if (ROOT / name).is_file():
            (source / name).parent.mkdir(parents=True, exist_ok=True)
            (source / name).write_bytes((ROOT / name).read_bytes())
    pip = [
        sys.executable,
        "-m",
        "pip",
        "wheel",
        "--quiet",
        "--no-deps",
        "--no-build-isolation",
        "--wheel-dir",
        str(out),
        str(source),
    ]
    subprocess.run(pip, check=True, capture_output=True)
    (path,) = out.glob("*.whl")
    return path


@pytest.mark.slow
def test_the_wheel_holds_every_module_and_nothing_beside(wheel):
    with zipfile.ZipFile(wheel) as archive:
        names = [name for name in archive.namelist() if ".dist-info/" not in name]
    for module, path in modules().items():
        file = module.replace(".", "/") + ("/__init__.py" if path.name == "__init__.py" else ".py")
        assert file in names, f"{module} is missing"
    assert {name.split("/")[0] for name in names} == {"fedguard"}
    assert {"fedguard/py.typed", "fedguard/templates/suite.yaml"} <= set(names)
    for folder in ("examples", "fedguard/templates"):
        for path in (ROOT / folder).rglob("*"):
            if path.is_file() and "__pycache__" not in path.parts:
                where = path.relative_to(ROOT).as_posix()
                assert (where if where.startswith("fedguard/") else f"fedguard/{where}") in names, f"{where} is missing"


@pytest.mark.slow
def test_the_wheel_works_beside_a_folder_named_attacks(wheel, tmp_path):
    """Unpacked from the wheel, in a folder where a user has an `attacks` package: theirs and ours are both there."""
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(tmp_path / "site")
    (tmp_path / "attacks").mkdir()
    (tmp_path / "attacks" / "__init__.py").write_text("MINE = True\n")
    script = "import sys; sys.path.insert(0, 'site'); import attacks, fedguard as fg\nassert attacks.MINE\n"
    script += "assert 'site' in fg.__file__\nprint(fg.craft('alie', [[1., 2.], [3., 5.]], f=1, z=1.0), fg.names('defense')[0])"
    done = subprocess.run([sys.executable, "-c", script], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split()[-1] == "mean"


def test_import_fedguard_loads_no_torch():
    """Nor has `dir` need of it; `fedguard.run` has, and asks for it in vain here."""
    script = "import sys, fedguard; assert 'torch' not in sys.modules; assert 'run' in dir(fedguard)"
    asked = "; sys.modules['torch'] = None; fedguard.run"
    subprocess.run([sys.executable, "-c", script], check=True)
    done = subprocess.run([sys.executable, "-c", script + asked], check=False, capture_output=True, text=True)
    assert "import of torch halted" in done.stderr


# Documents.

DOCUMENTS = [
    "README.md",
    "ARCHITECTURE.md",
    "CONTRIBUTING.md",
    "CHANGELOG.md",
    "benchmarks/README.md",
]


def blocks(document: str, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", (ROOT / document).read_text(), re.MULTILINE | re.DOTALL)


#: What the README runs, cut to seconds.
SHORT = {'"rounds": 10': '"rounds": 2'}


def test_python_in_the_readme_runs(tmp_path):
    found = blocks("README.md", "python")
    assert found
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    for number, block in enumerate(found):
        script = tmp_path / f"block_{number}.py"
        for call, short in SHORT.items():
            assert call in block
            block = block.replace(call, short)
        script.write_text(block)
        done = called("python", str(script), cwd=tmp_path)
        assert done.returncode == 0, block + done.stderr


@pytest.mark.parametrize("document", DOCUMENTS)
def test_files_that_documents_name_are_there(document):
    text = (ROOT / document).read_text()
    for target in re.findall(r"\]\(([^)#]+)", text):
        if "://" not in target:
            assert ((ROOT / document).parent / target).exists(), target
    for path in re.findall(r"`((?:fedguard|attacks|defenses|examples|tests|benchmarks|app)/[\w/.-]+)`", text):
        assert (ROOT / path).exists(), path


@pytest.mark.parametrize("document", DOCUMENTS)
def test_commands_that_documents_show_exist(document):
    text = (ROOT / document).read_text()
    targets = set(re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    for target in re.findall(r"\bmake ([\w-]+)", text):
        assert target in targets, target
    for command in {
        line.split()[0] for line in re.findall(r"\bfedguard ([a-z]+.*)", "\n".join(blocks(document, "sh")))
    }:
        assert fedguard(command, "--help", cwd=ROOT).returncode == 0, command


def smoked(name: str, folder: Path, *arguments: str) -> dict[str, Any]:
    """What a script of benchmarks/ keeps of its short form, in a process that is forked from the tests' own."""
    out = folder / "out.json"
    done = called(
        "python", str(ROOT / "benchmarks" / f"{name}.py"), "--smoke", *arguments, "--json", str(out), cwd=ROOT
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return json.loads(out.read_text())


@pytest.mark.slow
@pytest.mark.parametrize("name", ["rules", "simulation", "probes", "secagg", "inversion"])
def test_benchmarks_run(name, tmp_path):
    figures = smoked(name, tmp_path)["figures"]
    assert len(figures) >= 4
    assert all(figure.get("passes", figure.get("ratio")) > 0 for figure in figures)


@pytest.mark.slow
def test_the_study_of_audits_runs(tmp_path):
    assert len(smoked("audit", tmp_path)["figures"]) >= 4


@pytest.mark.slow
def test_the_study_of_the_gate_runs(tmp_path):
    figures = smoked("gate", tmp_path)["figures"]
    assert {figure["ruined"] for figure in figures} > {0.0}  # trainings that collapse now and then are among them
    assert all(0 <= figure["gate"] <= 1 for figure in figures)


@pytest.mark.slow
def test_the_study_of_the_worst_case_runs(tmp_path):
    told = smoked("worst_case", tmp_path)
    assert {figure["rule"] for figure in told["figures"]} == {"trimmed_mean", "median"}
    assert all(
        figure["alie"] >= 0 for figure in told["figures"]
    )  # the best known is at least as good as any one attack


@pytest.mark.slow
def test_the_search_for_what_the_worst_case_misses_runs(tmp_path):
    figures = smoked("worst_case", tmp_path, "--mixtures", "2")["figures"]
    assert len(figures) == 3
    assert all(0 < figure["left"] <= 1 and 0 < figure["mixtures"] <= 1 for figure in figures)


def test_the_tables_of_the_catalogue_are_true():
    """Each row, with what runs and what is refused, is what the code says; the first tables sum them up."""
    lines = (ROOT / "docs" / "catalogue.md").read_text().splitlines()
    assert [line for line in lines if line.startswith("| `")] == [row for row, _ in table_rows()]
    assert [line for line in lines if line.endswith("` |")] == summary_rows()


def table_rows() -> list[tuple[str, str]]:
    """The rows of ``docs/catalogue.md``, each with the row of the first tables that its name stands in.

    What asks for times or for a graph is judged beside an architecture that has any, which under masks is refused itself.

    ``python -c "import tests.house.test_house as t; print(*[r for r, _ in t.table_rows()], *t.summary_rows(), sep=chr(10))"``
    """
    from fedguard.architectures.gossip.d_psgd import DecentralizedSGD
    from fedguard.architectures.server import Server
    from fedguard.architectures.systems.fedbuff import FedBuff
    from fedguard.bench.explain.catalogue import modes, stage_of
    from fedguard.bench.running.card import acts_on
    from fedguard.contracts import AggregationRule, Ensemble, Sight, ThreatModel, first_met
    from fedguard.registry import load_registry
    from fedguard.visibility import derive_exposure, judge

    def needs(cls) -> str:
        sights = [" + ".join(alternative.names()) or "nothing" for alternative in cls.needs]
        return ", or ".join(sights).replace("_", " ")

    def fate(pipeline, attack, mode) -> str:
        threat, mode = ThreatModel(), modes()[mode](**modes()[mode].example)
        needed = [need for one in (*pipeline.stages, *([attack] if attack else [])) for need in one.needs]
        timed, linked = (any(sight in need for need in needed) for sight in (Sight.TIMES, Sight.GRAPH))
        where = FedBuff if timed else DecentralizedSGD if linked else Server
        shown = derive_exposure(where().exposes, mode, root_data=True)
        reasons = judge(pipeline, attack, shown, threat, 20, 4, mode).reasons
        return "refused" if reasons else "runs"

    rows = []
    for _, cls in load_registry().classes(["defense"]):
        pipeline = load_registry().pipeline(cls.name if issubclass(cls, AggregationRule) else f"{cls.name} >> mean")
        fates = [fate(pipeline, None, mode) for mode in ("none", "groups", "full")]
        row = [f"`{cls.name}`", stage_of(cls), needs(cls), *fates, cls.summary()]
        rows.append((f"| {' | '.join(row)} |", f"| {' | '.join([needs(cls), *fates])} |"))
    for _, cls in load_registry().classes(["attack"]):
        if issubclass(cls, Ensemble):
            continue
        attack = load_registry().build("attack", cls.name)
        hidden = fate(load_registry().pipeline("mean"), attack, "full")
        row = [f"`{cls.name}`", cls.goal, ", ".join(acts_on(attack)), needs(cls), hidden, cls.summary()]
        rows.append((f"| {' | '.join(row)} |", f"| {' | '.join([cls.goal, needs(cls), hidden])} |"))
    for _, cls in load_registry().classes(["inference"]):
        shown = [derive_exposure(Server.exposes, modes()[mode], True, True) for mode in ("none", "groups", "full")]
        fates = ["refused" if first_met(cls.needs, one.server) is None else "runs" for one in shown]
        server = "malicious" if cls.active else "curious"
        row = [f"`{cls.name}`", cls.goal, server, cls.watches, needs(cls), *fates, cls.summary()]
        rows.append((f"| {' | '.join(row)} |", f"| {' | '.join([cls.goal, server, needs(cls), *fates])} |"))
    return rows


def summary_rows() -> list[str]:
    """The rows of the first tables: what needs the same and fares the same stands in one."""
    groups: dict[str, list[str]] = {}
    for row, head in table_rows():
        groups.setdefault(head, []).append(row.split(" ")[1])
    return [f"{head} {', '.join(names)} |" for head, names in groups.items()]


def test_architecture_fits_two_pages():
    assert len((ROOT / "ARCHITECTURE.md").read_text().splitlines()) <= 120


def test_the_version_stands_in_the_changelog():
    version = re.search(r'^version = "(.*)"', (ROOT / "pyproject.toml").read_text(), re.MULTILINE)[1]
    assert f"## {version}" in (ROOT / "CHANGELOG.md").read_text()


def test_doctests():
    import doctest

    import fedguard.rng

    assert doctest.testmod(fedguard.rng).failed == 0
    assert doctest.testmod(fedguard.rng).attempted > 0


def test_what_makes_a_record_is_digested():
    """All that a trial imports, wherever it does, lies in the parts whose code a record names."""
    known, seen = modules(), set()
    waiting = ["fedguard.bench.running.trial", "fedguard.bench.running.selection"]
    named = {
        module
        for module in known
        if module.split(".")[1:2] in (["architectures"], ["tasks"], ["privacy"], ["attacks"], ["defenses"])
    }
    waiting += sorted(named)  # which a registry imports by name
    while waiting:
        module = waiting.pop()
        seen.add(module)
        parts = module.split(".")
        assert parts[1] not in UNDIGESTED and (parts[1] != "bench" or (parts[2:3] and parts[2] not in READING_ROOMS)), (
            module
        )
        for imported in imports(known[module]):
            found = imported if imported in known else imported.rpartition(".")[0]
            waiting += [found] if found in known.keys() - seen and found not in ("fedguard", "fedguard.bench") else []
    assert {"fedguard.metrics.trajectory", "fedguard.bench.records.record", "fedguard.simulated.course"} <= seen


def test_the_front_page_is_short_and_begins_with_a_start():
    lines = (ROOT / "README.md").read_text().splitlines()
    assert len(lines) < 130
    assert any(line.startswith("make demo") for line in lines[:30])
