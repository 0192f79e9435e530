"""Events of dp_accounting: nothing to call, arithmetic alone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dp_accounting import DpEvent, SelfComposedDpEvent
from dp_accounting.pld import PLDAccountant

from fedguard.errors import ConfigError
from fedguard.privacy.blackbox.adapters.contract import AccountedEvent
from fedguard.privacy.blackbox.mechanism import Shape


def adapt(found: Any, _: Sequence[Shape]) -> AccountedEvent | None:
    """An event, by the accountant of privacy loss distributions.

    Raises:
        ConfigError: that accountant does not know the event.
    """
    if not isinstance(found, DpEvent):
        return None
    if not PLDAccountant().supports(found):
        raise ConfigError(f"--mechanism: dp_accounting's PLD accountant does not support {type(found).__name__}.")

    def epsilon(rounds: int, delta: float) -> float:
        accountant = PLDAccountant()
        accountant.compose(SelfComposedDpEvent(found, rounds))
        return float(accountant.get_epsilon(delta))

    return AccountedEvent(epsilon=epsilon, describe=str(found))
