"""Filters of NVFlare: a DXO of weight differences goes through `process_dxo`; None means that it leaves unchanged."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from nvflare.apis.dxo import DXO, DataKind
from nvflare.apis.dxo_filter import DXOFilter
from nvflare.apis.fl_context import FLContext
from nvflare.apis.shareable import Shareable

from fedguard.privacy.blackbox.adapters.contract import ForeignRelease, Function, copy_fresh
from fedguard.privacy.blackbox.claim import EpsilonClaim
from fedguard.privacy.blackbox.mechanism import Shape


def adapt(found: Any, shapes: Sequence[Shape]) -> ForeignRelease | None:
    """A DXO filter. Its claim is the epsilon of one call that its own ledger notes down."""
    if not isinstance(found, DXOFilter):
        return None
    return ForeignRelease(make=lambda: _release_by(copy_fresh(found)), claim=_claim(found, shapes))


def _release_by(filtering: Any) -> Function:
    def release(update: list[NDArray[Any]]) -> tuple[list[NDArray[Any]], dict[str, Any]]:
        left = _filter(filtering, update)
        return [np.asarray(one) for one in left.data.values()], _flatten("", left.meta)

    return release


def _filter(filtering: Any, update: Sequence[NDArray[Any]]) -> Any:
    given = DXO(data_kind=DataKind.WEIGHT_DIFF, data={f"w{number}": one for number, one in enumerate(update)})
    return filtering.process_dxo(given, Shareable(), FLContext()) or given


def _flatten(prefix: str, found: Any) -> dict[str, Any]:
    if not isinstance(found, dict):
        return {prefix: found}
    return {
        key: one for name, value in found.items() for key, one in _flatten(f"{prefix}.{name}".strip("."), value).items()
    }


def _claim(filtering: Any, shapes: Sequence[Shape]) -> EpsilonClaim | None:
    """`SVTPrivacy` notes the epsilon of each call, of its selection and its release together, with the release."""
    if not hasattr(filtering, "get_privacy_spent"):
        return None
    once = copy_fresh(filtering)
    before = once.get_privacy_spent()
    _filter(once, [np.full(shape, 1 / math.sqrt(math.prod(shape)), np.float32) for shape in shapes])
    spent = once.get_privacy_spent() - before
    return EpsilonClaim(epsilon=spent) if spent > 0 else None
