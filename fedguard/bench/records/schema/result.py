"""The result of a training: what a record holds of it, inference aside."""

from __future__ import annotations

from typing import Literal, NotRequired

from pydantic import ConfigDict, with_config
from typing_extensions import TypedDict

from fedguard.bench.records.schema.card import Session
from fedguard.bench.records.schema.inference import Inference
from fedguard.bench.records.schema.types import STRICT, Amount, Change, Count, Number, Share

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


class Staleness(TypedDict):
    """How many aggregates there were between an update's model and the update.

    Attributes:
        mean, largest: over all updates.
        counts: numbers of updates, by staleness from 0.
    """

    mean: Amount | None
    largest: Count
    counts: list[Count]


class Timeline(TypedDict):
    """The first trainings of a simulated course that ended; see `fedguard.metrics.moments.timeline`.

    Attributes:
        client: whose, one entry for each training, as in the lists that follow.
        began, ended: in simulated seconds.
        fate: what became of it.
        malicious: those of these clients who act for the attack.
        rounds: when rounds ended.
        total: trainings that ended in all.
    """

    client: list[Count]
    began: list[Amount]
    ended: list[Amount]
    fate: list[Literal["arrived", "late", "lost", "interrupted"]]
    malicious: list[Count]
    rounds: list[Amount]
    total: Count


class SimulatedTime(TypedDict):
    """A training in simulated time; see `fedguard.metrics.moments.in_time`.

    Attributes:
        seconds: at its end.
        computed: by all devices together.
        joules: of all devices.
        bytes_up, bytes_down: sent by the devices and to them.
        updates_a_second: that reached the server; null where no time passed.
        releases: how often the server aggregated.
        staleness: of the updates.
        late, interrupted, lost: trainings that nobody waited for, or whose device left, and updates that the network lost.
        malicious_share: of the updates that reached the server.
        timeline: who trained when.
    """

    seconds: Amount
    computed: Amount
    joules: Amount
    bytes_up: Count
    bytes_down: Count
    updates_a_second: Amount | None
    releases: Count
    staleness: Staleness
    late: Count
    interrupted: Count
    lost: Count
    malicious_share: Share
    timeline: NotRequired[Timeline]


class NodesCurve(TypedDict):
    """Over the evaluations: the worst and the best node, the mean of the models, and how far these are apart.

    Attributes:
        accuracy: of each honest node, a list for each evaluation.
        worst, best, mean_model: accuracies.
        consensus: null where it is not finite.
    """

    accuracy: list[list[Share]]
    worst: list[Share]
    best: list[Share]
    mean_model: list[Share]
    consensus: list[Amount | None]


class Nodes(TypedDict):
    """The honest nodes of a training without a server; see `fedguard.metrics.nodes.by_node`.

    Attributes:
        honest: their numbers.
        accuracy: of each of them.
        worst, best, tenth, spread: over them.
        mean_model: of the mean of their models, which nobody has.
        consensus: how far the models are apart; null where that is not finite.
        messages: vectors sent in all.
        abandoned: aggregates at which the rule could not run.
        links: (source, destination), of each pair of nodes of which the second ever hears the first.
        malicious: the nodes that acted for the attack.
        curve: over the training.
    """

    honest: list[Count]
    accuracy: list[Share]
    worst: Share
    best: Share
    tenth: Share
    spread: Amount
    mean_model: Share
    consensus: Amount | None
    messages: Count
    abandoned: Count
    links: list[list[Count]]
    malicious: list[Count]
    curve: NodesCurve


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


class Level(TypedDict):
    """One privacy level of DP-SGD.

    Attributes:
        epsilon: of this level.
        clip: the length to which gradients are cut.
        noise_multiplier: the noise's deviation, in clips.
    """

    epsilon: Amount | None
    clip: Amount
    noise_multiplier: Amount


class Clips(TypedDict):
    """Of adaptive clipping.

    Attributes:
        first, least, most: the length to which updates were cut.
    """

    first: Amount
    least: Amount
    most: Amount


class OverClients(TypedDict):
    """A figure of each honest client.

    Attributes:
        least, median, most: of them.
    """

    least: Amount | None
    median: Amount | None
    most: Amount | None


class Ledger(TypedDict):
    """What each honest client has released in simulated time; see `fedguard.privacy.ledger`.

    Attributes:
        counted: ``as it ran``: of the updates that there were, not of those that a plan allows.
        clients: how many.
        releases: trainings that have ended, for noise of the clients' own; noisy sums that hold the client, for a server's.
        shift: by how many clips a client moves all noisy sums together.
        epsilon: by shift; the largest is the one that is reported.
    """

    counted: str
    clients: Count
    releases: OverClients
    shift: NotRequired[OverClients]
    epsilon: NotRequired[OverClients]


@with_config(ConfigDict(extra="allow", **STRICT))
class Privacy(TypedDict):
    """What noise proves, with all that it rests on, and what its kind says besides; see `fedguard.contracts.noise.Spent`.

    Attributes:
        kind: of noise.
        epsilon, delta: the guarantee; null without one.
        why: there is no guarantee.
        unit, relation: what is hidden, and which two data sets are neighbours.
        sampling, view: who takes part, and what the adversary sees.
        accountant, bound: who worked it out, and whether it is a bound rather than exact.
        assumptions: in words.
        mechanism: of the noise.
        noise_multiplier, clip: its deviation in clips, and the length to which is cut.
        rounds, steps_in_a_round: over which it adds up.
        units: how many there are to be hidden.
        levels: of several.
        sample_rate: of a batch, or a round.
        divided_by: what the sum is divided by.
        clips: of adaptive clipping.
        bit_noise: the deviation of the noise on its counts.
        bands: of a matrix mechanism.
        expected_contributors, contributors: clients in a sum, as planned, and the fewest there were.
        ledger: what each client has released, in simulated time.
        may_withhold, most_hostile: clients that may leave out their noise, and the most malicious ones in a round.
    """

    kind: str
    epsilon: Amount | None
    why: str | None
    delta: NotRequired[Share]
    unit: NotRequired[str]
    relation: NotRequired[str]
    sampling: NotRequired[str]
    view: NotRequired[str]
    accountant: NotRequired[str]
    bound: NotRequired[bool]
    assumptions: NotRequired[list[str]]
    mechanism: str
    noise_multiplier: Amount | None
    clip: Amount | None
    rounds: Count
    units: NotRequired[Count]
    levels: NotRequired[list[Level]]
    sample_rate: NotRequired[Share]
    divided_by: NotRequired[Count | None]
    steps_in_a_round: NotRequired[Count]
    clips: NotRequired[Clips | None]
    bit_noise: NotRequired[Amount | None]
    bands: NotRequired[Count]
    expected_contributors: NotRequired[Count]
    contributors: NotRequired[Count | None]
    may_withhold: NotRequired[Count]
    most_hostile: NotRequired[Count]
    ledger: NotRequired[Ledger]


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
