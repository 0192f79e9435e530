"""A training loop of the user's own, `train(records, seed) -> model`: each of its records is in or out by a coin.

Beside the function stand, as attributes of it or as names of its module, ``records``, a sequence, and ``loss(model, record)``,
a number that is smaller for records with which the model was trained. What it claims is given by the user.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from fedguard.contracts.audit import Curve, Flags, Reals, Transcript
from fedguard.errors import ConfigError, InputError, brief, oneline
from fedguard.privacy.blackbox.adapters.contract import CanaryTraining
from fedguard.privacy.blackbox.mechanism import Shape
from fedguard.rng import Rng

#: Fewest records of an audit.
FEWEST = 20


def adapt(found: Any, _: Sequence[Shape]) -> CanaryTraining | None:
    """A function with the arguments ``records`` and ``seed``.

    Raises:
        ConfigError: records or the loss are missing.
    """
    records, loss = (_beside(found, name) for name in ("records", "loss"))
    if records is None or not callable(loss):
        raise ConfigError(
            f"--mechanism: {found.__name__}(records, seed): expected the names records and loss(model, record) in the same "
            "module; the records become canaries, and the loss scores them."
        )
    if len(records) < FEWEST:
        raise ConfigError(f"--mechanism: records: expected at least {FEWEST}; got {len(records)}.")
    return CanaryTraining(subject=LoopSubject(found, records, loss), canaries=len(records))


def _beside(function: Any, name: str) -> Any:
    return getattr(function, name, getattr(function, "__globals__", {}).get(name))


class LoopSubject:
    """A `Subject`: one training with about half of the records."""

    claim = None
    curve: Curve | None = None

    def __init__(self, train: Callable[..., Any], records: Any, loss: Callable[..., float]) -> None:
        self._train, self._records, self._loss = train, records, loss
        self.name = train.__name__

    def observe(self, included: Flags, rng: Rng) -> tuple[Reals, Transcript | None]:
        chosen = np.flatnonzero(included)
        array = isinstance(self._records, np.ndarray)
        records = self._records[chosen] if array else [self._records[one] for one in chosen]
        try:
            model = self._train(records, int(rng.child("train").numpy().integers(2**31)))
            scores = np.asarray([-float(self._loss(model, record)) for record in self._records])
        except Exception as error:
            words = f"{self.name}: expected a model of records, and a loss of each; it raised {oneline(error)}."
            raise InputError(words) from error
        if not np.isfinite(scores).all():
            raise InputError(
                f"{self.name}: loss: expected finite numbers; got {brief(scores[~np.isfinite(scores)][0])}."
            )
        return scores, None
