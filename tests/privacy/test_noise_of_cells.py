"""Two cells of one seed share data, first model, sampling and batches, and no noise that hides anybody."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from fedguard.contracts import Participation
from fedguard.tasks import cohort
from tests.systems.scenes import reports, scene

CLIENT = {"kind": "client", "clip": 0.05, "noise_multiplier": 2.0, "delta": 1e-3}
RECORD = {"kind": "record", "clip": 1.0, "noise_multiplier": 4.0, "sample_rate": 0.1, "delta": 1e-4}
SHARED = {"kind": "distributed", "clip": 0.05, "noise_multiplier": 2.0, "delta": 1e-3}
STEPS = {"local_steps": 2, "rounds": 2}
SAMPLED = {"total": 6, "per_round": 4, "sampling": "fixed"}


def private(noise: dict[str, Any], **more: Any) -> dict[str, Any]:
    masks = {"secure_aggregation": "full"} if noise["kind"] == "distributed" else {}
    return {"network": None, "clients": SAMPLED, "training": STEPS, "protocol": {"privacy": noise, **masks}, **more}


#: Every place where noise is drawn that is to hide somebody: the architecture, and what makes it noisy.
NOISY: dict[str, tuple[str, dict[str, Any]]] = {
    "DP-SGD": ("server", private(RECORD)),
    "a server's": ("server", private(CLIENT)),
    "a server's, with an adaptive clip": ("server", private({**CLIENT, "clip": {"initial": 0.05, "bit_noise": 2.0}})),
    "a server's, correlated": (
        "server",
        private({**CLIENT, "noise": {"bands": 2}}, clients={"total": 6, "per_round": 3, "sampling": "cyclic"}),
    ),
    "Skellam, shared out": ("server", private({**SHARED, "mechanism": "skellam"})),
    "discrete Gaussian, shared out": ("server", private({**SHARED, "mechanism": "discrete_gaussian"})),
    "DP-SGD in simulated time": ("fedbuff(buffer=3)", private(RECORD, network={}, clients={})),
    "a server's in simulated time": ("fedbuff(buffer=3)", private(CLIENT, network={}, clients={})),
    "shared out in simulated time": ("google", private({**SHARED, "mechanism": "skellam"}, network={}, clients={})),
    "DP-SGD without a server": ("d_psgd", private(RECORD, clients={})),
    "DP-SGD in a ring": ("all_reduce", private(RECORD, clients={})),
    "the clients' own, unaccounted": ("server", private({"kind": "none"}, defense="noise(scale=4) >> mean")),
    "the clients' own, in slices": ("server", private({"kind": "none"}, defense="grad_defense(scale=4) >> mean")),
    "the clients' own, without a server": (
        "d_psgd",
        private({"kind": "none"}, clients={}, defense="noise(scale=4) >> mean"),
    ),
}


def course(monkeypatch: pytest.MonkeyPatch, architecture: str, every: int, seed: int, changes: dict[str, Any]) -> Any:
    """The first model, what a training moved it by, the batches of all clients and who was drawn, in order."""
    batches: list[Any] = []
    drawn: list[Any] = []
    with monkeypatch.context() as patch:
        scheduled, choose = cohort.schedule, Participation.choose
        patch.setattr(cohort, "schedule", lambda *a: batches.append((made := scheduled(*a)).tolist()) or made)
        patch.setattr(Participation, "choose", lambda *a: drawn.append(made := choose(*a)) or made)
        _, setup = scene(architecture, seed, evaluation={"every": every}, **changes)
        start = setup.task.initial_model(setup.rng.child("model"))
        data = torch.cat([setup.task.examples(client).x.flatten() for client in range(6)])
        last = list(reports(architecture, seed, evaluation={"every": every}, **changes))[-1].model
    return start, last - start, batches, drawn, data


def alike(ours: torch.Tensor, theirs: torch.Tensor) -> float:
    """The cosine of two movements."""
    return float(torch.nn.functional.cosine_similarity(ours.double(), theirs.double(), dim=0))


@pytest.mark.parametrize("kind", NOISY)
def test_two_cells_of_one_seed_share_all_but_their_noise(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    architecture, changes = NOISY[kind]
    first = course(monkeypatch, architecture, 1, 0, changes)
    again = course(monkeypatch, architecture, 1, 0, changes)
    assert torch.equal(first[1], again[1]), "a cell with its seed repeats"
    other = course(monkeypatch, architecture, 2, 0, changes)
    for which in (0, 4):
        assert torch.equal(first[which], other[which])
    assert first[2] == other[2] and first[2] and first[3] == other[3]
    assert abs(alike(first[1], other[1])) < 0.5, "what moved the models is mostly noise, and none of it is shared"
    plain = {**changes, "protocol": {}, "defense": "mean"}
    quiet, still = (course(monkeypatch, architecture, every, 0, plain) for every in (1, 2))
    assert torch.equal(quiet[1], still[1]), "without noise these cells train alike"
