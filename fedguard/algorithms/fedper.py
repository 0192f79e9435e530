"""FedPer: the last layer is each client's own (Arivazhagan et al., Federated Learning with Personalization Layers, 2019)."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor, nn

from fedguard.contracts import (
    AlgorithmSetup,
    CellContext,
    Evaluation,
    FederatedAlgorithm,
    LocalPlan,
    LocalStatistics,
    PoisonAttack,
    RunningAlgorithm,
    Sight,
    Task,
)
from fedguard.contracts.tasks import select_trained
from fedguard.errors import ConfigError, require
from fedguard.rng import Rng, Streams


@dataclass(frozen=True, kw_only=True)
class FedPer(FederatedAlgorithm):
    """Each client trains the shared layers and a last layer of its own, and sends what the shared ones moved by.

    Updates keep their length d; the part of the last layer is 0 in everybody's update. The global model keeps its initial last
    layer, from which each client starts too. The clients train one by one, since each starts from another model.

    A model is evaluated at each honest client, whether the client has trained yet or not. There the test examples are weighed
    by the client's shares of the labels, as if it had test examples of its own. This measures how a client does on its own
    labels, but not differences in how the clients' inputs look. Metrics are means over these clients; the loss weighs all test
    examples alike.
    """

    name = "fedper"
    source = "Arivazhagan et al., Federated Learning with Personalization Layers, 2019"
    keeps = "its last layer"

    def reasons(self, cell: CellContext) -> Iterator[str]:
        """Nobody but a client has a whole model, since the last layers stay at the clients."""
        yield from super().reasons(cell)
        looking = cell.pipeline.looking_at_data
        looking += [one.name for one in cell.pipeline.stages if any(Sight.MODEL in way for way in one.needs)]
        if looking:
            yield (
                f"{' and '.join(looking)} works with the whole model, and under fedper each client has a last layer of its "
                "own. Use fedavg."
            )
        if isinstance(cell.adversary, PoisonAttack) and cell.adversary.goal == "backdoor":
            yield (
                f"{cell.adversary.name}'s backdoor is measured on one model, and under fedper there is one for each client. "
                "Use fedavg."
            )

        if cell.evasion is not None:
            yield (
                f"{cell.evasion.name} works on one model, and under fedper there is one for each client. Leave out "
                "evaluation.evasion, or use fedavg."
            )

    def floats_kept(self, task: Task) -> int:
        size = last_layer(task.module, task.shape)
        require(
            size < task.dim,
            "fedper: expected a model with layers below the last, which are shared; got one layer. Use mlp, or fedavg.",
        )
        return size

    def start(self, setup: AlgorithmSetup) -> RunningAlgorithm:
        return _RunningFedPer(setup, self.floats_kept(setup.task))


class _RunningFedPer(RunningAlgorithm):
    def __init__(self, setup: AlgorithmSetup, size: int) -> None:
        super().__init__(setup)
        self._size = size
        self._heads: dict[int, Tensor] = {}
        self._new: dict[int, Tensor] = {}

    def begin(self, chosen: Sequence[int]) -> None:
        self._new = {}

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
        streams = [rng] * len(clients) if isinstance(rng, Rng) else rng
        for place, (client, one, row) in enumerate(zip(clients, streams, rows, strict=True)):
            start = self._of(client, model)
            own = statistics and statistics.select(slice(place, place + 1))
            task.local_updates(start, [client], plan, one, row[None], own)
            self._new[client] = start[-self._size :] + row[-self._size :]
        self.trim(rows)

    def trim(self, rows: Tensor) -> None:
        rows[:, -self._size :] = 0

    def note(self, clients: Sequence[int], rows: Tensor) -> None:
        # Not in `settle`: the last layer never travels, so the client keeps it even if its update is lost
        self._heads |= {client: self._new[client] for client in clients}

    def settle(self, aggregate: Tensor, arrived: Collection[int], model: Tensor) -> Tensor:
        shared = aggregate.clone()
        shared[-self._size :] = 0  # where a rule adds noise
        return shared

    def evaluate(self, model: Tensor, statistics: Tensor | None = None) -> Evaluation:
        first = self.setup.task.evaluate(model, statistics)  # of the many that have not trained yet
        found = [
            self.setup.task.evaluate(self._of(client, model), statistics) if client in self._heads else first
            for client in self._honest
        ]
        by_class = torch.tensor([one.class_accuracy for one in found], dtype=torch.float64)
        shares = self._shares * by_class.isfinite()  # no test example of a class: it counts nowhere
        right = shares * by_class.nan_to_num()
        accuracy = right.sum(1) / shares.sum(1)
        return Evaluation(
            loss=sum(one.loss for one in found) / len(found),
            accuracy=float(accuracy[accuracy.isfinite()].mean()),
            class_accuracy=tuple((right.sum(0) / shares.sum(0)).tolist()),
        )

    def _of(self, client: int, model: Tensor) -> Tensor:
        """float32 ``[d]``: the model with the last layer of a client."""
        whole = model.clone()
        if client in self._heads:
            whole[-self._size :] = self._heads[client]
        return whole

    @cached_property
    def _honest(self) -> tuple[int, ...]:
        return tuple(client for client in range(len(self.setup.task.sizes)) if client not in self.setup.malicious)

    @cached_property
    def _shares(self) -> Tensor:
        """float64 ``[honest clients, C]``: the share of each label at each client."""
        labels = [self.setup.task.examples(client).y for client in self._honest]
        counts = torch.stack([torch.bincount(y, minlength=self.setup.task.classes) for y in labels]).double()
        return counts / counts.sum(1, keepdim=True)


def last_layer(module: nn.Module, shape: tuple[int, ...]) -> int:
    """Number of parameters of the layer that runs last; they are at the end of the flat vector.

    Raises:
        ConfigError: they are not at the end, since another layer was made after it or shares them.
    """
    ran: list[nn.Module] = []
    trained = list(select_trained(module).values())
    layers = [part for part in module.modules() if _own(part)]
    hooks = [layer.register_forward_pre_hook(lambda layer, _: ran.append(layer)) for layer in layers]
    try:
        with torch.no_grad():
            module(torch.zeros(1, *shape))
    finally:
        for hook in hooks:
            hook.remove()
    own = _own(ran[-1])
    if [id(one) for one in own] != [id(one) for one in trained[-len(own) :]]:
        raise ConfigError(
            "fedper: expected a network whose last layer is made last and shares no parameters; got another. Make it at the "
            "end of __init__, or use fedavg."
        )
    return sum(parameter.numel() for parameter in own)


def _own(layer: nn.Module) -> list[nn.Parameter]:
    """The trained parameters of the layer itself."""
    return [parameter for parameter in layer.parameters(recurse=False) if parameter.requires_grad]
