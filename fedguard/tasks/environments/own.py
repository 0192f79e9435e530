"""An environment that a function of the user's own makes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from fedguard.contracts import PositiveInt
from fedguard.contracts.user_function import UserFunction
from fedguard.tasks.environments.one_by_one import SequentialEnvironment


@dataclass(frozen=True, kw_only=True)
class CustomEnvironment(SequentialEnvironment):
    """An environment that a function of your own makes: ``module:function`` that takes nothing.

    It has gymnasium's interface, and need not be derived from it.

    Args:
        target: ``module:function``.
        good: the return that counts as 100 %.
        steps: after which an episode is cut off, if it does not say so itself.
    """

    name = "environment"
    source = "your own"
    outside: ClassVar[bool] = True

    target: UserFunction
    good: float
    steps: PositiveInt = 1000

    @property
    def modules(self) -> frozenset[str]:
        return super().modules | {self.target.module.partition(".")[0]}

    @property
    def best(self) -> float:  # type: ignore[override]
        return self.good

    @property
    def limit(self) -> int:  # type: ignore[override]
        return self.steps

    def make_environment(self) -> Any:
        return self.target.call_function("environment")
