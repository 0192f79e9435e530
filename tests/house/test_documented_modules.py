"""The modules on the pages of docs/extend.md: they keep their contracts, and run in each architecture that has their axis.

Where a built-in part of the same kind runs, a documented one runs too; where that is refused, so may be this.
"""

from __future__ import annotations

import importlib.util
import inspect
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from fedguard.bench.running.trial import run_trial
from fedguard.bench.running.workbench import Workbench
from fedguard.config import build_cell
from fedguard.config.cells import PlannedCell
from fedguard.config.schema import CellConfig
from fedguard.errors import FedGuardError
from fedguard.registry import KINDS, load_registry
from tests.pages import blocks
from tests.root import ROOT

EXTEND = (ROOT / "docs" / "extend.md").read_text()
#: What it links to.
PAGES = sorted(set(re.findall(r"\((add_\w+\.md)\)", EXTEND)))


@cache
def sources() -> dict[str, str]:
    """By the name of a module, its text."""
    found = [block for page in PAGES for block in blocks(f"docs/{page}") if block.title.endswith(".py")]
    return {block.title.removesuffix(".py"): block.text for block in found}


#: Settings under which each is put to all architectures, and what a built-in part of its kind is set to there. An architecture
#: is one of them itself.
NOISE = {"kind": "client", "noise_multiplier": 2.0, "clip": 0.5, "delta": 1e-3}
SLOW = {"compute": {"seconds": 600.0}}
ATTACKED: dict[str, Any] = {"clients": {"total": 8, "malicious": 2}}
ACTORS: dict[str, Any] = {"clients": {"total": 4}, "training": {"algorithm": "actor_critic(t_max=4)"}}
AXES: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "pushback": ({**ATTACKED, "attack": "pushback"}, {**ATTACKED, "attack": "mimic"}),
    "boast": ({**ATTACKED, "attack": "boast"}, {**ATTACKED, "attack": "understated_loss"}),
    "inverse_norm": ({"defense": "inverse_norm"}, {"defense": "centered_clipping"}),
    "negative_bias": ({"attack": "negative_bias"}, {"attack": "labels_negative_bias"}),
    "moons": ({"task": {"data": "moons", "partition": "halves", "model": "wave"}}, {"task": {"data": "wine"}}),
    "steady_noise": ({"protocol": {"privacy": {"kind": "steady", "z": 2.0}}}, {"protocol": {"privacy": NOISE}}),
    "neighbors": (
        {"protocol": {"secure_aggregation": "neighbors", "colluding": 0.0}},
        {"protocol": {"secure_aggregation": "full", "colluding": 0.0}},
    ),
    "decayed": ({"training": {"algorithm": "decayed"}}, {"training": {"algorithm": "feddyn"}}),
    "shifts": ({"network": {**SLOW, "there": "shifts"}}, {"network": {**SLOW, "there": "on_off"}}),
    "random_signs": ({"evaluation": {"evasion": "random_signs"}}, {"evaluation": {"evasion": "fgsm"}}),
    "averaging": ({}, {}),
    "comb": (
        {**ATTACKED, "attack": "backdoor(trigger='comb')"},
        {**ATTACKED, "attack": "backdoor(trigger='blended')"},
    ),
    "corridor": (
        {**ACTORS, "task": {"data": "corridor(copies=2)", "model": "mlp(hidden=[8])"}},
        {**ACTORS, "task": {"data": "cartpole(copies=2)", "model": "mlp(hidden=[8])"}},
    ),
    "midhinge": ({"defense": "midhinge"}, {"defense": "median"}),
    "layer_clipping": ({"defense": "layer_clipping"}, {"defense": "lasa"}),
    "approach": ({"defense": "approach >> median"}, {"defense": "clipped_gossip"}),
    "coarse": ({"defense": "coarse >> mean"}, {"defense": "sign >> mean"}),
}
#: Where fewer than five take it: masks want all in step, who infers a server, and what carries more than updates rounds.
FEWEST = {"boast": 1, "neighbors": 3, "negative_bias": 1, "decayed": 1, "averaging": 1}
#: They have no architecture: what is attacked is a round of the protocol.
ELSEWHERE = {"tiny_quorum"}
#: Architectures for which one setting has to be another.
ALSO: dict[str, dict[str, Any]] = {
    "d2": {"architecture": {"name": "d2", "weight": 0.5}},
    "dlion": {"training": {"local_steps": 2, "batch_size": 8}},
}
#: The same for actors: what their learner learns by.
LEARNERS: dict[str, dict[str, Any]] = {
    "d2": ALSO["d2"],
    "impala": {"training": {"algorithm": "vtrace(t_max=4)"}},
    "seed_rl": {"training": {"algorithm": "vtrace(t_max=4)"}},
    "apex": {"training": {"algorithm": "double_dqn(t_max=4, n=2, batch=4)"}},
}


def test_the_pages_name_them_and_each_has_its_row() -> None:
    assert len(PAGES) == len(list((ROOT / "docs").glob("add_*.md")))
    assert all(any(block.title.endswith(".py") for block in blocks(f"docs/{page}")) for page in PAGES)
    assert set(sources()) == set(AXES) | ELSEWHERE


def test_each_kind_has_its_page_and_its_group_of_entry_points() -> None:
    """But for an ensemble, which chooses among attacks, and the common base of the stages of a defense."""
    groups = set(re.findall(r"`(fedguard\.\w+)`", EXTEND))
    assert {group for _, _, group in KINDS.values()} <= groups
    classes = {contract.partition(":")[2] for contracts, _, _ in KINDS.values() for contract in contracts}
    assert {name for name in classes if f"`{name}`" not in EXTEND} <= {"Ensemble", "Defense"}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    found = tmp_path_factory.mktemp("modules")
    for name, text in sources().items():
        (found / f"{name}.py").write_text(text)
    return found


def loaded(folder: Path, name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"documented_{name}", folder / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def narrower(cls: type) -> Iterator[str]:
    """The methods of a class that cannot be called as FedGuard calls the method of the contract that they stand for."""
    for method, own in vars(cls).items():
        base = next((vars(one)[method] for one in cls.__mro__[1:] if method in vars(one)), None)
        if not inspect.isfunction(own) or not inspect.isfunction(base) or method.startswith("__"):
            continue
        if not base.__module__.startswith("fedguard."):
            continue
        theirs = list(inspect.signature(base).parameters.values())
        ours = inspect.signature(own)
        try:
            ours.bind(*(one.name for one in theirs if one.kind is one.POSITIONAL_OR_KEYWORD))
            ours.bind(
                *(one.name for one in theirs if one.kind is one.POSITIONAL_OR_KEYWORD and one.default is one.empty)
            )
        except TypeError as error:
            yield f"{cls.__name__}.{method}: {error}"


@pytest.mark.parametrize("name", sorted(AXES.keys() | ELSEWHERE))
def test_they_take_what_their_contracts_hand_them(folder: Path, name: str) -> None:
    module = loaded(folder, name)
    classes = [cls for _, cls in inspect.getmembers(module, inspect.isclass) if cls.__module__ == module.__name__]
    assert classes
    assert [fault for cls in classes for fault in narrower(cls)] == []


def test_a_method_that_takes_less_than_its_contract_is_noticed(folder: Path) -> None:
    text = sources()["steady_noise"].replace(", rng: Rng, weights: Tensor | None = None", ", rng: Rng")
    (folder / "outgrown.py").write_text(text.replace("if weights is not None:", "if (weights := None) is not None:"))
    assert list(narrower(loaded(folder, "outgrown").Steady)) == ["Steady.release: too many positional arguments"]


@pytest.mark.slow
def test_they_are_typed(folder: Path, tmp_path: Path) -> None:
    """By the strict settings that FedGuard's own code keeps; its folders are shown under their installed names."""
    packages = tmp_path / "fedguard"
    packages.mkdir()
    for one in [*(ROOT / "fedguard").iterdir(), *(ROOT / name for name in ("attacks", "defenses", "app"))]:
        (packages / one.name).symlink_to(one)
    done = subprocess.run(
        [sys.executable, "-m", "mypy", "--config-file", str(ROOT / "pyproject.toml"), "--explicit-package-bases",
         "--namespace-packages", "--follow-imports=silent", "--cache-dir", str(ROOT / "build" / "mypy"),
         *(f"{name}.py" for name in sources())],
        cwd=folder, env={**os.environ, "MYPYPATH": str(tmp_path)}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout


def cell(architecture: str, settings: dict[str, Any], folder: Path, plugins: list[str]) -> PlannedCell:
    usual: dict[str, Any] = {
        "architecture": architecture,
        "task": {"data": "wine", "partition": "iid", "model": "softmax"},
        "clients": {"total": 8},
        "training": {"rounds": 2, "lr": 0.1},
        "defense": "mean",
    }
    also = LEARNERS if settings.get("training") == ACTORS["training"] else ALSO
    for changes in (settings, also.get(architecture, {})):
        for key, value in changes.items():
            both = isinstance(value, dict) and isinstance(usual.get(key), dict)
            usual[key] = {**usual[key], **value} if both else value
    return build_cell(CellConfig.model_validate(usual), load_registry().with_modules(plugins, folder))


ARCHITECTURES = load_registry().names("architecture")


@pytest.mark.parametrize("name", AXES)
def test_they_run_wherever_a_built_in_part_of_their_kind_does(folder: Path, name: str) -> None:
    own, theirs = AXES[name]
    bench, ran = Workbench(), []
    for architecture in ARCHITECTURES if own else ["averaging"]:
        made = cell(architecture, own, folder, [name])
        if own and cell(architecture, theirs, folder, []).verdict.reasons:
            continue
        assert made.verdict.reasons == (), architecture
        record, model = run_trial(made, 0, {}, bench)
        json.dumps(record)
        assert record["status"] == "ok" and bool(model.isfinite().all()), architecture
        if record["result"]["privacy"]:
            assert 0 < record["result"]["privacy"]["epsilon"] < 1e4, architecture
        ran.append(architecture)
    assert len(ran) >= FEWEST.get(name, 5), ran


#: One fault for each, an edit of its text, and what it is told then.
BROKEN = {
    "comb": (
        "= value_range[1]",
        "= value_range[1]\n        x = triggered = triggered[:, 1:]",
        "comb.*apply: expected shape",
    ),
    "corridor": (".astype(np.float32)", "", "corridor.*observe_state: expected a numpy array of float32"),
    "midhinge": ("/ 2\n", "/ 2 * float('nan')\n", "midhinge.*its result holds NaN"),
    "layer_clipping": ("1)])", "1)])[1:]", "layer_clipping.*combine: expected shape"),
    "approach": ("return matrix", "return matrix[0]", "approach.*matrix: expected shape"),
    "coarse": (".floor()", ".floor()[1:]", "coarse.*apply: expected shape"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_one_that_breaks_its_contract_is_named(folder: Path, tmp_path: Path, name: str) -> None:
    before, after, words = BROKEN[name]
    assert sources()[name].count(before) == 1
    (tmp_path / f"{name}.py").write_text(sources()[name].replace(before, after))
    made = cell({"approach": "d_psgd", "corridor": "a2c"}.get(name, "server"), AXES[name][0], tmp_path, [name])
    with pytest.raises(FedGuardError, match=words) as raised:
        run_trial(made, 0, {}, Workbench())
    assert f"{name}.py" in str(raised.value)


def test_noise_that_does_not_count_releases_is_refused_where_speeds_decide(folder: Path) -> None:
    text = sources()["steady_noise"].replace("    in_time = True\n", "").replace('"steady"', '"uncounted"')
    (folder / "uncounted.py").write_text(text)
    settings = {"protocol": {"privacy": {"kind": "uncounted"}}}
    assert cell("server", settings, folder, ["uncounted"]).verdict.reasons == ()
    (reason,) = cell("fedbuff", settings, folder, ["uncounted"]).verdict.reasons
    assert reason.startswith("uncounted does not count each client's releases, which under fedbuff follow from speeds.")


def test_the_epsilon_of_documented_noise_is_that_of_the_releases(folder: Path) -> None:
    """Under fedbuff: D from what each update weighed in each sum, by the built-in kind's ledger; of z / D one Gaussian release."""
    steady = run_trial(cell("fedbuff", AXES["steady_noise"][0], folder, ["steady_noise"]), 0, {})[0]["result"][
        "privacy"
    ]
    theirs = run_trial(cell("fedbuff", AXES["steady_noise"][1], folder, []), 0, {})[0]["result"]["privacy"]
    # The same course of events, the same z and delta: by Renyi divergences a little more than by the exact trade-off.
    assert theirs["epsilon"] <= steady["epsilon"] <= 1.5 * theirs["epsilon"]
