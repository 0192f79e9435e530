"""The threat card of a record: under which assumptions a figure was obtained."""

from __future__ import annotations

from typing import NotRequired

from typing_extensions import TypedDict

from fedguard.bench.schema.types import Amount, Anything, Count, Number, Share


class Dissimilarity(TypedDict):
    """How much the clients differ; the error is of an estimate, where there are many of them."""

    label_distance: Number
    gradient_dissimilarity: Number
    smallest_client: Count
    median_client: Count
    largest_client: Count
    gradient_clients: NotRequired[Count]
    gradient_error: NotRequired[Number]


class Root(TypedDict):
    """Clean data at the server, in examples."""

    examples: Count
    overlap_with_test: Count
    overlap_with_clients: Count


class Session(TypedDict):
    """The parameters of a session of secure aggregation, in clients."""

    clients: Count
    neighbours: Count
    threshold: Count
    quorum: Count
    survivors: Count


class ProtocolCard(TypedDict):
    """See `fedguard.bench.protocol.protocol_card`."""

    in_words: str
    colluding: Count
    dropout: Anything | None
    session: Session
    anonymity: int
    kept_by_protocol: int | None
    norm_bound: NotRequired[Number | None]
    labels: list[str]


class ThreatCard(TypedDict):
    """Under which assumptions a figure was obtained; see `fedguard.bench.card`."""

    in_words: str
    attack: str | None
    goal: str | None
    acts_on: list[str]
    attack_sees: list[str]
    observer: Anything | None
    granted: list[str]
    collusion: bool
    attacker_data: str | None
    first_round: Count | None
    last_round: Count | None
    every: Count | None
    clients: Count
    per_round: Count
    sampling: str
    true_f: Count
    told_f: Count
    f_known: bool
    rows: Count
    told_per_round: Count
    defense: str
    rule_needs: dict[str, list[list[str]]]
    server_sees: list[str]
    server_shown: list[str]
    unproven: list[str]
    root_data: Root | None
    preparation: NotRequired[dict[str, str]]
    partition: str
    algorithm: str
    secure_aggregation: str
    protocol: ProtocolCard | None
    privacy: str
    noise: str | None
    epsilon: Amount | None
    epsilon_note: str
    ensemble: NotRequired[str]


class MeasuredCard(ThreatCard):
    """With what only the training tells."""

    worst_hostile_share: Share
    dissimilarity: Dissimilarity
