"""Base of learners to which actors send experience (trajectories, transitions), not gradients."""

from __future__ import annotations

from collections.abc import Iterator

from fedguard.architectures.systems.event_server import EventServer
from fedguard.architectures.systems.learner import Learner
from fedguard.contracts import Cell, Exposure, PoisonAttack, Sight


class CentralLearner(Learner):
    """A learner that computes gradients itself, and therefore reads each observation, action and reward."""

    exposes = Exposure(
        server=EventServer.exposes.server | Sight.TRAJECTORIES,
        clients=EventServer.exposes.clients & ~Sight.HONEST_UPDATES,
    )  # no update travels that malicious actors could see

    @property
    def shows_others(self) -> str:
        return "The learner reads each observation, action and reward of every actor."

    def reasons(self, cell: Cell) -> Iterator[str]:
        yield from super().reasons(cell)
        attack, name = cell.adversary, self.name
        # Whatever such an attack crafts, the learner never gets: the cell would silently run without an attack
        if isinstance(attack, PoisonAttack) and attack.overrides("craft"):
            yield (
                f"{attack.name} changes updates, and the actors of {name} send trajectories. Use reward_flip, reward_scaling "
                "or false_behavior, or a3c."
            )
        if cell.pipeline.transforms or cell.protocol.masked or cell.training.worker_momentum:
            yield (
                f"the actors of {name} send trajectories, which nobody can mask, clip or average as if they were updates. "
                "Leave out client defenses, secure_aggregation and worker_momentum, or use a2c."
            )
