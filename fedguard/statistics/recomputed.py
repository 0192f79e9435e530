"""Running statistics computed anew under each new model."""

from __future__ import annotations

from dataclasses import dataclass

from fedguard.statistics.weighted import Weighted


@dataclass(frozen=True, kw_only=True)
class Recomputed(Weighted):
    """The statistics of one more pass of each client over its examples under the new model, averaged by numbers of examples.

    $m = sum_i n_i m_i / sum_i n_i$, and v in the same way. They have no memory: no round's statistics contain an earlier
    round's, and a false one is gone as soon as its sender is. It costs each client of a round one forward pass and one
    more download. The passes are simulated where the model is evaluated, since nothing else reads the statistics.
    """

    name = "recomputed"
    source = "static batch normalization: Diao et al., HeteroFL, ICLR 2021"
    words = (
        "after each round the clients pass over their examples once more under the new model, and the server averages their "
        "means and variances, weighted by their numbers of examples"
    )
    fresh = True
