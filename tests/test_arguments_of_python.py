"""Python functions hold their arguments to the ranges of suites: another type or range is one clear line, never silence."""

from __future__ import annotations

import inspect
import math

import numpy as np
import pytest
import torch
from torch import nn

import fedguard as fg
from fedguard.bench.results.run import Run
from fedguard.contracts import Reconstruction
from fedguard.errors import ConfigError, FedGuardError, GuaranteeWarning, InputError, StoreError, UnknownName
from fedguard.registry import load_registry
from fedguard.secagg.simulation import Settings

NAN, INF = float("nan"), float("inf")
X = np.random.default_rng(0).normal(size=(6, 4)).astype(np.float32)
NET = nn.Sequential(nn.Flatten(), nn.Linear(6, 3))
GRADIENT = [torch.ones_like(parameter) for parameter in NET.parameters()]
SUITE = {"task": {"data": "wine"}, "seeds": [0], "training": {"rounds": 1}, "matrix": {"attack": ["none", "sign_flip", "alie", "ipm"], "defense": ["mean"]}}  # fmt: skip
CLAIM = Reconstruction(torch.zeros(1, 2, 3))
#: Neither a number nor a word: arrays have no truth value, and Python writes no number of more than 4,300 digits.
NOTHING = (np.array([]), np.array([1, 2]), torch.zeros(2, 2), 10**5000)
#: No whole number at all.
NO_COUNT = (1.5, 2.0, "1", None, NAN, INF, [1], True, np.float64(2), object(), *NOTHING)
#: None that a seed may be.
NO_SEED = (*NO_COUNT, -1, 2**62 + 1, 2**64 - 1)
NO_NUMBER = ("1", None, NAN, INF, -INF, [1.0], True, 1j, 10**400, *NOTHING)
NO_PATH = (None, 3, 1.5, ["a"], object(), "a\0b", *NOTHING)
NO_LISTENER = (5, True, "x", object(), print, *NOTHING)
NO_TRUTH = ("no", 1, 0, None, [])
NO_WORDS = ("krum", 3, None, [1], [None])


def guarded(**arguments):
    model, clients = torch.zeros(4), list(torch.tensor(X))
    given = {"attack": "sign_flip", "defense": "weighted_mean", "f": 1, **arguments}
    at_step = {name: given.pop(name) for name in ("malicious", "samples") if name in given}
    return fg.Guard(**given).step(model, clients, **at_step)


def rebuilt(**arguments):
    return fg.reconstruct(arguments.pop("attack", "labels_llg"), arguments.pop("model", NET), arguments.pop("gradient", GRADIENT), **{"shape": (2, 3), **arguments})  # fmt: skip


def summed(**arguments):
    settings = {name: arguments.pop(name) for name in inspect.signature(Settings).parameters if name in arguments}
    return fg.secure_sum(X, arguments.pop("weights", None), settings=Settings(**settings), **arguments)


def scored(**arguments):
    given = {"claim": CLAIM, "truth_x": torch.zeros(1, 2, 3), **arguments}
    return fg.score_reconstruction(given.pop("claim"), given.pop("truth_x"), **given)


def aggregated(**arguments):
    return fg.aggregate(arguments.pop("defense", "trimmed_mean"), X, **arguments)


def crafted(**arguments):
    return fg.craft(arguments.pop("attack", "alie(z=1)"), X, **{"f": 1, **arguments})


def measured(**arguments):
    return fg.kappa(arguments.pop("defense", "median"), **{"n": 5, "f": 1, "effort": 0.001, **arguments})


def audited(**arguments):
    return fg.audit(arguments.pop("mechanism", list), **arguments)


def cost(**arguments):
    return fg.epsilon(**{"accountant": "rdp", "steps": 5, **arguments})


#: (function, argument): what it refuses. Where None is a default it is none of it.
REFUSED = {
    (aggregated, "f"): (*NO_COUNT, -1, 6),
    (aggregated, "seed"): NO_SEED,
    (aggregated, "own"): tuple(one for one in (*NO_COUNT, -1, 6) if one is not None),
    (aggregated, "defense"): (None, 3, "", "krumm", [], ["median", 3], object()),
    (aggregated, "statistics"): (*NOTHING, None, 3, ["weighted"], "wieghted", "recomputed", "weighted"),
    (crafted, "statistics"): (*NOTHING, None, 3, ["weighted"], "wieghted", "recomputed", "weighted"),
    (crafted, "f"): (*NO_COUNT, 0, -1, 10**8),
    (crafted, "seed"): NO_SEED,
    (crafted, "attack"): (None, 3, "", ["alie"], object(), load_registry().build("defense", "median")),
    (crafted, "defense"): (3, "", [], object()),
    (measured, "n"): (*NO_COUNT, 0, -1, 10**8),
    (measured, "f"): (*NO_COUNT, -1, 3),
    (measured, "seed"): NO_SEED,
    (measured, "effort"): (*NO_NUMBER, 0, -1, 1e9),
    (measured, "plugins"): NO_WORDS,
    (measured, "defense"): (None, 3, "", [], object()),
    (guarded, "f"): (*NO_COUNT, -1, 10**8),
    (guarded, "assumed_f"): tuple(one for one in (*NO_COUNT, -1) if one is not None),
    (guarded, "seed"): NO_SEED,
    (guarded, "statistics"): (*NOTHING, None, 3, ["weighted"], "wieghted", "recomputed"),
    (guarded, "server_lr"): NO_NUMBER,
    (guarded, "knowledge"): ("model", 3, None, [1], ["modle"]),
    (guarded, "attack"): (*NOTHING, 3, ["alie"], object(), load_registry().build("defense", "median")),
    (guarded, "defense"): (None, 3, "", [], object()),
    (guarded, "malicious"): (3, "0", [1.0], ["0"], [True], [-1], [6], [0, 1], [NAN]),
    (summed, "weights"): (3, "123456", [1.5] * 6, [-1] * 6, [NAN] * 6, [1] * 5, ["1"] * 6),
    (summed, "clip"): (10**400, *NOTHING, "1", NAN, INF, 0, -1, True, [1]),
    (summed, "bits"): (*NOTHING, 1.5, "8", NAN, True, 1, 0, -8, 99),
    (summed, "rotate"): NO_TRUTH,
    (summed, "drop"): ("masked_input", ["masked_input"], {"never": [1]}, {"masked_input": 1}, {"masked_input": ["a"]}, {"masked_input": [1.0]}, {"masked_input": [True]}, *NOTHING, {"masked_input": [9]}, {3: [1]}),
    (summed, "ring"): (*NO_COUNT, 0, -32, 16, 128),
    (summed, "suite"): (*NO_COUNT[:2], "1", True, 0, 3),
    (summed, "colluding"): (*NO_NUMBER, -0.1, 1, 2),
    (summed, "dropping"): (*NO_NUMBER, -0.1, 1, 2),
    (summed, "fewest"): (*NO_COUNT, -1),
    (summed, "attested"): NO_TRUTH,
    (cost, "noise_multiplier"): (*NO_NUMBER, 0, -1, 1e-200),
    (cost, "sample_rate"): (*NO_NUMBER, 0, -1, 1.5),
    (cost, "steps"): (1.5, "10", None, NAN, INF, [1], True, 0, -1),
    (cost, "delta"): (*NO_NUMBER, 0, 1, -1, 2),
    (cost, "accountant"): (*NOTHING, None, 3, "rpd", ["rdp"]),
    (cost, "unit"): (*NOTHING, None, 3, "recrod", ["record"]),
    (cost, "sampling"): (*NOTHING, None, 3, "shuffle", "poison", ["poisson"]),
    (cost, "relation"): (*NOTHING, "", 3, "add", "replace", ["add/remove"]),
    (rebuilt, "batch_size"): (*NO_COUNT, 0, -1, 10**9),
    (rebuilt, "labels"): ([1], 1, "1", torch.tensor([1.0]), torch.tensor([3]), torch.tensor([-1]), torch.tensor([0, 1])),
    (rebuilt, "value_range"): ((1, 0), (1, 1), (NAN, 1), (0, INF), (0,), (0, 1, 2), 1, "01", None, ("0", "1"), (True, 2)),
    (rebuilt, "shape"): (*NOTHING, [10**30], 6, "23", None, (2.0, 3), (2, -3), (0, 3), (3, 3), ("2", 3)),
    (rebuilt, "classes"): (*NOTHING, 1.5, "3", NAN, True, 0, 4),
    (rebuilt, "seed"): NO_SEED,
    (rebuilt, "root"): (3, X, torch.zeros(2)),
    (rebuilt, "plan"): (3, {"lr": 1}),
    (rebuilt, "model"): (None, 3, X, nn.Linear),
    (rebuilt, "gradient"): (None, 3, "x", X, GRADIENT[:1], [X, X], torch.zeros(5), [GRADIENT[0] * NAN, GRADIENT[1]], [GRADIENT[0].to_sparse(), GRADIENT[1]], [GRADIENT[0] * 1j, GRADIENT[1]]),
    (rebuilt, "attack"): (*NOTHING, None, 3, "", ["labels_llg"]),
    (scored, "value_range"): ((1, 0), (1, 1), (NAN, 1), (0, INF), (0,), 1, "01", None),
    (scored, "claim"): (None, 3, torch.zeros(1, 2, 3)),
    (scored, "truth_x"): (None, 3, [1.0], torch.zeros(0, 2, 3)),
    (scored, "reference"): (3, torch.zeros(1, 2, 3)),
    (fg.run, "jobs"): (1.5, "2", NAN, [1], True, 0, -1),
    (fg.run, "limit"): (1.5, "2", NAN, [1], True, 0, -1),
    (fg.run, "timeout"): ("5", NAN, INF, 0, -1, True, [1]),
    (fg.run, "memory"): (*NOTHING, 10**400, "much", NAN, 0, -1, [1], True),
    (fg.run, "device"): (*NOTHING, "gpu", None, 3, ["cpu"]),
    (fg.run, "overrides"): ("training.rounds=1", [3], None, 3, ["training.rounds"]),
    (fg.run, "name"): (3, "", "../up", ["a"]),
    (fg.run, "store"): NO_PATH,
    (fg.run, "retry_failed"): NO_TRUTH,
    (fg.run, "fresh"): NO_TRUTH,
    (fg.run, "secret_noise"): NO_TRUTH,
    (fg.run, "listener"): NO_LISTENER,
    (fg.run, "engine"): ("ray", 3),
    (fg.run, "suite"): NO_PATH,
    (fg.accept, "submission"): NO_PATH,
    (fg.accept, "stage"): (*NOTHING, None, 3, "both", ["all"]),
    (fg.accept, "standard"): (*NOTHING, None, 3, 2026, "2062"),
    (fg.accept, "folder"): (3, ["a"], object()),
    (fg.accept, "before"): (3, "x", []),
    (fg.accept, "listener"): NO_LISTENER,
    (fg.audit, "subject"): (*NO_PATH, "mine.py:noise"),
    (fg.audit, "method"): (*NOTHING, None, 3, "gdp", ["gdp_split"]),
    (fg.audit, "canaries"): (10**12, *NO_COUNT, 0, -1, 9),
    (fg.audit, "confidence"): (*NO_NUMBER, 0, 1, 0.4, 95),
    (fg.audit, "seed"): NO_SEED,
    (fg.audit, "overrides"): NO_WORDS,
    (audited, "claim"): ("epsilon=8", "epsilon", {"epsilon": 8}, 8),
    (audited, "shapes"): ([], [(0,)], [(10**5, 10**5)]),
    (audited, "rounds"): (*NO_COUNT, 0, -1),
    (audited, "clip"): (*NO_NUMBER, 0, -1),
    (audited, "budget"): (*NO_NUMBER, 0, -1),
    (audited, "seed"): NO_SEED,
    (fg.tune, "suite"): NO_PATH,
    (fg.tune, "listener"): NO_LISTENER,
    (fg.tune, "budget"): (*NO_COUNT, 0, -1),
    (fg.tune, "seeds"): (1.5, "3", None, NAN, True, 0, -1, [], [0.5], ["1"], [-1], [2**62 + 1], [7, 7], [0]),
    (fg.tune, "attacks"): ("alie", 3, [3], ["alei"]),
    (fg.tune, "proxy"): NO_WORDS,
    (fg.tune, "force"): NO_TRUTH,
    (fg.tune, "regret"): (*NO_TRUTH, True),
    (fg.tune, "out"): (3, ["a"]),
    (fg.open_run, "run"): NO_PATH,
    (fg.open_run, "store"): NO_PATH,
    (fg.names, "kind"): (*NOTHING, None, 3, "attak", ["attack"]),
    (fg.compare, "a"): (None, "quick", 3),
    (fg.compare, "b"): (None, "quick", 3),
    (fg.gate, "run"): (None, "quick", 3),
    (fg.gate, "baseline"): NO_PATH,
    (fg.save_baseline, "to"): NO_PATH,
    (fg.gate, "fail_on"): (*NOTHING, 3, "flags", ["inconclusive", "flags"]),
    (fg.save_baseline, "run"): (None, "quick", 3),
    (fg.report, "html"): NO_PATH,
    (fg.report, "run"): (None, "quick", 3),
    (fg.explain, "name"): (None, 3, "nothing", ["krum"]),
    (fg.explain, "plugins"): NO_WORDS,
    (fg.lint, "run"): NO_PATH,
    (fg.lint, "store"): NO_PATH,
    (fg.Ray, "address"): (3, ["auto"]),
}  # fmt: skip
#: What is given besides.
BESIDES = {
    fg.run: {"suite": SUITE, "limit": 1},
    fg.accept: {"submission": "krum", "stage": "contracts"},
    fg.audit: {"subject": SUITE},
    fg.tune: {"suite": SUITE},
    fg.open_run: {"run": "quick"},
    fg.compare: {"a": None, "b": None},
    fg.gate: {"run": object.__new__(Run), "baseline": "baseline.json"},  # never opened: what is wrong is seen before
    fg.save_baseline: {"run": object.__new__(Run), "to": "baseline.json"},
    fg.report: {"run": object.__new__(Run), "html": "report.html"},
    fg.explain: {"name": "krum"},
    fg.lint: {"run": "nothing"},
}
#: What any value may be, or what is nothing but handed on.
FREE = {"listener", "force", "parameters", "settings", "overrides", "plugins", "figure", "strict", "reason", "root", "model", "samples", "honest", "updates", "inputs", "truth_y", "weights", "proxy", "store", "jobs", "engine", "retry_failed"}  # fmt: skip
STANDS_FOR = {audited: fg.audit, aggregated: fg.aggregate, crafted: fg.craft, measured: fg.kappa, guarded: fg.Guard, summed: fg.secure_sum, cost: fg.epsilon, rebuilt: fg.reconstruct, scored: fg.score_reconstruction}  # fmt: skip


@pytest.mark.parametrize(("function", "argument"), REFUSED, ids=lambda one: getattr(one, "__name__", one))
@pytest.mark.filterwarnings("ignore::fedguard.errors.GuaranteeWarning")
def test_another_type_or_range_is_one_clear_line(function, argument, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for value in REFUSED[function, argument]:
        with pytest.raises((InputError, ConfigError, StoreError)) as caught:
            function(**{**BESIDES.get(function, {}), argument: value})
        said = str(caught.value)
        assert "\n" not in said and caught.value.exit_code == 2, (value, said)
        assert caught.type in (InputError, StoreError) or issubclass(caught.type, ConfigError)
    assert not list(tmp_path.iterdir())  # nothing has run


def test_no_argument_of_a_public_function_is_left_out():
    """Each parameter of everything in `fedguard.__all__` stands above, or is one that takes anything."""
    held = {(STANDS_FOR.get(function, function), argument) for function, argument in REFUSED}
    for name in fg.__all__:
        if name == "Run":
            continue
        function = getattr(fg, name)
        for argument in inspect.signature(function).parameters:
            assert (function, argument) in held or argument in FREE, f"{name}({argument}=...)"


def test_what_is_right_is_taken():
    """Numbers of numpy are as good as Python's, and the largest seed is one."""
    seed, one = 2**62, np.int64(1)
    assert len(fg.aggregate("bucketing >> median", X, f=one, seed=seed)) == 4
    assert len(fg.craft("alie(z=1)", X, f=one, seed=np.uint64(7))) == 1
    assert fg.kappa("median", n=np.int32(5), f=one, seed=seed, effort=0.001).n == 5
    assert guarded(f=one, seed=seed, server_lr=np.float32(0.5), malicious=np.array([2])).shape == (4,)
    assert rebuilt(batch_size=one, seed=seed, shape=[2, 3], value_range=(np.float32(0), 1)).y.shape == (1,)
    assert (
        fg.epsilon(np.float64(1), 0.01, np.int64(10), accountant="rdp").value
        == fg.epsilon(1, 0.01, 10.0, accountant="rdp").value
    )
    assert summed(ring=np.int64(64), weights=np.arange(6)).weight == 15


def test_parameters_beside_an_object_are_refused():
    rule, attack = load_registry().pipeline("median"), load_registry().build("attack", "alie")
    for call in (lambda: fg.aggregate(rule, X, steps=3), lambda: fg.craft(attack, X, f=1, z=1.5), lambda: fg.kappa(rule, steps=3)):  # fmt: skip
        with pytest.raises(InputError, match="parameters go with a name; got (steps|z) beside the object"):
            call()


def test_messages_name_the_seat_of_the_caller():
    """A suite has `clients.per_round`; a list of updates, a loop of one's own and a kappa have something else."""
    calls = {
        lambda: fg.aggregate("trimmed_mean", X, f=3): "Pass more rows or a smaller f, at most 2",
        lambda: fg.aggregate("fltrust", X): "Pass root=",
        lambda: fg.aggregate("monna(trusted=9)", X): "Let all clients take part, or set",
        lambda: guarded(defense="trimmed_mean", assumed_f=4): "Lower assumed_f to 2 or raise the number of clients",
        lambda: measured(defense="bulyan", n=6): "Lower f to 0 or raise n",
    }
    for call, said in calls.items():
        with pytest.raises(FedGuardError, match=said) as caught:
            call()
        assert "per_round" not in str(caught.value)
    with pytest.warns(GuaranteeWarning, match="Pass more rows or a smaller f"):
        fg.aggregate("krum", X, f=2)
    with pytest.raises(ConfigError, match="raise clients.per_round"):
        load_registry().pipeline("trimmed_mean").check(6, 3)


@pytest.mark.parametrize("seed", [-1, 2**62 + 1, 18446744073709551615])
def test_a_seed_of_a_suite_ends_where_records_do(seed):
    from fedguard.config import Document, read_suite

    for key in ({"seeds": [seed]}, {"task": {"partition_seed": seed}}):
        with pytest.raises(ConfigError, match=r"expected (less|greater) than or equal to (4611686018427387904|0)"):
            read_suite(Document(key))
    assert read_suite(Document({"seeds": [2**62]})).seeds == (2**62,)


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda: fg.epsilon(1.0, 0.01, 2**64, accountant="gdp"), r"steps: expected at most 2\^53"),
        (lambda: fg.epsilon(1.0, 0.01, 10**400, accountant="prv"), r"steps: expected at most 2\^53"),
        (lambda: fg.epsilon(1e300, 0.01, 5), "noise_multiplier: expected less than 1e300; got 1e[+]300"),
        (lambda: fg.epsilon(10**400, 0.01, 5), "noise_multiplier: expected less than 1e300"),
        (lambda: fg.Guard(seed=2**62 + 1), "from 0 to 4611686018427387904; got 4611686018427387905"),
        (lambda: fg.aggregate("weighted_mean", torch.eye(3), samples=[1, 1e40, 2]), r"at most 2\^112 examples; samples\[1\] is 1e[+]40"),
        (lambda: fg.aggregate("weighted_mean", torch.eye(3), samples=[1, 2, math.inf]), r"finite numbers of examples, 0 or more; samples\[2\]"),
    ],
)  # fmt: skip
def test_a_number_beyond_its_bound_is_named_with_the_bound(call, said):
    with pytest.raises(FedGuardError, match=said):
        call()


@pytest.mark.parametrize("wrong", ["flags", ["inconclusive", "flags"]])
def test_a_gate_knows_its_reasons_to_fail_before_it_reads_anything(wrong):
    with pytest.raises(UnknownName, match="^fail_on: unknown reason to fail 'flags'"):
        fg.gate(object.__new__(Run), "baseline.json", fail_on=wrong)


def test_a_gate_takes_one_reason_to_fail_as_a_word(tmp_path):
    with pytest.raises(StoreError, match="baseline.json"):  # which is read after the word is checked
        fg.gate(object.__new__(Run), tmp_path / "baseline.json", fail_on="inconclusive")
