"""Sessions of the real protocol on the updates of a round, and the accuracy of the means from their sums."""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field

import numpy as np
import torch
from torch import Tensor

from fedguard.architectures.masking.inputs import Inputs
from fedguard.architectures.masking.moments import MomentsBlock
from fedguard.contracts import Fate, MaskedRound, ReceivedRound, SentRound, SessionSize, Setup
from fedguard.errors import ConfigError
from fedguard.secagg.encoding import Encoding
from fedguard.secagg.masks import RingVector
from fedguard.secagg.planning import check_left
from fedguard.secagg.simulation import ProtocolSimulation, SessionOutcome, Settings


@dataclass(frozen=True)
class SessionResult:
    """Result of one session.

    Attributes:
        included: clients with updates in the sum; empty if the session was aborted.
        mean: float32 ``[d]``: the mean that the server computes from the sum, with the weights that clients claim.
        weight: sum of these weights.
        contributors: clients that certainly added their share of any noise: not malicious, less the number that may collude
            with the server.
        off, length: squared distance of the mean from the true mean, and squared length of the true mean.
        clipped: share of the honest updates' coordinates that the encoding clipped.
        aborted: why there is no sum.
        moments: float64 ``[s]``: the weighted sum of the moments of running statistics, and the sum of these weights.
        inputs: by client, float64 ``[d]``: its input, for an observer that watches the round.
    """

    included: tuple[int, ...] = ()
    mean: Tensor | None = None
    weight: float = 0.0
    contributors: int = 0
    off: float = 0.0
    length: float = 0.0
    clipped: float = 0.0
    bytes_up: int = 0
    bytes_down: int = 0
    aborted: str | None = None
    moments: tuple[Tensor, float] | None = None
    inputs: Mapping[int, Tensor] = field(default_factory=dict)


class SessionRunner:
    """Runs sessions among some of the clients of a round.

    Keys and masks come from the operating system. All that changes results comes from seeds: rounding and rotation signs from
    the trial's seed, and the noise from a stream of the cell. So a trial repeats to the last bit.

    Raises:
        ConfigError: the sum of the clients could wrap around the ring, the noise does not fit its grid, or too few clients
            would be left at the end.
    """

    def __init__(self, setup: Setup, size: SessionSize) -> None:
        protocol, self._setup, self._size = setup.cell.protocol, setup, size
        weighted = setup.cell.pipeline.rule.by_samples
        self._weights = setup.task.sizes if weighted else (1,) * len(setup.task.sizes)
        self._encoding = Encoding(**asdict(setup.cell.fixed_point), largest_weight=max(self._weights))
        dim, scale = setup.task.dim, self._encoding.scale
        self._noise = setup.cell.noise.in_sums(setup.cell, size, dim, scale)
        fewest = self._noise.fewest if self._noise else 0
        # Colluders and malicious clients, counted as disjoint, may add no noise
        fewest += size.colluders + size.malicious if fewest else 0
        self._encoding.check(size.most, self._noise.noise_tail(size.most) if self._noise else 0)
        self._moments = MomentsBlock(setup)
        self._context = hashlib.sha256(repr((protocol, self._encoding, self._moments.length)).encode()).digest()
        rate = protocol.dropout.rate
        settings = Settings(ring=protocol.encoding.ring, colluding=size.colluding, dropping=rate, fewest=fewest)
        check_left(size, rate, max(fewest, settings.parameters(size.expected).survivors))
        self._federation = ProtocolSimulation(settings)

    def run(self, sent: SentRound, clients: Sequence[int], name: str) -> SessionResult:
        """One session among ``clients``; ``name`` distinguishes it from the others of its round.

        A client with an update that is not finite or not ready in time drops out where it would have to send the update.
        """
        if len(clients) < self._size.fewest:
            return SessionResult(
                aborted=f"{name}: {len(clients)} clients came, and it takes at least {self._size.fewest}"
            )
        inputs = Inputs(
            sent,
            self._encoding,
            self._noise,
            self._weights,
            self._setup.rng.child("masking"),
            name,
            self._setup.noise_rng.child("masking"),
        )
        observer = self._setup.observer
        watched = observer is not None and observer.watches(sent.round)
        seen: dict[int, Tensor] = {}

        rounding = self._setup.rng.child("masking", "statistics", name)

        def put_in(client: int) -> RingVector:
            vector = inputs.encode_update(client)
            if watched:
                seen[client] = torch.from_numpy(self._encoding.decode(vector, dim=inputs.dim, seed=inputs.seed)[0])
            return np.concatenate([vector, self._moments.encode(sent, client, rounding)])

        here = {client: fate for client, fate in sent.fates.items() if client in set(clients)}
        step = self._setup.cell.protocol.dropout.at
        drop = {"masked_input": {client for client, fate in here.items() if fate not in (Fate.SILENT, Fate.LEFT)}}
        drop[step] = drop.get(step, set()) | (here.keys() - drop["masked_input"])
        try:
            outcome = self._federation.run(
                round=sent.round,
                clients=clients,
                length=self._encoding.length(len(sent.model)) + self._moments.length,
                vector=lambda client, sid: put_in(client),
                model_hash=sent.model_hash,
                context=self._context,
                drop=drop,
            )
        except ConfigError as error:  # the clients that came are too few for the guarantees of the protocol
            return SessionResult(aborted=f"{name}: {error}")
        return dataclasses.replace(self._read(outcome, inputs), inputs=seen)

    def _read(self, outcome: SessionOutcome, inputs: Inputs) -> SessionResult:
        traffic = SessionResult(aborted=outcome.aborted, bytes_up=outcome.bytes_up, bytes_down=outcome.bytes_down)
        if outcome.total is None:
            return traffic
        end = self._encoding.length(inputs.dim)
        total, weight = self._encoding.decode(outcome.total[:end], dim=inputs.dim, seed=inputs.seed)
        if weight <= 0:
            return dataclasses.replace(traffic, aborted=f"the weights that the clients claim add up to {weight}")
        mean, true = torch.from_numpy(total / weight), inputs.mean(outcome.included)
        malicious = inputs.malicious_among(outcome.included)
        return dataclasses.replace(
            traffic,
            included=outcome.included,
            mean=mean.to(torch.get_default_dtype()),
            weight=float(weight),
            contributors=max(0, len(outcome.included) - self._size.colluders - malicious),
            off=float((mean - true).square().sum()),
            length=float(true.square().sum()),
            clipped=inputs.mean_clip_fraction(outcome.included),
            moments=self._moments.decode(outcome.total[end:]),
        )


def merge_sessions(sessions: Sequence[SessionResult]) -> SessionResult:
    """Several sums merged into one."""
    weight = sum(session.weight for session in sessions)
    means = [session.weight * session.mean for session in sessions if session.mean is not None]
    included = {client for session in sessions for client in session.included}
    mean, moments = torch.stack(means).sum(0) / weight, add_moments(sessions)
    return SessionResult(included=tuple(sorted(included)), mean=mean, weight=weight, moments=moments)


def add_moments(sessions: Sequence[SessionResult]) -> tuple[Tensor, float] | None:
    """float64 ``[s]``: the moments of several sessions in one sum, and its weight; None if no session has any."""
    found = [session.moments for session in sessions if session.moments is not None]
    return (torch.stack([total for total, _ in found]).sum(0), sum(weight for _, weight in found)) if found else None


def receive_sums(
    setup: Setup,
    sent: SentRound,
    sums: Sequence[SessionResult],
    *,
    ran: Sequence[SessionResult] | None = None,
    excluded: tuple[int, ...] = (),
    anonymity: int | None = None,
) -> ReceivedRound:
    """What the server has received after the sessions of a round: one row for each of ``sums`` that succeeded.

    Args:
        ran: the sessions that were run, if they are not the sums.
        excluded: clients left out of all sums as suspected.
        anonymity: as in `MaskedRound`, if it does not follow from the smallest sum.
    """
    ran = sums if ran is None else ran
    done = [session for session in sums if session.mean is not None]
    behind = tuple(session.included for session in done)
    clients = tuple(client for row in behind for client in row)
    rows = torch.stack([session.mean for session in done if session.mean is not None]) if done else sent.updates[:0]
    weights = torch.tensor([session.weight for session in done], dtype=torch.float64)
    smallest = min((len(row) for row in behind), default=None)
    if anonymity is None and smallest is not None:
        anonymity = smallest - setup.cell.protocol.colluders(len(sent.clients))
    aborted = [session.aborted for session in ran if session.aborted is not None]
    return ReceivedRound(
        rows=rows,
        behind=behind,
        samples=weights if setup.cell.pipeline.rule.by_samples else None,
        assumed_f=min(setup.assume_f_among(len(clients)), len(behind)),
        clients=(*clients, *excluded),
        sent=sent,
        why=aborted[0] if aborted else "every group was suspected",
        moments=add_moments(done),
        masked=_summary(ran, len(sent.clients), anonymity),
        inputs={client: one for session in ran for client, one in session.inputs.items()},
    )


def _summary(sessions: Sequence[SessionResult], clients: int, anonymity: int | None) -> MaskedRound:
    """Summary of all sessions of a round."""
    done = [session for session in sessions if session.mean is not None]
    length, inputs = sum(session.length for session in done), sum(len(session.included) for session in done)
    return MaskedRound(
        clients=clients,
        sessions=len(sessions),
        aborted=tuple(session.aborted for session in sessions if session.aborted is not None),
        survivors=len({client for session in done for client in session.included}),
        anonymity=anonymity,
        contributors=min((session.contributors for session in done), default=None),
        error=(sum(session.off for session in done) / length) ** 0.5 if length > 0 else None,
        clipped=sum(len(session.included) * session.clipped for session in done) / max(inputs, 1),
        bytes_up=sum(session.bytes_up for session in sessions),
        bytes_down=sum(session.bytes_down for session in sessions),
    )
