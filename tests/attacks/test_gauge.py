"""The attack `gauge`: a client's own adapter stays the same, and the mean of factors is another one."""

from __future__ import annotations

import sys

import pytest
import torch

from fedguard.api import lay_out
from fedguard.attacks.poisoning.gauge import Gauge, find_factors
from fedguard.bench.running.trial import run_trial
from fedguard.contracts import PoisonView, Sight
from tests.root import ROOT

RANK, INPUTS, OUTPUTS = 3, 7, 5
LAYERS, RANKS = (RANK * INPUTS, OUTPUTS * RANK, OUTPUTS * 4, OUTPUTS), (2, 2, 2, 1)


def split(vector):
    down, up, *rest = vector.split(LAYERS)
    return down.view(RANK, INPUTS), up.view(OUTPUTS, RANK), torch.cat(rest)


@pytest.mark.parametrize("c", [30.0, 0.01, 1.0])
def test_the_product_and_what_is_no_factor_stay_as_they_are(c):
    draw = torch.Generator().manual_seed(0)
    model, own = torch.randn(sum(LAYERS), generator=draw), torch.randn(2, sum(LAYERS), generator=draw)
    view = PoisonView.of_round(
        Gauge(), Sight.OWN_DATA | Sight.MODEL, malicious=(3, 4), honest=own, rng=None, layers=LAYERS, ranks=RANKS,
        own=own, model=model,
    )  # fmt: skip
    for honest, sent in zip(model + own, model + Gauge(c=c).craft(view), strict=True):
        (down, up, rest), (false_down, false_up, false_rest) = split(honest), split(sent)
        torch.testing.assert_close(false_up @ false_down, up @ down, rtol=1e-5, atol=1e-5)
        torch.testing.assert_close(false_rest, rest)
        torch.testing.assert_close(false_down, c * down, rtol=1e-5, atol=1e-5)


def test_factors_are_matrices_that_follow_each_other():
    places = [(first.start, second.start) for first, second in find_factors((4, 4, 4, 2, 4, 4), (2, 2, 2, 1, 2, 2))]
    assert places == [(0, 4), (14, 18)]
    assert list(find_factors((6, 3, 6, 3), (2, 1, 2, 1))) == []


def test_one_client_ruins_the_mean_of_factors(monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "examples")
    suite = {
        "task": {"data": "own_tokens:reviews", "model": "own_tokens:network"},
        "clients": {"total": 5, "malicious": 1},
        "training": {"rounds": 4, "batch_size": 16, "lr": 0.3},
        "seeds": 1,
        "matrix": {"attack": ["gauge(c=1.0)", "gauge(c=1000.0)"]},
    }
    found = {}
    for cell in lay_out(suite)[1].cells:
        record, _ = run_trial(cell, 0, {})
        found[record["label"]] = record["result"]["final_accuracy"]
    sys.modules.pop("own_tokens", None)
    clean, same, ruined = (found[f"{attack} against mean"] for attack in ("no attack", "gauge(c=1)", "gauge(c=1000)"))
    assert same == pytest.approx(clean, abs=0.02) and ruined < clean - 0.05, found
