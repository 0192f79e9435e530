"""Flower's training messages: the model that the server sent, and the replies."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from flwr.app import Array, ArrayRecord, Message, MetricRecord, RecordDict
from torch import Tensor

from fedguard.errors import InputError, NotAllowed
from fedguard.states import Layout

#: Default `weighted_by_key` of FedAvg and its subclasses: their name for the number of examples that a client claims.
SAMPLES = "num-examples"


def arrays_of(message: Message, what: str) -> tuple[str, dict[str, Any]]:
    """The name of the only `ArrayRecord` of a message, and its arrays in numpy.

    Raises:
        NotAllowed: there is none, as under secure aggregation, or more than one.
    """
    found = message.content.array_records
    if len(found) != 1:
        masked = is_masked(message)
        raise NotAllowed(
            f"{what}: expected one ArrayRecord; got {len(found)}. "
            + (
                "Secure aggregation is at work: its messages are masked, no rule can see single updates, and an attack is a "
                "mod of a client that comes before the mask (fedguard.flower.malicious_mod)."
                if masked
                else "Attack and rule apply where each client's model is one record of arrays."
            )
        )
    name, record = next(iter(found.items()))
    return name, {key: array.numpy() for key, array in record.items()}


def is_masked(message: Message) -> bool:
    """Whether a message belongs to Flower's SecAgg or SecAgg+."""
    return any("secagg" in name.lower() for name in message.content.config_records)


def with_arrays(
    message: Message, name: str, arrays: Mapping[str, Any], samples: float | None = None, key: str = SAMPLES
) -> Message:
    """The message with its arrays replaced, and the claimed number of examples if ``samples`` is given."""
    # In the order of the records: FedAvg takes the weight from the first MetricRecord
    records: dict[str, Any] = dict(message.content.items())
    records[name] = ArrayRecord({key: Array(value) for key, value in arrays.items()})
    if samples is not None:
        for kept, record in message.content.metric_records.items():
            if key in record:
                claim = int(samples) if isinstance(record[key], int) else samples
                records[kept] = MetricRecord({**record, key: claim})
    message.content = RecordDict(records)
    return message


def samples_of(message: Message, key: str = SAMPLES) -> float | None:
    """The number of examples that the client claims; None if it claims none."""
    for record in message.content.metric_records.values():
        if isinstance(value := record.get(key), int | float):
            return float(value)
    return None


def is_training(message: Message) -> bool:
    """Whether a message asks for training, or answers such a message."""
    # A type may name a function of the app after the dot, as in ``train.secagg``
    return message.metadata.message_type.split(".")[0] == "train"


def layout_of(sent: Mapping[str, Any], replies: Sequence[Mapping[str, Any]], nodes: Sequence[int]) -> Layout:
    """The layout of an app's parameters in a vector: the arrays that most nodes keep in floating point.

    The server's types are not enough: from the second round on, its strategy has averaged integers to fractions.

    Raises:
        InputError: an entry is no real array, or none is of floating point.
    """
    names = ["the model that was sent", *(f"the reply of node {node}" for node in nodes)]
    return Layout.of_several([sent, *replies], names)


def start_of(layout: Layout, sent: Mapping[str, Any]) -> Tensor:
    """float32 ``[d]``: the model that the server sent."""
    return layout.vector(sent, "the model that was sent", averaged=True)


def decode_update(layout: Layout, before: Tensor, arrays: Mapping[str, Any], what: str) -> Tensor:
    """float32 ``[d]``: the update of a reply.

    Raises:
        InputError: its arrays are not those that were sent.
    """
    try:
        return layout.vector(arrays, what) - before
    except InputError as error:
        raise InputError(f"{error} Attack and rule need replies with the arrays that the server sent.") from None
