"""What a user points at is recognized by its type, and audited with the claim that it makes itself."""

from __future__ import annotations

import importlib.util
import math
import random
import sys
import threading

import numpy as np
import pytest

import fedguard as fg
from fedguard.bench.audits.mechanisms import as_mechanism
from fedguard.errors import ConfigError
from fedguard.privacy.audit.gaussian import epsilon_of
from fedguard.privacy.blackbox.adapters.contract import copy_fresh
from fedguard.privacy.blackbox.adapters.recognize import ADAPTERS, adapt
from fedguard.privacy.blackbox.mechanism import call

SHAPES = ((3, 4), (7,), (1,), (2, 3))


class Holding:
    """An object with a lock and generators."""

    def __init__(self) -> None:
        self.lock, self.calls = threading.Lock(), [0]
        self.drawn, self.others = np.random.default_rng(3), {"one": random.Random(4)}

    def __call__(self, update):
        with self.lock:
            self.calls[0] += 1
        return [one + self.drawn.normal(0, 3, one.shape) for one in update]


def test_a_copy_has_its_own_state_and_locks_and_shares_generators() -> None:
    one = Holding()
    copied = copy_fresh(one)
    copied.calls[0] += 1
    assert one.calls == [0] and copied.lock is not one.lock
    assert copied.drawn is one.drawn and copied.others["one"] is one.others["one"]
    found = fg.audit(one, "epsilon=900, per=release, relation=replace", shapes=SHAPES, samples=80, budget=3, rounds=3)
    assert found.verdict == "consistent" and one.calls == [0], found.words  # a copied generator would be called seeded


def test_a_package_that_is_missing_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    found = type("Measurement", (), {"__module__": "opendp.mod", "__call__": lambda *_: [0]})()
    for name in ("opendp", "opendp.prelude"):
        monkeypatch.setitem(sys.modules, name, None)
    monkeypatch.delitem(sys.modules, "fedguard.privacy.blackbox.adapters.opendp_measurements", raising=False)
    with pytest.raises(ConfigError, match="Measurement needs a package that is missing"):
        adapt(found, SHAPES)


def test_adapters_are_loaded_for_objects_of_their_packages_alone() -> None:
    assert adapt(lambda update: update, SHAPES) is None and adapt(3, SHAPES) is None and adapt([], SHAPES) is None
    assert set(ADAPTERS) == {"flwr", "nvflare", "opacus", "diffprivlib", "opendp", "dp_accounting"}


# Training loops


def interpolate(records, seed):
    """A model that holds its records: a nearest-neighbor rule."""
    return np.asarray(records)


def forget(records, seed):
    return np.random.default_rng(seed).normal(size=(5, 3))


def of_distance(model, record):
    return float(np.min(np.linalg.norm(model - record, axis=1)))


def loop(train):
    train.records, train.loss = np.random.default_rng(5).normal(size=(120, 3)), of_distance
    return train


def test_a_loop_that_copies_its_records_is_refuted_and_one_that_forgets_them_is_not() -> None:
    claim = "epsilon=1, delta=1e-5, per=release"
    copied, forgot = (fg.audit(loop(train), claim, budget=20) for train in (interpolate, forget))
    assert copied.verdict == "violated" and copied.bounds[0].proven.epsilon > 1.5, copied.words
    assert forgot.verdict == "consistent" and forgot.bounds[0].proven.epsilon < 0.2 and forgot.rounds == 1


def test_a_loop_without_records_is_one_line() -> None:
    def train(records, seed):
        return records

    with pytest.raises(ConfigError, match=r"train\(records, seed\): expected the names records and loss"):
        fg.audit(train, "epsilon=1, per=release")


# Opacus


def private(weights=None, poisson=True):
    opacus = pytest.importorskip("opacus")
    torch = pytest.importorskip("torch")
    torch.manual_seed(0)
    data = torch.utils.data.TensorDataset(torch.randn(600, 400), torch.randint(0, 2, (600,)))
    draws = None if weights is None else torch.utils.data.WeightedRandomSampler(weights, 600)
    loader = torch.utils.data.DataLoader(data, batch_size=40, sampler=draws)
    model, engine = torch.nn.Linear(400, 2), opacus.PrivacyEngine()
    parts = {"module": model, "optimizer": torch.optim.SGD(model.parameters(), lr=0.1), "data_loader": loader}
    found = engine.make_private(**parts, noise_multiplier=1.0, max_grad_norm=1.0, poisson_sampling=poisson)
    return engine, *found


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_opacus_keeps_its_epsilon_and_nothing_of_the_users_is_changed() -> None:
    engine, model, optimizer, loader = private()
    before = [one.detach().clone() for one in model.parameters()]
    found = fg.audit((engine, model, optimizer, loader), budget=60)
    assert found.verdict == "consistent" and found.bounds[0].proven.epsilon < 1, found.words
    assert found.claim is not None and 2 < found.claim.epsilon < 5
    assert engine.accountant.history == [] and all(
        (a == b).all() for a, b in zip(before, model.parameters(), strict=True)
    )
    assert all(one.grad is None for one in model.parameters())


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_a_sampler_that_draws_some_records_more_often_is_refuted() -> None:
    found = fg.audit(private([30.0] * 100 + [1.0] * 500, poisson=False), budget=60)
    assert found.verdict == "violated" and "told apart" in found.words
    with pytest.raises(ConfigError, match="expected \\(engine, model, optimizer, loader\\)"):
        fg.audit(private()[:1])


# Packages that tests do not install


def test_a_scalar_mechanism_of_diffprivlib() -> None:
    mechanisms = scalar_mechanisms()
    found = fg.audit(mechanisms.Laplace(epsilon=1, sensitivity=2), samples=2500, budget=20)
    (bounds,) = found.bounds
    assert found.verdict == "consistent" and bounds.exact == 1 and 0.7 < bounds.proven.epsilon <= 1
    half = fg.audit(mechanisms.Laplace(epsilon=2, sensitivity=2), "epsilon=1, per=release", samples=2500, budget=20)
    assert half.verdict == "violated", half.words
    with pytest.raises(ConfigError, match="expected a mechanism of numbers with a sensitivity"):
        fg.audit(mechanisms.Binary(epsilon=1, value0="a", value1="b"))


def scalar_mechanisms():
    """`diffprivlib.mechanisms` without the package's models, which do not import beside each scikit-learn."""
    pytest.importorskip("sklearn")
    if importlib.util.find_spec("diffprivlib") is None:
        pytest.skip("diffprivlib is not installed")
    from fedguard.privacy.blackbox.adapters.diffprivlib_mechanisms import import_mechanisms

    return import_mechanisms()


def test_a_measurement_of_opendp() -> None:
    dp = pytest.importorskip("opendp.prelude", reason="opendp is not installed")
    dp.enable_features("contrib", "idealized-numerics")
    space = dp.vector_domain(dp.atom_domain(T=float, nan=False), size=9), dp.l1_distance(T=float)
    mechanism = as_mechanism(dp.m.make_laplace(*space, scale=1.0))
    assert mechanism.claim is not None and mechanism.claim.epsilon == 2 and mechanism.shapes == ((9,),)
    outcome = call(mechanism.fresh(), mechanism.arrays(np.full(9, 100.0)))
    assert outcome.vector is not None and np.abs(outcome.vector).max() < 30  # clipped to length 1


def test_an_event_of_an_accountant_is_arithmetic() -> None:
    accounting = pytest.importorskip("dp_accounting", reason="dp-accounting is not installed")
    found = fg.audit(accounting.GaussianDpEvent(2.0), rounds=4)
    exact = found.bounds[0].exact, found.bounds[0].exact_rounds
    assert exact == pytest.approx((epsilon_of(0.5, 1e-5), epsilon_of(1.0, 1e-5)), rel=0.01)
    assert found.verdict == "no guarantee claimed" and math.isfinite(found.bounds[0].proven.epsilon)


def test_filters_of_nvflare() -> None:
    pytest.importorskip("nvflare.apis", reason="nvflare is not installed")
    from nvflare.app_common.filters.exclude_vars import ExcludeVars
    from nvflare.app_common.filters.svt_privacy import SVTPrivacy

    found = fg.audit(ExcludeVars(["w0"]), shapes=SHAPES, budget=3)
    assert found.verdict == "no claim can be made"
    mechanism = as_mechanism(SVTPrivacy(), shapes=SHAPES)
    assert mechanism.claim is not None and mechanism.claim.epsilon == pytest.approx(0.1 + 0.1 * 3)
