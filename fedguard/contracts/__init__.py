"""The contracts of FedGuard: what a defense, an attack, a task and an architecture are, and who sees what.

    sight.py           Sight, Exposure, ThreatModel, View: who sees what
    algorithm.py       Algorithm: what everything with a name has in common
    gram.py            Gram: the inner products of a round
    rules.py           WeightRule, Mixing, CoordinateRule, MatrixRule, ClientTransform, Pipeline
    attacks.py         PoisonAttack, Ensemble and their views
    inference.py       InferenceAttack, its view and what it claims
    tasks.py           Examples, Dataset, Data, Preparation, Partition, Model, Trigger, Task
    noise.py           RecordNoise, ClientNoise, DistributedNoise: the noise that is added for privacy
    protocol.py        Protocol: secure aggregation, dropouts, noise
    training.py        Training, and the optimizers of a server
    participation.py   Participation: who takes part when
    clock.py           Clock: where the time of a training goes
    architectures.py   Setup, RoundReport, Architecture

Parameters and updates are flat float32 vectors: ``[d]`` for one, ``[n, d]`` for a round.
"""

from fedguard.contracts.algorithm import Algorithm
from fedguard.contracts.architectures import (
    Architecture,
    MaskedRound,
    Observer,
    RoundReport,
    Setup,
    Watched,
    told_among,
)
from fedguard.contracts.attacks import (
    BENIGN_SAMPLE,
    DataView,
    Ensemble,
    KnownRule,
    PoisonAttack,
    PoisonView,
    Probe,
    Probes,
)
from fedguard.contracts.clock import STAGES, Clock
from fedguard.contracts.gram import Gram
from fedguard.contracts.inference import (
    ONE_VECTOR,
    ONE_VECTOR_AND_ROOT,
    Inference,
    InferenceAttack,
    InferenceView,
    Labels,
    Membership,
    Property,
    Reconstruction,
)
from fedguard.contracts.noise import AdaptiveClip, Bands, ClientNoise, DistributedNoise, Level, RecordNoise
from fedguard.contracts.participation import Participation, Stay
from fedguard.contracts.protocol import (
    BEFORE_THE_INPUT,
    Dropout,
    FixedPoint,
    Groups,
    GroupTested,
    GroupTesting,
    Protocol,
    SessionSize,
)
from fedguard.contracts.rules import (
    ROWS,
    AggregationRule,
    ClientContext,
    ClientTransform,
    CoordinateRule,
    Defense,
    MatrixRule,
    Mixing,
    Pipeline,
    RuleContext,
    State,
    WeightRule,
)
from fedguard.contracts.sight import Exposure, Needs, Sight, ThreatModel, View, first_met, needs_in_words, seen
from fedguard.contracts.tasks import (
    DPSGD,
    ROOT,
    Data,
    Dataset,
    Evaluation,
    Examples,
    LocalPlan,
    Model,
    Partition,
    Preparation,
    Task,
    Trigger,
)
from fedguard.contracts.training import FedOpt, Moments, ServerOptimizer, Training

__all__ = [
    "BEFORE_THE_INPUT",
    "BENIGN_SAMPLE",
    "DPSGD",
    "ONE_VECTOR",
    "ONE_VECTOR_AND_ROOT",
    "ROOT",
    "ROWS",
    "STAGES",
    "AdaptiveClip",
    "AggregationRule",
    "Algorithm",
    "Architecture",
    "Bands",
    "ClientContext",
    "ClientNoise",
    "ClientTransform",
    "Clock",
    "CoordinateRule",
    "Data",
    "DataView",
    "Dataset",
    "Defense",
    "DistributedNoise",
    "Dropout",
    "Ensemble",
    "Evaluation",
    "Examples",
    "Exposure",
    "FedOpt",
    "FixedPoint",
    "Gram",
    "GroupTested",
    "GroupTesting",
    "Groups",
    "Inference",
    "InferenceAttack",
    "InferenceView",
    "KnownRule",
    "Labels",
    "Level",
    "LocalPlan",
    "MaskedRound",
    "MatrixRule",
    "Membership",
    "Mixing",
    "Model",
    "Moments",
    "Needs",
    "Observer",
    "Participation",
    "Partition",
    "Pipeline",
    "PoisonAttack",
    "PoisonView",
    "Preparation",
    "Probe",
    "Probes",
    "Property",
    "Protocol",
    "Reconstruction",
    "RecordNoise",
    "RoundReport",
    "RuleContext",
    "ServerOptimizer",
    "SessionSize",
    "Setup",
    "Sight",
    "State",
    "Stay",
    "Task",
    "ThreatModel",
    "Training",
    "Trigger",
    "View",
    "Watched",
    "WeightRule",
    "first_met",
    "needs_in_words",
    "seen",
    "told_among",
]
