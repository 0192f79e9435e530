"""Rules that draw: at each node, for each range of the keys and in each round they draw something else, and again the same."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest
import torch

from fedguard.contracts import ROWS, Pipeline, WeightRule
from tests.systems.scenes import scene

#: What the rule drew, in the order of its calls.
DRAWN: list[int] = []


@dataclass(frozen=True, kw_only=True)
class Drawing(WeightRule):
    """The mean; it notes down a draw of its stream."""

    name = "drawing"
    source = "a test"
    needs = ROWS

    def weights(self, gram, context):
        DRAWN.append(int(context.rng.numpy().integers(2**60)))
        return torch.full((gram.n,), 1 / gram.n, dtype=torch.float64)


def drawn(architecture: Any, seed: int = 0, **changes: Any) -> list[int]:
    made, setup = scene(architecture, seed, training={"rounds": 2}, defense="median", **changes)  # which sees rows, too
    DRAWN.clear()
    list(made.architecture.run(setup.with_parts(pipeline=Pipeline((Drawing(),)))))
    return list(DRAWN)


#: Each with how often the rule is asked in two rounds of six clients.
ASKED = [
    ("server", 2),
    ({"name": "parameter_server", "ranges": 3}, 6),
    ({"name": "d_psgd", "graph": "ring"}, 12),
    ({"name": "dsgt", "graph": "ring"}, None),
    ({"name": "fedbuff", "buffer": 3}, None),
]


@pytest.mark.parametrize(("architecture", "asked"), ASKED, ids=str)
def test_no_two_places_draw_alike(architecture, asked):
    found = drawn(architecture)
    assert asked is None or len(found) == asked
    assert len(found) > 1 and len(set(found)) == len(found)
    assert drawn(architecture) == found
    assert set(drawn(architecture, seed=1)).isdisjoint(found)
