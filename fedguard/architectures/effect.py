"""Progress of a rule under an attack, and under the attack's siblings in the same round."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from fedguard.contracts import KnownRule, PoisonAttack, PoisonView, first_met
from fedguard.errors import PreconditionError
from fedguard.kernels import all_finite

#: The key of a round in which the malicious clients sent the mean of the honest updates.
UNATTACKED = "none"


def effects(
    attack: PoisonAttack, view: PoisonView, honest: Tensor, crafted: Tensor, rule: KnownRule
) -> Mapping[str, float] | None:
    """The progress ``<R, mu> / |mu|^2`` of the rule under the attack, under each of its siblings, and under neither.

    Args:
        view: the attack's view; its siblings see no more.
        honest: float32 ``[h, d]``, the honest updates of the round.
        crafted: float32 ``[f, d]``, the crafted updates.
        rule: the malicious clients' copy, whether or not they are granted it: it is probed in Gram space, coordinate rules
            on a sample of the coordinates.

    Returns:
        Progress by the names of the attacks in a suite; None if the attack has no siblings, or the rule cannot be probed.
    """
    siblings = attack.siblings()
    if not siblings or len(honest) == 0:
        return None
    sent = {str(attack): crafted}
    for one in siblings:
        sees = first_met(one.needs, view.granted)
        if sees is not None:
            sent[str(one)] = one.craft(view.restrict(one.name, sees))
    rows = [one[:1] if one.stride(0) == 0 else one for one in sent.values()]  # most send one row f times
    directions, h = torch.cat(rows), len(honest)
    if not all_finite(directions):
        return None
    everything = torch.eye(h + len(directions), dtype=torch.float64)
    combinations, start = [everything[:h].mean(0, keepdim=True)], h
    for part in rows:
        combinations.append(everything[start : start + len(part)])
        start += len(part)
    try:
        probes = rule.probes(honest, directions, view.f)
        asked = zip((UNATTACKED, *sent), combinations, strict=True)
        return {name: probes(part.expand(view.f, -1)).progress for name, part in asked}
    except PreconditionError:
        return None  # too few updates for the rule: the server abandons the round
