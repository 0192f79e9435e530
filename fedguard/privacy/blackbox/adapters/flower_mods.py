"""Modifiers of Flower's clients: a train message goes in, and a ClientApp behind the mod answers with model + update."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp.mod import LocalDpMod
from flwr.supercore.task_identity import TaskIdentity
from numpy.typing import NDArray

from fedguard.privacy.blackbox.adapters.contract import ForeignRelease, Function, copy_fresh
from fedguard.privacy.blackbox.claim import EpsilonClaim, NoiseParameters
from fedguard.privacy.blackbox.mechanism import Shape

#: The key by which Flower's strategies send their clip to the mods that clip, and the clip if there is no strategy.
CLIP_KEY, CLIP = "clipping_norm", 1.0
#: Examples that a client says it has.
EXAMPLES = 10


def adapt(found: Any, _: Sequence[Shape]) -> ForeignRelease | None:
    """A mod: anything that is called with a message, a context and the next app."""
    if not callable(found) or isinstance(found, type):
        return None
    return ForeignRelease(make=lambda: release_by(copy_fresh(found)), claim=_claim(found), facts=_facts(found))


def release_by(mod: Callable[..., Any], clip: float = CLIP) -> Function:
    """One release of a mod: the update that leaves, and the other records beside it."""

    def release(update: list[NDArray[Any]]) -> tuple[list[NDArray[Any]], dict[str, Any]]:
        reply = answer(mod, update, clip)
        if reply.has_error():
            raise RuntimeError(f"the mod answers with an error: {reply.error.reason}")
        (arrays,) = reply.content.array_records.values()
        return arrays.to_numpy_ndarrays(), list_beside(reply.content)

    return release


def answer(mod: Callable[..., Any], update: list[NDArray[Any]], clip: float, examples: float = EXAMPLES) -> Any:
    """The reply of a client behind a mod, whose model is 0: so its new model is the update."""
    sent = Message(
        RecordDict(
            {"arrays": as_record([np.zeros_like(one) for one in update]), "config": ConfigRecord({CLIP_KEY: clip})}
        ),
        *as_server(),
    )
    context = Context(run_id=1, node_id=1, node_config={}, state=RecordDict(), run_config={})

    def app(message: Any, _: Any) -> Any:
        metrics = MetricRecord({"num-examples": examples})
        return Message(RecordDict({"arrays": as_record(update), "metrics": metrics}), reply_to=message)

    return mod(sent, context, app)


def as_server() -> tuple[int, str]:
    """Node and type of a train message. Messages take the run and the node of this process, which Flower's engines set."""
    TaskIdentity.task_id = TaskIdentity.run_id = TaskIdentity.node_id = 1
    return 1, "train"


def as_record(arrays: Sequence[NDArray[Any]]) -> Any:
    """Arrays by number."""
    return ArrayRecord({str(number): Array(np.array(one)) for number, one in enumerate(arrays)})


def list_beside(content: Any) -> dict[str, Any]:
    """Metrics and settings that leave beside the arrays, by name."""
    records = (*content.metric_records.items(), *content.config_records.items())
    return {f"{name}.{key}": value for name, record in records for key, value in record.items()}


def _claim(mod: Any) -> EpsilonClaim | None:
    """`LocalDpMod` has an epsilon of each release; for which neighbors it does not say."""
    if not isinstance(mod, LocalDpMod) or not mod.epsilon or not mod.delta:
        return None
    return EpsilonClaim(epsilon=mod.epsilon, delta=mod.delta, law="gaussian")


def _facts(mod: Any) -> NoiseParameters | None:
    if not isinstance(mod, LocalDpMod) or not mod.epsilon or not mod.delta:
        return None
    scale = mod.sensitivity * math.sqrt(2 * math.log(1.25 / mod.delta)) / mod.epsilon
    return NoiseParameters(law="gaussian", scale=scale, clip=mod.clipping_norm)
