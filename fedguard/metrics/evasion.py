"""Accuracy of a final model under an evasion attack at test time."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from fedguard.contracts import ActingTask, Evaluation, EvasionAttack, Examples, Task
from fedguard.contracts.evasion import lengths
from fedguard.contracts.return_checks import check_tensor_return, contract_error
from fedguard.rng import Rng

#: Number of inputs that are changed at a time
BATCH = 500

#: How far rounding may exceed the bound, relative to it
ROUNDING = 1e-4

#: Bound on observations, in widths from 0; so large that it never limits the attack
FAR = 1e5


def measure_evasion(
    attack: EvasionAttack, task: Task, test: Examples, model: Tensor, rng: Rng, statistics: Tensor | None = None
) -> dict[str, Any]:
    """The accuracy of a model (float32 ``[d]``) on test examples, and on the same ones under an attack.

    The network normalizes by ``statistics`` (``[s]``) if it has any. An input counts as correct under the attack if the model
    is correct on it both before and after the change.

    Raises:
        ContractError: the attack changes inputs by more than it declares, beyond the range of values, or in place.
    """
    predict, low, high = task.predictor(statistics), *task.value_range
    clean, robust = 0, 0
    for number, (x, y) in enumerate(zip(torch.split(test.x, BATCH), torch.split(test.y, BATCH), strict=True)):
        z = _perturb_inputs(
            attack, lambda inputs: predict(model, inputs), x, y, (low, high), rng.child("evasion", number)
        )
        with torch.no_grad():
            right = predict(model, x).argmax(1) == y
            clean += int(right.sum())
            robust += int((right & (predict(model, z).argmax(1) == y)).sum())
    return {"attack": str(attack), "examples": len(test), "clean": clean / len(test), "accuracy": robust / len(test)}


def play_under_evasion(attack: EvasionAttack, task: ActingTask, model: Tensor, rng: Rng) -> Evaluation:
    """Test episodes in which each observation is changed so that the model (float32 ``[d]``) takes another action.

    The attacked class is the action that the model takes at the true observation. ``eps`` is in widths of each coordinate,
    between the smallest and largest value observed in the same episodes without the attack. Observations have no other bounds.
    Huang et al., Adversarial Attacks on Neural Network Policies, 2017, do this with FGSM.

    Raises:
        ContractError: the attack changes observations by more than it declares, or in place.
    """
    met: list[Tensor] = []

    def record_range(_: Callable[[Tensor], Tensor], seen: Tensor) -> Tensor:
        met.append(torch.stack([seen.amin(0), seen.amax(0)]))
        return seen

    task.evaluate(model, shown=record_range)
    least, most = torch.stack(met)[:, 0].amin(0), torch.stack(met)[:, 1].amax(0)
    width = most - least  # 0 of what is always the same, which stays so
    free = replace(attack, eps=attack.eps / (2 * FAR))
    steps = itertools.count()

    def perturb_observation(outputs: Callable[[Tensor], Tensor], seen: Tensor) -> Tensor:
        taken = outputs(seen).argmax(-1)
        place = (seen - least) / torch.where(width > 0, width, 1.0)
        changed = _perturb_inputs(
            free,
            lambda inputs: outputs(seen + width * (inputs - place)),
            place,
            taken,
            (-FAR, FAR),
            rng.child("evasion", next(steps)),
        )
        return seen + width * (changed - place)

    return task.evaluate(model, shown=perturb_observation)


def _perturb_inputs(
    attack: EvasionAttack,
    logits: Callable[[Tensor], Tensor],
    x: Tensor,
    y: Tensor,
    value_range: tuple[float, float],
    rng: Rng,
) -> Tensor:
    """The attack's changed inputs, checked against its contract."""
    low, high = value_range
    given = x.clone()  # the inputs themselves are out of its reach
    z = check_tensor_return(attack, "perturb", attack.perturb(logits, given, y, value_range, rng), x.shape)
    if not torch.equal(x, given):
        raise contract_error(attack, "perturb: it changed the inputs in place")
    change = (z - x).abs().amax() if attack.norm == "linf" else lengths(z - x).amax()
    if not float(change) <= attack.radius(value_range) * (1 + ROUNDING) + torch.finfo(x.dtype).eps * float(
        x.abs().amax()
    ):
        raise contract_error(
            attack, f"perturb: a change of {float(change):.4g}, beyond {attack.radius(value_range):.4g}"
        )
    if float(z.min()) < min(low, float(x.min())) or float(z.max()) > max(high, float(x.max())):
        raise contract_error(attack, f"perturb: inputs beyond the range of values, {low:g} to {high:g}")
    return z
