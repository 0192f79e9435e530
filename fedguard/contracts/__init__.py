"""The contracts of FedGuard: what a defense, an attack, a task and an architecture are, and who sees what.

    sight.py           Sight, Exposure, ThreatModel, View: who sees what
    algorithm.py       Algorithm: what everything with a name has in common
    specs.py           how a suite names an algorithm; user_function.py, how it names a function of the user's
    return_checks.py   checks of what an algorithm returned
    ranges.py          PositiveFloat, Share and the like: the ranges of parameters
    gram.py            Gram: the inner products of a round
    rules.py           WeightRule, Mixing, CoordinateRule, MatrixRule, ClientTransform, Pipeline
    attacks.py         PoisonAttack, Ensemble
    poison_views.py    what a PoisonAttack sees
    lying.py           Channel, lies: what clients report and nobody can verify, and how an attack lies
    channels.py        the channels of FedGuard: LOSS, RATE, REWARDS ...
    claims.py          how many examples clients say that they have: what may be weighed by
    inference.py       InferenceAttack, its view and what it claims
    tasks.py           Examples, Dataset, Source, Data, Preparation, Partition, Model, Trigger, Task
    acting.py          ActingTask: a task whose model acts, Policy, Rollout, RecurrentNetwork, WorldModel
    spaces.py          Choices, Box: what an actor may do
    environments.py    Environment: where actors act, one step at a time
    wire.py            Fate, SentRound, ReceivedRound: the messages of one round, and what the server has of them
    training.py        Training: rounds, steps and learning rates, and the algorithm by name
    at_clients.py      evaluate_at_clients: evaluation where each client has a model of its own
    federated.py       FederatedAlgorithm: what clients train and keep, and what the server does with it
    first_model.py     the file of a first model, pinned by its digest
    noise.py           what a server with noise keeps and releases, what noise does in a sum, and what it proves
    audit.py           Epsilon, Check, Subject, Lab: what noise claims, and what it is audited with
    protocol.py        Protocol: secure aggregation, dropouts, noise
    optimizers.py      FedOpt: how a server moves the model by the aggregate
    participation.py   Participation: who takes part when
    network.py         Network: how long things take in simulated time, and who is there
    availability.py    Availability: a law by which devices come and go
    statistics.py      StatisticsLayout, LocalStatistics: the running statistics of a network (BatchNorm)
    statistics_fate.py StatisticsFate: what becomes of them in a federation
    stopwatch.py       Stopwatch: where the time of a training goes
    evasion.py         EvasionAttack: inputs that are changed at test time
    reports.py         RoundReport, RoundTiming: what happened in a round, and when
    context.py         CellContext: what the parts of a cell are asked about
    cell.py            Cell, its Masking and its Noise, and Setup: its training with one seed
    observers.py       Observer, Listeners: who infers from what it receives
    architectures.py   Architecture

Parameters and updates are flat float32 vectors: ``[d]`` for one, ``[n, d]`` for a round; under ``training.dtype: float64``
float64, wherever these pages say float32.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fedguard.lazy import lazy_names

if TYPE_CHECKING:
    from fedguard.contracts.acting import ActingTask, Policy, RecurrentNetwork, Rollout, WorldModel
    from fedguard.contracts.algorithm import Algorithm
    from fedguard.contracts.architectures import Architecture, Messages
    from fedguard.contracts.attacks import Ensemble, PoisonAttack
    from fedguard.contracts.audit import Check, Epsilon, Lab, Subject, Transcript
    from fedguard.contracts.availability import Availability, Presence
    from fedguard.contracts.cell import Cell, Masking, Noise, Receiver, Setup, scale_assumed_f
    from fedguard.contracts.context import CellContext
    from fedguard.contracts.environments import Environment, Step
    from fedguard.contracts.evasion import EvasionAttack
    from fedguard.contracts.federated import AlgorithmSetup, FederatedAlgorithm, RunningAlgorithm
    from fedguard.contracts.gram import Gram
    from fedguard.contracts.inference import (
        ONE_VECTOR,
        ONE_VECTOR_AND_ROOT,
        Inference,
        InferenceAttack,
        InferenceView,
        Labels,
        Membership,
        OneLogit,
        Property,
        Reconstruction,
    )
    from fedguard.contracts.lying import Channel, lies
    from fedguard.contracts.network import Links, Network, Speeds, Stragglers
    from fedguard.contracts.noise import (
        NoiseState,
        PrivacyGuarantee,
        ServerNoise,
        SumNoise,
    )
    from fedguard.contracts.observers import Listeners, Observer, Seating, SolvedUpdate
    from fedguard.contracts.optimizers import FedOpt, Moments, ServerOptimizer
    from fedguard.contracts.participation import Meeting, Participation, Stay
    from fedguard.contracts.poison_views import BENIGN_SAMPLE, DataView, KnownRule, PoisonView, Probe
    from fedguard.contracts.protocol import (
        BEFORE_THE_INPUT,
        Dropout,
        FixedPoint,
        Protocol,
        SessionSize,
    )
    from fedguard.contracts.ranges import (
        Fraction,
        NonNegativeFloat,
        NonNegativeInt,
        PositiveFloat,
        PositiveInt,
        ProperFraction,
        Share,
    )
    from fedguard.contracts.reports import (
        NodesReport,
        RoundReport,
        RoundTiming,
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
    from fedguard.contracts.sight import (
        MASKED_SUM,
        PUBLIC,
        SINGLE_UPDATES,
        Exposure,
        Needs,
        Sight,
        SightField,
        ThreatModel,
        View,
        first_met,
        needs_in_words,
    )
    from fedguard.contracts.spaces import Box, Choices
    from fedguard.contracts.statistics import LocalStatistics, StatisticsLayout
    from fedguard.contracts.statistics_fate import StatisticsFate
    from fedguard.contracts.stopwatch import STAGES, Stopwatch
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
        Reduction,
        Source,
        Task,
        Trigger,
    )
    from fedguard.contracts.training import Training
    from fedguard.contracts.wire import (
        Fate,
        LocalTraining,
        MaskedRound,
        ReceivedRound,
        RoundObservation,
        SentRound,
    )
else:
    __getattr__ = lazy_names(__name__)

__all__ = [
    "BEFORE_THE_INPUT",
    "BENIGN_SAMPLE",
    "DPSGD",
    "MASKED_SUM",
    "ONE_VECTOR",
    "ONE_VECTOR_AND_ROOT",
    "PUBLIC",
    "ROOT",
    "ROWS",
    "SINGLE_UPDATES",
    "STAGES",
    "ActingTask",
    "AggregationRule",
    "Algorithm",
    "AlgorithmSetup",
    "Architecture",
    "Availability",
    "Box",
    "Cell",
    "CellContext",
    "Channel",
    "Check",
    "Choices",
    "ClientContext",
    "ClientTransform",
    "CoordinateRule",
    "Data",
    "DataView",
    "Dataset",
    "Defense",
    "Dropout",
    "Ensemble",
    "Environment",
    "Epsilon",
    "Evaluation",
    "EvasionAttack",
    "Examples",
    "Exposure",
    "Fate",
    "FedOpt",
    "FederatedAlgorithm",
    "FixedPoint",
    "Fraction",
    "Gram",
    "Inference",
    "InferenceAttack",
    "InferenceView",
    "KnownRule",
    "Lab",
    "Labels",
    "Links",
    "Listeners",
    "LocalPlan",
    "LocalStatistics",
    "LocalTraining",
    "MaskedRound",
    "Masking",
    "MatrixRule",
    "Meeting",
    "Membership",
    "Messages",
    "Mixing",
    "Model",
    "Moments",
    "Needs",
    "Network",
    "NodesReport",
    "Noise",
    "NoiseState",
    "NonNegativeFloat",
    "NonNegativeInt",
    "Observer",
    "OneLogit",
    "Participation",
    "Partition",
    "Pipeline",
    "PoisonAttack",
    "PoisonView",
    "Policy",
    "PositiveFloat",
    "PositiveInt",
    "Preparation",
    "Presence",
    "PrivacyGuarantee",
    "Probe",
    "ProperFraction",
    "Property",
    "Protocol",
    "ReceivedRound",
    "Receiver",
    "Reconstruction",
    "RecurrentNetwork",
    "Reduction",
    "Rollout",
    "RoundObservation",
    "RoundReport",
    "RoundTiming",
    "RuleContext",
    "RunningAlgorithm",
    "Seating",
    "SentRound",
    "ServerNoise",
    "ServerOptimizer",
    "SessionSize",
    "Setup",
    "Share",
    "Sight",
    "SightField",
    "SolvedUpdate",
    "Source",
    "Speeds",
    "State",
    "StatisticsFate",
    "StatisticsLayout",
    "Stay",
    "Step",
    "Stopwatch",
    "Stragglers",
    "Subject",
    "SumNoise",
    "Task",
    "ThreatModel",
    "Training",
    "Transcript",
    "Trigger",
    "View",
    "WeightRule",
    "WorldModel",
    "first_met",
    "lies",
    "needs_in_words",
    "scale_assumed_f",
]
