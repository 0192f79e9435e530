"""Strategies of Flower: the client under audit is one of those sampled, the others send next to nothing.

What is released is the sum: the aggregate times the number n of clients. With equal weights and a clip of C it moves by at most
C between an update and none; a client that claims a share s of all examples moves it by n s C.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from flwr.app import Message, MetricRecord, RecordDict
from flwr.clientapp.mod import adaptiveclipping_mod, fixedclipping_mod
from flwr.serverapp.strategy import (
    DifferentialPrivacyClientSideAdaptiveClipping,
    DifferentialPrivacyClientSideFixedClipping,
    DifferentialPrivacyServerSideFixedClipping,
    Strategy,
)
from flwr.supercore.privacy_accounting import GaussianPrivacyEvent
from flwr.supercore.privacy_accounting.rdp_accountant import RdpAccountant
from numpy.typing import NDArray

from fedguard.privacy.blackbox.adapters.contract import ForeignRelease, Function, copy_fresh
from fedguard.privacy.blackbox.adapters.flower_mods import EXAMPLES, answer, as_record, as_server
from fedguard.privacy.blackbox.claim import EpsilonClaim, NoiseParameters
from fedguard.privacy.blackbox.mechanism import Shape

#: Clients of a strategy that does not say how many it samples.
CLIENTS = 4
#: Each coordinate of what the others send: an update that is exactly 0 raises ZeroDivisionError in Flower's clips.
NEXT_TO_NOTHING = 1e-12


def adapt(found: Any, _: Sequence[Shape]) -> ForeignRelease | None:
    """A strategy; without an accountant, which refuses unequal weights, also one whose client claims more examples."""
    if not isinstance(found, Strategy):
        return None
    clients = getattr(found, "num_sampled_clients", CLIENTS)
    variants = {}
    if getattr(found, "accountant", None) is None:
        for times in (clients, 1000):
            words = f"one client claims {times:,} times the examples of each other"
            variants[words] = _adapt(found, clients, times)
    return _adapt(found, clients, 1, variants)


def _adapt(found: Any, clients: int, times: int, variants: dict[str, ForeignRelease] | None = None) -> ForeignRelease:
    share = times / (times + clients - 1)
    return ForeignRelease(
        make=lambda: _release_by(_copy(found), clients, times),
        claim=_claim(found),
        facts=_facts(found, clients * share),
        stateful=hasattr(found, "clip_norm_lr"),
        variants=variants or {},
    )


def _copy(strategy: Any) -> Any:
    """A copy with an accountant that has spent nothing: Flower's own holds modules, which cannot be copied."""
    accountant = getattr(strategy, "accountant", None)
    return copy_fresh(strategy, None if accountant is None else {id(accountant): RdpAccountant(accountant.config)})


def _release_by(strategy: Any, clients: int, times: int) -> Function:
    def release(update: list[NDArray[Any]]) -> tuple[list[NDArray[Any]], dict[str, Any]]:
        others = [np.full_like(one, NEXT_TO_NOTHING) if one.dtype.kind == "f" else np.zeros_like(one) for one in update]
        replies = [_reply(strategy, update, times * EXAMPLES)]
        replies += [_reply(strategy, others, EXAMPLES) for _ in range(clients - 1)]
        strategy.current_arrays = as_record([np.zeros_like(one) for one in update])
        if getattr(strategy, "accountant", None) is not None:
            strategy._prepare_accounting(1, replies)
        arrays, metrics = strategy.aggregate_train(1, replies)
        if arrays is None:
            raise RuntimeError("the strategy aggregated nothing")
        return [clients * one for one in arrays.to_numpy_ndarrays()], dict(metrics or {})

    return release


def _reply(strategy: Any, update: list[NDArray[Any]], examples: float) -> Any:
    """What a client sends: through the mod that the strategy asks its clients for, if it clips there."""
    if isinstance(strategy, DifferentialPrivacyClientSideFixedClipping):
        return answer(fixedclipping_mod, update, strategy.clipping_norm, examples)
    if isinstance(strategy, DifferentialPrivacyClientSideAdaptiveClipping):
        return answer(adaptiveclipping_mod, update, strategy.clipping_norm, examples)
    asked = Message(RecordDict(), *as_server())
    metrics = MetricRecord({"num-examples": examples})
    return Message(RecordDict({"arrays": as_record(update), "metrics": metrics}), reply_to=asked)


def _is_fixed(strategy: Any) -> bool:
    fixed = (DifferentialPrivacyServerSideFixedClipping, DifferentialPrivacyClientSideFixedClipping)
    return isinstance(strategy, fixed)


def _facts(strategy: Any, moved: float) -> NoiseParameters | None:
    """The sum's noise z C, and how far one client moves it; adaptive clips follow the data, and have no such numbers."""
    if not _is_fixed(strategy):
        return None
    scale = strategy.noise_multiplier * strategy.clipping_norm
    return NoiseParameters(law="gaussian", scale=scale, clip=moved * strategy.clipping_norm)


def _claim(strategy: Any) -> EpsilonClaim | None:
    """What the accountant says of one release, if there is one."""
    accountant = getattr(strategy, "accountant", None)
    if accountant is None:
        return None
    one = RdpAccountant(accountant.config)
    population = accountant.config.population_size
    one.compose(GaussianPrivacyEvent(strategy.noise_multiplier, strategy.num_sampled_clients, population))
    spent = one.get_privacy_spent()
    return EpsilonClaim(
        epsilon=spent.epsilon, delta=spent.delta, relation="add_remove", law="gaussian", unit="one client"
    )
