"""Rounds of an aggregation on which a rule is tried: updates, and all that a server could see beside them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import torch
from torch import Tensor

from fedguard.aggregation import Aggregate, aggregate
from fedguard.contracts import Pipeline, RuleContext, Sight, State
from fedguard.errors import FedGuardError, NotObservable, PreconditionError, printable
from fedguard.rng import Rng

#: What the server of an evaluation may see at most
ALL = Sight.EACH_UPDATE | Sight.MODEL | Sight.TIMES | Sight.GRAPH | Sight.ROOT_DATA
#: What it sees of groups of clients under masks
GROUPS = Sight.GROUP_SUMS | Sight.MODEL | Sight.ROOT_DATA
#: Inputs of the toy network whose weights the updates move: two features, two classes
FEATURES, CLASSES = 2, 2


@dataclass(frozen=True)
class ToyRound:
    """One round.

    Attributes:
        rows: float32 ``[n, d]``: the updates.
        f: how many of them the rule assumes to be malicious.
        seed: of the rule's own draws.
        facts: values of `RuleContext` that replace the usual ones.
        sees: what the server sees.
        who: the client behind each row; by default 0 to n - 1. Its examples, noise and times follow it.
        states: of the stages, from the round before.
    """

    rows: Tensor
    f: int
    seed: int = 0
    facts: Mapping[str, Any] = field(default_factory=dict)
    sees: Sight = ALL
    who: Tensor | None = None
    states: Sequence[State] = ()

    def describe(self) -> str:
        """``n = 20, f = 4, d = 650``."""
        return f"n = {len(self.rows)}, f = {self.f}, d = {self.rows.shape[1]}"


class WatchedContext(RuleContext):
    """A context that notes what is read and refused, whether or not the rule catches the refusal."""

    refused: ClassVar[list[str]] = []

    def __getattribute__(self, name: str) -> Any:
        try:
            return super().__getattribute__(name)
        except NotObservable as error:
            self.refused.append(str(error))
            raise


def context_of(one: ToyRound) -> RuleContext:
    """What the server sees beside the updates."""
    n, d = one.rows.shape
    root = one.facts.get("root", one.rows[: n - one.f].mean(0))
    who = torch.arange(n) if one.who is None else one.who
    usual: dict[str, Any] = {
        "f": one.f,
        "rng": Rng(one.seed),
        "round": 1,
        "layers": (d,),
        "shape": (FEATURES,),
        "server_lr": 1.0,
        "model": torch.zeros(d),
        "predict": predict,
        "root": root,
        "root_loss": lambda model: float((model.double() - root).square().sum()),
        "samples": torch.where(who == 1, 5000, 20 + 7 * who % 31).double(),
        "own": int((who == 0).nonzero()[0, 0]),
    }
    if Sight.EACH_UPDATE in one.sees:  # who is behind a row of a group, and when it came, nobody knows
        usual |= {
            "clients": tuple(who.tolist()),
            "noise": 0.5 + (3 * who % 11).double() / 10,
            "staleness": who % 3,
            "versions": 2 - who % 3,
            "arrived": 0.1 * who.double(),
            "scale": torch.ones(n, dtype=torch.float64),
            "federation": (one.f, n),
            "starts": torch.zeros(d).expand(n, -1),
        }
    return WatchedContext("accept", one.sees, **{**usual, **one.facts})


def predict(model: Tensor, x: Tensor) -> Tensor:
    """Logits ``[B, 2]`` of a linear network without bias, whose weights are the first parameters, as far as they reach."""
    size = FEATURES * CLASSES
    weights = torch.nn.functional.pad(model, (0, max(0, size - len(model))))[:size].view(CLASSES, FEATURES)
    return x @ weights.T


def run_round(pipeline: Pipeline, one: ToyRound) -> Aggregate:
    """The pipeline's answer; the updates are a copy, so that no rule can change the rounds of the checks."""
    return aggregate(pipeline, one.rows.clone(), context_of(one), one.states)


def answer(pipeline: Pipeline, one: ToyRound) -> Tensor:
    """The aggregate, float64 ``[d]``."""
    return run_round(pipeline, one).vector.double()


def accepts(pipeline: Pipeline, n: int, f: int) -> bool:
    """Whether the pipeline says that it can run on n updates of which f are malicious."""
    try:
        pipeline.check(n, f)
    except PreconditionError:
        return False
    return True


def least_rows(pipeline: Pipeline, f: int, most: int = 200) -> int | None:
    """The smallest n that the pipeline accepts for this f; None if it is above ``most``."""
    return next((n for n in range(max(1, f + 1), most + 1) if accepts(pipeline, n, f)), None)


def draw_honest(n: int, d: int, seed: int, spread: float = 1.0) -> Tensor:
    """float32 ``[n, d]``: updates around a common direction, in general position; no two values are equal."""
    draw = Rng(seed).child("accept", n, d).torch()
    center = torch.randn(d, generator=draw) + 0.5
    return center + spread * torch.randn(n, d, generator=draw)


def draw_tied(n: int, d: int, seed: int) -> Tensor:
    """float32 ``[n, d]``: small whole numbers, of which many are equal, as are many lengths and distances."""
    return torch.randint(-1, 2, (n, d), generator=Rng(seed).child("tied").torch()).float()


def draw_attacked(n: int, f: int, d: int, seed: int, kind: str) -> Tensor:
    """float32 ``[n, d]``: honest updates, and among them at random places f malicious ones of a kind of `LIES`."""
    rows = draw_honest(n, d, seed)
    honest = rows[f:]
    mean, spread = honest.mean(0), honest.std(0) if len(honest) > 1 else torch.ones(d)
    rows[:f] = {"far": mean + 100, "reversed": -3 * mean, "close": mean - 1.2 * spread, "zero": torch.zeros(d)}[kind]
    return rows[torch.randperm(n, generator=Rng(seed).child("order").torch())]


#: Kinds of malicious updates
LIES = ("far", "reversed", "close", "zero")


def is_close(a: Tensor, b: Tensor, rows: Tensor, share: float = 1e-4) -> bool:
    """Whether two answers are equal up to rounding, a share of the largest value of the updates."""
    return bool((a - b).abs().max() <= share * (1e-6 + rows.double().abs().max()))


def explain_error(error: BaseException) -> str:
    """The first line of an error as a sentence, with the name of its type unless it is one of FedGuard's own."""
    text = printable((str(error).splitlines() or [""])[0]).rstrip(".") + "."
    return text if isinstance(error, FedGuardError) else f"{type(error).__name__}: {text}"
