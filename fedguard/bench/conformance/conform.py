"""Compares the simulation of an architecture with real processes, without and with an attack."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import torch
from torch import Tensor

from fedguard.architectures.systems.central_learner import CentralLearner
from fedguard.architectures.systems.learner import Learner
from fedguard.bench.conformance.actors import RayEngine
from fedguard.bench.conformance.deployed import DeploymentEngine
from fedguard.bench.conformance.engine import RealEngine, SequentialTrainer, TrainingOutcome, set_up_of, start_of
from fedguard.bench.conformance.gloo import GlooEngine
from fedguard.bench.conformance.messages import FlowerEngine
from fedguard.bench.running.trial import share
from fedguard.config import Document, PlannedCell, plan, read_suite
from fedguard.errors import ConfigError, NotAllowed, UnknownName
from fedguard.registry import load_registry

#: The real engines by name: each is a file beside this one.
ENGINES: Mapping[str, RealEngine] = {
    "gloo": GlooEngine(),
    "ray": RayEngine(),
    "flower": FlowerEngine(),
    "deployment": DeploymentEngine(),
}
#: What clients train on that do not act.
DIGITS = {"data": "digits", "model": "softmax", "partition": {"kind": "dirichlet", "alpha": 0.5}}
#: The largest difference over the way moved that counts as none, in float32, in which FedGuard trains.
TOLERANCE = 1e-5


@dataclass(frozen=True)
class Side:
    """One side of a comparison.

    Attributes:
        accuracy: test accuracy, the mean over all nodes; in reinforcement learning, the normalized return.
        sha256: the first 16 digits of the digest of all models.
        seconds: duration of the training.
    """

    accuracy: float
    sha256: str
    seconds: float


@dataclass(frozen=True)
class Conformance:
    """A real training beside the simulated one.

    The difference is $max_i |r_i - s_i| / max_i |s_i - w_0|$ over the nodes i in the Euclidean norm, with the real model r, the
    simulated model s and the initial model w_0: the final distance, relative to the largest distance that a node has moved.

    Attributes:
        architecture: its spec.
        label: the cell.
        difference: this difference; infinite if a model is not finite, or nothing has moved.
        same_bits: whether all bits are equal if the simulation trains the clients one by one, as each process does.
        order: in asynchronous training, the arrivals as (client, k) for the k-th local training of the client.
    """

    architecture: str
    engine: str
    attack: str
    label: str
    simulated: Side
    real: Side
    difference: float
    same_bits: bool
    order: tuple[tuple[int, int], ...] | None = None

    @property
    def passed(self) -> bool:
        return self.difference <= TOLERANCE

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        difference = self.difference if self.difference < float("inf") else None
        return {**asdict(self), "difference": difference, "tolerance": TOLERANCE, "passed": self.passed}


def conform(
    architectures: Sequence[str],
    engine: str,
    *,
    attack: str | None = None,
    defense: str = "mean",
    nodes: int = 4,
    rounds: int = 10,
    seed: int = 0,
    engines: Mapping[str, RealEngine] = ENGINES,
) -> list[Conformance]:
    """Compare architectures on real processes with their simulation, each without an attack and with one.

    Args:
        architectures: their specs, such as ``d_psgd(graph='ring')``.
        engine: ``gloo``, ``ray``, ``flower`` or ``deployment``.
        attack: the attack of one malicious client; None for ipm, or reward_flip in reinforcement learning.
        nodes: number of clients or nodes.

    Raises:
        ConfigError: the engine does not run it, or the cell may not run.
    """
    if engine not in engines:
        raise UnknownName("engine", engine, engines, "--engine")
    attacks = ("none", attack)
    specs = [spec for spec in architectures for _ in attacks]
    cells = [cell_of(spec, one, defense, nodes, rounds) for spec in architectures for one in attacks]
    for cell in cells:
        if why := engines[engine].why_not(cell.architecture):
            raise ConfigError(f"conform: {why}")
    found = zip(specs, cells, engines[engine].run(cells, seed), strict=True)
    return [compare_with_simulation(engines[engine], *one, seed) for one in found]


def cell_of(architecture: str, attack: str | None, defense: str, nodes: int, rounds: int) -> PlannedCell:
    """The cell that both sides train: heterogeneous handwritten digits, or actors that balance a pole.

    Raises:
        NotAllowed: it may not run.
    """
    built = load_registry().build("architecture", architecture)
    acts = isinstance(built, Learner)
    algorithm = "double_dqn" if built.replays else "vtrace" if isinstance(built, CentralLearner) else "actor_critic"
    task = {"data": "cartpole(copies=2)", "model": {"name": "mlp", "hidden": [16]}} if acts else DIGITS
    training: dict[str, Any] = {"local_steps": 2, "batch_size": 16, "lr": 0.1}
    if acts:
        adam = {"name": "adam", "tau": 1e-5}
        training = {"algorithm": f"{algorithm}(t_max=8)", "lr": 0.1, "server_lr": 0.1, "server_optimizer": adam}
    attack = attack or ("reward_flip" if acts else "ipm")
    document = Document(
        {
            "schema": 1,
            "name": "conform",
            "task": task,
            "architecture": architecture,
            "clients": {"total": nodes, "malicious": 1},
            "training": {"rounds": rounds, **training},
            "seeds": 1,
            "matrix": {"attack": [attack], "defense": [defense]},
        }
    )
    ((_, cell),) = plan(document, read_suite(document)).positions
    if cell.verdict.reasons:
        raise NotAllowed(f"conform: {cell.label}: {' '.join(cell.verdict.reasons)}")
    return cell


def compare_with_simulation(
    engine: RealEngine, architecture: str, cell: PlannedCell, real: TrainingOutcome, seed: int
) -> Conformance:
    """The outcome of a cell on real processes, compared with its simulation."""
    setup, began = set_up_of(cell, seed), time.monotonic()
    simulated, seconds = engine.simulate_cell(cell, setup, real.order), time.monotonic() - began
    by_one = engine.simulate_cell(cell, replace(setup, trainer=SequentialTrainer(setup).train), real.order)

    def side(models: Tensor, seconds: float) -> Side:
        accuracy = [share(setup.task, setup.task.evaluate(model)) for model in models]
        digest = hashlib.sha256(models.numpy().tobytes()).hexdigest()[:16]
        return Side(sum(accuracy) / len(accuracy), digest, seconds)

    simulated, by_one = (models.expand_as(real.models).contiguous() for models in (simulated, by_one))
    return Conformance(
        architecture=architecture,
        engine=engine.name,
        attack=cell.attack.name if cell.attack else "none",
        label=cell.label,
        simulated=side(simulated, seconds),
        real=side(real.models, real.seconds),
        difference=difference(real.models, simulated, start_of(setup)),
        same_bits=torch.equal(real.models, by_one),
        order=real.order,
    )


def difference(real: Tensor, simulated: Tensor, start: Tensor) -> float:
    """$max_i |r_i - s_i| / max_i |s_i - w_0|$ of float32 ``[n, d]`` both, and ``[d]``, counted in float64."""
    apart = (real.double() - simulated.double()).norm(dim=1).max()
    way = (simulated.double() - start.double()).norm(dim=1).max()
    share = float(apart / way)
    return share if share < float("inf") else float("inf")  # NaN is none
