"""The worst case: an ensemble of attacks, as AutoAttack is for adversarial examples (Croce & Hein, ICML 2020)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from annotated_types import MinLen

from fedguard.attacks.directions import NAMED
from fedguard.contracts import Ensemble, Fraction, PositiveInt
from fedguard.errors import require

#: The strategies that won somewhere in tests, at every strength, and those that search for their strength in each round.
CORE = (
    "sign_flip",
    *(f"ipm(tau={tau:g})" for tau in (0.1, 0.4, 0.8, 1, 1.2, 2, 5, 10, 20, 64)),
    *(f"alie(z={z:g})" for z in (-8, -4, -1.5, 1.5, 4)),
    *(f"{name}(direction='{direction}')" for name in ("min_max", "min_sum", "agr_tailored") for direction in NAMED),
    "mixed_step",
    "mixed_step(back=0.5)",
    "mixed_step(sign=0, back=0.5)",
    "mixed_step(std=2, back=0, length=2)",
    "fang",
    "fang(form='krum')",
    "cge_adaptive",
    "sign_guard_adaptive",
    "opt_alie",
    "opt_ipm",
    "gram_search",
    "gram_search(objective='progress')",
    "mimic",
    "poisoned_fl",
    "label_flip",
    "dynamic_flip",
    "sybil(decorrelated=True)",
    "sybil(decorrelated=False)",
    "gaussian(scale=10)",
    "huge_value(factor=-1e6)",
)


@dataclass(frozen=True, kw_only=True)
class WorstCase(Ensemble):
    """The attack that hurts this defense most, out of a whole ensemble; it is chosen on seeds other than those reported.

    Each member is a full training, judged by its *final* accuracy: the deviation of one round's aggregate is a bad proxy
    for the harm over two hundred rounds. All members are trained with the first selection seed. Members within ``margin``
    of the worst so far are trained with the other selection seeds. The member with the lowest mean over these is trained
    with the seeds of the suite, and only that result is reported. So the result is not the minimum of noise. An attack that
    is refused under the cell's threat model is no member.

    Args:
        selection_seeds: number of selection seeds; they are 1000000, 1000001 ...
        margin: accuracy in [0, 1]; a member that leaves the defender this much more than the worst, with the same seed, is
            dropped. It should exceed the variation between seeds.
        attacks: the members, as specs such as ``"alie(z=1.5)"``.
    """

    name = "worst_case"
    source = "in the manner of Croce & Hein, Reliable Evaluation of Adversarial Robustness with an Ensemble, ICML 2020"

    selection_seeds: PositiveInt = 3
    margin: Fraction = 0.1
    attacks: Annotated[tuple[str, ...], MinLen(2)] = CORE

    def __post_init__(self) -> None:
        super().__post_init__()
        require(
            not any(attack.startswith(self.name) for attack in self.attacks),
            "worst_case: attacks: expected single attacks; got worst_case itself among them.",
        )

    def members(self) -> tuple[str, ...]:
        return self.attacks

    def choose_on(self) -> tuple[int, ...]:
        return tuple(range(1_000_000, 1_000_000 + self.selection_seeds))
