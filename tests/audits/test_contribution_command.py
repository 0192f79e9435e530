"""`fedguard contribution`: a table of who was worth what, its intervals, its JSON, and what it cannot value."""

from __future__ import annotations

import json

import pytest
from scipy.stats import t
from typer.testing import CliRunner

import fedguard as fg
from fedguard import cli
from fedguard.bench.audits.contributed import Contributions
from fedguard.bench.audits.contribution import Contribution
from fedguard.errors import FedGuardError
from fedguard.metrics.shapley import ShapleyValues

SUITE = {
    "name": "who",
    "seeds": 1,
    "clients": {"total": 4, "malicious": 1},
    "training": {"rounds": 2},
    "matrix": {"attack": ["none", "sign_flip"], "architecture": ["server", "mapreduce(combiners=2)"]},
}


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs")
    fg.run(SUITE, store=folder, jobs=1, limit=1)
    return folder


def asked(store, *arguments: str) -> str:
    done = CliRunner().invoke(cli.app, ["contribution", *arguments, "--store", str(store)])
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    return done.output


CELL = "sign_flip against mean, architecture = server"


def test_it_tells_the_shares_of_all_clients_and_who_is_malicious(store):
    told = asked(store, "who", CELL, "--orders", "4")
    assert f"{CELL}: what each client contributed, in points of accuracy" in " ".join(told.split())
    (bad,) = (line for line in told.splitlines() if line.rstrip().endswith("malicious"))
    assert float(bad.split()[1]) < 0, "who reverses its update takes away"
    assert "an honest client, on average:" in told and "a malicious client, on average:" in told
    assert "no interval" not in told and "are not to be ranked" in " ".join(told.split())


def test_as_json_the_shares_add_up_to_the_gain(store):
    text = asked(store, "who", CELL, "--orders", "3", "--measure", "loss", "--seed", "5", "--json")
    told = json.loads(text[text.index("{") :])
    (one,) = told["seeds"]
    assert (told["label"], told["measure"], told["orders"], one["seed"]) == (CELL, "loss", 3, 5)
    assert sum(client["share"] for client in one["clients"]) == pytest.approx(one["gain"], abs=1e-6)
    assert [client["client"] for client in one["clients"]] == [0, 1, 2, 3]
    assert sum(client["malicious"] for client in one["clients"]) == 1
    assert all(client["half_width"] > 0 for client in one["clients"])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("who",), "contribution: expected the words of one cell; 4 cells. Name one, or a part of it that no other has:"),
        (("who", "krum"), "0 of them have 'krum'. Name one, or a part of it that no other has: no attack against mean"),
        (("who", "sign_flip"), "2 of them have 'sign_flip'."),
        (("who", "no attack against mean, architecture = mapreduce"), "updates are valued by a server that sees each, and mapreduce has none. Use"),
        (("nobody", CELL), "run 'nobody': not found"),
    ],
)  # fmt: skip
def test_what_cannot_be_valued_is_one_line(store, arguments, message):
    with pytest.raises(FedGuardError) as caught:
        asked(store, *arguments)
    assert message in str(caught.value) and "\n" not in str(caught.value)
    assert caught.value.exit_code == 2


def test_numbers_out_of_range_are_named(store):
    for option, value in (("--orders", "0"), ("--tolerance", "1.5"), ("--seed", "-1")):
        assert f"Invalid value for '{option}'" in asked(store, "who", CELL, option, value)


def rounds(*errors: float) -> tuple[ShapleyValues, ...]:
    return tuple(ShapleyValues({0: 0.25, 1: 0.0}, {0: error, 1: 0.0}, 0.25, 3) for error in errors)


def test_the_interval_is_students_over_orders_and_rounds_draw_anew():
    """Standard errors of .03 and .04 in two rounds are one of .05."""
    found = Contribution({0: 0.5, 1: 0.0}, 0.5, frozenset({1}), rounds(0.03, 0.04))
    one = Contributions("x", "accuracy", 20, {7: found})
    assert one.half_width(7, 0) == pytest.approx(0.05 * t.ppf(0.975, 19))
    assert one.half_width(7, 1) == 0.0
    assert Contributions("x", "accuracy", 2, {7: found}).half_width(7, 0) is None


def test_sides_have_an_interval_over_seeds_from_three_on():
    def of(share: float) -> Contribution:
        return Contribution({0: share, 1: share, 2: -share}, share, frozenset({2}), rounds(0.0))

    few = Contributions("x", "accuracy", 20, {seed: of(0.1) for seed in range(2)})
    assert (few.side(False).mean, few.side(False).low, few.side(True).mean) == (0.1, None, -0.1)
    many = Contributions("x", "accuracy", 20, {seed: of(0.1 + seed / 100) for seed in range(3)})
    assert many.side(True).half_width == pytest.approx(t.ppf(0.975, 2) * 0.01 / 3**0.5)
    honest = Contributions("x", "accuracy", 20, {0: Contribution({0: 0.1}, 0.1, frozenset(), rounds(0.0))})
    assert honest.side(True) is None
