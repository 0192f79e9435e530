"""The running statistics in the state dicts of a foreign training loop: joined with the update, or combined beside it."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from fedguard.aggregation import aggregate_statistics
from fedguard.arguments import of_kind
from fedguard.contracts import (
    Algorithm,
    CoordinateRule,
    Pipeline,
    PoisonAttack,
    RuleContext,
    Sight,
    StatisticsFate,
    StatisticsLayout,
)
from fedguard.contracts.channels import STATISTICS
from fedguard.errors import GuaranteeWarning, NotAllowed, PreconditionError
from fedguard.registry import load_registry
from fedguard.rng import Rng
from fedguard.states import Layout

#: Running statistics as coordinates of the update
JOINED = "joined"


def read_fate(statistics: str | Mapping[str, Any] | StatisticsFate) -> StatisticsFate | None:
    """What becomes of running statistics; None if they are joined with the update.

    Raises:
        ConfigError: no such fate.
        NotAllowed: one for which what clients send is not enough.
    """
    if isinstance(statistics, str) and statistics == JOINED:
        return None
    of_kind(statistics, "statistics", (str, Mapping, Algorithm), "a name, a mapping as in a suite, or a fate")
    fate: Any = statistics
    if isinstance(statistics, str | Mapping):
        spec = statistics
        if isinstance(spec, Mapping) and "fate" in spec:
            spec = {"name" if key == "fate" else key: value for key, value in spec.items()}
        fate = load_registry().build("statistics", spec, "statistics")
    if not isinstance(fate, StatisticsFate) or not fate.sends or fate.fresh:
        raise NotAllowed(
            f"statistics: {fate} needs more than what clients send in a round. Pass 'weighted', 'average', 'pooled' or "
            "'joined', or run a suite: fedguard.run."
        )
    return fate


def goes_by_coordinates(pipeline: Pipeline) -> bool:
    """Whether a pipeline treats each coordinate by itself or weighs clients alike, so that statistics distort nothing."""
    by_distance = not isinstance(pipeline.rule, CoordinateRule) and pipeline.rule.name not in ("mean", "weighted_mean")
    return not by_distance and not pipeline.mixings


def warn_of_share(layout: Layout, rows: Tensor) -> None:
    """Warn how much of the squared distances between clients (``[n, d]``) running statistics make up, if there are any."""
    _, own = layout.split()
    apart = (rows - rows.mean(0)).square().sum(0)
    if own is None or not float(apart.sum()) > 0:
        return
    parts = zip(layout.names, torch.split(apart, list(layout.sizes)), strict=True)
    share = sum(float(part.sum()) for name, part in parts if name in own.names) / float(apart.sum())
    warnings.warn(
        f"statistics='joined': the {sum(own.sizes)} running statistics among {rows.shape[1]} coordinates make up "
        f"{100 * share:.0f} % of the squared distances between clients, by which rules judge updates. Pass "
        "statistics='weighted' to keep them apart, or with a rule of their own, statistics=\"weighted(rule='median')\".",
        GuaranteeWarning,
        stacklevel=4,
    )


def drop_with_statistics(updates: Tensor, sent: Tensor) -> Tensor:
    """float32 ``[n, d]``: the updates, NaN where a client's statistics (``[n, s]``) are not finite: both are dropped."""
    return updates.where(sent.isfinite().all(1, keepdim=True), torch.nan)


def falsify_statistics(attack: PoisonAttack | None, sent: Tensor, malicious: Sequence[int], own: Layout) -> Tensor:
    """float32 ``[n, s]``: the running statistics as they reach the server, where rows of ``malicious`` may lie."""
    if attack is None or not malicious:
        return sent
    rows = list(malicious)
    return sent.index_copy(0, torch.tensor(rows), attack.report(STATISTICS, sent[rows], _layout(own)))


def combine_statistics(
    fate: StatisticsFate,
    sent: Tensor,
    samples: Sequence[float] | None,
    own: Layout,
    assumed_f: int,
    round: int,
    rng: Rng,
) -> tuple[Tensor, int]:
    """float32 ``[s]``: the next running statistics; and the number of variances below 0, which were taken for 0.

    Args:
        sent: float32 ``[n, s]``, of the clients whose update is aggregated.
        samples: the number of examples that each of them claims; all alike by default.

    Raises:
        PreconditionError: too few clients for the fate's rule.
    """
    n, s = sent.shape
    weights = torch.ones(n, dtype=torch.float64) if samples is None else torch.tensor(samples, dtype=torch.float64)
    f = min(assumed_f, n - 1)
    context = RuleContext("fedguard.Guard", Sight.EACH_UPDATE, f=f, round=round, rng=rng, layers=(s,))
    found, floored = aggregate_statistics(fate, sent, weights, _layout(own), context)
    if found is None:
        raise PreconditionError(
            f"round {round}: {n} clients are too few for statistics={fate} at f = {f}. Pass more clients, a smaller f, or "
            "statistics without a rule."
        )
    return found, floored


def _layout(own: Layout) -> StatisticsLayout:
    """The layers behind a layout of running statistics, each with its means before its variances."""
    channels = own.sizes[::2]
    return StatisticsLayout(channels, torch.zeros(2 * sum(channels)), len(channels))
