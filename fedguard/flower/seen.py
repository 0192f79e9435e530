"""What an observer at a Grid writes down of a training, and how that leaves the process in which the app's server runs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fedguard.contracts import RoundObservation
from fedguard.errors import ConfigError, NotAllowed
from fedguard.registry import load_registry
from fedguard.states import Layout


@dataclass(frozen=True)
class AppObserver:
    """Who looks at an app from its server, as JSON tells it.

    Attributes:
        attack: its spec.
        wants: an observer's settings, as a suite has them.
        training: the app's, as `fedguard.config.sections.AppTrainingSection` has it.
        pictures: run folder, cell and seed by which reconstructions are kept; None to keep none.
    """

    attack: str
    wants: Mapping[str, Any]
    training: Mapping[str, Any]
    pictures: tuple[str, str, int] | None = None

    def watches(self, round: int) -> bool:
        """Whether it needs the updates of a round."""
        when = load_registry().build("inference", self.attack).watches
        return bool(when == "training" or (when == "round" and round == self.wants["round"]))


@dataclass
class TrainingObservations:
    """The trainings of an app, as its server sees them; a file of arrays, which is read without unpickling.

    Args:
        watches: whether the updates of a round (from 1) are kept.

    Attributes:
        layout: of the model; None before the first training.
        took_part: of each training, the partitions of the nodes whose reply came, ascending.
        sent: float32 ``[d]``, of each watched training, and of the first.
        updates: float32 ``[n, d]``, in the order of `took_part`.
        after: float32 ``[d]``: by the number of a training, the model that the server sent next.
    """

    watches: Callable[[int], bool] = field(default=lambda _: False)
    layout: Layout | None = None
    took_part: list[tuple[int, ...]] = field(default_factory=list)
    sent: dict[int, Tensor] = field(default_factory=dict)
    updates: dict[int, Tensor] = field(default_factory=dict)
    after: dict[int, Tensor] = field(default_factory=dict)

    def record_model(self, arrays: dict[str, Any]) -> None:
        """The server sends a model, or ends with one: the first that does after a training is what came of it."""
        if self.layout is not None:
            self.after.setdefault(len(self.took_part), self.layout.vector(arrays, "the model that was sent"))

    def record_training(self, layout: Layout, starts: Tensor, updates: Tensor, clients: Sequence[int]) -> None:
        """One training is over.

        Args:
            starts, updates: float32 ``[n, d]``: what was sent, and by how much the replies differ from it.

        Raises:
            NotAllowed: nodes were sent different models.
        """
        if not bool((starts == starts[0]).all()):
            raise NotAllowed(
                "observer: expected one model for all nodes of a round, as FedAvg sends it; the app's strategy sends several, "
                "and what each node's neighbors started from is not looked at. Leave out the attack on privacy."
            )
        self.layout = self.layout or layout
        finite = updates.isfinite().all(1).tolist()
        self.took_part.append(tuple(client for client, good in zip(clients, finite, strict=True) if good))
        number = len(self.took_part)
        if number == 1 or self.watches(number):
            self.sent[number] = starts[0].clone()
        if self.watches(number):
            self.updates[number] = updates[torch.tensor(finite)].clone()

    @property
    def watched(self) -> list[RoundObservation]:
        """The rounds that were watched, and in which somebody answered."""
        return [
            RoundObservation(
                sent=self.sent[number],
                after=self.after[number],
                clients=clients,
                updates=rows,
                behind=tuple((client,) for client in clients),
                rows=rows,
                aggregate=self.after[number] - self.sent[number],
            )
            for number, rows in sorted(self.updates.items())
            if len(rows)
            for clients in (self.took_part[number - 1],)
        ]

    def save(self, path: Path) -> None:
        """Write what was seen.

        Raises:
            ConfigError: the model that the last training came to was never told.
        """
        assert self.layout is not None
        if len(self.took_part) not in self.after:
            raise ConfigError(
                "observer: the model after the last round never left the app's server. Let its strategy evaluate it on nodes, "
                "or start it with Strategy.start, which returns it."
            )
        arrays = {"names": np.array(self.layout.names), "rounds": np.array(len(self.took_part))}
        arrays |= {f"shape-{number}": np.array(tuple(shape)) for number, shape in enumerate(self.layout.shapes)}
        arrays |= {f"clients-{number}": np.array(one, np.int64) for number, one in enumerate(self.took_part, 1)}
        for kind, kept in (("sent", self.sent), ("updates", self.updates), ("after", self.after)):
            arrays |= {f"{kind}-{number}": value.numpy() for number, value in kept.items()}
        with path.open("wb") as file:
            np.savez(file, allow_pickle=False, **arrays)  # type: ignore[arg-type]

    @classmethod
    def load(cls, path: Path) -> TrainingObservations:
        """What was seen, from its file."""
        with np.load(path, allow_pickle=False) as arrays:
            names = tuple(map(str, arrays["names"]))
            shapes = tuple(torch.Size(arrays[f"shape-{number}"].tolist()) for number in range(len(names)))
            clients = [tuple(arrays[f"clients-{number}"].tolist()) for number in range(1, int(arrays["rounds"]) + 1)]

            def load_arrays(kind: str) -> dict[int, Tensor]:
                named = [name for name in arrays.files if name.startswith(f"{kind}-")]
                return {int(name.rpartition("-")[2]): torch.from_numpy(arrays[name]) for name in named}

            layout = Layout(names, shapes, frozenset())
            return cls(
                layout=layout,
                took_part=clients,
                sent=load_arrays("sent"),
                updates=load_arrays("updates"),
                after=load_arrays("after"),
            )
