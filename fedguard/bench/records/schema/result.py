"""The result of a training: what a record holds of it, inference aside."""

from __future__ import annotations

from typing import Literal, NotRequired

from typing_extensions import TypedDict

from fedguard.bench.records.schema.card import Session
from fedguard.bench.records.schema.inference import Inference
from fedguard.bench.records.schema.nodes import Nodes
from fedguard.bench.records.schema.privacy import Privacy
from fedguard.bench.records.schema.time import SimulatedTime
from fedguard.bench.records.schema.types import Amount, Change, Count, Number, Share

#: What a curve may be drawn over, and what of it; see `fedguard.bench.records.record.curve`.
Axis = Literal["round", "updates", "seconds", "bytes_up", "joules"]
Measured = Literal["accuracy", "backdoor", "loss"]


class Curve(TypedDict):
    """What was evaluated, in order: lists of one length. None is a loss that is not finite, and the success of no backdoor.

    Attributes:
        round: the rounds that were evaluated, from 1.
        accuracy, backdoor: of the test examples, and of those with the trigger.
        loss: in nats.
        updates, seconds, bytes_up, joules: at each evaluation, where there is simulated time: updates that had reached the
            server, simulated seconds, and bytes and joules that the devices had sent and spent.
    """

    round: list[Count]
    updates: NotRequired[list[Count]]
    seconds: NotRequired[list[Amount]]
    bytes_up: NotRequired[list[Count]]
    joules: NotRequired[list[Amount]]
    accuracy: list[Share]
    backdoor: list[Share | None]
    loss: list[float | None]


class Ban(TypedDict):
    """A client that has no part in the rounds after this one.

    Attributes:
        client, round: who, and after which round.
        malicious: whether it acted for the attack.
    """

    client: Count
    round: Count
    malicious: bool


class Rounds(TypedDict):
    """Numbers of rounds, and of updates in them; see `fedguard.metrics.trajectory.summarise`.

    Attributes:
        total, updates: rounds, and updates that the server got.
        not_finite, too_large: updates that were dropped.
        abandoned, why_abandoned: rounds that changed nothing, and the first reason.
        worst_hostile_share: the largest share of malicious updates in a round.
        outvoted: rounds with more malicious rows than the rule reckons with.
        silent: updates that did not come.
        bans: who was banned, and in which round, where anybody was.
    """

    total: Count
    updates: Count
    not_finite: Count
    too_large: NotRequired[Count]
    abandoned: Count
    why_abandoned: str | None
    worst_hostile_share: Share
    outvoted: Count
    silent: Count
    bans: NotRequired[list[Ban]]


class Aggregate(TypedDict):
    """The largest kappa that a round showed; means of the cosine with the honest mean and of the malicious updates' length.

    Attributes:
        kappa: the largest that a round showed.
        cosine: of the aggregate with the honest mean.
        hostile_length: of the malicious updates, in lengths of the honest ones.
    """

    kappa: Number | None
    cosine: Number | None
    hostile_length: Number | None


class Excluded(TypedDict):
    """The honest client that was excluded most often, and the share of its rounds in which it was.

    Attributes:
        client: its number.
        share: of its rounds.
    """

    client: Count
    share: Share


class Filter(TypedDict):
    """How well a rule that gives some updates no weight finds the malicious ones.

    Attributes:
        precision: malicious among the excluded.
        recall: excluded among the malicious.
        honest_excluded: excluded among the honest.
        most_excluded: the honest client that was excluded most often.
    """

    precision: Share | None
    recall: Share | None
    honest_excluded: Share | None
    most_excluded: Excluded | None


class Effect(TypedDict):
    """What the attack left of the rule's progress, beside the most harmful of its siblings.

    Attributes:
        none, attack, sibling: the progress with the malicious clients sending the honest mean, what they sent, and what
            ``by`` would have sent.
        by: the sibling that leaves the least.
    """

    none: Number
    attack: Number
    sibling: Number
    by: str


class Minority(TypedDict):
    """An honest client with rare classes.

    Attributes:
        client: its number.
        classes: those that are rare.
        excluded: the share of its rounds in which it was excluded.
        accuracy: on these classes.
    """

    client: Count
    classes: list[Count]
    excluded: Share | None
    accuracy: Share | None


class Parties(TypedDict):
    """Parties with tasks of their own; see `fedguard.metrics.parties`.

    Attributes:
        classes: of each party.
        accuracy: of each party on its own classes; null without test examples of them.
        worst: the least of these.
    """

    classes: list[list[Count]]
    accuracy: list[Share | None]
    worst: Share | None


class Corners(TypedDict):
    """Final accuracies without attack, with silent malicious clients and with the attack; under the plain mean and the defense.

    Attributes:
        clean_mean, clean_defense: without attack.
        attack_mean, attack_defense: with the attack.
        silent_mean, silent_defense: with silent malicious clients.
    """

    clean_mean: Share | None
    clean_defense: Share | None
    attack_mean: Share | None
    attack_defense: Share | None
    silent_mean: NotRequired[Share | None]
    silent_defense: NotRequired[Share | None]


class References(TypedDict):
    """What a server with clean data reaches alone; ``oracle_mean``: earlier versions' name of the corner ``silent_mean``.

    Attributes:
        root_only: of a server with its clean data alone.
        oracle_mean: earlier versions' name of the corner ``silent_mean``.
    """

    root_only: NotRequired[Share | None]
    oracle_mean: NotRequired[Share | None]


class Durability(TypedDict):
    """How many rounds a backdoor outlived the attack.

    Attributes:
        rounds: after the last attack until the success was below one half, or to the end.
        survived: it never was.
    """

    rounds: Count
    survived: bool


class Evaded(TypedDict):
    """The final model under an attack at test time.

    Attributes:
        attack: with its parameters.
        examples: how many test examples were changed.
        clean: the final model's accuracy on them as they are: of one model, and so another than the final accuracy, which is
            a mean over the last evaluations.
        accuracy: the share on which it is right both before and after the change.
    """

    attack: str
    examples: Count
    clean: Share
    accuracy: Share


class Off(TypedDict):
    """How far decoded sums were off, in lengths of the true mean.

    Attributes:
        mean, max: over the rounds.
    """

    mean: Amount
    max: Amount


class LeftOut(TypedDict):
    """How many clients the protocol had left out in the end.

    Attributes:
        hostile, honest: how many.
    """

    hostile: Count
    honest: Count


class Sums(TypedDict):
    """See `fedguard.metrics.masking.masked`.

    Attributes:
        mode: of secure aggregation.
        rounds, sessions, aborted_sessions, why_aborted, aborted_rounds: how many there were and were lost, the first reason,
            and rounds without any sum.
        survivors: clients in the sums of a round, on average.
        anonymity: the fewest clients in any sum, less those that may collude.
        error: noise included.
        clipped: the share of the honest updates that was cut.
        bytes_up, bytes_down: for each client in each round.
        left_out: by the protocol, in the end.
        parameters: of a session.
        labels: what is assumed or not protected, in short.
    """

    mode: str
    rounds: Count
    sessions: Count
    aborted_sessions: Count
    why_aborted: str | None
    aborted_rounds: Count
    survivors: Amount
    anonymity: int | None
    error: Off | None
    clipped: Share
    bytes_up: Amount
    bytes_down: Amount
    left_out: LeftOut
    parameters: Session
    labels: list[str]


class Score(TypedDict):
    """One attack of an ensemble: over how many selection seeds, and the accuracy that it left.

    Attributes:
        attack: with its parameters.
        seeds: of the selection.
        accuracy: that it left.
        failed: it did not run through.
    """

    attack: str
    seeds: Count
    accuracy: Share | None
    failed: bool


class Saturation(TypedDict):
    """See `fedguard.bench.running.selection.saturation`.

    Attributes:
        families: how many kinds of attack.
        curve: the expected lowest accuracy of 1, 2 ... of them.
        last_gain: the curve's last step.
        further: by how much more kinds may lower it.
    """

    families: Count
    curve: list[Number]
    last_gain: Number
    further: Number


class WorstCase(TypedDict):
    """How the worst of an ensemble was chosen; see `fedguard.bench.running.selection.Selection.report`.

    Attributes:
        ensemble: with its parameters.
        chosen: the attack that won.
        selection_seeds: on which it was chosen.
        selection_accuracy: that it left there.
        scores: of every attack.
        given_up: how many were stopped early.
        closest_given_up: how far the best of those was from the chosen one when it was stopped.
        saturation: whether more attacks would help.
    """

    ensemble: str
    chosen: str | None
    selection_seeds: list[Count]
    selection_accuracy: Share | None
    scores: list[Score]
    given_up: Count
    closest_given_up: Change | None
    saturation: Saturation | None


class Result(TypedDict):
    """What came out; see `fedguard.bench.running.trial`. None is what does not apply.

    Attributes:
        class_accuracy: by class; null for one without test examples.
        diverged: whether the last loss is not finite.
        curve: over the training.
        rounds: what happened in them.
        aggregate: how near the aggregates came to the honest mean.
        time: where there is simulated time.
        nodes: where there is no server.
        filter: null for a rule that gives every update weight.
        attack_notes: numbers that the attack noted.
        attack_effect: null for an attack without siblings.
        chance: the accuracy of a guess.
        minority: honest clients with rare classes.
        parties: where they have tasks of their own.
        secure_aggregation: null where nothing was masked.
        privacy: null without noise.
        corners: the trials that this one is compared with, by final accuracy.
        references: others.
        inference: what an attack on the clients' privacy found.
        attack_success_raw, attack_success_clean: of the backdoor, and of a clean model.
        durability: null without a backdoor, or where the attack goes on to the end.
        worst_case: how the attack was chosen from an ensemble.
        evasion: where the suite asks for an attack at test time.
    """

    final_accuracy: Share
    best_accuracy: Share
    worst_class_accuracy: Share
    class_accuracy: list[Share | None]
    diverged: bool
    curve: Curve
    rounds: Rounds
    aggregate: Aggregate
    time: NotRequired[SimulatedTime]
    nodes: NotRequired[Nodes]
    filter: Filter | None
    attack_notes: dict[str, float]
    attack_effect: NotRequired[Effect | None]
    chance: Share
    minority: list[Minority]
    parties: NotRequired[Parties]
    secure_aggregation: Sums | None
    privacy: Privacy | None
    corners: Corners
    accuracy_drop: Change | None
    absence: NotRequired[Change | None]
    harm: NotRequired[Change | None]
    robustness_tax: Change | None
    references: References
    inference: Inference | None
    attack_success: Change | None
    attack_success_raw: Share | None
    attack_success_clean: Share | None
    durability: Durability | None
    worst_case: NotRequired[WorstCase]
    evasion: NotRequired[Evaded]
