"""What opacus does without a word, and that our accounting does not repeat it."""

from __future__ import annotations

import math
import warnings
from contextlib import nullcontext

import numpy as np
import pytest
import torch
from opacus import PrivacyEngine
from opacus.accountants import GaussianAccountant, PRVAccountant
from opacus.grad_sample.utils import wrap_model
from opacus.validators.errors import UnsupportedModuleError
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from fedguard.errors import ConfigError
from fedguard.privacy.accountants import accountant_named
from fedguard.privacy.accounting import OutOfRange
from fedguard.privacy.gaussian import epsilon, gaussian_event

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning", "ignore::FutureWarning")


def private(records, batch, *, steps=0, model=None, accountant="prv", **options):
    """An engine, and its private parts after some steps of training on so many records."""
    torch.manual_seed(0)
    loader = DataLoader(
        TensorDataset(torch.randn(records, 4), torch.randint(2, (records,))), batch_size=batch, shuffle=True
    )
    engine, model = PrivacyEngine(accountant=accountant), model or nn.Linear(4, 2)
    model, optimizer, loader = engine.make_private(
        module=model,
        optimizer=torch.optim.SGD(model.parameters(), lr=0.1),
        data_loader=loader,
        noise_multiplier=1.0,
        max_grad_norm=1.0,
        **options,
    )
    sizes = []
    for x, y in loader:
        if len(sizes) == steps:
            break
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()
        sizes.append(len(x))
    return engine, optimizer, sizes


def test_shuffled_batches_get_the_epsilon_of_poisson_samples():
    """With ``poisson_sampling=False`` every batch has ten records, and opacus prints what it prints for Poisson samples."""
    poisson, _, drawn = private(100, 10, steps=9)
    shuffled, _, dealt = private(100, 10, steps=9, poisson_sampling=False)
    assert len(set(drawn)) > 1
    assert set(dealt) == {10}
    assert poisson.get_epsilon(1e-5) == shuffled.get_epsilon(1e-5)
    # Ours says no, and what may be counted instead costs more.
    with pytest.raises(ConfigError, match="no amplification is proven for shuffled batches"):
        epsilon(1.0, 0.1, 9, sampling="shuffle")
    amplified, public = (epsilon(1.0, 0.1, 9, sampling=sampling).value for sampling in ("poisson", "cyclic"))
    assert amplified == pytest.approx(poisson.get_epsilon(1e-5), abs=1e-9)
    assert public > 1.5 * amplified


def test_the_sample_rate_is_one_over_the_number_of_batches():
    """Ten of 25 are 0.4; opacus draws and counts 1/3, for there are three batches."""
    engine, _, _ = private(25, 10, steps=1)
    ((_, rate, _),) = engine.accountant.history
    assert rate == pytest.approx(1 / 3)
    # Ours takes the rate that is asked for.
    event = gaussian_event(noise_multiplier=1.0, sample_rate=0.4, steps=1, sampling="poisson", unit="record", view="-")
    assert event.gaussian.sample_rate == 0.4
    assert accountant_named("prv").compose_events([event], 1e-5).value > engine.get_epsilon(1e-5) + 0.05


def test_the_normalizer_tells_how_many_records_there_are():
    """One record less, and every step is divided by 9 instead of 10: noise and signal grow by a ninth."""
    with_it, without = (private(records, 10)[1].expected_batch_size for records in (30, 29))
    assert (with_it, without) == (10, 9)
    # No accountant can see that; ours says what it takes for granted.
    assert any("divided by a public number" in text for text in epsilon().assumptions)


def test_expanded_weights_cannot_take_an_empty_sample():
    """Poisson sampling draws nobody now and then; mode "ew" then breaks, where hooks go on to the noise."""
    for mode, fails in (("hooks", False), ("ew", True)):
        model = wrap_model(nn.Linear(4, 2), grad_sample_mode=mode, batch_first=True, loss_reduction="mean")
        with pytest.raises(RuntimeError, match="Batch size must be positive") if fails else nullcontext():
            assert model(torch.zeros(0, 4)).shape == (0, 2)


def test_secure_mode_needs_a_package_that_is_not_there():
    with pytest.raises(ImportError, match="torchcsprng"):
        PrivacyEngine(secure_mode=True)


def test_batchnorm_is_refused():
    with pytest.raises(UnsupportedModuleError, match="BatchNorm"):
        private(20, 10, model=nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), nn.Linear(4, 2)))


def test_an_empty_history_and_no_noise_end_in_errors_of_arithmetic():
    silent = PRVAccountant()
    silent.history = [(0.0, 0.1, 10)]
    with np.errstate(all="ignore"):
        with pytest.raises(ValueError):
            PRVAccountant().get_epsilon(1e-5)
        with pytest.raises(OverflowError):
            silent.get_epsilon(1e-5)
    # Ours says what is wrong.
    for name in ("rdp", "prv", "gdp"):
        with pytest.raises(ConfigError, match="expected at least one"):
            accountant_named(name).compose_events([], 1e-5)
        with pytest.raises(ConfigError, match="Without noise nothing is private"):
            epsilon(0.0, 0.1, 10, accountant=name)


def test_prv_is_made_of_rounding_where_delta_is_tiny():
    """10,000 steps with mu = 1 at delta = 1e-12: the exact curve of Balle and Wang (2018) gives 7.2385.

    Opacus gives 7.17 or 7.26, less or more than the truth, by how a processor rounds.
    """
    theirs = PRVAccountant()
    theirs.history = [(100.0, 1.0, 10_000)]
    with np.errstate(all="ignore"):
        assert abs(theirs.get_epsilon(1e-12) - 7.2385) > 0.01
    with pytest.raises(OutOfRange, match="below 1e-10"):
        epsilon(100.0, 1.0, 10_000, 1e-12, sampling="none")
    assert 7.2385 < epsilon(100.0, 1.0, 10_000, 1e-12, "rdp", sampling="none").value < 8


def test_opacus_warnings_do_not_leak():
    """Opacus warns of experimental accountants, logarithms of zero and loose orders, and ours are quiet."""
    with pytest.warns(UserWarning, match="can underestimate"):
        GaussianAccountant()
    full = PRVAccountant()
    full.history = [(5.0, 1.0, 10)]
    with pytest.warns(RuntimeWarning, match="divide by zero"):
        full.get_epsilon(1e-5)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for name in ("rdp", "prv", "gdp"):
            for s, q, steps, delta in (
                (5.0, 1.0, 10, 1e-5),
                (0.4, 0.01, 10, 1e-5),
                (1e4, 0.01, 1, 1e-9),
                (1.0, 0.9, 3, 0.5),
            ):
                assert math.isfinite(epsilon(s, q, steps, delta, name).value)
