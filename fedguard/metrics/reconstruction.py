"""Distance of reconstructed inputs from the true ones, and the gain over a trivial guess."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import conv2d

from fedguard.contracts import Examples, Reconstruction
from fedguard.errors import ContractError
from fedguard.metrics.baselines import trivial
from fedguard.metrics.labels import check_claimed_labels, label_accuracy

Range = tuple[float, float]

#: Limits of PSNR in dB: above is only rounding of float32, and below nothing is worth distinguishing
LEAST, MOST = 0.0, 150.0
#: PSNR in dB from which an input counts as recovered exactly: an rms error of a thousandth of the value range
EXACT = 60.0
#: An input counts as revealed if it is this many dB closer than each trivial guess at it. That is a fifth less squared
#: error than the best guess has, which no noise around a guess achieves
REVEALED = 1.0


def score(
    claim: Reconstruction,
    x: Tensor,
    y: Tensor | None = None,
    *,
    value_range: Range,
    reference: Examples | None = None,
    most: int | None = None,
) -> dict[str, Any]:
    """Compare a reconstruction with the truth, each true input with the claim that `align_claims` assigns to it.

    Inputs that are not claimed, or not finite, count as the middle of the value range, which anybody can claim: leaving them
    out gains nothing and costs nothing. An interval is over the inputs of this one claim.

    Args:
        claim: at most B inputs, or ``most``; an attacker with more candidates chooses among them.
        x: float32 ``[B, *shape]``: the truth.
        y: int64 ``[B]``: its labels, if the claimed ones are to be compared.
        value_range: smallest and largest value of an input; their distance is the peak of the PSNR.
        reference: examples that are not the truth, for the mean baselines.
        most: number of examples that the attacker assumed, if larger than the true one; the claims that fit best count then.

    Returns:
        images: B; claimed, not_finite: numbers of such inputs; matching: for each true input the number of its claim, or None;
        psnr: in dB, within [`LEAST`, `MOST`]; ssim: None unless inputs are ``[C, H, W]``;
        exact: number of inputs with a PSNR of at least `EXACT`;
        revealed: number of inputs `REVEALED` dB above each of the baselines for the same input. A mean gain would hide them:
            claims that are far off for most inputs cost more than what is read of the others;
        label_accuracy: size of the intersection of the claimed and true labels over B, None without them;
        baselines: mean PSNR of each of `trivial`; best_baseline: the name of the best;
        gain: PSNR less the PSNR of the best baseline for the same input.
        psnr, ssim and gain are ``{"mean", "half_width": of the 95 % interval, None for one input, "values"}``.

    Raises:
        ContractError: the claim has another shape or type, or more inputs or labels than allowed.
    """
    most = max(len(x), most or 0)
    found, matching = align_claims(claim.x, x, value_range, most)
    claimed = None if claim.y is None else check_claimed_labels(claim.y, most)
    ratio = psnr(found, x, value_range)
    rivals = {
        name: psnr(align_claims(rows, x, value_range, most)[0], x, value_range)
        for name, rows in trivial(x, claimed, reference).items()
    }
    best = max(rivals, key=lambda name: float(rivals[name].mean()))
    return {
        "images": len(x),
        "claimed": len(claim.x),
        "not_finite": int((~_finite(claim.x)).sum()),
        "matching": matching,
        "psnr": _spread(ratio),
        "ssim": _spread(ssim(found, x, value_range)) if x.dim() == 4 else None,
        "exact": int((ratio >= EXACT).sum()),
        "revealed": int((ratio - torch.stack([*rivals.values()]).amax(0) >= REVEALED).sum()),
        "label_accuracy": None if claimed is None or y is None else label_accuracy(claimed, y),
        "baselines": {name: float(values.mean()) for name, values in rivals.items()},
        "best_baseline": best,
        "gain": _spread(ratio - rivals[best]),
    }


def align_claims(
    claimed: Tensor, x: Tensor, value_range: Range, most: int | None = None
) -> tuple[Tensor, list[int | None]]:
    """The claims in the order of the truth, by the one-to-one matching with the largest mean PSNR.

    The matching with the least sum of squared errors would give up exact claims to bring bad ones closer.

    Returns:
        float32 ``[B, *shape]``, with the middle of the value range for inputs that are not claimed or not finite; and for each
            row the number of its claim, or None.

    Raises:
        ContractError: the claims have another shape or type than the truth, or are more than ``most``, B by default.
    """
    from scipy.optimize import linear_sum_assignment

    good = _finite(check_claimed_inputs(claimed, tuple(x.shape[1:]), most or len(x)))
    rows = torch.full((max(len(x), len(claimed)), *x.shape[1:]), sum(value_range) / 2)
    rows[: len(claimed)][good] = claimed.to(rows.dtype)[good]
    exact = rows.double()
    quality = [psnr(exact, row[None], value_range) for row in x.double()]
    _, order = linear_sum_assignment(torch.stack(quality).numpy(), maximize=True)
    known = set(good.nonzero()[:, 0].tolist())
    return rows[order], [row if row in known else None for row in order.tolist()]


def psnr(found: Tensor, x: Tensor, value_range: Range) -> Tensor:
    """float64 ``[B]``, dB: ``10 log10(L^2 / MSE)`` of each row, L the length of the value range, within the limits."""
    low, high = value_range
    error = ((found.double() - x.double()) / (high - low)).flatten(1).square().mean(1)
    return (-10 * error.clamp(min=1e-30).log10()).clamp(LEAST, MOST)


def ssim(found: Tensor, x: Tensor, value_range: Range) -> Tensor:
    """float64 ``[B]``: the mean structural similarity of images ``[B, C, H, W]`` (Wang et al., IEEE TIP 2004).

    ``(2 m_x m_y + c_1) (2 s_xy + c_2) / ((m_x^2 + m_y^2 + c_1) (s_x^2 + s_y^2 + c_2))``, ``c_i = (k_i L)^2`` with k = .01, .03,
    averaged over channels and over all positions of the window. The window is a Gaussian of 1.5 pixels, 11 wide, or as wide as
    the largest odd number that fits into a smaller image.
    """
    low, high = value_range
    height, width = x.shape[2:]
    size = min(11, height, width)
    window = _window(size - 1 + size % 2)

    def local(values: Tensor) -> Tensor:
        return conv2d(values.reshape(-1, 1, height, width), window)

    a, b = ((part.double() - low) / (high - low) for part in (found, x))
    mean_a, mean_b = local(a), local(b)
    var_a, var_b = local(a * a) - mean_a**2, local(b * b) - mean_b**2
    cov = local(a * b) - mean_a * mean_b
    light = (2 * mean_a * mean_b + 0.01**2) / (mean_a**2 + mean_b**2 + 0.01**2)
    structure = (2 * cov + 0.03**2) / (var_a + var_b + 0.03**2)
    return (light * structure).reshape(len(x), -1).mean(1)


def check_claimed_inputs(claimed: Tensor, shape: tuple[int, ...], most: int) -> Tensor:
    """Check claimed inputs.

    Raises:
        ContractError: another shape or type, or more inputs than examples.
    """
    if claimed.shape[1:] != shape or not claimed.is_floating_point():
        raise ContractError(
            f"claimed inputs: expected floats of shape [B, {', '.join(map(str, shape))}]; "
            f"got {claimed.dtype} of shape {list(claimed.shape)}."
        )
    if len(claimed) > most:
        raise ContractError(
            f"claimed inputs: expected at most as many as examples, {most}; got {len(claimed)}. Choose among them in `infer`."
        )
    return claimed


def _window(size: int) -> Tensor:
    """float64 ``[1, 1, size, size]`` with sum 1."""
    line = torch.exp(-(torch.arange(size, dtype=torch.float64) - size // 2).square() / (2 * 1.5**2))
    square = line[:, None] * line
    return (square / square.sum())[None, None]


def _finite(rows: Tensor) -> Tensor:
    return rows.float().flatten(1).isfinite().all(1)


def _spread(values: Tensor) -> dict[str, Any]:
    """Mean, half-width of Student's 95 % interval (None for a single value), and the values."""
    numbers: Sequence[float] = values.tolist()
    half_width = None
    if len(numbers) > 1:
        from scipy.stats import t

        half_width = float(t.ppf(0.975, len(numbers) - 1) * values.std()) / math.sqrt(len(numbers))
    return {"mean": float(values.mean()), "half_width": half_width, "values": numbers}
