"""The time of a training by stage of a round."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from fedguard.errors import ContractError

#: Every stage, in the order of a round, with what it includes
STAGES: Mapping[str, str] = {
    "data": "load the data, partition them, build the network",
    "training": "the honest clients' local training",
    "client_defense": "changes of honest clients to their own examples and updates, as a defense",
    "attack": "poisoned data, the malicious clients' own training, and what they craft",
    "masking": "the sessions of secure aggregation",
    "aggregation": (
        "drop updates that are not finite; mixing, rule and noise at the server; the server's update on its own clean data"
    ),
    "model": "compute the next model from the aggregate",
    "evaluation": "the model on the test examples, with and without the backdoor's trigger",
    "measuring": "kappa, cosine and dissimilarity, measured with knowledge that no party has",
    "inference": "an attack on privacy: what the server records, and its reconstructions or guesses",
    "scoring": "accuracy curves, honest clients with rare classes, epsilon, flags",
    "references": "the training without attack to which backdoor success is compared",
    "other": "the rest",
}


class Stopwatch:
    """Charges wall and CPU seconds to the stage that is at work, from the moment at which it is made.

    A stage within a stage is charged alone, and what is outside of all goes to ``other``; so the stages add up to the whole.

    >>> stopwatch = Stopwatch()
    >>> with stopwatch.stage("attack"):
    ...     with stopwatch.stage("training"):
    ...         pass
    >>> stopwatch.stage_totals()["training"]["calls"]
    1
    """

    def __init__(self) -> None:
        self._seconds = dict.fromkeys(STAGES, 0.0)
        self._cpu = dict.fromkeys(STAGES, 0.0)
        self._calls = dict.fromkeys(STAGES, 0)
        self._open = ["other"]
        self._since = time.perf_counter(), time.process_time()

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """Charge what is done in this context to ``name``, one of `STAGES`."""
        if name not in STAGES:
            raise ContractError(f"stopwatch: expected one of the stages {', '.join(STAGES)}; got {name!r}.")
        self._charge()
        self._open.append(name)
        self._calls[name] += 1
        try:
            yield
        finally:
            self._charge()
            self._open.pop()

    def stage_totals(self) -> dict[str, dict[str, float]]:
        """For each stage that ran, and for ``other``: ``seconds``, ``cpu_seconds`` and ``calls`` so far."""
        self._charge()
        return {
            name: {"seconds": self._seconds[name], "cpu_seconds": self._cpu[name], "calls": self._calls[name]}
            for name in STAGES
            if self._calls[name] or name == "other"
        }

    def _charge(self) -> None:
        """Charge the time since the last charge to the current stage."""
        now = time.perf_counter(), time.process_time()
        self._seconds[self._open[-1]] += now[0] - self._since[0]
        self._cpu[self._open[-1]] += now[1] - self._since[1]
        self._since = now
