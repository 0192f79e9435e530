"""A little is enough, with the best strength of each round (Allouah et al., AISTATS 2023)."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from fedguard.attacks.poisoning.alie import supportive_z
from fedguard.attacks.search import RuleOracle, SearchingAttack, along, spread, strongest_row
from fedguard.contracts import PoisonView


@dataclass(frozen=True, kw_only=True)
class OptALIE(SearchingAttack):
    """ALIE whose strength of either sign is searched against the known rule, anew in each round.

    $b = mu + z * sigma$ with the z that maximizes $|R - mu|$. The source takes the best z of a line search. Here the search
    tries 0 and $+-2^-2 ... 2^3$, up to $2^13$ if the best is at the end, then golden sections; it falls back on the z of
    `alie` if that is better. The greatest deviation in one round is not the greatest harm over many, so this attack alone
    does not show how robust a rule is.
    """

    name = "opt_alie"
    source = "Allouah et al., Fixing by Mixing: A Recipe for Optimal Byzantine ML under Heterogeneity, AISTATS 2023"
    magnitudes = (0.25, 0.5, 1.0, 2.0, 4.0, 8.0)

    def search_update(self, view: PoisonView) -> Tensor:
        asked = RuleOracle(view, [spread(view.honest)])
        simple = supportive_z(view.n, view.f)
        return asked.vector(strongest_row(asked, asked.mean, asked.unit(len(view.honest)), self.magnitudes, simple))

    def strength(self, view: PoisonView, crafted: Tensor) -> float:
        return along(crafted[0], view.honest.mean(0), spread(view.honest))
