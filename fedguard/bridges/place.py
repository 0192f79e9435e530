"""Attack and rule in a round of any framework: replies come in, and go out to the framework's server."""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import torch
from torch import Tensor

from fedguard.contracts import scale_assumed_f
from fedguard.errors import InputError, PreconditionError
from fedguard.guard import Guard
from fedguard.rng import Rng
from fedguard.states import Layout

LOG = logging.getLogger("fedguard.bridges")


@dataclass(frozen=True)
class Reply:
    """What one site answers in a round of training.

    Attributes:
        site: the framework's name of the site, or its number.
        arrays: the model after local training by name, or how it differs from the model that was sent.
        full: whether ``arrays`` is a model; False for the difference from the model that was sent.
        samples: the number of examples that the site claims; None if it claims none.
        handle: the framework's own message.
    """

    site: Any
    arrays: Mapping[str, Any]
    full: bool = True
    samples: float | None = None
    handle: Any = None


class Place:
    """Attack and rule, once a round, when all replies are there.

    The attack makes the malicious sites' updates from the honest ones, as far as its knowledge permits. With a defense, each
    reply becomes the sent model plus the robust aggregate, so every average of them, with any weights, is exactly that model.

    The first round decides which arrays hold parameters: arrays that most sites send back as floating point. The others, such
    as a BatchNorm's count of batches, are in no update.

    Args:
        guard: attack and rule.
        defended: whether the rule aggregates; if not, the framework's own aggregation does.
        seed: seed for the choice of malicious sites among all that are there at the first round.
        malicious: the malicious sites by name, in place of a choice by the seed.

    Attributes:
        malicious: the malicious sites; empty before `meet_sites`.
        nodes: the sites that were there in the first round.
        rounds, updates: number of rounds so far, and of updates in them.
        hostile_share: the largest share of malicious updates in a round.
        outvoted: number of rounds with more malicious updates than the assumed f of the rule.
        bytes: size of all updates as float32.
        abandoned: reasons for the rounds in which the rule could not run; the model stayed as it was.
    """

    #: The framework's word for who answers, and what a user does where replies claim no numbers of examples.
    noun: ClassVar[str] = "site"
    without_claim: ClassVar[str] = "expected the number of examples, which attack or rule go by; got none."

    def __init__(
        self, guard: Guard, *, defended: bool, seed: int = 0, malicious: Collection[Any] | None = None
    ) -> None:
        self._guard, self._defended, self._seed, self._named = guard, defended, seed, malicious
        self._assumed_f = guard.assumed_f
        self._layout: Layout | None = None
        self.malicious: frozenset[Any] = frozenset()
        self.nodes: tuple[Any, ...] = ()
        self.rounds = self.updates = self.outvoted = self.bytes = 0
        self.hostile_share = 0.0
        self.abandoned: list[str] = []

    def rank(self, site: Any) -> Any:
        """The key that sorts sites and rows, and by which malicious sites are drawn."""
        return site

    def record_training(self, layout: Layout, starts: Tensor, updates: Tensor, nodes: Sequence[Any]) -> None:
        """Called with the models sent to sites and their updates, float32 ``[n, d]``, before any attack. For subclasses."""

    @property
    def dropped(self) -> int:
        """Number of updates that were not finite and so reached no rule."""
        return self._guard.dropped

    def meet_sites(self, sites: Collection[Any]) -> None:
        """Learn who is there, and choose the malicious sites: by name, or f of all by the seed.

        Raises:
            InputError: as many malicious sites as there are, or one of that name is not there.
        """
        self.nodes = tuple(sorted(sites, key=self.rank))
        if self._guard.f >= len(self.nodes) > 0:
            raise InputError(
                f"f: expected fewer malicious {self.noun}s than there are, {len(self.nodes)}; got {self._guard.f}."
            )
        if self._named is not None:
            if unknown := sorted(set(self._named) - set(self.nodes)):
                there = ", ".join(map(str, self.nodes))
                raise InputError(f"malicious: expected some of {there}; got {', '.join(map(str, unknown))}.")
            self.malicious = frozenset(self._named)
            return
        drawn = Rng(self._seed).child("malicious").numpy().permutation(len(self.nodes))[: self._guard.f]
        self.malicious = frozenset(self.nodes[number] for number in drawn.tolist())

    def round(self, sent: Mapping[Any, Mapping[str, Any]], replies: Sequence[Reply]) -> list[Reply]:
        """The replies that the framework's server gets, sorted by site.

        Args:
            sent: by site, the model that was sent to it.
            replies: in any order; those without an answer are left out.

        Raises:
            InputError: other arrays than were sent; no number of examples where attack or rule need one.
        """
        self.rounds += 1
        if not replies:
            return []
        # Replies arrive in any order; sorted, the attack and the rule get the same rows on every engine
        good = sorted(replies, key=lambda one: self.rank(one.site))
        nodes = [one.site for one in good]
        layout, starts, rows = self._read_updates(sent, good)
        self.record_training(layout, starts, rows, nodes)
        claims = self._read_claims(good)
        # An attack sees the model of the first site only; each update still starts from the model of its own site
        acting = [row for row, node in enumerate(nodes) if node in self.malicious and self._guard.attacks]
        self._count(nodes, rows, len(acting))
        if len(acting) == len(nodes):
            LOG.warning(
                "round %d: every %s that answered is malicious; they send honest updates.", self.rounds, self.noun
            )
            acting = []
        rows, lies = self._guard.apply_attack(starts[0], rows, acting, layers=layout.sizes, samples=claims)
        if self._defended:
            rows = self._aggregate_updates(starts[0], rows, nodes, layout, lies).expand(len(rows), -1)
        return [
            replace(
                one,
                arrays=layout.state(start + row if one.full else row, one.arrays),
                samples=lies[number] if lies is not None and number in acting else one.samples,
            )
            for number, (one, start, row) in enumerate(zip(good, starts, rows, strict=True))
        ]

    def _read_updates(
        self, sent: Mapping[Any, Mapping[str, Any]], good: Sequence[Reply]
    ) -> tuple[Layout, Tensor, Tensor]:
        """The layout, and float32 ``[n, d]`` each: the models that were sent, and the updates."""
        names = ["the model that was sent", *(self._whose(one.site) for one in good)]
        layout = self._layout or Layout.of_several([sent[good[0].site], *(one.arrays for one in good)], names)
        self._layout = layout
        # The server has averaged integers to fractions from the second round on, so its types are not enough
        starts = torch.stack([layout.vector(sent[one.site], names[0], averaged=True) for one in good])
        rows = []
        for start, one in zip(starts, good, strict=True):
            try:
                row = layout.vector(one.arrays, self._whose(one.site))
            except InputError as error:
                raise InputError(
                    f"{error} Attack and rule need replies with the arrays that the server sent."
                ) from None
            rows.append(row - start if one.full else row)
        return layout, starts, torch.stack(rows)

    def _read_claims(self, good: Sequence[Reply]) -> list[float] | None:
        claims = [one.samples for one in good]
        if None not in claims:
            return [float(claim or 0) for claim in claims]
        if self._guard.weighs:
            raise InputError(f"{self._whose(good[claims.index(None)].site)}: {self.without_claim}")
        return None

    def _whose(self, site: Any) -> str:
        return f"the reply of {self.noun} {site}"

    def _count(self, nodes: Sequence[Any], rows: Tensor, acting: int) -> None:
        self._guard.assumed_f = min(scale_assumed_f(len(nodes), self._assumed_f, len(self.nodes)), len(nodes))
        self.updates += len(nodes)
        self.bytes += 4 * rows.numel()
        self.hostile_share = max(self.hostile_share, acting / len(nodes))
        self.outvoted += acting > self._guard.assumed_f

    def _aggregate_updates(
        self, model: Tensor, rows: Tensor, nodes: Sequence[Any], layout: Layout, samples: Sequence[float] | None
    ) -> Tensor:
        """float32 ``[d]``: what the rule makes of the updates; zeros where it cannot run."""
        try:
            return self._guard.aggregate_updates(
                model, rows, layers=layout.sizes, samples=samples, clients=[self.nodes.index(node) for node in nodes]
            )
        except PreconditionError as error:
            self.abandoned.append(str(error))
            LOG.warning("round %d: the model stays as it was. %s", self.rounds, error)
            return torch.zeros_like(model)
