"""Delta against the number of units: 1 / n is no promise, and above a tenth of that it is said."""

from __future__ import annotations

import pytest
from typer.testing import CliRunner

import fedguard as fg
from fedguard.bench.running.procedures import refusals
from fedguard.cli import app
from fedguard.config import build_cell
from fedguard.config.schema import CellConfig
from fedguard.errors import ConfigError
from fedguard.privacy.accounting import check_delta
from fedguard.registry import load_registry


def cell(privacy, **protocol):
    training = {"rounds": 1, "batch_size": 8}
    settings = {"clients": {"total": 20}, "training": training, "protocol": {"privacy": privacy, **protocol}}
    return build_cell(CellConfig.model_validate(settings), load_registry())


def record(delta):
    return {"kind": "record", "noise_multiplier": 1.0, "delta": delta}


def test_to_publish_one_record_in_n_would_keep_a_delta_of_1_over_n():
    """Whoever publishes one of n records at random is (0, 1/n)-private, and no more: so 1/n has to be refused."""
    for n in (2, 20, 1437):
        with pytest.raises(ConfigError, match=f"delta: expected less than 1 / {n} "):
            check_delta(1 / n, n, "record")
        check_delta(0.999 / n, n, "record")


@pytest.mark.parametrize("delta", [0.5, 1e-3, 1 / 1437])
def test_a_delta_that_is_no_promise_for_records_is_refused_before_anything_runs(delta):
    """Digits have 1,437 train examples; how many only the data can tell."""
    bad, good = cell(record(delta)), cell(record(6.9e-4))
    (reason,) = refusals([bad, good], 0).values()
    assert "expected less than 1 / 1437 = 0.0007" in reason and f"got {delta:g}. Lower delta" in reason


@pytest.mark.parametrize(
    ("privacy", "protocol"),
    [
        ({"kind": "client", "noise_multiplier": 1.0}, {}),
        ({"kind": "distributed", "noise_multiplier": 1.0}, {"secure_aggregation": "full"}),
    ],
)
def test_of_clients_the_suite_itself_tells_how_many_there_are(privacy, protocol):
    with pytest.raises(
        ConfigError, match=r"^protocol: delta: expected less than 1 / 20 = 0.05, .* 20 clients .* got 0.05"
    ):
        cell({**privacy, "delta": 0.05}, **protocol)
    cell({**privacy, "delta": 0.049}, **protocol)


def test_a_loose_delta_is_flagged_and_the_record_says_of_how_many(tmp_path):
    suite = {
        "clients": {"total": 4},
        "training": {"rounds": 1, "batch_size": 8},
        "seeds": 1,
        "matrix": {
            "protocol.privacy": [record(1e-4), record(6e-5), {"kind": "client", "noise_multiplier": 1.0, "delta": 0.03}]
        },
    }
    found = [
        one for one in fg.run(suite, store=tmp_path, jobs=1).records.values() if one["threat_card"]["privacy"] != "none"
    ]
    flags = {
        one["result"]["privacy"]["delta"]: [flag["said"] for flag in one["flags"] if flag["flag"] == "loose_delta"]
        for one in found
    }
    assert {one["result"]["privacy"]["units"] for one in found} == {1437, 4}
    assert "among 1437 records is above 1 / (10 n) = 7e-05" in flags[1e-4][0] and flags[6e-5] == []
    assert "among 4 clients" in flags[0.03][0]


def test_the_command_holds_delta_against_the_units_that_it_is_told():
    def said(*arguments):
        result = CliRunner().invoke(app, ["epsilon", "--steps", "10", *arguments])
        return result.exit_code, " ".join((result.output + str(result.exception or "")).split())

    assert said("--units", "100000")[0] != 0 and "expected less than 1 / 100000" in said("--units", "100000")[1]
    code, words = said("--units", "50000")
    assert code == 0 and "warning: delta = 1e-05 among 50000 records is above 1 / (10 n) = 2e-06: lower it" in words
    assert "warning" not in said("--units", "9999")[1] and "warning" not in said()[1]
