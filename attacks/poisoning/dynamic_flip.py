"""Dynamic label flip (Shejwalkar et al., IEEE S&P 2022)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch.nn.functional import one_hot

from fedguard.contracts import DataView, Examples, PoisonAttack, Sight


@dataclass(frozen=True, kw_only=True)
class DynamicFlip(PoisonAttack):
    """Malicious clients train honestly on wrong labels that the current global model chooses, anew in each round.

    ``second_best``: y becomes $argmax_(c != y) logit_c(x)$, the likeliest wrong class, which pushes the model over its
    nearest decision boundary. ``least_likely``: y becomes $argmin_(c != y) logit_c(x)$, as in the source, which uses a
    model of the attacker's own instead of the global one.

    Args:
        to: which wrong class.
    """

    name = "dynamic_flip"
    source = "Shejwalkar et al., Back to the Drawing Board: A Critical Evaluation of Poisoning Attacks, IEEE S&P 2022"
    needs = (Sight.OWN_DATA | Sight.MODEL,)
    every_round = True

    to: Literal["second_best", "least_likely"] = "second_best"

    def poison(self, examples: Examples, view: DataView) -> Examples:
        with torch.no_grad():
            logits = view.predict(view.model, examples.x)
        preferred = logits if self.to == "second_best" else -logits
        # The true class is masked in both forms, so that the chosen label is always wrong
        own = one_hot(examples.y, view.classes).bool()
        return examples.replace(y=preferred.masked_fill(own, -torch.inf).argmax(1))
