"""Parties with different tasks: each has classes of its own (the setting of Arivazhagan et al., 2019)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import numpy as np
from annotated_types import Ge
from numpy.typing import NDArray

from fedguard.contracts import Examples, Partition
from fedguard.errors import require
from fedguard.rng import Rng
from fedguard.tasks.partitions.class_labels import class_labels


@dataclass(frozen=True, kw_only=True)
class LabelSets(Partition):
    """Each party has a task of its own: to tell apart classes that no other party has.

    The C classes are cut into runs, as equal as can be, one for each party; client i belongs to party $i mod parties$, and the
    examples of a party's classes are dealt out IID among its clients. A bank and an insurer may learn the layers below
    together, and each the last one for itself (``training.algorithm: fedper``). The record has each
    party's accuracy on the test examples of its classes.

    Args:
        parties: how many, with at least two classes each.
    """

    name = "label_sets"
    source = "Arivazhagan et al., Federated Learning with Personalization Layers, 2019"

    parties: Annotated[int, Ge(2)] = 2

    def label_sets(self, classes: int) -> tuple[tuple[int, ...], ...]:
        return tuple(tuple(part.tolist()) for part in np.array_split(np.arange(classes), self.parties))

    def split(self, examples: Examples, clients: int, rng: Rng) -> list[NDArray[np.int64]]:
        labels = class_labels(self, examples)
        classes = int(labels.max()) + 1
        require(
            clients >= self.parties,
            f"label_sets: expected a client for each of {self.parties} parties; got {clients} clients.",
        )
        require(
            classes >= 2 * self.parties,
            f"label_sets: expected two classes for each of {self.parties} parties; got {classes} classes.",
        )
        parts: dict[int, NDArray[np.int64]] = {}
        for party, own in enumerate(self.label_sets(classes)):
            members = range(party, clients, self.parties)
            rows = rng.child("party", party).numpy().permutation(np.flatnonzero(np.isin(labels, own)))
            require(
                len(rows) >= len(members),
                f"label_sets: expected at least one example per client; got {len(rows)} for {len(members)} clients of party "
                f"{party}.",
            )
            parts |= dict(zip(members, np.array_split(rows, len(members)), strict=True))
        return [parts[client] for client in range(clients)]
