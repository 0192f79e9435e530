"""Each node's own noise where parts of updates travel: what is sent of it is what a server would have got."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from fedguard.architectures.gossip.nodes import Nodes
from tests.systems.scenes import cell, models_of_common_noise, off, scene
from tests.systems.test_privacy_in_time import trained

NOISE = {"kind": "record", "clip": 1.0, "noise_multiplier": 1.0, "delta": 1e-5, "sample_rate": 0.2}
PRIVATE: dict[str, Any] = {"protocol": {"privacy": NOISE}, "training": {"local_steps": 2}}
PARTS: list[dict[str, Any]] = [{"name": "ako", "parts": 3}, {"name": "wide_area", "by_examples": False}]


@pytest.mark.parametrize(
    "system", [{"name": "ako", "parts": 1}, {"name": "wide_area", "by_examples": False, "every": 1, "top": 1.0}]
)
def test_whole_updates_carry_the_noise_of_the_server(system):
    """With the same noise in both cells, which else have their own: what proves an epsilon around a server proves it here."""
    assert off(models_of_common_noise(system, **PRIVATE), models_of_common_noise(**PRIVATE)) < 1e-5


@pytest.mark.parametrize("system", PARTS, ids=lambda system: system["name"])
def test_what_is_sent_is_made_of_noisy_updates_and_of_nothing_else(system):
    """Nodes with other data and another seed that are handed these updates send the same, to the last bit."""

    def sent(seed: int, given: list[torch.Tensor] | None = None) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
        made, setup = scene(system, seed, **PRIVATE)
        found = Nodes(setup, made.architecture.topology(6), broadcast=False)
        found.start = torch.zeros_like(found.start)
        taken: list[torch.Tensor] = []
        parcels: list[torch.Tensor] = []
        updates, of_parcels = found.updates, found.of_parcels

        def replayed(models):
            taken.append(updates(models) if given is None else given[len(taken)])
            return taken[-1]

        def overheard(rows, parcel, **others):
            parcels.append(rows.clone())
            return of_parcels(rows, parcel, **others)

        found.updates, found.of_parcels = replayed, overheard
        run = made.architecture.models(found)
        for round in range(1, 6):
            found.begin(round)
            next(run)
        return taken, parcels

    made, first = sent(0)
    _, second = sent(1, made)
    _, third = sent(1)
    assert all(torch.equal(one, two) for one, two in zip(first, second, strict=True))
    assert not any(torch.equal(one, two) for one, two in zip(first, third, strict=True))


@pytest.mark.parametrize("system", PARTS, ids=lambda system: system["name"])
def test_its_epsilon_is_that_of_as_many_trainings_around_a_server(system):
    ours, theirs = (trained(name, **PRIVATE)[3]["epsilon"] for name in (system, "server"))
    assert ours == theirs > 0


def test_refusals_say_why():
    (reason,) = cell({"name": "wide_area"}, **PRIVATE).verdict.reasons
    assert "Set by_examples: false" in reason
    assert "which no noise hides" in cell("dlion", **PRIVATE | {"training": {"local_steps": 1}}).verdict.reasons[0]
