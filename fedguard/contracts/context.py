"""What the parts of a cell are asked about: the cell without its algorithm, its masking and its noise."""

from __future__ import annotations

from dataclasses import dataclass, field

from fedguard.contracts.attacks import Ensemble, PoisonAttack
from fedguard.contracts.evasion import EvasionAttack
from fedguard.contracts.inference import InferenceAttack
from fedguard.contracts.network import Network
from fedguard.contracts.participation import Meeting, Participation
from fedguard.contracts.protocol import Protocol
from fedguard.contracts.rules import Pipeline
from fedguard.contracts.sight import Sight, ThreatModel
from fedguard.contracts.tasks import Model, Source
from fedguard.contracts.training import Training


@dataclass(frozen=True, kw_only=True)
class CellContext:
    """A cell without the parts that are asked about it: `FederatedAlgorithm.reasons` gets this much.

    Attributes:
        clients: the clients of the federation, or of one session of secure aggregation (`Architecture.sessions`).
        training, protocol: as the suite describes them; `Cell` has the algorithm, the masking and the noise that they name.
        network: the simulated network; None if time is not simulated.
        meeting: how updates meet in simulated time; None if rounds consist of their selected clients.
        pipeline: the defense.
        attack, ensemble: the attack on the training, or the attacks of which the strongest counts.
        inference: the attack on the clients' privacy.
        evasion: the attack at test time on the final model.
        attacking: number of malicious clients of a training, who add no noise; 0 before it runs.
        assumed_f: f, the number of malicious clients that the server assumes, among all clients.
        attack_sees: what the attack sees (see `fedguard.visibility`).
        rule_sees: what the server's rule sees.
        copied: whether malicious clients hold copies of honest clients' examples.
        shared: share of the training examples that is public, of which each client holds a copy.
        lookers: number of observing nodes in a training without a server; 0 if a server observes.
        watched_round: the round that an attack on privacy watches, if it watches one.
    """

    data: Source
    model: Model
    clients: Participation
    training: Training
    protocol: Protocol
    pipeline: Pipeline
    network: Network | None = None
    meeting: Meeting | None = None
    threat: ThreatModel = field(default_factory=ThreatModel)
    attack: PoisonAttack | None = None
    ensemble: Ensemble | None = None
    inference: InferenceAttack | None = None
    evasion: EvasionAttack | None = None
    attacking: int = 0
    assumed_f: int = 0
    attack_sees: Sight = Sight.NOTHING
    rule_sees: Sight = Sight.NOTHING
    copied: bool = False
    shared: float = 0.0
    lookers: int = 0
    watched_round: int = 1

    @property
    def adversary(self) -> PoisonAttack | Ensemble | None:
        """The adversary of the training: a single attack, or the ensemble of which the worst counts."""
        return self.attack or self.ensemble
