"""The view of an inference attack, built from plain parts: a network, what was sent, and what the server knows about it.

The core builds the view of each watched round here, and so does `fedguard.reconstruct` for an update from elsewhere.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from torch import Tensor, nn

from fedguard.contracts import Examples, InferenceView, LocalPlan, Sight
from fedguard.contracts.tasks import select_trained
from fedguard.errors import InputError
from fedguard.rng import Rng
from fedguard.tasks.network import apply, bare
from fedguard.tasks.statistics import normalize_by_batch

Adapt = Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]
Train = Callable[[Sequence[Examples], Rng], Tensor]


def as_they_are(dummy: Tensor, observed: Tensor) -> tuple[Tensor, Tensor]:
    """The comparison if clients send what they computed: both unchanged."""
    return dummy, observed


def no_training(parts: Sequence[Examples], rng: Rng) -> Tensor:  # noqa: ARG001
    """Replaces shadow models if it is unknown how the federation trains."""
    raise InputError("shadow models: expected the training procedure of a federation; run the attack in a suite.")


def inference_view(
    party: str,
    sees: Sight,
    module: nn.Module,
    *,
    models: Tensor,
    shape: tuple[int, ...],
    classes: int,
    plan: LocalPlan,
    counts: Sequence[int] = (),
    updates: Tensor | None = None,
    aggregates: Tensor | None = None,
    statistics: Tensor | None = None,
    victim: int = 0,
    value_range: tuple[float, float] = (0.0, 1.0),
    labels: Tensor | None = None,
    candidates: Examples | None = None,
    noise: float = 0.0,
    root: Examples | None = None,
    adapt: Adapt = as_they_are,
    train: Train = no_training,
    rng: Rng | None = None,
) -> InferenceView:
    """The view of one ``party`` that sees no more than ``sees``; the arguments are the fields of `InferenceView`.

    The attack gets copies: neither the network nor what was sent can be changed or traced back through them.
    """
    module = normalize_by_batch(bare(module))
    return InferenceView(
        party,
        sees,
        rng=(rng or Rng(0)).apart(),  # not a child: its root would draw the clients' batches and noise again
        module=module,
        predict=partial(apply, module),
        layers=tuple(parameter.numel() for parameter in select_trained(module).values()),
        shape=shape,
        classes=classes,
        value_range=value_range,
        plan=plan,
        counts=tuple(counts),
        victim=victim,
        labels=None if labels is None else labels.clone(),
        candidates=_copy_examples(candidates),
        noise=noise,
        adapt=adapt,
        train=train,
        models=models.detach().clone(),
        updates=None if updates is None else updates.detach().clone(),  # its graph would hold the examples
        aggregates=None if aggregates is None else aggregates.detach().clone(),
        statistics=None if statistics is None else statistics.detach().clone(),
        root=_copy_examples(root),
    )


def _copy_examples(examples: Examples | None) -> Examples | None:
    return None if examples is None else Examples(examples.x.clone(), examples.y.clone())
