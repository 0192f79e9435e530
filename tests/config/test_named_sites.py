"""Malicious clients by name, and partitions with given sizes: what a suite says, what runs, and what keeps its identity."""

from __future__ import annotations

import json
import re

import numpy as np
import pytest
import torch

from fedguard.bench.running.card import threat_card, threat_in_words
from fedguard.bench.running.workbench import malicious_clients
from fedguard.config import build_cell
from fedguard.config.schema import CellConfig
from fedguard.contracts import Examples
from fedguard.errors import ConfigError
from fedguard.registry import load_registry
from fedguard.rng import Rng
from tests.systems.scenes import cell, reports, scene

SIZES = [17834, 8000, 5000, 2500, 900, 190]
KNOWN = load_registry()


def named(*sites: str, **changes):
    clients = {"malicious": list(sites), **changes.pop("clients", {})}
    return cell(attack="sign_flip", clients=clients, **changes)


def test_who_is_named_is_malicious_whatever_the_seed():
    made = named("site 1", "site 6")
    assert made.malicious == made.assumed_f == 2
    for seed in range(4):
        assert malicious_clients(made, seed) == {0, 5}
    assert {
        tuple(sorted(malicious_clients(cell(attack="sign_flip", clients={"malicious": 2}), s))) for s in range(9)
    } != {(0, 5)}


def test_the_one_who_is_named_sends_the_lie():
    made, setup = scene(attack="gaussian(scale=1000)", clients={"malicious": ["site 3"]}, defense="mean")
    assert setup.malicious == {2}
    (first, *_) = made.architecture.run(setup)
    assert first.malicious == {2}


def test_names_are_part_of_the_cell_from_which_it_is_built_again():
    made = named("site 2", "site 1")
    assert made.canonical["clients"]["malicious"] == ["site 1", "site 2"]  # in the order of their numbers
    assert made.id == named("site 1", "site 2").id != named("site 1", "site 3").id
    again = build_cell(CellConfig.model_validate(json.loads(json.dumps(made.canonical))), KNOWN)
    assert again.id == made.id
    # Without an attack it does not matter who would have lied
    clean = cell(clients={"malicious": ["site 1"]})
    assert clean.id == cell(clients={"malicious": ["site 6"]}).id == cell(clients={"malicious": 1}).id


def test_cells_without_names_keep_their_identity():
    """Ids of the version before names and sizes were possible."""
    assert cell(attack="sign_flip", clients={"malicious": 2}).id == "9d6fcbe79e99"
    assert cell(task={"partition": "inner_dirichlet"}).id == "160ba2854bfe"


def test_the_card_names_them():
    assert "site 1 of 6 is malicious from round 1" in threat_in_words(named("site 1"))
    assert "site 1 and site 2 of 6 are malicious" in threat_in_words(named("site 1", "site 2"))
    assert threat_card(named("site 1", "site 2"))["malicious"] == 2


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (["site 7"], "expected sites from 1 to clients.total = 6; got site 7"),
        (["site 0"], "a list of different sites such as [site 1]"),
        (["site 1", "site 1"], "a list of different sites"),
        ([], "a list of different sites"),
        ([1], "a list of different sites"),
        (["client 1"], "a list of different sites"),
        ("site 1", "expected a number of clients (4) or a fraction of them (0.2)"),
        ([f"site {n}" for n in range(1, 7)], "malicious: expected fewer than clients.total = 6; got 6"),
    ],
)
def test_wrong_names_are_one_line(value, said):
    with pytest.raises(ValueError, match=re.escape(said)):
        CellConfig.model_validate({"clients": {"total": 6, "malicious": value}})


def test_an_app_has_no_names():
    with pytest.raises(ValueError, match="the nodes of an app have no fixed order"):
        CellConfig.model_validate({"app": {"folder": "."}, "clients": {"total": 4, "malicious": ["site 1"]}})


# Sizes.


def deal(spec, count=1437, clients=6, seed=0):
    draw = torch.Generator().manual_seed(seed)
    data = Examples(torch.randn(count, 2, generator=draw), torch.arange(count) % 10)
    return KNOWN.build("partition", spec).split(data, clients, Rng(seed)), data


@pytest.mark.parametrize("kind", ["iid", "inner_dirichlet(alpha=0.3"])
def test_clients_get_their_sizes_and_every_example_is_dealt(kind):
    spec = kind + ("(" if "(" not in kind else ", ") + f"sizes={SIZES})"
    dealt, _ = deal(spec)
    exact = [size * 1437 / sum(SIZES) for size in SIZES]
    assert all(abs(len(part) - size) < 1 for part, size in zip(dealt, exact, strict=True))
    assert sorted(np.concatenate(dealt).tolist()) == list(range(1437))
    assert [len(part) for part in deal(kind + ("(" if "(" not in kind else ", ") + "sizes=[400, 1000, 37])", clients=3)[0]] == [
        400, 1000, 37,
    ]  # fmt: skip


def test_a_lower_alpha_is_more_skewed_with_sizes_too():
    def distance(alpha):
        dealt, data = deal(f"inner_dirichlet(alpha={alpha}, sizes={SIZES})")
        shares = [np.bincount(data.y.numpy()[part], minlength=10) / len(part) for part in dealt[:4]]
        return np.mean([np.abs(one - 0.1).sum() for one in shares])

    assert distance(0.1) > 2 * distance(100)


def test_equal_sizes_deal_as_none_do():
    for kind in ("iid", "inner_dirichlet"):
        without = deal(kind, 1440)[0]
        assert [part.tolist() for part in without] == [
            part.tolist() for part in deal(f"{kind}(sizes=[5, 5, 5, 5, 5, 5])", 1440)[0]
        ]


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        ("iid(sizes=[1, 2])", "iid: sizes: expected one for each of 6 clients; got 2. Set clients.total to 2"),
        ("inner_dirichlet(sizes=[1, 2])", "inner_dirichlet: sizes: expected one for each of 6 clients; got 2"),
        ("iid(sizes=[1000000, 1, 1, 1, 1, 1])", "an example for each client; of 1437 examples a client with 1 of"),
        ("iid(sizes=[1, 1, 1, 1, 1, 0])", "sizes.5: expected more than 0; got 0"),
    ],
)
def test_sizes_that_do_not_fit_are_one_line(spec, said):
    with pytest.raises(ConfigError) as caught:
        deal(spec)
    assert said in str(caught.value) and "\n" not in str(caught.value)


def test_claims_follow_the_sizes():
    _, setup = scene(task={"partition": {"name": "iid", "sizes": SIZES}}, defense="weighted_mean")
    assert [round(100 * size / 1437, 1) for size in setup.task.sizes] == [51.8, 23.2, 14.5, 7.2, 2.6, 0.6]
    assert len(list(reports(task={"partition": {"name": "iid", "sizes": SIZES}}, defense="clip >> weighted_mean"))) == 4
