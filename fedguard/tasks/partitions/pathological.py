"""A fixed number of classes for each client (Li et al., ICDE 2022: #C = k)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from fedguard.contracts import Examples, Partition, PositiveInt
from fedguard.errors import require
from fedguard.rng import Rng
from fedguard.tasks.partitions.class_labels import class_labels


@dataclass(frozen=True, kw_only=True)
class Pathological(Partition):
    """Each client holds exactly k classes, and the clients with the same class share its examples evenly.

    A class that no client gets is left out: with ``assignment: random``, or with fewer clients than classes.

    Args:
        classes: k, the number of classes of each client.
        assignment: who gets which classes. ``first_deterministic``: client i gets class i mod C, and the others are drawn, as
            in the source; ``random``: all are drawn; ``deterministic``: classes i, i+1, ..., i+k-1, all mod C.
    """

    name = "pathological"
    source = "Li et al., Federated Learning on Non-IID Data Silos: An Experimental Study, ICDE 2022"

    classes: PositiveInt = 2
    assignment: Literal["first_deterministic", "random", "deterministic"] = "first_deterministic"

    def split(self, examples: Examples, clients: int, rng: Rng) -> list[NDArray[np.int64]]:
        labels = class_labels(self, examples)
        known = np.unique(labels)
        require(
            self.classes <= len(known),
            f"pathological: classes: expected at most the {len(known)} that the examples have; got {self.classes}.",
        )
        held = self._assign_classes(clients, len(known), rng.numpy())
        shuffle, parts = rng.child("examples").numpy(), [[np.empty(0, np.int64)] for _ in range(clients)]
        for number, label in enumerate(known):
            holders = [client for client in range(clients) if number in held[client]]
            members = shuffle.permutation(np.flatnonzero(labels == label))
            require(
                len(members) >= len(holders),
                f"pathological: expected an example of class {label} for each of {len(holders)} clients; got {len(members)}. "
                "Lower clients.total or classes.",
            )
            # Of no holders, numpy would make no parts
            for client, part in zip(holders, np.array_split(members, max(len(holders), 1)), strict=False):
                parts[client].append(part)
        return [shuffle.permutation(np.concatenate(part)) for part in parts]

    def _assign_classes(self, clients: int, known: int, draw: np.random.Generator) -> list[set[int]]:
        """The numbers of each client's classes."""
        if self.assignment == "deterministic":
            return [{(client + k) % known for k in range(self.classes)} for client in range(clients)]
        if self.assignment == "random":
            return [set(draw.choice(known, self.classes, replace=False).tolist()) for _ in range(clients)]
        held = [{client % known} for client in range(clients)]
        for own in held:
            while len(own) < self.classes:
                own.add(int(draw.integers(known)))
        return held
