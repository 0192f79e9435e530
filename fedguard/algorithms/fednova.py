"""FedNova: updates made alike in length before they are averaged (Wang et al., NeurIPS 2020)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from torch import Tensor

from fedguard.contracts import AlgorithmSetup, FederatedAlgorithm, LocalPlan, LocalStatistics, RunningAlgorithm, Task
from fedguard.rng import Streams


@dataclass(frozen=True, kw_only=True)
class FedNova(FederatedAlgorithm):
    """Updates are made alike in length before they are averaged, however many steps each client took.

    A client with local update $u_i$ sends $tau u_i / a_i$, with $tau = sum_i p_i a_i$ over the round's clients.

    $a_i$ is the total weight of its gradients: the number of steps k; with momentum b,
    $(k - b (1 - b^k) / (1 - b)) / (1 - b)$. $p_i$ is 1/n, or the client's share of the round's examples if the rule weighs by
    examples. In the source the server multiplies by tau. Here each client does, which is equivalent, so rules and attacks see
    updates on the scale at which they are averaged.

    The server announces tau, so every client reports its number of steps before the round, under masks too. A malicious client
    reports the steps of honest training, whatever it does: longer training is not scaled down.
    """

    name = "fednova"
    source = "Wang et al., Tackling the Objective Inconsistency Problem in Heterogeneous Federated Optimization, NeurIPS 2020"
    tells = "the server is told each client's number of steps before the round, and tells all of them tau"

    def start(self, setup: AlgorithmSetup) -> RunningAlgorithm:
        return _RunningFedNova(setup)


class _RunningFedNova(RunningAlgorithm):
    _tau: float

    def begin(self, chosen: Sequence[int]) -> None:
        sizes = self.setup.task.sizes
        shares = [float(sizes[client]) if self.setup.cell.pipeline.rule.by_samples else 1.0 for client in chosen]
        # Over the clients that were chosen: each scales its own update before anybody knows which updates are lost
        counted = sum(share * self._effective_steps(client) for share, client in zip(shares, chosen, strict=True))
        self._tau = counted / sum(shares) if chosen else 0.0

    def train(
        self,
        task: Task,
        model: Tensor,
        clients: Sequence[int],
        plan: LocalPlan,
        rng: Streams,
        rows: Tensor,
        statistics: LocalStatistics | None = None,
    ) -> None:
        task.local_updates(model, clients, plan, rng, rows, statistics)
        for client, update in zip(clients, rows, strict=True):
            update.mul_(self._tau / self._effective_steps(client, plan.share(client)))

    def _effective_steps(self, client: int, share: float = 1.0) -> float:
        """a_i: the sum of the weights of all of the client's gradients in its update, over lr.

        Args:
            share: of its work, after which it stops, see `LocalPlan.shares`.
        """
        training, size = self.setup.cell.training, self.setup.task.sizes[client]
        batch = min(training.batch_size or size, size)
        one_pass = batch if training.local_steps else size
        work = (training.local_steps or training.local_epochs) * one_pass
        passes, rest = divmod(work if share >= 1 else max(1, int(share * work + 1e-9)), one_pass)
        steps = passes * -(-one_pass // batch) - (-rest // batch)
        b = training.momentum
        # sum_{j=1..k} (1 - b^j) / (1 - b): a gradient is in the velocity of its own step and, decayed, of all later ones
        return (steps - b * (1 - b**steps) / (1 - b)) / (1 - b)
