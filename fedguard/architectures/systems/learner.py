"""Base of learners to which actors send gradients."""

from __future__ import annotations

from collections.abc import Iterator

from fedguard.architectures.systems.event_server import EventServer
from fedguard.contracts import Cell


class Learner(EventServer):
    """A learner to which actors send gradients: an event server whose clients act."""

    def reasons(self, cell: Cell) -> Iterator[str]:
        yield from super().reasons(cell)
        if not cell.algorithm.acts:
            yield (
                f"the clients of {self.name} are actors, and under {cell.algorithm.name} they train on examples. Set "
                "training.algorithm: actor_critic, or use parameter_server."
            )
