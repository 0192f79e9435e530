"""Any environment of gymnasium's registry."""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from typing import Any

from fedguard.contracts import PositiveInt
from fedguard.errors import ConfigError
from fedguard.tasks.environments.one_by_one import SequentialEnvironment


@dataclass(frozen=True, kw_only=True)
class Gymnasium(SequentialEnvironment):
    """An environment of gymnasium's registry. It is stepped one by one, some ten times slower than FedGuard's own.

    Args:
        id: as gymnasium calls it, such as ``Acrobot-v1``.
        good: the return that counts as 100 %.
        steps: after which an episode is cut off, if gymnasium does not do so before.
    """

    name = "gymnasium"
    source = "Towers et al., Gymnasium: A Standard Interface for Reinforcement Learning Environments, 2024"

    id: str
    good: float
    steps: PositiveInt = 1000

    @property
    def best(self) -> float:  # type: ignore[override]
        return self.good

    @property
    def limit(self) -> int:  # type: ignore[override]
        return self.steps

    def make_environment(self) -> Any:
        try:
            gymnasium = importlib.import_module("gymnasium")
        except ModuleNotFoundError:
            raise ConfigError(
                f"{self}: gymnasium is not installed. Install it with: pip install 'fedguard[rl]'"
            ) from None
        return self.call_external(gymnasium.make, self.id)
