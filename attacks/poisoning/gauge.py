"""Another gauge of low-rank factors: the same adapter, written so that the mean of factors is another one (own)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from torch import Tensor

from fedguard.contracts import PoisonAttack, PoisonView, PositiveFloat, Sight


@dataclass(frozen=True, kw_only=True)
class Gauge(PoisonAttack):
    """Trains honestly, and sends each adapter's factors as c times A and B over c: their product is the honest one.

    The client's own model is as good as anybody's, whatever c. But factors are averaged apart, and $mean(B) mean(A)$ is then
    far from $mean(B A)$. No rule that looks at what a client's model does can tell.

    Factors are two trained matrices of which the second follows the first without a bias between them, as A and B of LoRA do.
    They are found by this order alone. In a network without such a pair the update stays honest; where A is frozen, two
    matrices B that follow each other are taken for one, and it is another attack.

    Args:
        c: by what the first factor is multiplied, and the second divided.
    """

    name = "gauge"
    source = (
        "own; the two factors of an adapter: Hu et al., LoRA: Low-Rank Adaptation of Large Language Models, ICLR 2022"
    )
    needs = (Sight.OWN_DATA | Sight.MODEL,)

    c: PositiveFloat = 30.0

    def craft(self, view: PoisonView) -> Tensor:
        model, own = view.model, view.own
        crafted = own.clone()
        for first, second in find_factors(view.layers, view.ranks):
            for place, factor in ((first, self.c), (second, 1 / self.c)):
                crafted[:, place] = factor * (model[place] + own[:, place]) - model[place]
        return crafted


def find_factors(layers: Sequence[int], ranks: Sequence[int]) -> Iterator[tuple[slice, slice]]:
    """The coordinates of both factors of each pair: matrices that follow each other, no one in two pairs.

    Args:
        layers: the sizes of the trained tensors, in order.
        ranks: their numbers of dimensions.
    """
    start, first = 0, None
    for size, rank in zip(layers, ranks, strict=True):
        place, start = slice(start, start + size), start + size
        if first is not None and rank == 2:
            yield first, place
            first = None
        else:
            first = place if rank == 2 else None
