"""Each way to break a rule's contract is called by its name, and rules that keep it raise nothing."""

from __future__ import annotations

import functools

import pytest

from fedguard.bench.acceptance.case import ContractCase
from fedguard.bench.acceptance.contracts import CHECKS
from fedguard.bench.acceptance.findings import AcceptanceFinding
from fedguard.bench.acceptance.standard import ContractChecks, load_standard
from fedguard.bench.acceptance.submission import read_submission
from fedguard.bench.acceptance.watch import CodeSnapshot, Watch
from fedguard.contracts import AggregationRule, ClientTransform
from fedguard.registry import load_registry
from tests.acceptance.submissions import HONEST, PLANTED
from tests.root import ROOT

#: Of the built-in rules, one of each kind; the others are tried by a slow test
BUILT_IN = ("mean", "trimmed_mean", "krum", "fltrust", "bucketing >> median")
#: Report seeds of the standard for a submission
REPORT = (314159, 271828, 141421)
#: Checks that need seconds: a round of a million coordinates, and hundreds of rounds of each rule of the catalog
LONG = ("cost", "sameness")


@functools.cache
def sizes(name: str = "2026") -> ContractChecks:
    """The sizes of the standard, with fewer draws and comparisons."""
    found = load_standard(name).contracts
    small = {"draws": 12, "dims": (1, 7, 40), "sameness": {"random": 12, "adversarial": 12}, "tested": found.tested[:1]}
    return ContractChecks.model_validate(
        {**found.model_dump(), **small, "tested": [one.model_dump() for one in small["tested"]]}
    )


def found_in(given: str, checks, folder=None) -> list[AcceptanceFinding]:
    before = CodeSnapshot()
    watch = Watch(folder)
    with watch.refuse_reaching():
        case = ContractCase(read_submission(given), sizes(), watch, before, REPORT)
        return [finding for name in checks for finding in CHECKS[name](case)]


def written(tmp_path, text: str) -> str:
    (tmp_path / "submitted.py").write_text(text)
    return str(tmp_path / "submitted.py")


#: What changes the process for good is checked in a process of its own, in test_accept.py
LASTING = ("replaces an attack", "replaces a function of torch", "leaves a variable in the process", "starts a process")
SLOW = ("takes too long at a million coordinates", "takes too much memory at a million coordinates")


@pytest.mark.parametrize(
    "name",
    [pytest.param(one, marks=[pytest.mark.slow] if one in SLOW else []) for one in PLANTED if one not in LASTING],
)
def test_a_planted_fault_is_called_by_its_name(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    text, check, code = PLANTED[name]
    found = found_in(written(tmp_path, text), [check], tmp_path)
    assert code in [one.code for one in found if one.level != "noted"], found
    assert all(one.words.endswith(".") for one in found)


def raised(given: str, checks) -> list[tuple[str, str]]:
    return [(one.code, one.words) for one in found_in(given, checks) if one.level == "failed"]


@pytest.mark.parametrize("name", HONEST)
def test_honest_rules_of_ones_own_raise_nothing(name, tmp_path):
    assert raised(written(tmp_path, HONEST[name]), [one for one in CHECKS if one not in LONG]) == []


def test_the_example_keeps_the_contract():
    assert raised(str(ROOT / "examples" / "own_rule.py"), [one for one in CHECKS if one not in LONG]) == []


@pytest.mark.parametrize("rule", BUILT_IN)
def test_built_in_rules_raise_nothing(rule):
    assert raised(rule, [one for one in CHECKS if one not in LONG]) == []


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    [
        one
        for one in load_registry().names("defense")
        if not issubclass(load_registry().get("defense", one), ClientTransform)
    ],
)
def test_no_built_in_rule_fails_and_none_is_another_one(name):
    kind = load_registry().get("defense", name)
    text = name if issubclass(kind, AggregationRule) else f"{name} >> mean"
    assert raised(text, CHECKS) == []


@pytest.mark.parametrize("text", ["mean", "median", "krum"])
def test_a_built_in_rule_is_no_other_one(text):
    assert [one.code for one in found_in(text, ["sameness"])] == []
