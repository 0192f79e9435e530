"""Clustering for filtering rules: HDBSCAN, mean-shift, k-means, the gap statistic. None depends on the order of the rows."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

#: Replaces a spread of zero where its logarithm is taken.
TINY = 1e-12


def cosine_distances(products: Tensor) -> Tensor:
    """float64 ``[n, n]``: 1 - cos of rows with these inner ``products``; 1 to and from a row of zeros, 0 on the diagonal."""
    lengths = products.diagonal().clamp(min=0).sqrt()
    cosines = (products / lengths[:, None] / lengths[None, :]).nan_to_num(nan=0.0, posinf=0.0, neginf=0.0)
    # Divided by two lengths in turn, (i, j) and (j, i) round differently, and equal rows may exceed 1
    return (1 - ((cosines + cosines.T) / 2).clamp(-1, 1)).fill_diagonal_(0)


def members(labels: Tensor) -> list[Tensor]:
    """bool ``[n]`` for each cluster: its rows according to ``labels`` (int64 ``[n]``, -1 for no cluster)."""
    return [labels == label for label in sorted(set(labels.tolist())) if label >= 0]


def hdbscan(distances: Tensor, smallest: int, *, single: bool = False) -> Tensor:
    """int64 ``[n]``: clusters of at least ``smallest`` rows (2 or more); -1 for rows in no cluster.

    HDBSCAN (Campello et al., PAKDD 2013) with excess of mass, on a matrix of distances (float64 ``[n, n]``). The density at
    a row is computed from its ``smallest`` nearest rows, itself included. With ``single`` one cluster may hold all rows, and
    the density at the rows is ignored. As the threshold falls, all links of one length break at once. Libraries break them
    one by one in the order of the rows, so their clusters depend on this order if distances tie.
    """
    n = len(distances)
    if n < max(smallest, 2):
        return torch.full((n,), -1)
    apart = torch.maximum(distances, distances.T)  # rounding may have left one side of a distance shorter
    apart = apart.clamp(min=1e-9 * max(float(apart.max()), TINY)).fill_diagonal_(0)  # no density is infinite
    # Column 0 is the row itself; with `single` all core distances are 0, which leaves plain single linkage
    core = apart.sort(dim=1).values[:, 0 if single else smallest - 1]
    linked = torch.maximum(apart, torch.maximum(core[:, None], core[None, :]))
    for row in range(n):  # the longest link on the best way from row to row
        linked = torch.minimum(linked, torch.maximum(linked[:, row : row + 1], linked[row : row + 1]))
    labels = torch.full((n,), -1)
    root = _condense(linked.fill_diagonal_(0), torch.arange(n), 0.0, smallest)
    for label, cluster in enumerate(_most_stable(root, root, single)[1]):
        # All rows start in the root, outliers too: if it is chosen, it holds the rows that are left when it ends
        labels[cluster.last if cluster is root else cluster.rows] = label
    return labels


@dataclass(frozen=True)
class _Cluster:
    """A cluster of the hierarchy: all its rows, the rows left when it ends, its excess of mass, and the parts of its split."""

    rows: Tensor
    last: Tensor
    stability: float
    parts: tuple[_Cluster, ...]


def _condense(linked: Tensor, rows: Tensor, birth: float, smallest: int) -> _Cluster:
    """The cluster of ``rows`` from the density ``birth`` on, and all clusters within it."""
    last, stability = rows, 0.0
    while True:
        inner = linked[last][:, last]
        longest = inner.max()
        density = 1 / float(longest)
        # The first row that is linked to a row names its part, since `<` on an ultrametric is an equivalence
        parts = [last[part] for part in members((inner < longest).int().argmax(1)) if int(part.sum()) >= smallest]
        # One part of sufficient size is the same cluster without its outliers; two are a split; without any it ends
        if len(parts) != 1:
            stability += len(last) * (density - birth)
            within = tuple(_condense(linked, part, density, smallest) for part in parts)
            return _Cluster(rows, last, stability, within)
        stability += (len(last) - len(parts[0])) * (density - birth)
        last = parts[0]


def _most_stable(cluster: _Cluster, root: _Cluster, single: bool) -> tuple[float, list[_Cluster]]:
    """The clusters, none within another, with the largest total stability; the root can be one only with ``single``."""
    chosen = [_most_stable(part, root, single) for part in cluster.parts]
    total = sum(stability for stability, _ in chosen)
    if total > cluster.stability or (cluster is root and not single):
        return total, [one for _, ones in chosen for one in ones]
    return cluster.stability, [cluster]


def mean_shift(points: Tensor, bandwidth: float, steps: int = 300) -> Tensor:
    """int64 ``[n]``: the modes to which ``points`` (float64 ``[n, p]``) belong; -1 for points further than the bandwidth.

    Mean-shift with a flat kernel (Comaniciu & Meer, PAMI 2002): each point moves to the mean of the points within
    ``bandwidth`` (more than 0) until it rests. Of modes within the bandwidth of each other, the one with the most points stays.
    """
    modes, climbing = points.clone(), torch.ones(len(points), dtype=torch.bool)
    for _ in range(steps):
        inside = (_squares(modes[None], points[None])[0] <= bandwidth**2).to(points.dtype)
        means = inside @ points / inside.sum(1, keepdim=True)
        moves = (means - modes).norm(dim=1)
        modes = torch.where(climbing[:, None], means, modes)
        climbing &= moves > 1e-3 * bandwidth
        if not bool(climbing.any()):
            break
    crowds = (_squares(modes[None], points[None])[0] <= bandwidth**2).sum(1, keepdim=True)
    # By crowd, then by position: the order of the rows must not decide which of two close modes stays
    order = _lexicographic(torch.cat([crowds, modes], 1)).flip(0)
    kept: list[int] = []
    for row in order.tolist():
        if all((modes[row] - modes[other]).norm() > bandwidth for other in kept):
            kept.append(row)
    squares, labels = _squares(points[None], modes[kept][None])[0].min(1)
    return torch.where(squares <= bandwidth**2, labels, -1)


def distances_between(rows: Tensor) -> Tensor:
    """float64 ``[n, n]``: distances of ``rows`` (``[n, p]``), without a matrix product, which would lose small distances."""
    return torch.cdist(rows, rows, compute_mode="donot_use_mm_for_euclid_dist")


def kmeans(points: Tensor, k: int, draw: torch.Generator, restarts: int = 10, steps: int = 30) -> tuple[Tensor, Tensor]:
    """Lloyd's k-means from k-means++ starts, the best of ``restarts``; on several sets of points at once.

    Args:
        points: float64 ``[b, n, p]``. Each set is sorted first, so that the draws do not depend on the order of the rows.

    Returns:
        int64 ``[b, n]``, the clusters; float64 ``[b]``, the sum of squared distances to their centers.
    """
    b, n, p = points.shape
    order = torch.stack([_lexicographic(one) for one in points])
    rows = points.gather(1, order[:, :, None].expand(-1, -1, p)).repeat_interleave(restarts, 0)
    centers = _start(rows, k, draw)
    labels = torch.full((b * restarts, n), -1)
    for _ in range(steps):
        previous, labels = labels, _squares(rows, centers).argmin(2)
        if torch.equal(previous, labels):
            break
        member = torch.nn.functional.one_hot(labels, k).to(rows.dtype)
        sizes = member.sum(1)[:, :, None]
        # An empty cluster keeps its center: a new draw would make one set of points depend on the others in the batch
        centers = torch.where(sizes > 0, member.transpose(1, 2) @ rows / sizes.clamp(min=1), centers)
    spread = _squares(rows, centers).amin(2).sum(1).view(b, restarts)
    best = spread.argmin(1)
    chosen = labels.view(b, restarts, n)[torch.arange(b), best]
    return torch.empty_like(chosen).scatter_(1, order, chosen), spread[torch.arange(b), best]


def clusters_by_gap(points: Tensor, most: int, references: int, draw: torch.Generator, *, of_mean: bool = False) -> int:
    """The number of clusters of ``points`` (float64 ``[n, p]``) by the gap statistic (Tibshirani et al., JRSS B 2001).

    The smallest k <= ``most`` with Gap(k) >= Gap(k + 1) - s(k + 1), where Gap(k) = mean_r log V_r(k) - log V(k) compares
    the spread V of k-means with its spread on ``references`` sets of uniform points over the range of each component; s(k) is
    the standard deviation of log V_r(k), times sqrt(1 + 1 / references). With ``of_mean`` the gap is log mean_r V_r(k)
    - log V(k), as in some implementations.
    """
    low, high = points.amin(0), points.amax(0)
    longest = (high - low).amax()
    if longest == 0:
        return 1
    # TINY below is absolute, so the longest side of the box becomes 1
    inside, ranges = (points - low) / longest, (high - low) / longest
    uniform = torch.rand(references, *points.shape, generator=draw, dtype=torch.float64) * ranges
    sets = torch.cat([inside[None], uniform])
    previous = None
    for k in range(1, min(most, len(points)) + 1):
        # As many clusters as distinct points leave no spread, and its logarithm is infinite
        spread = kmeans(sets, k, draw)[1].clamp(min=TINY).log()
        expected = spread[1:].exp().mean().log() if of_mean else spread[1:].mean()
        gap = float(expected - spread[0])
        slack = float(spread[1:].std(correction=0)) * (1 + 1 / references) ** 0.5
        if previous is not None and previous >= gap - slack:
            return k - 1
        previous = gap
    return min(most, len(points))


def _lexicographic(points: Tensor) -> Tensor:
    """int64 ``[n]``: the order of the rows by their first value, then by their second, and so on."""
    order = torch.arange(len(points))
    for column in reversed(range(points.shape[1])):
        order = order[points[order, column].argsort(stable=True)]
    return order


def _start(rows: Tensor, k: int, draw: torch.Generator) -> Tensor:
    """k-means++ (Arthur & Vassilvitskii, SODA 2007): each center is drawn by the squared distance to the nearest so far."""
    sets, n, p = rows.shape
    chances = torch.ones(sets, n, dtype=rows.dtype)
    centers = torch.empty(sets, k, p, dtype=rows.dtype)
    for number in range(k):
        drawn = torch.multinomial(chances, 1, generator=draw)
        centers[:, number] = rows.gather(1, drawn[:, :, None].expand(-1, -1, p))[:, 0]
        squares = _squares(rows, centers[:, : number + 1]).amin(2)
        # With fewer distinct rows than centers all distances become 0, from which nothing can be drawn
        chances = torch.where(squares.sum(1, keepdim=True) > 0, squares, 1.0)
    return centers


def _squares(rows: Tensor, centers: Tensor) -> Tensor:
    """float64 ``[sets, n, k]``: squared distances."""
    # As differences: |a|^2 - 2 a.c + |c|^2 would lose the distances of close rows
    return (rows[:, :, None] - centers[:, None]).square().sum(3)
