"""One matrix of poisoning, secure aggregation, differential privacy and inference: examples/privacy.yaml, with few rounds."""

from __future__ import annotations

import pytest

import fedguard as fg
from fedguard.api import lay_out
from fedguard.bench.running.check import explain_refusals
from tests.root import ROOT

SUITE = ROOT / "examples" / "privacy.yaml"
SHORT = [
    "training.rounds=8",
    "seeds=1",
    "evaluation.every=4",
    "matrix.attack=[none, ipm(tau=5), robbing_the_fed, labels_bias_corrected, fed_mia]",
]

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def rows(tmp_path_factory):
    return fg.run(SUITE, store=tmp_path_factory.mktemp("runs"), overrides=SHORT).rows()


def one(rows, protocol, attack, defense="mean"):
    (row,) = [
        row
        for row in rows
        if all(word in row["protocol"] for word in protocol.split())
        and ("privacy" in row["protocol"]) == ("privacy" in protocol)
        and row["attack"].startswith(attack)
        and row["defense"] == defense
    ]
    return row


def test_each_cell_has_a_result_or_a_reason(rows):
    assert {row["status"] for row in rows} == {"ok", "refused"}
    assert all(row["reason"] for row in rows if row["status"] == "refused")
    refused = {
        (row["attack"], row["defense"]): row["reason"]
        for row in rows
        if "full" in row["protocol"] and row["status"] == "refused"
    }
    assert "secure_aggregation: full hides it" in refused["fed_mia", "mean"]
    assert "each client's update" in refused["none", "nnm >> trimmed_mean"]
    trusted = one(rows, "privacy=client", "robbing_the_fed")
    assert trusted["status"] == "refused" and "trusts it to add the noise" in trusted["reason"]
    assert "sensitivity of a mean" in one(rows, "privacy=client", "none", "nnm >> trimmed_mean")["reason"]


def test_noise_and_masks_hide_what_a_bare_update_gives_away(rows):
    bare = one(rows, "secure_aggregation=none", "robbing_the_fed")
    assert bare["recovered"] > 0.5 and bare["psnr_gain"] > 50 and bare["epsilon"] is None
    for protocol in ("privacy=record", "secure_aggregation=full", "secure_aggregation=full privacy=distributed"):
        hidden = one(rows, protocol, "robbing_the_fed")
        assert hidden["recovered"] < 0.1 and hidden["psnr_gain"] < 3, protocol
    labels = [
        one(rows, p, "labels_bias_corrected")["label_accuracy"] for p in ("secure_aggregation=none", "privacy=record")
    ]
    assert labels[0] > 0.95 > 0.9 > labels[1]


def test_epsilons_are_those_that_were_asked_for(rows):
    assert one(rows, "privacy=record", "none")["epsilon"] == pytest.approx(10, rel=1e-2)
    assert one(rows, "privacy=client", "none")["epsilon"] == pytest.approx(30, rel=1e-2)
    assert one(rows, "secure_aggregation=full privacy=distributed", "none")["epsilon"] <= 30
    assert one(rows, "privacy=client", "ipm")["epsilon"] is not None, "these malicious clients see no honest update"


def test_the_suite_says_beforehand_what_it_refuses():
    _, plan = lay_out(SUITE, SHORT)
    refused = explain_refusals(plan)
    assert 10 < len(refused) < len(plan.cells) and all(refused.values())
