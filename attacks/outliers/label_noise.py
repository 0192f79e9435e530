"""Label noise (van Rooyen et al., NeurIPS 2015; Rolnick et al., 2017)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch

from fedguard.contracts import DataView, Examples, PoisonAttack, Share, Sight


@dataclass(frozen=True, kw_only=True)
class LabelNoise(PoisonAttack):
    """Faulty clients were labeled carelessly: each of their labels is wrong with the same probability.

    Symmetric: a wrong label is any of the C - 1 others with equal probability. This extends van Rooyen's noise from two
    classes to C. Rolnick et al. draw from all C labels, so a share p of such draws is ``share = p (C - 1) / C`` here.
    Asymmetric: y becomes $(y + 1) mod C$, as if annotators always took one class for a certain other.

    Args:
        share: probability with which a label is wrong, the expected share of wrong labels; 0.2 to 0.8 is usual, and in the
            symmetric form $(C - 1) / C$ leaves no information in the labels.
        noise: ``symmetric`` or ``asymmetric``.
    """

    name = "label_noise"
    source = "van Rooyen et al., Learning with Symmetric Label Noise: The Importance of Being Unhinged, NeurIPS 2015"
    goal = "fault"
    needs = (Sight.OWN_DATA,)

    share: Share = 0.5
    noise: Literal["symmetric", "asymmetric"] = "symmetric"

    def poison(self, examples: Examples, view: DataView) -> Examples:
        count = len(examples)
        wrong = torch.rand(count, generator=view.rng.child("wrong").torch()) < self.share
        if self.noise == "symmetric":
            off = torch.randint(1, view.classes, (count,), generator=view.rng.child("label").torch())
        else:
            off = torch.ones(count, dtype=torch.int64)
        return examples.replace(y=torch.where(wrong, (examples.y + off) % view.classes, examples.y))
