"""A rule of the catalog as the aggregator of an NVFlare job: a defense that stays."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import torch
from nvflare.app_common.abstract.fl_model import FLModel, ParamsType
from nvflare.app_common.aggregators.model_aggregator import ModelAggregator
from nvflare.app_common.app_constant import AppConstants

from fedguard.bridges.nvflare.controller import claim_of, site_of
from fedguard.errors import InputError, PreconditionError
from fedguard.guard import Guard
from fedguard.states import Layout


class FedGuardAggregator(ModelAggregator):  # type: ignore[misc]
    """``FedAvgRecipe(..., aggregator=FedGuardAggregator(defense="median", f=1))``.

    The rule sees the results of a round together, in the order of sites, and keeps its state from round to round. A result with
    other arrays than the model is dropped and counts toward f. A round with too few results for the rule leaves the model as it
    was; `skipped` says why.

    Args:
        defense: a rule of the catalog. ``weighted_mean`` goes by NUM_STEPS_CURRENT_ROUND, as FedAvg itself.
        f: assumed number of malicious sites in a round.
        seed: seed of a randomized rule.

    Attributes:
        dropped: number of dropped results.
        skipped: reasons for the rounds that left the model as it was.

    Raises:
        ConfigError: an unknown rule or parameter.
    """

    def __init__(self, defense: str, f: int, seed: int = 0) -> None:
        super().__init__()
        self.defense, self.f, self.seed = defense, f, seed
        self._guard = Guard(defense=defense, f=f, seed=seed)
        self._held: list[FLModel] = []
        self._layout: Layout | None = None
        self.dropped = 0
        self.skipped: list[str] = []

    def accept_model(self, model: FLModel) -> None:
        """Hold a result until all are there."""
        self._held.append(model)

    def reset_stats(self) -> None:
        """Forget the results of the last round; the rule keeps its state."""
        self._held = []

    def aggregate_model(self) -> FLModel:
        """The sent model plus the robust aggregate, or that aggregate alone if sites send differences.

        Raises:
            InputError: no result, or no model of the server to start from.
        """
        held = sorted(self._held, key=lambda one: _rank(site_of(one)))
        if not held:
            raise InputError("FedGuardAggregator: expected results of sites; none arrived.")
        kind = held[0].params_type
        before = self._model(held[0].params, kind)
        layout = self._layout = self._layout or Layout.of_several([before, *(one.params for one in held)], _names(held))
        start = layout.vector(before, "the model of the server", averaged=True)
        kept, rows = [], []
        for one in held:
            try:
                row = layout.vector(one.params, f"the result of {site_of(one)}")
                if one.params_type != kind:
                    raise InputError(f"the result of {site_of(one)}: expected {kind}; got {one.params_type}.")
            except InputError as error:
                self.warning(str(error))
                continue
            kept.append(one)
            rows.append(row if kind == ParamsType.DIFF else row - start)
        change = self._aggregate(layout, start, rows, kept, len(held) - len(kept))
        like = kept[0].params if kept else held[0].params
        values = change if kind == ParamsType.DIFF else start + change
        return FLModel(params=layout.state(values, like), params_type=kind, metrics=None)

    def _model(self, like: Mapping[str, Any], kind: Any) -> Mapping[str, Any]:
        """The server's model that was sent."""
        found = None if self.fl_ctx is None else self.fl_ctx.get_prop(AppConstants.GLOBAL_MODEL)
        weights = None if found is None else found.get("weights")
        if weights:
            return dict(weights)
        if kind == ParamsType.DIFF:  # the rule needs no start then
            return {name: 0 * value for name, value in like.items()}
        raise InputError(
            "FedGuardAggregator: expected the server's model, from which updates are counted; there is none. Give the job a "
            "persistor, as its recipe's `model` does, or let sites send differences (params_transfer_type DIFF)."
        )

    def _aggregate(
        self, layout: Layout, start: torch.Tensor, rows: list[torch.Tensor], kept: list[FLModel], lost: int
    ) -> torch.Tensor:
        guard = self._guard
        self.dropped += lost
        guard.round += 1
        guard.assumed_f = max(0, self.f - lost)
        claims = [claim_of(one) for one in kept]
        known = None if None in claims else [float(claim or 0) for claim in claims]
        if known is None and guard.weighs:
            raise InputError(f"FedGuardAggregator: {self.defense} goes by NUM_STEPS_CURRENT_ROUND; a result has none.")
        try:
            if not rows:
                raise PreconditionError(f"round {guard.round}: none of {lost} results is left.")
            names = [site_of(one) for one in kept]
            numbers = [self._number(name) for name in names]
            return guard.aggregate_updates(
                start, torch.stack(rows), layers=layout.sizes, samples=known, clients=numbers
            )
        except PreconditionError as error:
            self.skipped.append(str(error))
            self.warning(f"the model stays as it was. {error}")
            return torch.zeros_like(start)

    def _number(self, site: str) -> int:
        """A site's number, for rules that remember sites: in the order in which they came first."""
        known: dict[str, int] = self.__dict__.setdefault("_numbers", {})
        return known.setdefault(site, len(known))


def _names(held: list[FLModel]) -> list[str]:
    return ["the model of the server", *(f"the result of {site_of(one)}" for one in held)]


def _rank(site: str) -> list[Any]:
    return [int(part) if part.isdigit() else part for part in re.split(r"(\d+)", site)]
