"""The result of an attack on the clients' privacy, target by target; see `fedguard.metrics`."""

from __future__ import annotations

from typing import Annotated, Literal, NotRequired

from pydantic import Field
from typing_extensions import TypedDict

from fedguard.bench.records.schema.types import GuessName
from fedguard.metrics.quantities import Change, Count, Number, Share


class AttackKnowledge(TypedDict):
    """The knowledge given to the attack.

    Attributes:
        sees: what the attack looks at.
        round, rounds: the round that it watched, null where it watched others; and how many it did.
        accuracy_of_the_model: in that round.
        vector: what it looks at, in words.
        examples, local_steps: what a client trains on in a round.
        labels: whether it knows the labels.
        candidates: number of candidates of a membership inference.
        transforms: client stages that change the updates.
        worker_momentum: the coefficient of the clients' momentum.
    """

    sees: list[str]
    round: Count | None
    rounds: Count
    accuracy_of_the_model: Share
    vector: str
    examples: Count
    local_steps: Count
    labels: bool
    candidates: Count | None
    transforms: list[str]
    worker_momentum: NotRequired[Number]


class Spread(TypedDict):
    """Over the inputs of one target; the half width of a 95 % interval is None for a single one.

    Attributes:
        mean, half_width: over the inputs.
        values: of each input.
    """

    mean: Number
    half_width: Number | None
    values: list[Number]


class Rate(TypedDict):
    """A share with its interval; both None if it cannot be determined, and why.

    Attributes:
        value, interval: the share, and its 95 % interval.
        why: the reason if it cannot be determined.
    """

    value: Share | None
    interval: Annotated[list[Share], Field(min_length=2, max_length=2)] | None
    why: NotRequired[str]


class MembershipScores(TypedDict):
    """Ascending.

    Attributes:
        members, non_members: what the attack said of each, ascending.
    """

    members: list[float]
    non_members: list[float]


class ReconstructionTarget(TypedDict):
    """One target of a reconstruction: lengths of lists are numbers of inputs, psnr and gain are dB.

    Attributes:
        clients: the clients with these inputs.
        images, claimed, not_finite: inputs there were, were claimed, and were no numbers.
        matching: for each true input which claim it is compared with.
        psnr: in dB.
        ssim: of images, at most 1.
        exact: how many inputs are exact.
        revealed: how many are nearer than any trivial guess, by 1 dB or more; earlier versions did not count them.
        label_accuracy: the share of labels that is right.
        baselines: PSNR of trivial guesses, in dB.
        best_baseline: the best of them.
        gain: PSNR above it, in dB.
        recovered: the share of the inputs that is exact.
        revealed_share: the share that is revealed.
    """

    clients: list[Count]
    images: Count
    claimed: Count
    not_finite: Count
    matching: list[Count | None]
    psnr: Spread
    ssim: Spread | None
    exact: Count
    revealed: NotRequired[Count]
    label_accuracy: Share | None
    baselines: dict[GuessName, Number]
    best_baseline: GuessName
    gain: Spread
    recovered: Share
    revealed_share: NotRequired[Share]


class MembershipTarget(TypedDict):
    """One target of a membership inference.

    Attributes:
        clients: the clients with these examples.
        members, non_members, not_numbers: candidates, and scores that are no numbers.
        auc: the area under the ROC.
        tpr_at_1_percent, tpr_at_01_percent: members found at 1 % and at 0.1 % false alarms.
        roc: pairs of false and true positive rates.
        scores: earlier versions did not keep them.
    """

    clients: list[Count]
    members: Count
    non_members: Count
    not_numbers: Count
    auc: Rate
    tpr_at_1_percent: Rate
    tpr_at_01_percent: Rate
    roc: list[Annotated[list[Share], Field(min_length=2, max_length=2)]]
    scores: NotRequired[MembershipScores]


class LabelTarget(TypedDict):
    """One target of a label inference.

    Attributes:
        clients: the clients with these labels.
        examples, claimed: how many there were, and were claimed.
        accuracy: the share of the labels that is right.
        exact: whether all are.
        count_error: by class, claimed less true.
        trivial: the accuracy of the best guess without looking.
        gain: accuracy above it.
    """

    clients: list[Count]
    examples: Count
    claimed: Count
    accuracy: Share
    exact: bool
    count_error: list[int]
    trivial: Share
    gain: Change


class PropertyTarget(TypedDict):
    """One client of whom a property was inferred.

    Attributes:
        clients: who it is.
        score: how sure the attack is.
        holds: whether the property does.
    """

    clients: list[Count]
    score: Number
    holds: bool


class TextTarget(TypedDict):
    """One target whose texts were read.

    Attributes:
        clients: the clients with these texts.
        texts: how many there were.
        tokens, claimed: different tokens of the truth, and of the claim; padding counts nowhere.
        recall, precision: the share of the tokens that was found, and of the claim that is right.
        f1: their harmonic mean.
        trivial: f1 of as many of the most frequent tokens.
        gain: f1 above it.
        rouge_l: of the texts; null where no order was found.
        rank: of the gradient that they were read from; null where the attack goes by no rank.
    """

    clients: list[Count]
    texts: Count
    tokens: Count
    claimed: Count
    recall: Share
    precision: Share
    f1: Share
    trivial: Share
    gain: Change
    rouge_l: Share | None
    rank: Count | None


class ObserverRecord(TypedDict):
    """Adversary nodes.

    Attributes:
        place: their position.
        nodes: their numbers.
        solved: by client, the share of its update that they can solve for, in the watched round or in any; clients without any
            are left out.
        whole: number of clients with an update that they can solve for in full.
        off: relative error of the solved updates: the largest over the targets; None if they only have a sum.
    """

    place: str
    nodes: list[Count]
    solved: dict[str, Share]
    whole: Count
    off: Number | None


class _Attack(TypedDict):
    """Of every goal.

    Attributes:
        attack: with its parameters.
        server: whether it follows the protocol.
        seat: the adversary nodes, if no server infers.
        given: its knowledge.
        score: the metrics over all targets; None if a target lacks one.
    """

    attack: str
    server: Literal["malicious", "curious"]
    seat: NotRequired[ObserverRecord]
    given: AttackKnowledge
    score: dict[str, Number | None]


class ReconstructionRecord(_Attack):
    """Inputs were rebuilt.

    Attributes:
        goal: of the attack.
        targets: what was found, one by one.
    """

    goal: Literal["reconstruction"]
    targets: list[ReconstructionTarget]


class MembershipRecord(_Attack):
    """Members were distinguished from other examples.

    Attributes:
        goal: of the attack.
        targets: what was found, one by one.
    """

    goal: Literal["membership"]
    targets: list[MembershipTarget]


class LabelRecord(_Attack):
    """Labels were inferred.

    Attributes:
        goal: of the attack.
        targets: what was found, one by one.
    """

    goal: Literal["labels"]
    targets: list[LabelTarget]


class PropertyRecord(_Attack):
    """A property of clients' data was inferred.

    Attributes:
        goal: of the attack.
        targets: what was found, one by one.
    """

    goal: Literal["property"]
    targets: list[PropertyTarget]


class TextRecord(_Attack):
    """Texts were read.

    Attributes:
        goal: of the attack.
        targets: what was found, one by one.
    """

    goal: Literal["text"]
    targets: list[TextTarget]


Inference = Annotated[
    ReconstructionRecord | MembershipRecord | LabelRecord | PropertyRecord | TextRecord, Field(discriminator="goal")
]
