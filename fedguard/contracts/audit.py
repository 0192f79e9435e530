"""What noise is audited with: claims, checks of what was seen, and the bench on which the code of a cell is run."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from fedguard.contracts.tasks import Examples, LocalPlan, Task
from fedguard.rng import Rng

if TYPE_CHECKING:
    from fedguard.contracts.architectures import Setup
    from fedguard.contracts.reports import RoundReport

Reals: TypeAlias = NDArray[np.float64]
Flags: TypeAlias = NDArray[np.bool_]
Integers: TypeAlias = NDArray[np.int64]

#: A check fails below this p-value, which holds for all that it compares together (Bonferroni within the check).
SIGNIFICANCE = 1e-4
#: Inputs and classes of the small task on which trainings are watched.
SHAPE, CLASSES = (1, 8, 8), 4

#: delta -> epsilon.
Curve: TypeAlias = Callable[[float], float]


@dataclass(frozen=True, kw_only=True)
class Epsilon:
    """A privacy loss, with all that it means; ``bound`` is False for an estimate, which proves nothing."""

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
        """The figure and its meaning, a line each."""
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
    """One test of the residual noise against what the mechanism says of itself.

    Args:
        p_value: how likely so large a deviation is if the code does what it says.
        words: what was seen.
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
        truth: float64 ``[T, d]``: what they would be without noise, by the auditor's own arithmetic.
        noise: standard deviation of the noise on each coordinate, as claimed.
        gaussian: whether the noise of a release is Gaussian; integer noise on a coarse grid is not.
        bare: float64 ``[k]``: single draws of the noise, brought to N(0, 1) by their own law, where releases add up several.
        positions: int64 ``[d]``: the coordinate that each column shows; None where that is its number.
        layers: sizes of the layers in which the coordinates lie, in order; none where there are no layers.
        clients: int64 ``[T]``: whose noise each row shows; None where it is nobody's.
        elsewhere: how far the noise differed with the same seed and other data, over its standard deviation; None where
            that was not tried.
        counts: float64 ``[k]``: the noise of the counts behind an adaptive clip, over the claimed one; None for none.
        drawn: bool ``[k, n]``: who of n was in each of k draws, in their order; None where nobody was drawn.
        rate: q, the chance of each, as claimed.
        fixed: whether each draw is of q n, and not by a toss for each.
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
        """What its accountant prints; None where it promises nothing."""
        ...

    @property
    def curve(self) -> Curve | None:
        """What its accountant prints at other deltas; None where that is not known."""
        ...

    def observe(self, included: Flags, rng: Rng) -> tuple[Reals, Transcript | None]:
        """Run it on the canaries that are in.

        Args:
            included: bool ``[m]``.
            rng: of all its draws.

        Returns:
            the score of every canary, float64 ``[m]``, and what the residuals are tested on, where they can be told.
        """
        ...


class Lab(ABC):
    """Where an audit runs the code of one cell, on data of its own: with the cell's architecture, clients, protocol and noise.

    Attributes:
        seed: of all that is drawn.
        before: is told what is done next.
    """

    seed: int
    before: Callable[[str], None]

    @property
    @abstractmethod
    def task(self) -> Task:
        """The cell's own, with its data dealt out."""

    @property
    @abstractmethod
    def characters(self) -> bool:
        """Whether its inputs are characters by number."""

    @abstractmethod
    def setup(self, parts: Sequence[Examples]) -> Setup:
        """A training of softmax regression from zero on these examples of the clients (inputs `SHAPE`, labels below `CLASSES`).

        Nobody is malicious, the rule is the mean, and somebody watches every round who sees everything.
        """

    @abstractmethod
    def run(self, setup: Setup, rounds: int) -> list[RoundReport]:
        """Its first rounds; where a round has several aggregates, each of these counts as one."""

    @abstractmethod
    def train(self, examples: Examples, model: Tensor, plan: LocalPlan, rng: Rng) -> Tensor:
        """What one client moves by, float32 ``[d]``, as every trial trains it: softmax regression of two classes."""

    @abstractmethod
    def batches(self, plan: LocalPlan, size: int, draw: np.random.Generator) -> Integers:
        """Which of a client's ``size`` examples each of its steps takes, -1 for none."""

    @abstractmethod
    def alone(self, plan: LocalPlan, runs: int) -> Reals:
        """float64 ``[runs, d]``: what a client without examples moves the cell's own model by, in so many ``runs``."""

    @abstractmethod
    def compute_updates(self, parts: Sequence[Examples], model: Tensor, plan: LocalPlan) -> Reals:
        """float64 ``[len(parts), d]``: what a client with these examples moves the cell's own model by, with the same draws."""
