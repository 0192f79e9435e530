"""Plain backdoor by data poisoning (Gu et al., 2017; in federated learning Sun et al., 2019)."""

from __future__ import annotations

from dataclasses import dataclass, field

from fedguard.attacks.backdoor.base import BackdoorAttack
from fedguard.attacks.backdoor.triggers.pixel_patch import PixelPatch
from fedguard.contracts import State, Trigger


@dataclass(frozen=True, kw_only=True)
class Backdoor(BackdoorAttack):
    """Malicious clients train honestly on partly triggered data, and send what comes out.

    $b = w_backdoored - w$, without a boost. A trigger that is a natural feature is not added to inputs: inputs with the
    feature replace others, drawn from all malicious clients if one client has too few.

    Args:
        target: the class that triggered inputs shall get.
        share: fraction of each malicious client's examples that carry the trigger and the target label.
        epochs: local epochs of a malicious client (FedAvg only; a FedSGD client has one step).
        trigger: activates the backdoor.
    """

    name = "backdoor"
    source = "Gu et al., BadNets: Identifying Vulnerabilities in the Machine Learning Model Supply Chain, 2017"

    trigger: Trigger = field(default_factory=PixelPatch)

    def current_trigger(self, state: State) -> Trigger:
        return self.trigger
