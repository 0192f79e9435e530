"""Gradient inversion outside a suite: an attack on a model and a gradient from anywhere."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from fedguard.arguments import is_whole, of_kind, read_range, whole_number, whole_numbers
from fedguard.contracts import (
    Examples,
    Inference,
    InferenceAttack,
    Labels,
    LocalPlan,
    OneLogit,
    Reconstruction,
    Sight,
    first_met,
    needs_in_words,
)
from fedguard.errors import ContractError, InputError, NotAllowed, brief
from fedguard.inference import inference_view
from fedguard.metrics.labels import check_claimed_labels
from fedguard.metrics.reconstruction import check_claimed_inputs, score
from fedguard.reading import read_floats
from fedguard.registry import load_registry
from fedguard.rng import MOST_SEED, Rng

Gradient = Tensor | Sequence[Tensor]

#: The largest plausible number of examples in one inversion; a larger one is a typing error
MOST_EXAMPLES = 1_000_000

DROPOUTS = (nn.Dropout, nn.Dropout1d, nn.Dropout2d, nn.Dropout3d, nn.AlphaDropout, nn.FeatureAlphaDropout)


def reconstruct(
    attack: str | InferenceAttack,
    model: nn.Module,
    gradient: Gradient,
    *,
    shape: Sequence[int],
    classes: int | None = None,
    batch_size: int = 1,
    labels: Tensor | None = None,
    value_range: tuple[float, float] = (0.0, 1.0),
    root: Examples | None = None,
    plan: LocalPlan | None = None,
    seed: int = 0,
    **parameters: Any,
) -> Reconstruction | Labels:
    """Run an attack on one client's gradient: it returns inputs, or labels alone.

    Args:
        attack: a name or an object; ``parameters`` go with a name.
        model: the network with the weights at which the gradient was taken; float32, on the CPU.
        gradient: of the mean cross-entropy over the batch, as `torch.autograd.grad` gives it for ``model.parameters()``, or
            ``[d]``; of the mean binary cross-entropy if the model has one logit. With ``plan``: the model before the client's
            training less the model after it.
        shape: shape of one input.
        classes: number of classes; by default the number of the model's outputs, or 2 if it has one.
        batch_size: B, the number of examples behind the gradient.
        labels: int64 ``[B]``, for an attacker that knows them.
        value_range: smallest and largest value of an input.
        root: clean examples of the attacker's own.
        plan: how the client trained, if it took more than one step.
        seed: seed of the attack's draws.

    Raises:
        InputError: sizes that do not fit, values that are not finite, or a model with a gradient that depends on more than its
            parameters and the batch.
        NotAllowed: the attack needs something that cannot be given here, such as candidates or a server that sends another
            model.
        PreconditionError: the attack cannot work on this network or training.
        ConfigError: an unknown attack or parameter.
        ContractError: the attack returned something that its contract excludes.
    """
    built = _build_attack(attack, parameters)
    sees = _grant_sight(built, root)
    of_kind(model, "model", nn.Module, "a torch.nn.Module")
    of_kind(root, "root", (Examples, type(None)), "Examples")
    of_kind(plan, "plan", (LocalPlan, type(None)), "a LocalPlan")
    _check_model(model)
    shape, value_range = whole_numbers(shape, "shape", 1, 2**31), read_range(value_range)
    classes = _classes(model, shape, None if classes is None else whole_number(classes, "classes", 1, 2**31))
    start, sent = _vector(list(model.parameters()), model, "model"), _vector(gradient, model, "gradient")
    if not bool(sent.any()):
        raise InputError(
            "gradient: expected numbers other than 0; got only zeros, which hold nothing to reconstruct from. With one logit, "
            "cross-entropy has no gradient: use binary cross-entropy."
        )
    if classes == 1:
        model, classes = OneLogit(model), 2
    if is_whole(batch_size) and batch_size < 1:
        raise InputError(f"batch_size: expected at least 1; got {batch_size}.")
    batch_size = whole_number(batch_size, "batch_size", 1, MOST_EXAMPLES)
    view = inference_view(
        "the server",
        sees,
        model,
        models=torch.stack([start, start - sent]),
        updates=-sent[None, None],
        shape=shape,
        classes=classes,
        plan=plan or LocalPlan(lr=1.0, steps=1),
        counts=(batch_size,),
        value_range=value_range,
        labels=None if labels is None else _labels(labels, batch_size, classes),
        root=root,
        rng=Rng(whole_number(seed, "seed", 0, MOST_SEED)),
    )
    built.check(view)
    return _claim(built, built.infer(view), shape, batch_size)


def score_reconstruction(
    claim: Reconstruction,
    truth_x: Tensor,
    truth_y: Tensor | None = None,
    *,
    value_range: tuple[float, float] = (0.0, 1.0),
    reference: Examples | None = None,
) -> dict[str, Any]:
    """Compare a reconstruction with the truth: PSNR, SSIM, exact recoveries, labels, and the gain over trivial guesses.

    Args:
        truth_x: float32 ``[B, *shape]``.
        truth_y: int64 ``[B]``.
        value_range: smallest and largest value of an input.
        reference: examples that are not the truth; their means are trivial guesses too.

    Returns:
        the result of `fedguard.metrics.reconstruction.score`.

    Raises:
        InputError: there is no truth, or it is not such a tensor.
        ContractError: the claim has another shape than the truth, or more inputs.
    """
    of_kind(truth_x, "truth_x", Tensor, "a tensor of one row for each example, and at least one")
    for name, values in (("truth_x", truth_x), ("truth_y", truth_y)):
        if values is not None and (not isinstance(values, Tensor) or len(values) != len(truth_x) or not len(values)):
            raise InputError(
                f"{name}: expected a tensor of one row for each example, and at least one; got {_describe_shape(values)}."
            )
    of_kind(claim, "claim", Reconstruction, "a Reconstruction")
    of_kind(reference, "reference", (Examples, type(None)), "Examples")
    return score(claim, truth_x, truth_y, value_range=read_range(value_range), reference=reference)


def _build_attack(attack: str | InferenceAttack, parameters: dict[str, Any]) -> InferenceAttack:
    if isinstance(attack, str):
        built: InferenceAttack = load_registry().build(
            "inference", {"name": attack, **parameters} if parameters else attack
        )
        return built
    if not isinstance(attack, InferenceAttack):
        raise InputError(f"attack: expected a name or an InferenceAttack; got {brief(attack)}.")
    if parameters:
        raise InputError(
            f"parameters go with the name of an attack; got {', '.join(parameters)} beside the object {attack}."
        )
    return attack


def _grant_sight(attack: InferenceAttack, root: Examples | None) -> Sight:
    """What the attack sees of the given arguments.

    Raises:
        NotAllowed: it needs to see more.
    """
    granted = Sight.EACH_UPDATE | Sight.MODEL | (Sight.NOTHING if root is None else Sight.ROOT_DATA)
    sees = first_met(attack.needs, granted)
    reason = None
    if attack.goal not in ("reconstruction", "labels"):
        reason = f"tells {attack.goal} of candidates, not inputs or labels"
    elif attack.active:
        reason = "sends the client a model of its own"
    elif attack.watches != "round":
        reason = f"watches a whole {attack.watches}" if attack.watches == "training" else "needs the final model"
    elif sees is None:
        reason = f"needs {needs_in_words(attack.needs)}; here it sees {granted.words()}"
    if reason is not None or sees is None:
        raise NotAllowed(f"{attack.name} {reason}. Such attacks run in a suite: fedguard.run.")
    return sees


def _check_model(model: nn.Module) -> None:
    """Raise `InputError` for a model with a gradient that is not reproducible."""
    if any(parameter.dtype != torch.float32 or parameter.device.type != "cpu" for parameter in model.parameters()):
        raise InputError("model: expected float32 parameters on the CPU. Use model.float().cpu().")
    for name, module in model.named_modules():
        # Batch statistics and dropout masks make the gradient depend on more than parameters and batch
        moving = bool(list(module.buffers(recurse=False))) or (isinstance(module, DROPOUTS) and module.p > 0)
        if module.training and moving:
            raise InputError(
                f"model: {name} ({type(module).__name__}) computes something else at each call in training mode. "
                "Take the gradient after model.eval(), or use GroupNorm instead of BatchNorm and no dropout."
            )


def _classes(model: nn.Module, shape: tuple[int, ...], expected: int | None) -> int:
    """The number of outputs, from logits ``[2, C]`` for two inputs; a single output means two classes."""
    try:
        with torch.no_grad():
            logits: tuple[int, ...] = tuple(model(torch.zeros(2, *shape)).shape)
    except (RuntimeError, ValueError, IndexError) as error:
        raise InputError(
            f"model: expected to take inputs of shape [B, {', '.join(map(str, shape))}]: {str(error).splitlines()[0]}"
        ) from None
    fits = expected in (None, logits[-1]) or (logits[-1] == 1 and expected == 2) if logits else False
    if len(logits) != 2 or logits[0] != 2 or not logits[1] or not fits:
        wanted = "classes" if expected is None else expected
        raise InputError(f"model: expected logits of shape [2, {wanted}] for two inputs; got {list(logits)}.")
    return logits[1]


def _vector(parts: Gradient, model: nn.Module, what: str) -> Tensor:
    """float32 ``[d]`` from one tensor for each parameter, or from one vector."""
    shapes = [tuple(parameter.shape) for parameter in model.parameters()]
    if isinstance(parts, Tensor):
        dim = sum(parameter.numel() for parameter in model.parameters())
        if tuple(parts.shape) != (dim,):
            raise InputError(
                f"{what}: expected the shape [{dim}], one number for each of the model's; got {list(parts.shape)}."
            )
        parts = [parts]
    elif not isinstance(parts, list | tuple):
        raise InputError(
            f"{what}: expected a tensor for each of the model's parameters, or one of all; got {brief(parts)}."
        )
    elif any(not isinstance(part, Tensor) for part in parts) or [tuple(part.shape) for part in parts] != shapes:
        raise InputError(
            f"{what}: expected a tensor for each of the model's {len(shapes)} parameters, in their shapes; "
            f"got {[_describe_shape(part) for part in parts]}."
        )
    vector = torch.cat([read_floats(part, what).cpu().reshape(-1) for part in parts])
    if not bool(vector.isfinite().all()):
        raise InputError(f"{what}: expected finite numbers; got NaN or infinity.")
    return vector


def _labels(labels: Tensor, count: int, classes: int) -> Tensor:
    of_kind(labels, "labels", Tensor, f"an int64 tensor of shape [{count}]")
    if tuple(labels.shape) == (count,) and labels.dtype == torch.int64:
        if outside := [label for label in labels.tolist() if not 0 <= label < classes]:
            raise InputError(f"labels: expected labels in 0 to {classes - 1}; got {outside[0]}.")
    else:
        raise InputError(
            f"labels: expected int64 of shape [{count}] in 0 to {classes - 1}; got {_describe_shape(labels)} of "
            f"{labels.dtype}. "
            "Set batch_size to the number of examples."
        )
    return labels


def _claim(attack: InferenceAttack, claim: Inference, shape: tuple[int, ...], count: int) -> Reconstruction | Labels:
    """Check that the claim has the type of the attack's goal."""
    if attack.goal == "labels" and isinstance(claim, Labels):
        check_claimed_labels(claim.y, count)
        return claim
    if attack.goal == "reconstruction" and isinstance(claim, Reconstruction):
        check_claimed_inputs(claim.x, shape, count)
        if claim.y is not None:
            check_claimed_labels(claim.y, count)
        return claim
    raise ContractError(f"{attack.name}.infer: expected a claim of {attack.goal}; got {type(claim).__name__}.")


def _describe_shape(values: Any) -> str:
    return f"shape {list(values.shape)}" if isinstance(values, Tensor) else type(values).__name__
