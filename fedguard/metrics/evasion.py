"""What inputs that are changed a little at test time leave of a final model's accuracy."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from fedguard.contracts import EvasionAttack, Examples, Task
from fedguard.contracts.evasion import lengths
from fedguard.contracts.returned import broken, returned_tensor
from fedguard.rng import Rng

#: Inputs that are changed at a time.
BATCH = 500

#: How far rounding may lead beyond the bound, relative to it.
ROUNDING = 1e-4


def evaded(attack: EvasionAttack, task: Task, test: Examples, model: Tensor, rng: Rng) -> dict[str, Any]:
    """The accuracy of a model (float32 ``[d]``) on test examples, and on the same ones under an attack.

    An input counts as right under the attack where the model is right on it both before and after the change.

    Raises:
        ContractError: the attack changes inputs by more than it says, beyond the range of values, or in place.
    """
    predict, low, high = task.predictor(), *task.value_range
    clean, robust = 0, 0
    for number, (x, y) in enumerate(zip(torch.split(test.x, BATCH), torch.split(test.y, BATCH), strict=True)):
        given = x.clone()  # the test examples themselves are out of its reach
        z = attack.perturb(lambda inputs: predict(model, inputs), given, y, (low, high), rng.child("evasion", number))
        z = returned_tensor(attack, "perturb", z, x.shape)
        if not torch.equal(x, given):
            raise broken(attack, "perturb: it changed the inputs in place")
        change = (z - x).abs().amax() if attack.norm == "linf" else lengths(z - x).amax()
        if not float(change) <= attack.radius((low, high)) * (1 + ROUNDING):
            raise broken(attack, f"perturb: a change of {float(change):.4g}, beyond {attack.radius((low, high)):.4g}")
        if float(z.min()) < min(low, float(x.min())) or float(z.max()) > max(high, float(x.max())):
            raise broken(attack, f"perturb: inputs beyond the range of values, {low:g} to {high:g}")
        with torch.no_grad():
            right = predict(model, x).argmax(1) == y
            clean += int(right.sum())
            robust += int((right & (predict(model, z).argmax(1) == y)).sum())
    return {"attack": str(attack), "examples": len(test), "clean": clean / len(test), "accuracy": robust / len(test)}
