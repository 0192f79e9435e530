"""What a training can do with running statistics, and what is refused before it runs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from fedguard.architectures.masking.moments import moments_encoding, moments_weights
from fedguard.contracts import Architecture, Cell, Pipeline, Setup, Sight, Task, scale_assumed_f
from fedguard.contracts.channels import STATISTICS
from fedguard.errors import ConfigError, PreconditionError


def check_statistics(setup: Setup, architecture: Architecture) -> None:
    """Check that a training can do with its running statistics what the cell says.

    Raises:
        PreconditionError: why it cannot.
    """
    cell, layout, fate = setup.cell, setup.task.statistics, setup.cell.statistics
    if not layout.layers:
        _check_lies(cell)
        if cell.training.statistics is not None:
            raise PreconditionError(
                f"training.statistics says what becomes of running statistics, and {cell.model.name} has no layer that "
                "normalizes over batches. Leave it out."
            )
        return
    if not fate.sends:
        _check_lies(cell)
    reasons = [*_why_not_batched(cell, setup.task)] if fate.normalization != "constant" else []
    reasons += _why_not_sent(cell, setup.task) if fate.sends else []
    reasons += _why_not_kept(cell, architecture) if fate.normalization == "running" else []
    for reason in reasons:
        raise PreconditionError(reason)


def require_updates_alone(setup: Setup, who: str) -> Setup:
    """The set-up, if its clients send updates and no running statistics.

    Raises:
        PreconditionError: they send both.
    """
    if setup.task.statistics.size:
        raise PreconditionError(
            f"{who}: goes by what updates do to a model, and {setup.cell.model.name} has running statistics beside it. Set "
            "training.statistics: hidden or frozen, or use GroupNorm."
        )
    return setup


def _check_lies(cell: Cell) -> None:
    """Raise PreconditionError if an attack lies about running statistics, which nobody sends here."""
    if cell.attack is not None and STATISTICS in cell.attack.lies:
        raise PreconditionError(
            f"{cell.attack.name} lies about {STATISTICS.about}, and nobody sends any here. Use a network with batch "
            "normalization and a fate by which clients send statistics, such as training.statistics: weighted."
        )


def _why_not_batched(cell: Cell, task: Task) -> Iterator[str]:
    """Why layers cannot normalize by the batch."""
    batched = f"the {task.statistics.layers} layers of {cell.model.name} that normalize over batches"
    if cell.noise.unit == "record":
        yield (
            f"{batched} couple the examples of a batch, so that clipping each gradient bounds nothing that one example "
            "changes, and no epsilon would hold. Set training.statistics: frozen, or use GroupNorm."
        )
    # What reads statistics alone needs no gradient
    if cell.inference is not None and not any(Sight.STATISTICS in needs for needs in cell.inference.needs):
        yield (
            f"{cell.inference.name} computes gradients as a client does, and does not know the batch by which {batched} "
            "normalize. Set training.statistics: frozen, or use GroupNorm."
        )
    smallest, batch = min(task.sizes), cell.training.batch_size
    if smallest < 2 or (batch is not None and batch < 2):
        yield (
            f"{batched} need at least 2 examples, since one has no variance: a client has {smallest}, and training.batch_size "
            f"is {batch}. Raise batch_size, lower clients.total, or use GroupNorm."
        )


def _assume_f(cell: Cell) -> int:
    """Number of malicious clients in a round that the server assumes."""
    return scale_assumed_f(cell.clients.expected, cell.assumed_f, cell.clients.total)


def _why_not_sent(cell: Cell, task: Task) -> Iterator[str]:
    """Why clients cannot send running statistics."""
    sent = f"with training.statistics: {cell.statistics.name} clients send running statistics beside their updates"
    if cell.noise.unit is not None:
        yield (f"{sent}, without noise, and no epsilon would hold. Set training.statistics: hidden or frozen.")
    if cell.masking.masked:
        yield from _why_not_masked(cell, task.sizes, sent)
    if cell.statistics.rule is not None:
        try:
            Pipeline((cell.statistics.rule,)).check(cell.clients.expected, _assume_f(cell))
        except PreconditionError as error:
            yield f"training.statistics: {cell.statistics}: {error}"


def _why_not_masked(cell: Cell, sizes: Sequence[int], sent: str) -> Iterator[str]:
    """Why running statistics cannot travel under masks."""
    fate, mode = cell.statistics, f"secure_aggregation: {cell.masking.name}"
    remedy = "Set training.statistics: weighted, average or pooled, which need only sums, or secure_aggregation: none."
    if fate.rule is not None:
        yield (
            f"training.statistics: {fate}: the rule {fate.rule.name} compares each client's running statistics, and with "
            f"{mode} the server sees their sum alone. {remedy}"
        )
    elif fate.fresh:
        yield (
            f"with training.statistics: {fate.name} clients send running statistics under the new model, when the session of "
            f"{mode} is over. {remedy}"
        )
    elif fate.adds_up is None:
        yield f"{sent}, and {fate.name} does not say what of them adds up in the sums of {mode}. {remedy}"
    try:
        moments_encoding(cell, max(moments_weights(fate, sizes))).check(cell.size.most)
    except ConfigError as error:
        yield f"training.statistics: {fate}: the moments of running statistics do not fit their block of {mode}: {error}"


def _why_not_kept(cell: Cell, architecture: Architecture) -> Iterator[str]:
    """Why running statistics cannot go from round to round."""
    kept = f"with training.statistics: {cell.statistics.name} running statistics go from round to round"
    if STATISTICS not in architecture.channels:
        yield (
            f"{kept}, and {architecture.name} carries updates alone. Use server, or set training.statistics: hidden or frozen."
        )
    if cell.training.first_model is not None:
        yield (
            f"{kept}, and training.first_model has parameters alone, so that layers would start from other statistics. Leave "
            "it out, or set training.statistics: hidden."
        )
    if cell.evasion is not None and cell.statistics.local:
        yield (
            f"{cell.evasion.name} works on one model, and with training.statistics: local there is one for each client. Leave "
            "out evaluation.evasion, or use another fate."
        )
