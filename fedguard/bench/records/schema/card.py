"""The threat card of a record: the assumptions behind its result."""

from __future__ import annotations

from typing import Literal, NotRequired

from typing_extensions import TypedDict

from fedguard.bench.records.schema.types import Anything, Mode
from fedguard.metrics.quantities import Amount, Count, Number, Share


class Dissimilarity(TypedDict):
    """Dissimilarity of the clients; with many clients it is an estimate with a standard error.

    Attributes:
        label_distance: mean distance of a client's shares of labels from everybody's; 0 alike, 1 disjoint.
        gradient_dissimilarity: mean squared distance of the clients' first gradients from their mean, in squared lengths of
            that mean.
        smallest_client, median_client, largest_client: in examples.
        gradient_clients: number of clients with measured gradients.
        gradient_examples: number of examples behind each gradient, if a client has more.
        gradient_error: standard error of ``gradient_dissimilarity``, if not all clients were measured.
    """

    label_distance: Number
    gradient_dissimilarity: Number
    smallest_client: Count
    median_client: Count
    largest_client: Count
    gradient_clients: NotRequired[Count]
    gradient_examples: NotRequired[Count]
    gradient_error: NotRequired[Number]


class Root(TypedDict):
    """Clean data at the server, in examples.

    Attributes:
        examples: how many.
        overlap_with_test, overlap_with_clients: how many of them are among the test examples, and the clients' own.
    """

    examples: Count
    overlap_with_test: Count
    overlap_with_clients: Count


class SessionCard(TypedDict):
    """The parameters of a session of secure aggregation, in clients.

    Attributes:
        clients: in the sum.
        neighbors: number of clients with which each shares masks.
        threshold: shares that rebuild a secret.
        quorum: signatures over one set of survivors before a share leaves; 0 without.
        survivors: the fewest with which a round can end.
    """

    clients: Count
    neighbors: Count
    threshold: Count
    quorum: Count
    survivors: Count


class ProtocolCard(TypedDict):
    """See `fedguard.bench.running.protocol.protocol_card`.

    Attributes:
        in_words: the protocol in a sentence.
        colluding: how many clients may collude with the server.
        dropout: how clients drop out; null if none does.
        session: the parameters of a session.
        anonymity: the fewest clients in any sum if nobody drops out, less those that may collude.
        kept_by_protocol: the fewest honest clients in any sum if the server lies about dropouts; null for group tests.
        norm_bound: the length of an update that the protocol is assumed to enforce; null without.
        labels: what is assumed or not protected, in short.
    """

    in_words: str
    colluding: Count
    dropout: Anything | None
    session: SessionCard
    anonymity: int
    kept_by_protocol: int | None
    norm_bound: NotRequired[Number | None]
    labels: list[str]


class ThreatCard(TypedDict):
    """The assumptions behind a result; see `fedguard.bench.running.card`.

    Attributes:
        in_words: who attacks and what they see, in a sentence.
        attack: with its parameters; null if nobody attacks.
        goal: untargeted, backdoor ...; of attacks on the clients' privacy reconstruction, labels, membership, property or text.
        acts_on: what the attack tampers with: data, trajectories, local training, update, sums passed on, accusations, claims,
            check-ins, promises, participation.
        attack_sees, granted: what the attack uses, and what the threat model grants it.
        observer: who infers, and from what; null if nobody does.
        collusion: whether the malicious clients share what they see.
        attacker_data: the data of the attacker.
        first_round, last_round, every: when the attack acts, in rounds.
        clients, per_round: number of clients, and of clients in a round.
        sampling: how the clients of a round are drawn.
        malicious, assumed_f, f_known: number of malicious clients, assumed f of the rule, and whether the rule was given an f.
        rows, assumed_f_per_round: number of rows that the rule gets in a round, and its assumed f there.
        defense: with its parameters.
        rule_needs: by stage, the alternatives of what it must see.
        server_sees, server_shown: what the rule uses, and what architecture and protocol show the server.
        unproven: preconditions of the rule's guarantees that do not hold, in words.
        root_data: the server's clean data; null if it has none.
        preparation: what prepares the examples, and what that rests on.
        partition: the partition of the data among clients.
        shared: the share of the training examples that is public and held by each client; absent without any.
        subset: the number of train and test examples that a trial draws from the data; absent if it takes all.
        architecture: of parties that train in simulated time.
        algorithm: the federated algorithm.
        secure_aggregation: its mode.
        protocol: null if updates are sent in the clear.
        privacy, noise: the kind of noise, and who adds it.
        epsilon, epsilon_note: the guarantee of the noise, and its scope; null without guarantee.
        noise_from: source of the noise for privacy and of the clients' own random draws: ``seed``, which the record contains,
            or ``operating system``; null without any.
        noise_note: what this source means for privacy, in words.
        reproducible: whether the seed reproduces the record.
        ensemble: for a worst case, the attacks among which it was chosen.
    """

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
    malicious: Count
    assumed_f: Count
    f_known: bool
    rows: Count
    assumed_f_per_round: Count
    defense: str
    rule_needs: dict[str, list[list[str]]]
    server_sees: list[str]
    server_shown: list[str]
    unproven: list[str]
    root_data: Root | None
    preparation: NotRequired[dict[str, str]]
    partition: str
    shared: NotRequired[Share]
    subset: NotRequired[dict[Literal["train", "test"], Count]]
    architecture: NotRequired[str]
    algorithm: str
    secure_aggregation: Mode
    protocol: ProtocolCard | None
    privacy: str
    noise: str | None
    epsilon: Amount | None
    epsilon_note: str
    noise_from: NotRequired[str | None]
    noise_note: NotRequired[str | None]
    reproducible: NotRequired[bool]
    ensemble: NotRequired[str]


class MeasuredCard(ThreatCard):
    """The threat card with facts that only the training determines.

    Attributes:
        worst_hostile_share: the largest share of malicious updates in a round.
        dissimilarity: measured dissimilarity of the clients; null if it cannot be measured.
    """

    worst_hostile_share: Share
    dissimilarity: Dissimilarity | None
