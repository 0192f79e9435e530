"""Single ruined seeds, which both a mean over seeds and a test on fresh seeds may miss."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace

from fedguard.bench.gate.pair import usual_margin
from fedguard.bench.gate.verdict import Judgment
from fedguard.metrics.figures import FIGURES

#: Number of margins by which a ruined seed is worse; a margin below the usual margin counts as the usual one.
MARGINS_OF_ONE = 5.0


def annotate_worst_seed(one: Judgment, drops: Mapping[int, float], forbidden: bool) -> Judgment:
    """The judgment with its worst seed; if that seed is ruined, with a sentence, and regressed if that is forbidden.

    Args:
        drops: by seed, on the suite's own and on fresh seeds.
        forbidden: whether the suite's ``gate.single_seed`` is ``fail``.
    """
    if not drops or FIGURES[one.figure].computed:  # no seed is to blame
        return one
    seed = max(drops, key=drops.__getitem__)
    found = replace(one, worst_seed=seed, worst_seed_drop=drops[seed] if math.isfinite(drops[seed]) else None)
    limit = MARGINS_OF_ONE * max(one.margin or 0.0, usual_margin(one.figure))
    # The usual margin as the least: with margin 0, any noise of one seed would be a ruin
    ruined = [drop for drop in drops.values() if drop > limit]
    if not ruined or one.verdict in ("regressed", "missing"):
        return found
    many = "one seed" if len(ruined) == 1 else f"{len(ruined)} of {len(drops)} seeds"
    size = f"lost {'' if len(ruined) == 1 else 'up to '}{FIGURES[one.figure].difference(drops[seed])} (seed {seed})"
    if drops[seed] == math.inf:
        size = f"never {'gets' if len(ruined) == 1 else 'get'} to the target, or far later (seed {seed})"
    proof = "not confirmed on fresh ones" if one.confirmed_on else "while the mean stayed within its margin"
    said = f"{many} {size}, {proof}"
    if forbidden:
        return replace(
            found,
            verdict="regressed",
            lost_seed=said,
            why=f"{one.why.removesuffix('.')}; {said}: gate.single_seed forbids it.",
        )
    return replace(found, lost_seed=said, why=f"{one.why.removesuffix('.')}; {said}.")
