"""How rounds grow as nodes mix slower: closed forms on quadratics in float64, the fit, and the papers' orderings on digits."""

from __future__ import annotations

import math
import re
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch

from docs_tools import exponents
from docs_tools.pictures import FOLDER, ROOT
from fedguard.registry import load_registry
from fedguard.simulated.topology import topology
from tests.gossip.test_gossip_formulae import DIM, NODES, Quadratics

K = (1.0, 0.3, 0.1)
#: The step size that is best for a gap, up to a factor; of a steady difference D-PSGD leaves eta / gap.
BEST = {
    "d_psgd": lambda gap: 0.04 * gap,
    "d2": lambda gap: 2 * math.sqrt(gap),
    "dsgt": lambda gap: gap,
    "detag": lambda gap: 0.4,
    "defacto": lambda gap: 0.4,
}
#: The exponents that follow: roots of each algorithm's recursion along the slowest eigenvector.
CLOSED = {"d_psgd": 1.0, "d2": 0.5, "dsgt": 1.0, "detag": 0.0, "defacto": 0.0}


class Exactly(Quadratics):
    """Without noise, and with a step size of its own."""

    def __init__(self, weight: float, step: float) -> None:
        super().__init__("ring")
        self.topology, self.step = topology("ring", NODES, weight=weight), step
        self.aims = torch.from_numpy(self.goals - self.goals.mean(0))

    def updates(self, models):
        return -self.step * (models - self.aims)


def steps(one: exponents.Graph, step: float, most: int = 12_000) -> int:
    """After how many rounds each node is within 0.05 of the optimum, and stays there."""
    models = load_registry().build("architecture", one.system).models(Exactly(one.system["weight"], step))
    first = None
    for number, x in enumerate(models, 1):
        near = float(x.norm(dim=1).max()) <= 0.2
        first = (first or number) if near else None
        if first is not None and number > 1.3 * first + 20:
            return first
        assert number < most
    raise AssertionError


@pytest.mark.parametrize("name", exponents.SYSTEMS)
def test_on_quadratics_steps_grow_as_the_closed_forms_say(name):
    graphs = [exponents.graph(name, NODES, k) for k in K]
    took = [steps(one, BEST[name](one.gap)) for one in graphs]
    slope = np.polyfit([math.log(1 / one.gap) for one in graphs], np.log(took), 1)[0]
    assert abs(slope - CLOSED[name]) < 0.1, took
    exchanges = [number * one.exchanges for number, one in zip(took, graphs, strict=True)]
    slope = np.polyfit([math.log(1 / one.gap) for one in graphs], np.log(exchanges), 1)[0]
    assert abs(slope - (CLOSED[name] or 0.5)) < 0.12, exchanges


def test_a_fixed_step_leaves_d_psgd_apart_as_its_fixed_point_says():
    """Along eigenvector j: eta lambda_j b_j / (1 - lambda_j (1 - eta)), so that at a fixed step no number of rounds is enough."""
    step, weight = 0.2, 0.1
    nodes = Exactly(weight, step)
    models = load_registry().build("architecture", {"name": "d_psgd", "weight": weight}).models(nodes)
    for _ in range(400):
        x = next(models)
    values, vectors = np.linalg.eigh(nodes.topology.at(0))
    want = vectors @ np.diag(step * values / (1 - values * (1 - step))) @ vectors.T @ nodes.aims.numpy()
    assert np.abs(x.numpy() - want).max() < 1e-10 and np.abs(want).max() > 0.5
    assert x.shape == (NODES, DIM)


def test_the_fit_finds_a_power_and_leaves_out_what_was_not_reached():
    rows = [
        {"system": "s", "slower": "w", "seed": seed, "count": "c", "1 / gap": gap, "number": (seed + 1) * gap**0.7}
        for seed in range(3)
        for gap in (2.0, 20.0, 200.0)
    ]
    rows.append({**rows[-1], "1 / gap": 2000.0, "number": math.inf})
    (found,) = exponents.exponents(pd.DataFrame(rows)).to_dict("records")
    assert found["exponent"] == pytest.approx(0.7) and found["half"] == pytest.approx(0, abs=1e-9)


@pytest.mark.parametrize("best", [0, 1, 4, 10])
@pytest.mark.parametrize("first", [0, 1, 6, 10])
def test_it_finds_the_best_step_size_wherever_it_begins(best, first, monkeypatch):
    """Rounds that fall towards the best step size, and beyond it rise; twice too large a one never gets there."""

    def took(setup, system, lr, every, most):
        number = math.log2(0.4 / lr)
        rounds = 100 * 2 ** abs(number - best)
        return None if number < best - 1 or rounds > most else int(rounds)

    monkeypatch.setattr(exponents, "rounds_to", took)
    assert exponents.fewest(exponents.graph("d2", 10, 1.0), 0, every=2, first=first) == (100, best)


def test_rounds_are_those_of_the_real_nodes_until_the_target_holds():
    """Of D^2 on digits sorted by label: the first of three evaluations in a row with 80 %."""
    cell, setup = exponents._scene(exponents.graph("d2", 10, 1.0), 0)
    found = exponents.rounds_to(setup, cell.architecture, 0.4, 4, 60)
    training = setup.cell.training.model_copy(update={"rounds": found + 8, "lr": 0.4})
    reports = cell.architecture.run(replace(setup, evaluate_every=4).with_parts(training=training))
    there = [one.evaluation.accuracy >= exponents.TARGET for one in reports if one.evaluation]
    assert there[-3:] == [True] * 3 and there[-4] is False and found == 4 * (len(there) - 2)
    assert exponents.rounds_to(setup, cell.architecture, 0.4, 4, found - 4) in (None, found)


@pytest.mark.slow
def test_the_papers_orderings_on_digits_sorted_by_label():
    """The first three of the four graphs, and two of them for DSGT: an exponent of 1 for it, and of 1/2 for the others."""
    graphs = ((10, 1.0), (10, 0.1), (10, 0.05))
    many = exponents.measured(("d2", "detag", "defacto"), {"k": graphs})
    few = exponents.measured(("dsgt",), {"k": graphs[:2]}, seeds=1)
    found = pd.concat([exponents.exponents(many), exponents.exponents(few)]).set_index(["count", "system"])["exponent"]
    for name, exponent in {"dsgt": 1, "d2": 0.5, "detag": 0.5, "defacto": 0.5}.items():
        assert abs(found["exchanges", name] - exponent) < 0.2
    assert abs(found["optimizer steps", "detag"]) < 0.1 and abs(found["optimizer steps", "defacto"]) < 0.15


def test_the_page_has_the_exponents_of_the_picture():
    page = (ROOT / "docs" / "gossip_algorithms.md").read_text()
    _, _, table = page.partition("### How rounds grow as nodes mix slower")
    fitted = set(re.findall(r"\d\.\d\d ±\d\.\d\d", table.partition("\n## ")[0]))
    drawn = set(re.findall(r"-?\d\.\d\d ±\d\.\d\d", (FOLDER / "exponents.svg").read_text()))
    assert len(fitted) > 8 and fitted <= drawn
