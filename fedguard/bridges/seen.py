"""What an observer at a Grid records of a training, and the file that carries it out of the process of the app's server."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fedguard.contracts import RoundObservation, SentRound
from fedguard.errors import ConfigError, NotAllowed
from fedguard.registry import load_registry
from fedguard.states import Layout


@dataclass(frozen=True)
class AppObserver:
    """An observer at the app's server, in a form that JSON can hold.

    Attributes:
        attack: spec of its attack.
        wants: settings of an observer, as in a suite.
        training: the app's declared training, as in `fedguard.config.app_section.AppTrainingSection`.
        pictures: run folder, cell and seed under which reconstructions are saved; None to save none.
    """

    attack: str
    wants: Mapping[str, Any]
    training: Mapping[str, Any]
    pictures: tuple[str, str, int] | None = None

    def watches(self, round: int) -> bool:
        """Whether the attack needs the updates of a round."""
        when = load_registry().build("inference", self.attack).watches
        return bool(when == "training" or (when == "round" and round == self.wants["round"]))


@dataclass
class TrainingObservations:
    """The training rounds of an app, as its server sees them. Saved as a file of arrays that is read without unpickling.

    Args:
        watches: whether the updates of a round (from 1) are kept.

    Attributes:
        layout: layout of the model; None before the first training round.
        took_part: for each round, the partitions of the nodes that replied with a finite update, in the order of the rows.
        sent: by watched round, and for the first, the model that was sent: float32 ``[d]``.
        updates: by watched round, float32 ``[n, d]`` in the order of `took_part`.
        after: by round, the model that the server sent next: float32 ``[d]``.
    """

    watches: Callable[[int], bool] = field(default=lambda _: False)
    layout: Layout | None = None
    took_part: list[tuple[int, ...]] = field(default_factory=list)
    sent: dict[int, Tensor] = field(default_factory=dict)
    updates: dict[int, Tensor] = field(default_factory=dict)
    after: dict[int, Tensor] = field(default_factory=dict)

    def record_model(self, arrays: dict[str, Any]) -> None:
        """Record a model that the server sends or ends with. The first one after a training round is its result."""
        if self.layout is not None:
            self.after.setdefault(len(self.took_part), self.layout.vector(arrays, "the model that was sent"))

    def record_training(self, layout: Layout, starts: Tensor, updates: Tensor, clients: Sequence[int]) -> None:
        """Record one training round.

        Args:
            starts, updates: float32 ``[n, d]``: the models that were sent, and the differences of the replies from them.

        Raises:
            NotAllowed: nodes were sent different models.
        """
        if not bool((starts == starts[0]).all()):
            raise NotAllowed(
                "observer: expected one model for all nodes of a round, as FedAvg sends it; the app's strategy sends several, "
                "and what each node's neighbors started from is not looked at. Leave out the attack on privacy."
            )
        self.layout = self.layout or layout
        # As the Guard drops them: a row of NaN says nothing about data, and would spoil every score over the round
        finite = updates.isfinite().all(1).tolist()
        self.took_part.append(tuple(client for client, good in zip(clients, finite, strict=True) if good))
        number = len(self.took_part)
        if number == 1 or self.watches(number):
            self.sent[number] = starts[0].clone()
        if self.watches(number):
            self.updates[number] = updates[torch.tensor(finite)].clone()

    @property
    def watched(self) -> list[RoundObservation]:
        """The watched rounds in which at least one node answered."""
        return [
            RoundObservation(
                SentRound(number, self.sent[number], rows, clients),
                after=self.after[number],
                behind=tuple((client,) for client in clients),
                rows=rows,
                aggregate=self.after[number] - self.sent[number],
            )
            for number, rows in sorted(self.updates.items())
            if len(rows)
            for clients in (self.took_part[number - 1],)
        ]

    def save(self, path: Path) -> None:
        """Write the observations to a file.

        Raises:
            ConfigError: the server never sent the model that resulted from the last round.
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
        """The observations in a file."""
        # Arrays only, no objects: the writer ran an app's code, and the reader must not
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
