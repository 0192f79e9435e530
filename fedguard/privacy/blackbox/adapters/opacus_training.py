"""DP-SGD by Opacus, as its loader draws batches and its optimizer clips and adds noise: each record is a canary.

The gradient of canary i is far longer than the clip along coordinate i of the parameters, 0 elsewhere. The loader's sampler
draws the batches, the optimizer's own `pre_step` clips, adds noise and notes the step with the accountant. So along its
coordinate the sum of all steps holds as many clips as the canary was drawn times, if it was in, and noise.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from opacus import PrivacyEngine
from opacus.optimizers import DPOptimizer

from fedguard.contracts import Epsilon
from fedguard.contracts.audit import Curve, Flags, Reals, Transcript
from fedguard.errors import ConfigError
from fedguard.privacy.blackbox.adapters.contract import CanaryTraining
from fedguard.privacy.blackbox.mechanism import Shape
from fedguard.rng import Rng

#: How many times longer than the clip a gradient is.
LONG = 1e3
#: Passes over the loader.
EPOCHS = 3
DELTA = 1e-5
#: Passes that only count draws, and how many times the average is often.
PILOT, OFTEN = 10, 1.6
#: Fewest canaries of an audit.
FEWEST = 20


def adapt(found: Any, _: Sequence[Shape]) -> CanaryTraining | None:
    """What `make_private` returns, with the engine beside it: a list or mapping of engine, model, optimizer and loader.

    Raises:
        ConfigError: a part is missing, or there are too few parameters for canaries.
    """
    parts = (
        list(found.values()) if isinstance(found, Mapping) else found if isinstance(found, (list, tuple)) else [found]
    )
    engine, optimizer, loader = (
        next((one for one in parts if isinstance(one, kind)), None)
        for kind in (PrivacyEngine, DPOptimizer, torch.utils.data.DataLoader)
    )
    if optimizer is None or loader is None:
        raise ConfigError(
            "--mechanism: Opacus: expected (engine, model, optimizer, loader) with a DPOptimizer and its loader; got "
            f"{', '.join(type(one).__name__ for one in parts)}."
        )
    subject = OpacusTraining(engine, optimizer, loader)
    canaries = subject.canaries
    if canaries < FEWEST:
        raise ConfigError(f"--mechanism: Opacus: expected at least {FEWEST} parameters and records; got {canaries}.")
    return CanaryTraining(subject=subject, canaries=canaries)


def _choose_canaries(loader: Any, d: int) -> NDArray[np.int64]:
    """Records that the sampler draws far more often than others, if there are enough; else the first ones.

    Which are drawn often is known from passes of their own, before any coin is thrown.
    """
    records = len(loader.dataset)
    drawn = np.zeros(records)
    for _ in range(PILOT):
        for batch in loader.batch_sampler:
            np.add.at(drawn, np.asarray(batch, int), 1)
    often = np.flatnonzero(drawn > OFTEN * drawn.mean())
    return (often if len(often) >= 2 * FEWEST else np.arange(records))[:d]


class OpacusTraining:
    """A `Subject`: some passes over a loader with the optimizer's own noise."""

    def __init__(self, engine: Any, optimizer: Any, loader: Any) -> None:
        self._engine, self._optimizer, self._loader = engine, optimizer, loader
        self.name = f"Opacus: {type(optimizer).__name__} with {type(loader).__name__}"
        self._history: list[Any] = []
        self._canaries = _choose_canaries(loader, sum(one.numel() for one in optimizer.params))
        self.steps = EPOCHS * len(loader)

    @property
    def canaries(self) -> int:
        """How many records are canaries, an even number."""
        return len(self._canaries) // 2 * 2

    @property
    def claim(self) -> Epsilon | None:
        """What the engine's accountant says of the audited steps; None without an engine."""
        if self._engine is None:
            return None
        with self._of_audited_steps():
            value = max(float(self._engine.accountant.get_epsilon(DELTA)), 1e-9)
        return Epsilon(
            value=value,
            delta=DELTA,
            unit="one record",
            relation="add_remove",
            sampling="as the accountant reckons",
            view="every step",
            accountant=f"Opacus: {type(self._engine.accountant).__name__}, {self.steps} steps",
            bound=True,
            assumptions=(),
        )

    @property
    def curve(self) -> Curve | None:
        if self._engine is None:
            return None

        def epsilon(delta: float) -> float:
            with self._of_audited_steps():
                return max(float(self._engine.accountant.get_epsilon(delta)), 0.0)

        return epsilon

    def observe(self, included: Flags, rng: Rng) -> tuple[Reals, Transcript | None]:
        history = list(self._engine.accountant.history) if self._engine else []
        if self._engine:
            self._engine.accountant.history.clear()
        scores = np.zeros(len(included))
        gradients = [one.grad for one in self._optimizer.params]
        place = {int(record): number for number, record in enumerate(self._canaries)}
        try:
            for _ in range(EPOCHS):
                for batch in self._loader.batch_sampler:
                    numbers = [place[one] for one in batch if one in place]
                    scores += self._step([one for one in numbers if included[one]], len(included))
            self._history = list(self._engine.accountant.history) if self._engine else []
        finally:
            for parameter, gradient in zip(self._optimizer.params, gradients, strict=True):
                parameter.grad = gradient
            if self._engine:
                self._engine.accountant.history[:] = history
        return scores, None

    @contextmanager
    def _of_audited_steps(self) -> Iterator[None]:
        accountant = self._engine.accountant
        kept = list(accountant.history)
        accountant.history[:] = self._history
        try:
            yield
        finally:
            accountant.history[:] = kept

    def _step(self, drawn: Sequence[int], canaries: int) -> Reals:
        """One step with the canaries that were drawn, each as often as it was; float64 ``[canaries]``: the noisy sum."""
        optimizer = self._optimizer
        long = LONG * float(np.max(np.atleast_1d(optimizer.max_grad_norm)))
        start = 0
        for parameter in optimizer.params:
            size = parameter.numel()
            rows = torch.zeros(len(drawn), size)
            for row, record in enumerate(drawn):
                if start <= record < start + size:
                    rows[row, record - start] = long
            parameter.grad_sample = rows.reshape(len(drawn), *parameter.shape).to(parameter)
            start += size
        if not optimizer.pre_step():
            return np.zeros(canaries)
        sums = torch.cat([one.grad.detach().double().flatten().cpu() for one in optimizer.params])[:canaries]
        optimizer.zero_grad()
        return np.asarray(sums.numpy())
