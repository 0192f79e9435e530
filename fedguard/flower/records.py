"""Flower's messages of training: the model that was sent, and what came back."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from flwr.app import Array, ArrayRecord, Message, MetricRecord, RecordDict
from torch import Tensor

from fedguard.errors import InputError, NotAllowed
from fedguard.states import Layout

#: How FedAvg and its kin call the number of examples that a client claims.
SAMPLES = "num-examples"


def arrays_of(message: Message, what: str) -> tuple[str, dict[str, Any]]:
    """The name of the one `ArrayRecord` of a message, and its arrays as numpy has them.

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
                else "Attack and rule stand where each client's model is one record of arrays."
            )
        )
    name, record = next(iter(found.items()))
    return name, {key: array.numpy() for key, array in record.items()}


def is_masked(message: Message) -> bool:
    """Whether a message belongs to Flower's SecAgg or SecAgg+."""
    return any("secagg" in name.lower() for name in message.content.config_records)


def with_arrays(message: Message, name: str, arrays: Mapping[str, Any], samples: float | None = None) -> Message:
    """The message, now with other arrays, and another claim of how many examples there were; the rest as it came."""
    records: dict[str, Any] = dict(message.content.items())
    records[name] = ArrayRecord({key: Array(value) for key, value in arrays.items()})
    if samples is not None:
        for key, record in message.content.metric_records.items():
            if SAMPLES in record:
                old = record[SAMPLES]
                records[key] = MetricRecord({**record, SAMPLES: int(samples) if isinstance(old, int) else samples})
    message.content = RecordDict(records)
    return message


def samples_of(message: Message) -> float | None:
    """How many examples the client claims; None where it does not say."""
    for record in message.content.metric_records.values():
        if isinstance(value := record.get(SAMPLES), int | float):
            return float(value)
    return None


def is_training(message: Message) -> bool:
    """Whether a message asks for training, or answers that."""
    return message.metadata.message_type.split(".")[0] == "train"


def moved(layout: Layout, before: Tensor, arrays: Mapping[str, Any], what: str) -> Tensor:
    """float32 ``[d]``: the update of a reply.

    Raises:
        InputError: its arrays are not those that were sent.
    """
    try:
        return layout.vector(arrays, what) - before
    except InputError as error:
        raise InputError(f"{error} Attack and rule need replies with the arrays that the server sent.") from None
