"""Breakdown in weight: which sites of unequal weight can together move an aggregate without bound, and how far each can alone.

A consortium of a few sites is no crowd: the number of malicious ones says little where one has half of the examples. So the
search of the kappa-meter is repeated for sets of sites. The honest updates are fixed, none longer than 1 (the *honest length*),
and the others lie. A set of sites breaks a rule if the aggregate grows with its lies: if lies a thousandfold as long move it
more than thirtyfold as far. What is found is shown by an input; what is not found is not proven.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from fedguard.aggregation import aggregate
from fedguard.contracts import Pipeline, RuleContext, Sight
from fedguard.contracts.participation import MOST_SITES
from fedguard.errors import PreconditionError
from fedguard.rng import Rng
from fedguard.robustness.shapes import Rows, perturb_rows, shapes

#: Inputs tried for each set of sites
SHAPES = 24
#: Moves tried for the pull of each site, from so many of the best inputs
MOVES, CLIMBS = 180, 3
#: Inputs of the two numbers 1 and -1 that are tried for it, on which rules by coordinates and weights are worst
SIGNS = 32
#: The lightest site's lies move a weighted mean by this many honest lengths
NEAR = 100.0
#: Longer lies are so many times as long, and growth is what moves the aggregate at least so many times as far
LONGER, GROWTH = 1000.0, 30.0


@dataclass(frozen=True)
class WeightBreakdown:
    """What sets of sites, and single sites, can do to an aggregate.

    Attributes:
        shares: of each site in the weight; they add up to 1.
        f: the number of malicious updates that the rule assumes, whatever set lies.
        least: the smallest share of the weight of a set of sites that moves the aggregate without bound; None if none does.
        sites: such a set, by number from 0.
        pull: for each site, the farthest that its lies were found to move the aggregate from what it is with an honest update
            of the site, in honest lengths; ``inf`` without bound.
        evaluations: how often the rule was evaluated.
    """

    shares: tuple[float, ...]
    f: int
    least: float | None
    sites: tuple[int, ...]
    pull: tuple[float, ...]
    evaluations: int


def breakdown_in_weight(pipeline: Pipeline, sizes: Sequence[float], f: int, *, seed: int = 0) -> WeightBreakdown:
    """Search for the lightest set of sites that moves the aggregate of ``pipeline`` without bound, and for each site's pull.

    Randomized rules get the same random stream for every input. Rules with state are in their first round.

    Args:
        sizes: number of examples of each site, which it claims: no site lies about its weight.
        seed: of the search and of the rule's own draws.

    Raises:
        PreconditionError: fewer than 2 or more than `MOST_SITES` sites, or the rule needs more of them for this f.
        NotAllowed: the rule needs more than the updates, such as root data.
    """
    n = len(sizes)
    if not 2 <= n <= MOST_SITES:
        raise PreconditionError(
            f"breakdown in weight tries each set of sites: expected from 2 to {MOST_SITES} of them; got {n}. Leave out "
            "evaluation.weight_breakdown, or lower clients.total."
        )
    pipeline.check(n, f, "clients.total")
    search = _WeightSearch(pipeline, np.asarray(sizes, dtype=np.float64), f, seed)
    sites = search.lightest_set()
    pull = (search.pull(0),) * n if search.blind else tuple(search.pull(site) for site in range(n))
    least = None if sites is None else float(search.shares[list(sites)].sum())
    return WeightBreakdown(tuple(search.shares.tolist()), f, least, sites or (), pull, search.evaluations)


class _WeightSearch:
    def __init__(self, pipeline: Pipeline, sizes: NDArray[np.float64], f: int, seed: int) -> None:
        self.pipeline, self.n, self.shares, self.evaluations = pipeline, len(sizes), sizes / sizes.sum(), 0
        #: Whether the rule tells no site from another, so that numbers of sites matter, and which ones does not
        self.blind = not any(stage.reads_clients for stage in (*pipeline.mixings, pipeline.rule))
        self._draw = Rng(seed).child("breakdown in weight").numpy()
        self._near = NEAR / float(self.shares[self.shares > 0].min())
        self._context = RuleContext(
            "the meter of breakdown in weight",
            Sight.EACH_UPDATE,
            f=f,
            rng=Rng(seed),
            clients=tuple(range(self.n)),
            samples=torch.from_numpy(sizes),
            noise=torch.ones(self.n, dtype=torch.float64),
        )

    def lightest_set(self) -> tuple[int, ...] | None:
        """The first set that breaks the rule, from the lightest on; None if only all sites together do."""
        of_each_size = [sorted(itertools.combinations(range(self.n), k), key=self._weight) for k in range(1, self.n)]
        tried = [sets[:1] for sets in of_each_size] if self.blind else of_each_size
        by_weight = sorted(itertools.chain.from_iterable(tried), key=self._weight)
        return next((sites for sites in by_weight if self.breaks(sites)), None)

    def _weight(self, sites: tuple[int, ...]) -> tuple[float, int, tuple[int, ...]]:
        # Rounded, so that sets of equal weight are in the order of their numbers, not of rounding
        return round(float(self.shares[list(sites)].sum()), 12), len(sites), sites

    def breaks(self, sites: tuple[int, ...]) -> bool:
        """Whether an input was found by which these sites move the aggregate without bound."""
        return any(self._grows(rows, list(sites)) for rows in self._starts(sites))

    def pull(self, site: int) -> float:
        """The farthest that one site was found to move the aggregate, in honest lengths."""
        if self.breaks((site,)):
            return math.inf
        starts = sorted((self._lie(*start, site) for start in self._honest_starts(site)), key=lambda one: -one[0])
        return max(self._climb(start, site, MOVES if self.blind else MOVES // CLIMBS) for start in starts[:CLIMBS])

    def _climb(self, best: tuple[float, Rows, Rows], site: int, moves: int) -> float:
        """The farthest that random moves of the honest rows and of the lie lead, which are kept unless they lower it."""
        usual, everybody = 0.3, np.ones(self.n, dtype=np.bool_)
        for _ in range(moves):
            value, rows, lie = best
            moved = perturb_rows(rows, everybody, usual, self._draw)
            moved = moved / max(1.0, *(_length(row) for row in moved))
            turned = lie + usual * _length(lie) * self._draw.standard_normal(lie.shape) * (self._draw.random() < 0.5)
            found = _length(self._answer(_replace_row(moved, site, turned)) - self._answer(moved))
            usual = min(1.0, usual * 1.3) if found > value else max(1e-3, usual * 0.97)
            # Equal ones too: rules that select have plateaus, which a climb must cross
            best = (found, moved, turned) if found >= value else best
        return best[0]

    def _honest_starts(self, site: int) -> Iterator[tuple[Rows, Rows]]:
        """Honest rows no longer than 1, the site's own like another one or its opposite, and a direction in which to lie."""
        patterns = list(itertools.product((-1.0, 1.0), repeat=self.n))
        for number in self._draw.permutation(len(patterns))[:SIGNS]:
            signs = np.array(patterns[number])[:, None]
            yield signs, -signs[site]
        for rows in itertools.islice(self._starts((site,)), SHAPES // 2):
            like = rows[(site + 1) % self.n]
            for own in (like, -like):
                yield _replace_row(rows, site, own), rows[site]

    def _lie(self, honest: Rows, lie: Rows, site: int) -> tuple[float, Rows, Rows]:
        """How far the best of a few lengths of a lie moves the aggregate, the honest rows, and that lie."""
        true = self._answer(honest)
        lies = [scale * lie for scale in (1.0, 10.0, self._near, -self._near)]
        moved = [_length(self._answer(_replace_row(honest, site, one)) - true) for one in lies]
        return max(moved), honest, lies[int(np.argmax(moved))]

    def _starts(self, sites: tuple[int, ...]) -> Iterator[Rows]:
        """Inputs whose honest rows are no longer than 1, and whose other rows lie at about that distance."""
        others = [site for site in range(self.n) if site not in sites]
        for _, honest, malicious in itertools.islice(shapes(len(others), len(sites), self._draw), SHAPES):
            rows = np.empty((self.n, honest.shape[1]))
            rows[others], rows[list(sites)] = honest, malicious
            longest = max(_length(row) for row in rows[others])
            yield rows / (longest if longest > 0 else 1.0)

    def _grows(self, rows: Rows, sites: list[int]) -> bool:
        """Whether longer lies along the same lines, away from the honest mean, move the aggregate ever farther."""
        center = np.delete(rows, sites, axis=0).mean(0)
        away = rows[sites] - center
        if not np.abs(away).max() > 0:
            return False
        away /= np.linalg.norm(away, axis=1).max()
        lengths = []
        for far in (self._near, LONGER * self._near):
            lied = rows.copy()
            lied[sites] = center + far * away
            lengths.append(_length(self._answer(lied)))
        return lengths[1] > GROWTH * max(1.0, lengths[0])

    def _answer(self, rows: Rows) -> Rows:
        self.evaluations += 1
        context = self._context.restrict(self._context.party, self._context.granted, layers=(rows.shape[1],))
        vector = aggregate(self.pipeline, torch.from_numpy(rows.astype(np.float32)), context).vector
        return vector.double().numpy()


def _length(vector: Rows) -> float:
    return float(np.linalg.norm(vector))


def _replace_row(rows: Rows, site: int, row: Rows) -> Rows:
    changed = rows.copy()
    changed[site] = row
    return changed
