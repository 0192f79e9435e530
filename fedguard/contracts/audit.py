"""The audit of noise: claims, checks of observations, and the bench on which the code of a cell runs."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from torch import Tensor

    from fedguard.contracts.participation import Participation
    from fedguard.contracts.reports import RoundReport
    from fedguard.contracts.tasks import Examples, LocalPlan, Task
    from fedguard.rng import Rng

Reals: TypeAlias = NDArray[np.float64]
Flags: TypeAlias = NDArray[np.bool_]
Integers: TypeAlias = NDArray[np.int64]

#: A check fails below this p-value, which is corrected for all comparisons within the check (Bonferroni)
SIGNIFICANCE = 1e-4
#: Shape of an input and number of classes of the small task on which trainings are observed
SHAPE, CLASSES = (1, 8, 8), 4

#: delta -> epsilon.
Curve: TypeAlias = Callable[[float], float]


@dataclass(frozen=True, kw_only=True)
class Epsilon:
    """A privacy loss with its meaning; ``bound`` is False for an estimate, which proves nothing."""

    value: float
    delta: float
    unit: str
    relation: str
    sampling: str
    view: str
    accountant: str
    bound: bool
    assumptions: tuple[str, ...]

    def describe(self) -> str:
        """The value and its meaning, one per line."""
        lines = [
            f"epsilon = {self.value:.4g} at delta = {self.delta:g}"
            + ("" if self.bound else " (an estimate, no bound)"),
            f"unit: {self.unit}",
            f"relation: {self.relation}",
            f"sampling: {self.sampling}",
            f"adversary view: {self.view}",
            f"accountant: {self.accountant}",
        ]
        return "\n".join([*lines, *(f"assumes: {assumption}" for assumption in self.assumptions)])


@dataclass(frozen=True, kw_only=True)
class Check:
    """One test of the residual noise against the claim of the mechanism.

    Args:
        p_value: probability of a deviation at least this large if the code does what it claims.
        words: what was observed.
    """

    name: str
    p_value: float
    words: str

    @property
    def passed(self) -> bool:
        return self.p_value >= SIGNIFICANCE


@dataclass(frozen=True, kw_only=True)
class Transcript:
    """What the auditor, who knows the inputs, compares the releases with.

    Args:
        releases: float64 ``[T, d]``.
        truth: float64 ``[T, d]``: the releases without noise, by the auditor's own arithmetic.
        noise: claimed standard deviation of the noise on each coordinate.
        gaussian: whether the noise of a release is Gaussian; integer noise on a coarse grid is not.
        bare: float64 ``[k]``: single draws of the noise, mapped to N(0, 1) by their own distribution, if releases add up
            several.
        positions: int64 ``[d]``: the coordinate that each column shows; None if it is the column's number.
        layers: sizes of the layers of the coordinates, in order; empty without layers.
        clients: int64 ``[T]``: the client behind the noise of each row; None if the noise belongs to no client.
        elsewhere: difference of the noise between two runs with the same seed and different data, over its standard deviation;
            None if this was not tested.
        counts: float64 ``[k]``: the noise of the counts behind an adaptive clip, over the claimed one; None for none.
        drawn: bool ``[k, n]``: which of n were in each of k draws, in their order; None if nobody was drawn.
        rate: q, the claimed probability of each.
        fixed: whether each draw takes exactly q n, instead of each independently with probability q.
    """

    releases: Reals
    truth: Reals
    noise: float
    gaussian: bool = True
    bare: Reals | None = None
    positions: Integers | None = None
    layers: tuple[int, ...] = ()
    clients: Integers | None = None
    elsewhere: float | None = None
    counts: Reals | None = None
    drawn: Flags | None = None
    rate: float = 1.0
    fixed: bool = False


class Subject(Protocol):
    """Code under audit, with what it claims."""

    @property
    def name(self) -> str: ...

    @property
    def claim(self) -> Epsilon | None:
        """The epsilon that its accountant prints; None if it claims nothing."""
        ...

    @property
    def curve(self) -> Curve | None:
        """The epsilon that its accountant prints at other deltas; None if unknown."""
        ...

    def observe(self, included: Flags, rng: Rng) -> tuple[Reals, Transcript | None]:
        """Run it on the canaries that are included.

        Args:
            included: bool ``[m]``.
            rng: stream of all its draws.

        Returns:
            the score of every canary, float64 ``[m]``, and the transcript on which the residuals are tested, if there is one.
        """
        ...


class Lab(ABC):
    """Where an audit runs the code of one cell on its own data, with the cell's architecture, clients, protocol and noise.

    Attributes:
        seed: seed of all draws.
        before: is called with a description of the next step.
    """

    seed: int
    before: Callable[[str], None]

    @property
    @abstractmethod
    def task(self) -> Task:
        """The cell's own task, with its data divided among the clients."""

    @property
    @abstractmethod
    def tokens(self) -> bool:
        """Whether its inputs are texts: tokens by number."""

    @abstractmethod
    def watch(
        self, parts: Sequence[Examples], rounds: int, clients: Participation | None = None
    ) -> tuple[Task, list[RoundReport]]:
        """The first rounds of a training of softmax regression from zero; each aggregate counts as a round if it has several.

        No client is malicious, the rule is the mean, and an observer that sees everything watches every round.

        Args:
            parts: the clients' examples: inputs `SHAPE`, labels below `CLASSES`.
            clients: who takes part instead of the cell's clients; these send updates as they are, without worker momentum and
                masks.
        """

    @abstractmethod
    def train(self, examples: Examples, model: Tensor, plan: LocalPlan, rng: Rng) -> Tensor:
        """The update of one client, float32 ``[d]``, as every trial trains it: softmax regression of two classes."""

    @abstractmethod
    def batches(self, plan: LocalPlan, size: int, draw: np.random.Generator) -> Integers:
        """The examples, of a client's ``size``, in the batch of each of its steps; -1 for none."""

    @abstractmethod
    def alone(self, plan: LocalPlan, runs: int) -> Reals:
        """float64 ``[runs, d]``: the update of the cell's own model by a client without examples, in each of ``runs`` runs."""

    @abstractmethod
    def compute_updates(self, parts: Sequence[Examples], model: Tensor, plan: LocalPlan) -> Reals:
        """float64 ``[len(parts), d]``: the update of the cell's own model by a client with each part, with the same draws."""
