"""The result of a training in a record, except inference."""

from __future__ import annotations

from typing import Literal, NotRequired

from typing_extensions import TypedDict

from fedguard.bench.records.schema.card import SessionCard
from fedguard.bench.records.schema.inference import Inference
from fedguard.bench.records.schema.privacy import Privacy
from fedguard.metrics.durability import Durability
from fedguard.metrics.masking import MaskingMetrics
from fedguard.metrics.minority import Minority
from fedguard.metrics.parties import Parties
from fedguard.metrics.quantities import Amount, Change, Count, Number, Share
from fedguard.metrics.returns import Returns
from fedguard.metrics.trajectory import Trajectory

#: What a curve may be drawn over, and what of it; see `fedguard.bench.records.record.curve`.
Axis = Literal["round", "steps", "updates", "seconds", "bytes_up", "joules"]
Measured = Literal["accuracy", "returns", "backdoor", "loss"]


class Controls(TypedDict):
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
    """What a server with clean data reaches alone; ``oracle_mean``: earlier versions' name of the control ``silent_mean``.

    Attributes:
        root_only: of a server with its clean data alone.
        oracle_mean: earlier versions' name of the control ``silent_mean``.
    """

    root_only: NotRequired[Share | None]
    oracle_mean: NotRequired[Share | None]


class MaskingRecord(MaskingMetrics):
    """What was masked, and how.

    Attributes:
        mode: of secure aggregation.
        parameters: of a session.
        labels: what is assumed or not protected, in short.
    """

    mode: str
    parameters: SessionCard
    labels: list[str]


class EvasionRecord(TypedDict):
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


class Score(TypedDict):
    """One attack of an ensemble: over how many selection seeds, and the accuracy that it left.

    Attributes:
        attack: with its parameters.
        seeds: of the selection.
        accuracy: that it left, or the normalized return, which is below 0 where a policy is worse than chance.
        failed: it did not run through.
    """

    attack: str
    seeds: Count
    accuracy: Number | None
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


class WorstCaseRecord(TypedDict):
    """How the worst of an ensemble was chosen; see `fedguard.bench.running.selection.AttackSelection.report`.

    Attributes:
        ensemble: with its parameters.
        chosen: the attack that won.
        selection_seeds: on which it was chosen.
        selection_accuracy: the accuracy, or normalized return, that it left there.
        scores: of every attack.
        given_up: how many were stopped early.
        closest_given_up: how far the best of those was from the chosen one when it was stopped.
        saturation: whether more attacks would help.
    """

    ensemble: str
    chosen: str | None
    selection_seeds: list[Count]
    selection_accuracy: Number | None
    scores: list[Score]
    given_up: Count
    closest_given_up: Number | None
    saturation: Saturation | None


class LostNode(TypedDict):
    """A node that stopped answering.

    Attributes:
        node: by its partition.
        round: the first that lacks an answer of it.
        how: its process ended, where that is known.
    """

    node: Count
    round: Count
    how: str | None


class AppRecord(TypedDict):
    """Facts about a third-party app.

    Attributes:
        metric: the app's name of its accuracy.
        measured_by: who measured it, in words.
        malicious: the nodes, by their partitions.
        lost: nodes that stopped answering, if any did.
        misfit: largest relative distance of a node's update from the step that ``app.training`` describes, if an attack on
            privacy watched nodes that take one step.
        framework, version: of an NVFlare job: ``nvflare``, and its version.
        job: SHA-256 of all files of the job.
        controller: the class of its server that trains, which FedGuard's subclass ran for.
        place: where attack and rule acted.
        params_type: ``FULL`` if sites send models, ``DIFF`` if they send differences.
        weights: by what the job's own aggregation weights, as its sites claim.
        sites: their names; other fields name a site by its number in this list, from 0.
    """

    metric: str
    measured_by: str
    malicious: list[Count]
    framework: NotRequired[str]
    version: NotRequired[str]
    job: NotRequired[str]
    controller: NotRequired[str]
    place: NotRequired[str]
    params_type: NotRequired[str]
    weights: NotRequired[str]
    sites: NotRequired[list[str]]
    lost: NotRequired[list[LostNode]]
    misfit: NotRequired[Number]


class StatisticsRecord(TypedDict):
    """What became of running statistics.

    Attributes:
        fate: ``training.statistics``, or the default.
        normalization: by what layers normalize: see `fedguard.contracts.statistics.Normalization`.
        layers: number of layers that normalize over batches.
        numbers: s, the number of running statistics; 0 if nobody sends any.
        rule: by what the server combines them: ``mean``, or a rule; null if nobody sends any.
        floored: number of variances below 0 that clients sent, and that were taken for 0.
        elsewhere, worst: after the last round, where each client has a model of its own: the mean of its accuracy on all test
            examples, and the lowest accuracy of a client on its own labels.
        compared: the final accuracy with the fates of ``evaluation.statistics``, by fate.
    """

    fate: str
    normalization: Literal["running", "batch", "constant"]
    layers: Count
    numbers: Count
    rule: str | None
    floored: Count
    elsewhere: NotRequired[Share]
    worst: NotRequired[Share]
    compared: NotRequired[dict[str, Share]]


class WeightBreakdownRecord(TypedDict):
    """Which sites of unequal weight can together move the aggregate without bound, and how far each can alone.

    Attributes:
        f: the number of malicious updates that the rule assumes.
        shares: of each site in the weight, in the order of their numbers.
        least: the smallest share of a set of sites that moves the aggregate without bound, of the sets that were found; null
            if none was.
        sites: such a set, by name; empty if none was found.
        pull: for each site, how far it was found to move the aggregate alone, in lengths of the longest honest update; null
            without bound.
        evaluations: how often the rule was evaluated.
    """

    f: Count
    shares: list[Share]
    least: Share | None
    sites: list[str]
    pull: list[Amount | None]
    evaluations: Count


class Result(Trajectory):
    """The result; see `fedguard.bench.running.trial`. Fields that do not apply are None.

    Attributes:
        chance: the accuracy of a guess; null if the labels are unknown.
        minority: honest clients with rare classes.
        parties: results of the parties, if each has a task of its own.
        secure_aggregation: null if nothing was masked.
        privacy: null without noise.
        controls: the trials that this one is compared with, by final accuracy.
        references: others.
        inference: the result of an attack on the clients' privacy.
        attack_success_raw, attack_success_clean: of the backdoor, and of a clean model.
        durability: null without a backdoor, or if the attack continues to the end.
        worst_case: how the attack was chosen from an ensemble.
        evasion: the result of an attack at test time, if the suite asks for one.
        app: facts about a third-party app.
        returns: in reinforcement learning, in place of accuracies.
        statistics: only for a network that normalizes over batches.
        weight_breakdown: what sets of sites can do to the rule, if the suite asks for it.
    """

    chance: Share | None
    minority: list[Minority]
    parties: NotRequired[Parties]
    secure_aggregation: MaskingRecord | None
    privacy: Privacy | None
    controls: Controls
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
    worst_case: NotRequired[WorstCaseRecord]
    evasion: NotRequired[EvasionRecord]
    app: NotRequired[AppRecord]
    returns: NotRequired[Returns]
    statistics: NotRequired[StatisticsRecord]
    weight_breakdown: NotRequired[WeightBreakdownRecord]
