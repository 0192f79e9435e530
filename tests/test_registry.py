"""Names, parameters, pipelines and plug-ins."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import fedguard as fg
from fedguard.contracts import AggregationRule, Pipeline, Sight
from fedguard.errors import ConfigError, PluginError, UnknownName
from fedguard.registry import KINDS, load_registry
from tests.forked import called
from tests.root import ROOT

KNOWN = load_registry()


def test_every_algorithm_says_what_it_is():
    for kind, cls in load_registry().classes():
        assert cls.kind == kind
        assert cls.summary().endswith("."), cls
        assert cls.needs, cls
        if kind in ("attack", "defense"):
            assert cls.source, cls
        if issubclass(cls, AggregationRule):
            assert cls.breakdown != AggregationRule.breakdown, cls


def test_every_algorithm_has_a_file_of_its_own_that_names_its_source():
    files = [sys.modules[cls.__module__].__file__ for _, cls in load_registry().classes()]
    assert len(files) == len(set(files))
    for _, cls in load_registry().classes():
        assert sys.modules[cls.__module__].__doc__, cls


#: Parameters without a default.
GIVEN = {
    "openml": {"dataset": "mnist_784"},
    "idx": {"folder": "here"},
    "npz": {"file": "here.npz"},
    "image_folder": {"folder": "here"},
    "table": {"file": "here.csv", "label": "y"},
    "text_table": {"file": "here.csv", "tokenizer": "tokenizer.json"},
    "hugging_face": {"dataset": "here"},
    "leaf": {"folder": "here"},
    "text": {"file": "here.txt"},
    "function": {"target": "mine:data"},
    "module": {"target": "mine:net"},
    "gymnasium": {"id": "Acrobot-v1", "good": -80.0},
    "environment": {"target": "mine:environment", "good": 1.0},
}


def test_spec_rebuilds_the_same_object():
    for kind, cls in load_registry().classes():
        given = GIVEN.get(cls.name, {}) if kind in ("data", "model") else getattr(cls, "example", {})
        built = KNOWN.build(kind, {"name": cls.name, **given})
        assert KNOWN.build(kind, built.spec()) == built or cls.name == "server"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("mean", "mean"),
        ("nnm >> trimmed_mean", "nnm >> trimmed_mean"),
        ("  nnm>>centered_clipping( tau = 2.5 )", "nnm >> centered_clipping(tau=2.5)"),
        ("client_clipping(bound=2) >> clip >> nnm >> krum", "client_clipping(bound=2) >> clip >> nnm >> krum"),
        ({"name": "geometric_median", "steps": 3}, "geometric_median(steps=3)"),
        ({"name": "nnm >> krum"}, "nnm >> krum"),
        ([{"name": "bucketing", "size": 3}, "median"], "bucketing(size=3) >> median"),
    ],
)
def test_pipelines(text, expected):
    pipeline = KNOWN.pipeline(text)
    assert str(pipeline) == expected
    assert str(KNOWN.pipeline(pipeline.spec())) == expected


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("krumm", "unknown defense 'krumm'. Did you mean 'krum'"),
        ("trimmed_mean(beta=1)", "unknown parameter of trimmed_mean 'beta'"),
        ("geometric_median(steps='many')", "geometric_median: steps: expected a whole number"),
        ("geometric_median(steps=0)", "geometric_median: steps: expected at least 1; got 0"),
        ("clip(bound=-1) >> mean", "clip: bound: expected more than 0; got -1"),
        ("nnm", "defense 'nnm' ends without a rule. Add one, as in 'nnm >> mean'"),
        ("mean >> nnm", "expected client transforms, then mixings, then one rule"),
        ("mean >> median", "expected client transforms, then mixings, then one rule"),
        ("nnm >> client_clipping >> mean", "expected client transforms, then mixings, then one rule"),
        ("nnm >> weighted_mean", "weighted_mean looks up the client behind each row, and nnm mixes the rows"),
        ("__import__('os').getcwd()", "expected 'name', 'name(parameter=value)'"),
        ("krum(f=__import__('os'))", "krum: expected a number, a word in quotes or a list for f; got"),
        ("krum(1)", "expected 'name', 'name(parameter=value)'"),
        ("krum >> ", "expected 'name', 'name(parameter=value)'"),
        ({"nme": "krum"}, "expected a mapping with a `name` from `fedguard list defense`"),
        (3, "expected a defense such as 'nnm >> trimmed_mean'; got 3"),
    ],
)
def test_malformed_pipelines(text, message):
    with pytest.raises(ConfigError) as caught:
        KNOWN.pipeline(text, "suite.yaml:7: defense")
    assert str(caught.value).startswith("suite.yaml:7: defense: ")
    assert message in str(caught.value)


def test_nested_algorithms():
    attack = KNOWN.build("attack", {"name": "model_replacement", "trigger": {"name": "pixel_patch", "size": 3}})
    assert attack.trigger.size == 3
    with pytest.raises(UnknownName, match="unknown trigger 'pixel_path'. Did you mean 'pixel_patch'"):
        KNOWN.build("attack", "model_replacement(trigger='pixel_path')")


@pytest.mark.parametrize("value", [float("nan"), float("inf"), "1.0.0", [1]])
def test_numbers_must_be_numbers(value):
    with pytest.raises(ConfigError, match="gaussian: scale: expected a (finite )?number"):
        KNOWN.build("attack", {"name": "gaussian", "scale": value})


# Plug-ins.

PLUGIN = """
from dataclasses import dataclass
import torch
from fedguard.contracts import PoisonAttack, Sight

@dataclass(frozen=True, kw_only=True)
class Ones(PoisonAttack):
    \"\"\"Sends ones.\"\"\"
    name = "{name}"
    needs = (Sight.NOTHING,)
    def craft(self, view):
        return torch.ones(view.f, view.dim)
"""


@pytest.fixture
def module(tmp_path, monkeypatch):
    """Writes a module and makes it importable."""
    monkeypatch.syspath_prepend(tmp_path)

    def write(name: str, text: str) -> str:
        (tmp_path / f"{name}.py").write_text(text)
        return name

    return write


def test_a_module_brings_its_algorithms(module):
    known = load_registry().with_modules([module("brings_ones", PLUGIN.format(name="ones"))])
    known = known.with_modules(["brings_ones"])  # twice is once
    assert known.build("attack", "ones").summary() == "Sends ones."
    assert known.origin("attack", "ones") == "module brings_ones"
    assert "ones" not in load_registry().names("attack")  # another suite that does not name it


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("brings_double", PLUGIN.format(name="alie"), "attack 'alie' is taken twice: by built in"),
        ("brings_nothing", "x = 1", "defines no algorithm"),
        (
            "brings_error",
            "import no_such_package",
            "cannot be imported: ModuleNotFoundError: No module named 'no_such_package'",
        ),
    ],
)
def test_a_broken_or_double_module_is_a_loud_error(module, name, text, message):
    with pytest.raises(PluginError) as caught:
        load_registry().with_modules([module(name, text)])
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("name", "body", "said"),
    [
        ("3", "    pass", "module 'odd': R: expected a word as its name; got 3"),
        (
            "'r'",
            "    def __init__(self, k): self.k = k",
            r"defense 'r' \(.*odd.py\): cannot be made: TypeError: .*'k'. Fix its class",
        ),
        (
            "'r'",
            "    def __post_init__(self): raise ValueError('bad')",
            r"cannot be made: ValueError: bad. Fix its class",
        ),
    ],
)
def test_a_class_that_cannot_be_made_is_named(tmp_path, name, body, said):
    head = (
        "from dataclasses import dataclass\nfrom fedguard.contracts import Sight, WeightRule\n@dataclass(frozen=True)\n"
    )
    head = head.replace("@dataclass(frozen=True)\n", "" if "__init__(self, k)" in body else "@dataclass(frozen=True)\n")
    weights = "    def weights(self, gram, context): pass\n"
    (tmp_path / "odd.py").write_text(
        f"{head}class R(WeightRule):\n    name = {name}\n    needs = (Sight.SUM,)\n{weights}{body}\n"
    )
    with pytest.raises(PluginError, match=said):
        load_registry().with_modules(["odd"], tmp_path).pipeline("r")


def install(folder: Path, name: str, group: str, target: str) -> None:
    """What pip leaves of a package with one entry point."""
    info = folder / f"{name}-0.1.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 0.1\n")
    (info / "entry_points.txt").write_text(f"[{group}]\n{target}\n")


@pytest.mark.parametrize(
    ("target", "message"),
    [
        (
            "gone = no_such_module:Gone",
            "attack 'gone' from package bad-plugin 0.1 cannot be loaded from 'no_such_module:Gone'",
        ),
        ("text = string:ascii_letters", "expected a class derived from PoisonAttack or Ensemble"),
        ("alie = pathlib:Path", "attack 'alie' is taken twice: by built in"),
        (
            "other = fedguard.attacks.poisoning.alie:ALIE",
            "expected a class with name = 'other'; got ALIE with name = 'alie'",
        ),
    ],
)
def test_a_broken_package_is_a_loud_error(tmp_path, monkeypatch, target, message):
    install(tmp_path, "bad-plugin", "fedguard.attacks", target)
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(PluginError) as caught:
        load_registry.__wrapped__()
    assert message in str(caught.value)


@pytest.mark.slow
def test_the_example_plugin_is_one_file_and_runs_in_a_suite(tmp_path):
    """examples/toy_plugin, installed by pip beside FedGuard: found by name, explained, and run by the workers."""
    files = [path.name for path in (ROOT / "examples" / "toy_plugin").iterdir() if path.suffix == ".py"]
    assert len(files) == 1
    pip = [
        sys.executable,
        "-m",
        "pip",
        "install",
        "--quiet",
        "--no-deps",
        "--no-build-isolation",
        "--target",
        str(tmp_path / "site"),
    ]
    source = tmp_path / "source"
    subprocess.run(["cp", "-r", str(ROOT / "examples" / "toy_plugin"), str(source)], check=True)
    subprocess.run([*pip, str(source)], check=True, capture_output=True)
    (tmp_path / "suite.yaml").write_text(
        "name: toy\nseeds: 1\nclients: {malicious: 4}\ntraining: {rounds: 3}\n"
        "matrix: {attack: [none, toy_drift], defense: [mean, median]}\n"
    )

    def fedguard(*arguments: str) -> str:
        done = called("fedguard", *arguments, cwd=tmp_path, site=tmp_path / "site")
        assert done.returncode == 0, done.stderr
        return done.stdout

    assert "toy-plugin" in fedguard("list", "attack")
    assert "toy_drift (attack)" in fedguard("explain", "toy_drift")
    # From nothing, as its workers start, which must find it themselves.
    environment = {**os.environ, "PYTHONPATH": str(tmp_path / "site")}
    command = [sys.executable, "-m", "fedguard.cli", "run", "suite.yaml", "--jobs", "1"]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "toy_drift" in done.stdout


def test_kinds_cover_every_table():
    assert set(KINDS) == {
        "attack",
        "inference",
        "protocol",
        "trigger",
        "defense",
        "data",
        "partition",
        "model",
        "masking",
        "algorithm",
        "noise",
        "architecture",
        "availability",
        "evasion",
        "statistics",
        "adapters",
    }


UNSAID = """
from dataclasses import dataclass
from fedguard.contracts import *

@dataclass(frozen=True, kw_only=True)
class Rule({base}):
    "It looks at rows, and does not say so."
    name, goal = "unsaid", "labels"
    {needs}
    def weights(self, gram, context): return gram.norms()
    def reduce(self, block, context): return block[0]
    def combine(self, updates, context): return updates[0]
    def matrix(self, gram, context): return gram.norms()[None]
    def craft(self, view): return view.own
    def infer(self, view): return None
"""
#: Of each contract that has to say it: the kind, and what its author is told to write.
BASES = {
    "WeightRule": ("defense", r"Write needs = ROWS, of fedguard\.contracts"),
    "CoordinateRule": ("defense", "Write needs = ROWS"),
    "MatrixRule": ("defense", "Write needs = ROWS"),
    "Mixing": ("defense", "Write needs = ROWS"),
    "PoisonAttack": ("attack", r"Write needs = \(Sight.OWN_DATA,\)"),
    "InferenceAttack": ("inference", "Write needs = ONE_VECTOR"),
}


@pytest.mark.parametrize("base", BASES)
def test_who_does_not_say_what_it_needs_is_told_to(tmp_path, base):
    kind, write = BASES[base]
    (tmp_path / "unsaid.py").write_text(UNSAID.format(base=base, needs=""))
    known = load_registry().with_modules(["unsaid"], tmp_path)
    said = rf"{kind} 'unsaid' \(.*unsaid\.py\): expected `needs`, what Rule has to see; it declares none\. {write}"
    with pytest.raises(PluginError, match=said) as raised:
        known.build(kind, "unsaid")
    assert "\n" not in str(raised.value)
    with pytest.raises(PluginError, match=said):
        _ = known.entries[kind]["unsaid"].target.needs


@pytest.mark.parametrize(
    "needs", ["Sight.EACH_UPDATE", "Sight.NOTHING", "()", "('each_update',)", "[Sight.SUM]", "None"]
)
@pytest.mark.parametrize("base", ["WeightRule", "PoisonAttack"])
def test_needs_in_another_form_are_refused(tmp_path, base, needs):
    (tmp_path / "unsaid.py").write_text(UNSAID.format(base=base, needs=f"needs = {needs}"))
    known = load_registry().with_modules(["unsaid"], tmp_path)
    with pytest.raises(
        PluginError, match=r"needs: expected a tuple of alternatives, each a Sight, such as \(Sight.SUM,\); got"
    ):
        known.build(BASES[base][0], "unsaid")


def test_a_subclass_needs_what_its_base_says_and_a_client_transform_nothing():
    known = load_registry()
    for kind, cls in known.classes(["attack", "inference", "defense"]):
        if cls.name != "worst_case":
            assert isinstance(cls.needs, tuple) and cls.needs, (kind, cls.name)
    assert known.get("attack", "min_sum").needs == known.get("attack", "min_max").needs
    assert known.get("defense", "sign").needs == (Sight.NOTHING,)


def test_a_rule_that_says_nothing_does_not_run_under_masks_or_by_hand(tmp_path):
    """It would get the one row that is left, and be the mean."""
    (tmp_path / "unsaid.py").write_text(UNSAID.format(base="CoordinateRule", needs=""))
    (tmp_path / "suite.yaml").write_text(
        "name: masked\nplugins: [unsaid]\nseeds: 1\nclients: {total: 6}\ntraining: {rounds: 1}\n"
        "protocol: {secure_aggregation: full}\nmatrix: {defense: [unsaid]}\n"
    )
    with pytest.raises(PluginError, match="it declares none"):
        fg.run(tmp_path / "suite.yaml", store=tmp_path / "runs", jobs=1)
    rule = load_registry().with_modules(["unsaid"], tmp_path).entries["defense"]["unsaid"].target()
    with pytest.raises(PluginError, match="it declares none"):
        fg.aggregate(Pipeline((rule,)), [[1.0, 2.0], [3.0, 4.0]])
