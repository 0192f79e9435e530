"""The Python front door: kinds of arrays, and one clear line for what is wrong with them."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import fedguard as fg
from fedguard.contracts import AggregationRule
from fedguard.errors import ConfigError, GuaranteeWarning, InputError, NotAllowed, PreconditionError, UnknownName
from fedguard.registry import load_registry

ROWS = [[1.0, 2, 3], [4, 5, 6], [7, 8, 9], [10, 11, 12], [100, -50, 7]]


def test_what_goes_in_comes_out():
    for dtype in (torch.float32, torch.float64, torch.int64, torch.float16):
        result = fg.aggregate("median", torch.tensor(ROWS).to(dtype), f=1)
        assert isinstance(result, torch.Tensor) and result.dtype == torch.float32
        assert result.tolist() == [7, 5, 7]
    for dtype in (np.float32, np.float64, np.int32):
        result = fg.aggregate("median", np.array(ROWS, dtype=dtype), f=1)
        assert isinstance(result, np.ndarray) and result.dtype == np.float32
    assert fg.aggregate("median", ROWS, f=1) == [7, 5, 7]
    assert isinstance(fg.craft("alie", np.array(ROWS), f=2), np.ndarray)
    assert fg.craft("alie", torch.tensor(ROWS), f=2).shape == (2, 3)
    assert fg.aggregate("median", torch.tensor(ROWS, requires_grad=True), f=1).requires_grad is False


def test_parameters_and_extras():
    assert fg.aggregate("trimmed_mean", ROWS, f=1) == pytest.approx([7, 5, 22 / 3])
    three = fg.aggregate("geometric_median", ROWS[:3], f=1, nu=0.1, steps=3)
    assert three == pytest.approx([3.7879, 4.7879, 5.7879], abs=5e-5)
    assert fg.aggregate("weighted_mean", ROWS[:2], samples=[1, 3]) == pytest.approx([3.25, 4.25, 5.25])
    assert fg.aggregate("fltrust", ROWS, f=1, root=[1.0, 0, 0]) == pytest.approx([1.0, 0, 0], abs=2)
    first, second = (fg.aggregate("bucketing >> median", ROWS, f=1, seed=seed) for seed in (0, 0))
    assert first == second


def test_what_the_rule_knows_of_f():
    with pytest.raises(
        PreconditionError,
        match=r"trimmed_mean needs n >= 2f \+ 1, with f = 3: 7 updates; got n = 5. Pass more rows or a smaller f, at most 2",
    ):
        fg.aggregate("trimmed_mean", ROWS, f=3)
    with pytest.warns(GuaranteeWarning, match="outside its guarantee: krum needs n >= 2f"):
        fg.aggregate("krum", ROWS, f=2)


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: fg.aggregate("krumm", ROWS), UnknownName, "unknown defense 'krumm'. Did you mean 'krum'"),
        (lambda: fg.aggregate("krum", ROWS, f=5), InputError, "f: expected from 0 to n - 1 = 4; got 5."),
        (lambda: fg.aggregate("krum", ROWS, f=-1), InputError, "f: expected from 0 to n - 1 = 4; got -1."),
        (lambda: fg.aggregate("mean", ROWS[0]), InputError, "updates: expected shape [n, d] with n, d >= 1; got [3]."),
        (lambda: fg.aggregate("mean", torch.zeros(0, 3)), InputError, "got [0, 3]."),
        (lambda: fg.aggregate("mean", torch.zeros(2, 3, 4)), InputError, "got [2, 3, 4]."),
        (lambda: fg.aggregate("mean", [[1.0, 2], [3]]), InputError, "updates: expected numbers in a rectangle [n, d]"),
        (lambda: fg.aggregate("mean", [["a", "b"]]), InputError, "updates: expected numbers in a rectangle [n, d]"),
        (
            lambda: fg.aggregate("mean", torch.zeros(2, 3, dtype=torch.complex64)),
            InputError,
            "updates: expected real numbers",
        ),
        (
            lambda: fg.aggregate("median", [[1, float("nan")], [1, 2], [2, float("inf")]]),
            InputError,
            "rows [0, 2] hold NaN or infinity",
        ),
        (
            lambda: fg.aggregate("weighted_mean", ROWS, samples=[1, 2]),
            InputError,
            "samples: expected 5 finite numbers; got shape [2].",
        ),
        (
            lambda: fg.aggregate("fltrust", ROWS),
            NotAllowed,
            "fltrust needs each client's update and a clean data set at the server",
        ),
        (
            lambda: fg.aggregate("fltrust", ROWS, root=[1.0]),
            InputError,
            "root: expected 3 finite numbers; got shape [1].",
        ),
        (lambda: fg.craft("alie", ROWS, f=0), InputError, "f: expected at least 1 malicious client; got 0."),
        (lambda: fg.craft("alei", ROWS, f=1), UnknownName, "unknown attack 'alei'. Did you mean 'alie'"),
        (lambda: fg.craft("alie", ROWS, f=1, zz=1), UnknownName, "unknown parameter of alie 'zz'"),
        (
            lambda: fg.craft("stale", ROWS, f=1),
            NotAllowed,
            "stale needs the malicious clients' own data and clean updates; here it sees",
        ),
        (
            lambda: fg.run({"training": {"rounds": 0}}),
            ConfigError,
            "training.rounds: expected greater than or equal to 1; got 0.",
        ),
        (lambda: fg.run({}, jobs=0), ConfigError, "jobs: expected at least 1; got 0."),
        (lambda: fg.names("attak"), UnknownName, "unknown kind 'attak'. Did you mean 'attack'"),
    ],
)
def test_mistakes(call, error, message):
    with pytest.raises(error) as caught:
        call()
    assert message in str(caught.value)
    assert caught.value.exit_code == 2


def test_an_attack_that_knows_the_rule_can_ask_it():
    """The malicious clients' copy of the rule gives what the rule gives."""
    from fedguard.contracts import PoisonAttack, Sight

    heard = []

    class Asks(PoisonAttack):
        name, needs = "asks", (Sight.HONEST_UPDATES | Sight.RULE,)

        def craft(self, view):
            heard.append(view.rule(view.honest))
            return view.honest[:1]

    fg.craft(Asks(), ROWS, f=1, defense="trimmed_mean")
    assert heard[0].tolist() == pytest.approx([7, 5, 22 / 3])
    with pytest.raises(NotAllowed, match="asks needs the honest clients' updates and the server's rule"):
        fg.craft(Asks(), ROWS, f=1)


def test_inputs_are_left_alone():
    updates = torch.tensor(ROWS)
    before = updates.clone()
    network = (
        "deepsight",
        "zeno",
        "ubar",
        "inverse_variance",
        "kardam",
        "asyncfilter",
        "staleness_clipping",
    )  # these ask what is there in a suite only
    for _, cls in load_registry().classes(["defense"]):
        pipeline = cls.name if issubclass(cls, AggregationRule) else f"{cls.name} >> mean"
        rows = torch.cat([updates] * 3)  # Bulyan needs seven
        if cls.name in network:
            with pytest.raises(NotAllowed, match="which are there in a suite only: fedguard.run"):
                fg.aggregate(pipeline, rows, f=1, root=ROWS[0], model=ROWS[1], own=0)
        else:
            fg.aggregate(pipeline, rows, f=1, root=ROWS[0], model=ROWS[1], own=0)
        assert torch.equal(rows, torch.cat([before] * 3))
    crafted = fg.craft("mimic", updates, f=1)
    crafted.zero_()  # not a view of the input
    assert torch.equal(updates, before)


def test_a_spec_is_taken_by_aggregate_and_craft_alike():
    honest = np.random.default_rng(0).normal(size=(6, 4)).astype(np.float32)
    assert np.array_equal(fg.craft("ipm(tau=5)", honest, f=2), fg.craft("ipm", honest, f=2, tau=5))
    assert np.array_equal(
        fg.aggregate("geometric_median(steps=3)", honest), fg.aggregate("geometric_median", honest, steps=3)
    )
