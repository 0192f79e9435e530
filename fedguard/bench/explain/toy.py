"""The effect of one algorithm on a toy round of 16 honest and 4 malicious updates in the plane, as a picture for `explain`."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import torch
from rich.console import Group
from torch import Tensor, nn

from fedguard.aggregation import KnownPipeline, aggregate
from fedguard.bench.explain.picture import ChartLayer, Points, scatter
from fedguard.contracts import (
    Algorithm,
    ClientContext,
    ClientTransform,
    Examples,
    Gram,
    Mixing,
    Pipeline,
    PoisonAttack,
    PoisonView,
    RuleContext,
    Sight,
    WeightRule,
    first_met,
)
from fedguard.contracts.rules import AggregationRule
from fedguard.errors import NotAllowed, NotObservable, PreconditionError
from fedguard.registry import load_registry
from fedguard.rng import Rng

H, F = 16, 4
CENTER = (2.5, 1.5)
ORIGIN = ChartLayer(np.zeros((1, 2)), "0", "the zero update", "dim")


def picture_of(cls: type[Algorithm]) -> Group | None:
    """The picture, or None for algorithms that act on data or training, or cannot run on the toy round."""
    draw = next((draw for contract, draw in _DRAWINGS if issubclass(cls, contract)), None)
    if draw is None or inspect.isabstract(cls) or not all(_has_default(field) for field in cls.fields()):
        return None
    try:
        return draw(cls())
    except (NotAllowed, PreconditionError, NotObservable):
        return None


def _has_default(field: dataclasses.Field[Any]) -> bool:
    return field.default is not dataclasses.MISSING or field.default_factory is not dataclasses.MISSING


def _crafts_alone(cls: type[PoisonAttack]) -> bool:
    """Whether the attack's updates depend on no data: it crafts them, and neither poisons data nor changes the training."""
    return cls.overrides("craft") and not cls.overrides("poison") and not cls.overrides("plan")


@lru_cache(maxsize=1)
def _honest() -> Tensor:
    return _cloud("honest", H, 0.5, CENTER)


@lru_cache(maxsize=1)
def _malicious() -> Tensor:
    return _cloud("hostile", F, 0.3, (-6.0, -2.0))


def _cloud(name: str, rows: int, deviation: float, center: tuple[float, float]) -> Tensor:
    drawn = torch.randn(rows, 2, generator=Rng(0).child("toy", name).torch())
    return drawn * deviation + torch.tensor(center)


#: Visibility of the rule in the example.
SEES = Sight.EACH_UPDATE | Sight.MODEL | Sight.ROOT_DATA | Sight.GRAPH


def _context(n: int, sees: Sight = SEES) -> RuleContext:
    """A first round from the zero model; the server's own update and its least loss are at the honest center."""
    root = _honest().mean(0)
    return RuleContext(
        "explain",
        sees,
        f=F,
        rng=Rng(0).child("toy"),
        layers=(2,),
        shape=(2,),
        clients=tuple(range(n)),
        own=0,
        samples=torch.ones(n, dtype=torch.float64),
        noise=torch.ones(n, dtype=torch.float64),
        root=root,
        root_loss=lambda model: float((model - root).square().sum()),
        model=torch.zeros(2),
    )


def _rule(rule: AggregationRule) -> Group:
    updates = torch.cat([_honest(), _malicious()])
    result = aggregate(Pipeline((rule,)), updates, _context(len(updates)))
    honest, malicious = _points(_honest()), _points(_malicious())
    notes = []
    if result.weights is None:
        layers = [ChartLayer(honest, "o", "honest", "green"), ChartLayer(malicious, "x", "malicious", "red")]
    else:
        counts = (result.weights.abs() > 1e-3).numpy()
        layers = [
            ChartLayer(honest[~counts[:H]], "o", "honest, without weight", "green"),
            ChartLayer(malicious[~counts[H:]], "x", "malicious, without weight", "red"),
            ChartLayer(honest[counts[:H]], "O", "honest, with weight", "bold green"),
            ChartLayer(malicious[counts[H:]], "X", "malicious, with weight", "bold red"),
        ]
        total = float(result.weights.abs().sum())
        if total > 0:
            share = 100 * float(result.weights[H:].abs().sum()) / total
            notes.append(f"Of all weight the malicious updates got {share:.3g} %.")
    return _draw_scatter(
        [
            *sorted(layers, key=lambda layer: layer.symbol.lower()),
            ORIGIN,
            ChartLayer(_points(updates.mean(0)), "m", "the plain mean", "bold yellow"),
            ChartLayer(_points(result.vector), "R", f"what {rule.name} answers", "bold cyan"),
        ],
        f"{rule.name} in a toy first round of {H} honest and {F} malicious updates:",
        notes,
    )


@dataclass(frozen=True, kw_only=True)
class _RowSelection(WeightRule):
    """Returns one of its input rows, so that the output of a mixing stage can be seen."""

    name = "one_row"
    needs = (Sight.NOTHING,)

    row: int

    def weights(self, gram: Gram, context: RuleContext) -> Tensor:
        return torch.nn.functional.one_hot(torch.tensor(self.row), gram.n).double()


def _mixing(mixing: Mixing) -> Group:
    updates = torch.cat([_honest(), _malicious()])
    mixed = [
        aggregate(Pipeline((mixing, _RowSelection(row=row))), updates, _context(len(updates)))
        for row in range(mixing.rows_out(len(updates)))
    ]
    rows = _points(torch.stack([one.vector for one in mixed]))
    touched = np.array([one.weights is None or bool((one.weights[H:].abs() > 1e-6).any()) for one in mixed])
    return _draw_scatter(
        [
            ChartLayer(_points(_honest()), "o", "honest, before", "green"),
            ChartLayer(_points(_malicious()), "x", "malicious, before", "red"),
            ORIGIN,
            ChartLayer(rows[~touched], "O", "handed on: made of honest updates alone", "bold green"),
            ChartLayer(rows[touched], "X", "handed on: made of malicious updates too", "bold red"),
        ],
        f"What {mixing.name} hands on in a toy first round of {H} honest and {F} malicious updates:",
    )


def _transform(transform: ClientTransform) -> Group:
    network = nn.Linear(1, 1)  # with as many parameters as the plane has axes

    def transform_update(client: int) -> Tensor:
        context = ClientContext(
            transform.name,
            Sight.OWN_DATA | Sight.MODEL,
            rng=Rng(0).child("toy", "client", client),
            examples=Examples(torch.ones(1, 1), torch.zeros(1, dtype=torch.int64)),
            model=torch.zeros(2),
            module=network,
            predict=lambda model, x: x * model[0] + model[1],
        )
        return transform.apply(_honest()[client], context)

    return _draw_scatter(
        [
            ChartLayer(_points(_honest()), "o", "honest, before", "green"),
            ORIGIN,
            ChartLayer(
                _points(torch.stack([transform_update(client) for client in range(H)])), "O", "sent", "bold green"
            ),
        ],
        f"What {H} honest clients send through {transform.name} in a toy first round:",
    )


def _attack(attack: PoisonAttack) -> Group | None:
    if not _crafts_alone(type(attack)):
        return None
    grants = Sight.HONEST_UPDATES | Sight.OWN_DATA | Sight.MODEL | Sight.RULE | Sight.GRAPH
    sees = first_met(attack.needs, grants)
    if sees is None:
        return None
    view = PoisonView.of_round(
        attack,
        sees,
        malicious=range(H, H + F),
        rng=Rng(0).child("toy", "attack"),
        honest=_honest(),
        own=_cloud("own", F, 0.5, CENTER),
        model=torch.zeros(2),
        rule=_colluder_rule(),
        receiver=0,
        mixing=torch.full((H + F,), 1 / (H + F), dtype=torch.float64),
        slowest=(_honest()[0] - _honest()[1]) / 2,  # among equals any eigenvector will do
    )
    sent = _points(attack.craft(view))
    return _draw_scatter(
        [
            ChartLayer(_points(_honest()), "o", "honest", "green"),
            ORIGIN,
            ChartLayer(_points(_honest().mean(0)), "m", "the mean of the honest updates", "bold yellow"),
            ChartLayer(sent, "x", f"what the {F} malicious clients send", "bold red"),
        ],
        f"What {attack.name} sends in a toy first round, beside {H} honest updates:",
        ["The malicious clients know the rule: here the trimmed mean."] if Sight.RULE in sees else [],
    )


def _colluder_rule() -> KnownPipeline:
    """The malicious clients' copy of a trimmed mean."""
    return KnownPipeline(
        load_registry().pipeline("trimmed_mean"), lambda n, updates: _context(n, Sight.EACH_UPDATE | Sight.ROOT_DATA)
    )


def _draw_scatter(layers: list[ChartLayer], title: str, notes: Sequence[str] = ()) -> Group:
    return scatter(layers, title, notes, center=CENTER)


def _points(rows: Tensor) -> Points:
    return rows.detach().double().reshape(-1, 2).numpy()


_DRAWINGS: tuple[tuple[type[Algorithm], Callable[[Any], Group | None]], ...] = (
    (AggregationRule, _rule),
    (Mixing, _mixing),
    (ClientTransform, _transform),
    (PoisonAttack, _attack),
)
