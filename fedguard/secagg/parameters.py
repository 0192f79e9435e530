"""How many neighbors, shares and signatures a session needs, from how many clients may collude and drop out.

The conditions on the ring are those of Bell et al. 2020 (CCS): colluders and dropouts do not cut it, and each client has few
colluders and enough survivors among its neighbors. Each probability is a ratio of integers, so no tail is lost to rounding.

The randomness is in the ring (`graph.py`): the bounds hold for colluders and dropouts that are fixed before it is drawn. A
malicious server can evade that in three ways.

- It tries many rings, by leaving out other honest clients or with other keys of its colluders, and continues with the one
  that suits it. Each doubling of the tries costs one bit; ``grinding`` adds these bits to the required security.
- It leaves out honest clients, so that its colluders have more weight: `Parameters.members` bounds their number, and
  `Parameters.exposure_among` gives the exposure that remains.
- It looks at the ring, and then declares those clients dropped that cut it in two. `Parameters.anonymity` holds even then,
  since it depends only on the colluders around one client.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import lru_cache
from itertools import accumulate

from fedguard.errors import require

#: Up to this many clients, the graph is complete.
COMPLETE_UP_TO = 100
#: log2 of the rings that a server and its colluders are assumed to try: 2^40 take thousands of core hours.
GRINDING = 40


@dataclass(frozen=True)
class Parameters:
    """Parameters of a session of secure aggregation, and the probabilities that its guarantees fail.

    Attributes:
        clients: n.
        corrupted: A, clients that may collude with the server.
        dropped: clients that may drop out without stopping the round.
        degree: k, neighbors of each client; n - 1 is the complete graph.
        corrupted_neighbors: t1, colluders that a client may have among its neighbors.
        threshold: t, shares that rebuild a secret.
        quorum: T_sig, signatures over one set of survivors before a client reveals a share; 0 without attestation.
        exposure: log2 P[some client has more than t1 colluders among its neighbors]; -inf if it cannot happen.
        disconnection: log2 P[colluders and dropouts cut the ring], so that the sum falls into several.
        failure: log2 P[some client keeps fewer than t living neighbors], so that the round aborts.
    """

    clients: int
    corrupted: int
    dropped: int
    degree: int
    corrupted_neighbors: int
    threshold: int
    quorum: int
    exposure: float = -math.inf
    disconnection: float = -math.inf
    failure: float = -math.inf

    @property
    def attested(self) -> bool:
        """Whether clients sign the survivors. If not, the server is trusted to show all clients the same ones."""
        return self.quorum > 0

    @property
    def complete(self) -> bool:
        """Whether the graph is complete."""
        return self.degree == self.clients - 1

    @property
    def survivors(self) -> int:
        """The fewest survivors with which a round can end: a quorum, each with ``threshold`` others alive."""
        return max(self.quorum, self.threshold + 1)

    @property
    def members(self) -> int:
        """The fewest advertised keys that a client accepts: from all but the tolerated dropouts if the ring is random.

        A server that leaves out more clients gives its colluders more weight: see `exposure_among`.
        """
        return self.survivors if self.complete else self.clients - self.dropped

    @property
    def anonymity(self) -> int:
        """The fewest honest inputs in any sum that the server can open, whichever clients it declares dropped.

        t - t1 + 1: to open a client's self mask takes t shares, so at least t - t1 from honest neighbors. These have seen the
        same survivors, so they are in the sum themselves, under masks shared with that client.
        """
        return self.threshold - self.corrupted_neighbors + 1

    def exposure_among(self, members: int) -> float:
        """`exposure` in a session in which only ``members`` clients advertise keys, all colluders among them."""
        # Of the whole session, not of one client: hence `members` times the tail, at most 1
        draws = min(self.degree, members - 1)
        exposed, total = tails(members, self.corrupted, draws)
        return _log2(min(Fraction(members * exposed[min(self.corrupted_neighbors, draws) + 1], total), Fraction(1)))

    def describe(self) -> list[tuple[str, str, str]]:
        """Name, value and meaning of each parameter, for a table."""
        trust = "signatures over the same survivors, before a share leaves"
        semi_honest = "none: the server is trusted to name the same survivors to all (semi-honest)"
        fewest = _chance(self.exposure_among(self.members))
        return [
            ("clients", f"{self.clients}", "n"),
            ("corrupted", f"{self.corrupted}", "A: may collude with the server"),
            ("dropped", f"{self.dropped}", "may vanish without stopping the round"),
            ("degree", f"{self.degree}", "k: neighbors of each client" + (", all others" if self.complete else "")),
            ("threshold", f"{self.threshold}", "t: shares that rebuild a secret"),
            ("quorum", f"{self.quorum}", trust if self.attested else semi_honest),
            ("members", f"{self.members}", "the fewest that must advertise keys"),
            ("survivors", f"{self.survivors}", "the fewest with which a round can end"),
            ("anonymity", f"{self.anonymity}", "honest inputs in any sum, whoever the server says has dropped"),
            ("exposure", _chance(self.exposure), f"more than {self.corrupted_neighbors} colluders around some client"),
            ("exposure, fewest members", fewest, f"the same, if the server leaves out all but {self.members}"),
            ("disconnection", _chance(self.disconnection), "the honest survivors fall apart into several sums"),
            ("failure", _chance(self.failure), f"fewer than {self.threshold} neighbors of some client stay"),
        ]


def choose(
    n: int,
    gamma: float,
    dropout: float,
    *,
    attested: bool = True,
    complete_up_to: int = COMPLETE_UP_TO,
    security: int = 41,
    failure: int = 20,
    grinding: int = GRINDING,
) -> Parameters:
    """The parameters for ``n`` clients: the complete graph for few, the sparsest safe ring for many.

    Args:
        n: clients, at least 3; with two, each learns the other's input from the sum.
        gamma: share of the clients that may collude with the server; A = floor(gamma n).
        dropout: share of the clients that may drop out.
        attested: whether clients sign the survivors (round R3).
        complete_up_to: the largest n with the complete graph.
        security: bits; `Parameters.exposure` and `Parameters.disconnection` are at most 2^-security each.
        failure: bits; `Parameters.failure` is at most 2^-failure.
        grinding: log2 of the rings that a malicious server may try; a colluder that advertises last can do it alone.

    Raises:
        ConfigError: too few clients, too many colluders, or more dropouts than the quorum tolerates.
    """
    if n <= complete_up_to:
        return complete(n, gamma, dropout, attested=attested)
    return sparse(n, gamma, dropout, attested=attested, security=security, failure=failure, grinding=grinding)


def complete(n: int, gamma: float, dropout: float, *, attested: bool = True) -> Parameters:
    """The complete graph: k = n - 1, t1 = A, and no bound is probabilistic.

    T_sig = floor((n + A) / 2) + 1: two quorums share more than A clients, hence an honest one, which signs only once.

    If attested, t = T_sig - 1, the largest threshold that never stops a round in which a quorum answers: each of its members
    then has T_sig - 1 others alive. It is above A if at least two clients are honest, and raised to 2, since with t = 1 a share
    is the secret itself. If not attested, t is the smallest with 2t > k + A (see `_split_proof`).

    Raises:
        ConfigError: too few clients, too many colluders, or more dropouts than the quorum tolerates.
    """
    require(n >= 3, f"Secure aggregation needs at least 3 clients, for of two each learns the other's input; got {n}.")
    for name, share in (("gamma", gamma), ("dropout", dropout)):
        require(0 <= share < 1, f"{name} is a share of the clients, in [0, 1); got {share}.")
    corrupted, dropped = _part(gamma, n), _part(dropout, n)
    require(
        corrupted <= n - 2,
        f"At least two clients must be honest to hide among each other; got gamma = {gamma}, {corrupted} colluders of {n}. "
        "Lower gamma.",
    )
    quorum = (n + corrupted) // 2 + 1 if attested else 0
    threshold = max(quorum - 1, 2) if attested else _split_proof(n - 1, corrupted)
    chosen = Parameters(n, corrupted, dropped, n - 1, corrupted, threshold, quorum)
    most = n - chosen.survivors
    require(
        dropped <= most,
        f"With {corrupted} colluders {chosen.survivors} of {n} clients must survive; got dropout = {dropout}, "
        f"{dropped} clients. "
        f"Use a dropout of at most {most / n:.6g}, or a lower gamma.",
    )
    return chosen


def sparse(
    n: int,
    gamma: float,
    dropout: float,
    *,
    attested: bool = True,
    security: int = 41,
    failure: int = 20,
    grinding: int = 0,
) -> Parameters:
    """The ring with the smallest even degree k that keeps all three bounds; the complete graph if none below n - 1 does.

    P[colluders and dropouts cut the ring] < 2^-s,  n P[Hyp(n, A, k) > t1] <= 2^-s,  n P[Hyp(n, S, k) < t] <= 2^-failure

    with s = security + grinding, S = n - dropped, t1 the smallest bound that holds, and t = t1 + 1 (raised to 2 and, if
    not attested, to `_split_proof`). Hyp(n, A, k), the colluders in k draws out of n, is the number of colluders around a
    client that is itself drawn from all n, so n times its tail is the union bound over all clients.

    Raises:
        ConfigError: as `complete`, and a negative number of bits.
    """
    whole = complete(n, gamma, dropout, attested=attested)
    require(
        min(security, failure, grinding) >= 0,
        f"Bits must not be negative; got security = {security}, failure = {failure}, grinding = {grinding}.",
    )
    # Failure gets no grinding bits: a server that wants the round to fail need not search for a ring
    secure, alive = 2 ** (security + grinding), 2**failure
    for degree in range(2, n - 1, 2):
        exposed, total = tails(n, whole.corrupted, degree)
        bound = next(t1 for t1 in range(degree + 1) if n * exposed[t1 + 1] * secure <= total)
        threshold = max(bound + 1, 2) if attested else _split_proof(degree, bound)
        if threshold > degree:
            continue
        lost, _ = tails(n, whole.dropped, degree)
        stopped = n * lost[degree - threshold + 1]  # fewer than t neighbors alive: at least k - t + 1 dropped
        if stopped * alive > total:
            continue
        # Colluders count as removed: a path through one hides nothing, since the server knows its masks
        cut = disconnection_probability(n, whole.corrupted + whole.dropped, degree)
        if cut * secure >= 1:
            continue
        return replace(
            whole,
            degree=degree,
            corrupted_neighbors=bound,
            threshold=threshold,
            exposure=_log2(Fraction(n * exposed[bound + 1], total)),
            disconnection=_log2(cut),
            failure=_log2(Fraction(stopped, total)),
        )
    return whole


def disconnection_probability(n: int, removed: int, degree: int) -> Fraction:
    """P[the rest of the ring is not connected] after ``removed`` of n members, drawn at random, are taken out.

    With h = degree / 2, the ring is cut where h or more consecutive members are removed, since no edge spans more. It is
    disconnected if that happens at two places or more. Seen from a remaining member, the gaps between the m = n - removed
    remaining ones are a uniformly random composition of ``removed`` into m parts. Those in which j given gaps are at least h
    number C(n - 1 - jh, m - 1). By inclusion and exclusion

        P[at least two such gaps] = sum_(j >= 2) (-1)^j (j - 1) C(m, j) C(n - 1 - jh, m - 1) / C(n - 1, m - 1).

    Args:
        n: members of the ring, more than degree + 1.
        removed: in [0, n].
        degree: even.
    """
    left, half = n - removed, degree // 2
    if left < 2:
        return Fraction(0)
    # Whole numbers: the sum alternates, and at small degrees its terms are far above 1. Floats would cancel to noise there,
    # even below 0, which would pass as a safe ring
    ways = sum(
        (-1) ** j * (j - 1) * math.comb(left, j) * math.comb(n - 1 - j * half, left - 1)
        for j in range(2, removed // half + 1)
    )
    return Fraction(ways, math.comb(n - 1, left - 1))


# `sparse` asks for tails at every even degree, and neighboring degrees share most of their binomials
_comb = lru_cache(maxsize=2**16)(math.comb)


def tails(n: int, marked: int, draws: int) -> tuple[list[int], int]:
    """P[Hyp(n, marked, draws) >= i] for i = 0 ... draws + 1: numerators, and the denominator C(n, draws) of them all."""
    ways = [_comb(marked, i) * _comb(n - marked, draws - i) for i in range(draws, -1, -1)]
    return list(accumulate(ways, initial=0))[::-1], math.comb(n, draws)


def _split_proof(degree: int, colluders: int) -> int:
    """The smallest t with 2t > k + colluders: floor((k + colluders) / 2) + 1.

    Of k neighbors, an honest one reveals one share of a client, of its self mask or of its mask key, and a colluder both:
    k + colluders shares at most. A server that shows different survivors to different clients thus cannot open both secrets of
    one client. Nothing else is guaranteed without attestation: the server is trusted to show all clients the same survivors.

    It is the bound 2t > n + A of Bonawitz et al. 2017 (CCS) against a malicious server, with k holders in the place of n.
    """
    return (degree + colluders) // 2 + 1


def _part(share: float, n: int) -> int:
    """floor(share * n), with 0.29 * 100 as 29, although the product in binary is slightly less."""
    return math.floor(share * n + 1e-9)


def _log2(probability: Fraction) -> float:
    """log2, also of fractions below the smallest float; -inf of 0."""
    if probability == 0:
        return -math.inf
    return math.log2(probability.numerator) - math.log2(probability.denominator)


def _chance(log2: float) -> str:
    """A probability in words."""
    return "impossible" if log2 == -math.inf else f"2^{log2:.1f}"
