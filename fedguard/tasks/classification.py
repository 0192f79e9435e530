"""Classification: a data set dealt out to clients, a network, and its loss."""

from __future__ import annotations

import itertools
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from fedguard.contracts import (
    ROOT,
    Data,
    Dataset,
    Evaluation,
    Examples,
    LocalPlan,
    LocalStatistics,
    Model,
    Partition,
    StatisticsLayout,
    Task,
    Trigger,
)
from fedguard.contracts.return_checks import check_return, check_tensor_return, contract_error, describe_value
from fedguard.contracts.statistics import Normalization
from fedguard.contracts.tasks import NOT_ASKED, select_trained
from fedguard.contracts.user_function import FAILURES
from fedguard.errors import ConfigError
from fedguard.rng import Rng, Streams
from fedguard.tasks.cohort import Cohort, schedule
from fedguard.tasks.compute import Compute, computing_in
from fedguard.tasks.data import draw_subset, load_dataset
from fedguard.tasks.network import FlatNetwork, Predictor, duplicate
from fedguard.tasks.tokens import check_padding

#: Texts of which the logits of each token are computed at a time
TEXTS = 200


@dataclass(frozen=True)
class Classification(Task):
    """The clients' examples, the server's root examples if it has any, and the network that they train.

    `deal` is the usual constructor.
    """

    dataset: Dataset
    parts: tuple[Examples, ...]
    root: Examples | None
    model: Model
    network: FlatNetwork = field(repr=False)
    first: Tensor | None = field(default=None, repr=False)

    @classmethod
    def deal(
        cls,
        data: Data,
        model: Model,
        partition: Partition,
        clients: int,
        rng: Rng,
        root_examples: int = 0,
        copying: Collection[int] = (),
        compute: Compute | None = None,
        shared: float = 0.0,
        subset: tuple[int | None, int | None] = (None, None),
        normalization: Normalization = "running",
    ) -> Classification:
        """Load the data, or draw some of them, set the server's root examples aside, and deal the rest out to the clients.

        Args:
            rng: the partition's own stream.
            root_examples: number of training examples that only the server gets.
            copying: clients that get no examples of their own. Each holds a copy of another client's examples; the other client
                is drawn at random, and none twice before all have been drawn.
            compute: device and memory of training and evaluation; by default the processor, with the usual memory.
            shared: the share of the training examples of which each client holds a copy, and which are not dealt out.
            subset: number of train and of test examples that are drawn from the data; None for all.
            normalization: by what layers normalize that normalize over batches.

        Raises:
            ConfigError: the partition cannot serve this number of clients, or the model does not fit the data.
        """
        dataset = draw_subset(load_dataset(data), subset, rng.child("subset"))
        order = torch.randperm(len(dataset.train), generator=rng.child("root").torch())
        if root_examples >= len(order):
            raise ConfigError(
                f"server.root_data: expected fewer than the {len(order)} training examples; got {root_examples}."
            )
        public = _public(len(order), root_examples, shared)
        root, rest = dataset.train[order[:root_examples]], dataset.train[order[root_examples + public :]]
        dealt = _split_examples(partition, rest, clients - len(copying), rng.child("split"))
        parts = _parts(rest, _with_copies(dealt, clients, copying, rng.child("copies")))
        if public:
            everybodys = dataset.train[order[root_examples : root_examples + public]]
            parts = tuple(_append_examples(part, everybodys) for part in parts)
        network = fitting(model, dataset, compute, normalization)
        return cls(dataset, parts, root if root_examples else None, model, network)

    def in_dtype(self, dtype: str) -> Classification:
        """The same examples in another type, ``float32`` or ``float64``, with a network of that type.

        Raises:
            ConfigError: the network does not compute in it.
        """
        data = replace(self.dataset, train=_to(self.dataset.train, dtype), test=_to(self.dataset.test, dtype))
        with computing_in(dtype):
            network = fitting(self.model, data, self.network.compute, self.network.normalization)
        parts = tuple(_to(part, dtype) for part in self.parts)
        root = None if self.root is None else _to(self.root, dtype)
        return replace(self, dataset=data, parts=parts, root=root, network=network)

    @property
    def dim(self) -> int:  # type: ignore[override]
        return self.network.dim

    @cached_property
    def sizes(self) -> tuple[int, ...]:  # type: ignore[override]
        return tuple(len(part) for part in self.parts)

    @property
    def classes(self) -> int:  # type: ignore[override]
        return self.dataset.classes

    @property
    def value_range(self) -> tuple[float, float]:  # type: ignore[override]
        return self.dataset.value_range

    @property
    def shape(self) -> tuple[int, ...]:  # type: ignore[override]
        return self.dataset.shape

    @property
    def layers(self) -> tuple[int, ...]:  # type: ignore[override]
        return self.network.layers

    @property
    def statistics(self) -> StatisticsLayout:  # type: ignore[override]
        return self.network.statistics

    @property
    def module(self) -> nn.Module:  # type: ignore[override]
        return self.network.module

    @cached_property
    def _cohort(self) -> Cohort:
        return Cohort(self.network, [*self.parts, *([] if self.root is None else [self.root])])

    @cached_property
    def _test_inputs(self) -> Tensor:
        """The test inputs, on the device where the network computes."""
        return self.dataset.test.x.to(self.network.compute.device)

    def initial_model(self, rng: Rng) -> Tensor:
        if self.first is not None:
            return self.first.clone()
        return FlatNetwork(
            self.model, self.dataset.shape, self.dataset.classes, rng, tokens=self.dataset.tokens
        ).flat.clone()

    def local_updates(
        self,
        model: Tensor,
        clients: Sequence[int],
        plan: LocalPlan,
        rng: Streams,
        out: Tensor,
        statistics: LocalStatistics | None = None,
    ) -> Tensor:
        if ROOT in clients and self.root is None:
            raise ConfigError("the server has no data of its own. Set server.root_data to a number of examples.")
        parts = [len(self.parts) if client == ROOT else client for client in clients]
        self._cohort.train(model, parts, plan, rng, out, statistics)
        return out

    def measure_statistics(self, model: Tensor, clients: Sequence[int], out: Tensor) -> None:
        for client, row in zip(clients, out, strict=True):
            self.network.measure_statistics(model, self.examples(client).x, row)

    def evaluate(self, model: Tensor, statistics: Tensor | None = None) -> Evaluation:
        test = self.dataset.test
        if test.y.dim() > 1:
            return self._evaluate_tokens(model, statistics)
        logits = self.network.logits(model, self._test_inputs, statistics)
        right = logits.argmax(1) == test.y
        counts = torch.bincount(test.y, minlength=self.classes)
        by_class = torch.bincount(test.y, weights=right.double(), minlength=self.classes) / counts
        return Evaluation(float(self.loss(logits, test.y)), float(right.double().mean()), tuple(by_class.tolist()))

    def _evaluate_tokens(self, model: Tensor, statistics: Tensor | None) -> Evaluation:
        """The evaluation where each token has a label, batch by batch: all logits at once may not fit."""
        right, surprise, loss, test = 0, 0.0, 0.0, self.dataset.test
        for x, y in zip(torch.split(self._test_inputs, TEXTS), torch.split(test.y, TEXTS), strict=True):
            logits, asked = self.network.logits(model, x, statistics), y != NOT_ASKED
            right += int((logits.argmax(-1) == y)[asked].sum())
            surprise += float(cross_entropy(logits[asked], y[asked], reduction="sum"))
            loss += float(self.model.loss(logits, y, "sum"))
        tokens = int((test.y != NOT_ASKED).sum())
        perplexity = float(torch.tensor(surprise / tokens).exp())
        return Evaluation(loss / len(test), right / tokens, (), perplexity=perplexity)

    def logits(self, model: Tensor, x: Tensor, statistics: Tensor | None = None) -> Tensor:
        return self.network(model, x, statistics)

    def loss(self, logits: Tensor, y: Tensor) -> Tensor:
        return self.model.loss(logits, y)

    def predictor(self, statistics: Tensor | None = None) -> Predictor:
        return Predictor(self.network, statistics)

    def open_to_backdoor(self, trigger: Trigger, target: int) -> Examples:
        """The test examples on which a backdoor's success is measured: of other classes, and able to carry the trigger.

        Raises:
            ConfigError: there is no such target, or no such example.
        """
        if target >= self.classes:
            raise ConfigError(f"the backdoor's target: expected a class below {self.classes}; got {target}.")
        test = self.dataset.test
        others = test[trigger.selects(test, self.value_range) & (test.y != target)]
        if not len(others):
            raise ConfigError(f"trigger {trigger}: none of the test examples carries it. Choose a more common feature.")
        return others

    def backdoor_success(self, model: Tensor, trigger: Trigger, target: int, statistics: Tensor | None = None) -> float:
        others = self.open_to_backdoor(trigger, target)
        shown = check_tensor_return(trigger, "apply", trigger.apply(others.x, self.value_range), others.x.shape)
        logits = self.network.logits(model, shown, statistics)
        return float((logits.argmax(1) == target).double().mean())

    def examples(self, client: int) -> Examples:
        if client == ROOT:
            if self.root is None:
                raise ConfigError("the server has no data of its own. Set server.root_data to a number of examples.")
            return self.root
        return self.parts[client]

    def hold_private(self, rate: float) -> None:
        """Check that the network meets the requirements of DP-SGD, in batches that Poisson sampling draws at this rate.

        Raises:
            ConfigError: examples of a batch see each other, or Opacus does not find their gradients.
        """
        from fedguard.tasks.engines.by_example import hold, largest_batch  # opacus takes more than a second to load

        hold(self.network, largest_batch(self.sizes, rate))

    def examples_used(self, client: int, plan: LocalPlan, rng: Rng) -> Examples:
        draw = plan.batch_stream(rng.child("client", client)).numpy()
        batches = schedule(plan.of(client), self.sizes[client], draw, plan.share(client))
        used = dict.fromkeys(batches[batches >= 0].tolist())
        return self.examples(client)[torch.tensor(list(used), dtype=torch.int64)]

    def with_examples(self, replaced: Mapping[int, Examples]) -> Classification:
        return replace(self, parts=tuple(replaced.get(client, part) for client, part in enumerate(self.parts)))


def _to(examples: Examples, dtype: str) -> Examples:
    return examples.replace(x=examples.x.to(getattr(torch, dtype)))


def _public(examples: int, root: int, shared: float) -> int:
    """The number of examples that every client gets a copy of; they are neither root examples nor dealt out."""
    public = round(shared * examples)
    if shared and not 0 < public < examples - root:
        raise ConfigError(
            f"task.shared: expected from 1 of {examples} training examples to fewer than the {examples - root} that are not "
            f"the server's; got {public}. {'Raise' if not public else 'Lower'} it."
        )
    return public


def _append_examples(own: Examples, more: Examples) -> Examples:
    client = None if own.client is None or more.client is None else torch.cat([own.client, more.client])
    return Examples(torch.cat([own.x, more.x]), torch.cat([own.y, more.y]), client)


def _split_examples(partition: Partition, examples: Examples, clients: int, rng: Rng) -> Sequence[NDArray[np.int64]]:
    """A partition's split, checked against its contract."""
    dealt = check_return(partition, "split", partition.split(examples, clients, rng), (list, tuple))
    if len(dealt) != clients:
        raise contract_error(partition, f"split: expected an array for each of {clients} clients; got {len(dealt)}")
    for part in dealt:
        if not (isinstance(part, np.ndarray) and part.ndim == 1 and np.issubdtype(part.dtype, np.integer)):
            raise contract_error(
                partition, f"split: expected numpy arrays of example numbers; got {describe_value(part)}"
            )
        if len(part) and not 0 <= part.min() <= part.max() < len(examples):
            got = f"{part.min()} to {part.max()}"
            raise contract_error(partition, f"split: expected numbers from 0 to {len(examples) - 1}; got {got}")
    return dealt


def _with_copies(
    dealt: Sequence[NDArray[np.int64]], clients: int, copying: Collection[int], rng: Rng
) -> list[NDArray[np.int64]]:
    """The example numbers of each client: its own part, in order, or for a copying client a copy of another part."""
    drawn = rng.numpy().permutation(len(dealt)).tolist()
    shares, copies = iter(dealt), itertools.cycle(drawn)
    return [dealt[next(copies)] if client in copying else next(shares) for client in range(clients)]


def _parts(examples: Examples, dealt: Sequence[NDArray[np.int64]]) -> tuple[Examples, ...]:
    """Each client's examples, in memory of their own.

    Raises:
        ConfigError: a client has no examples.
    """
    empty = [client for client, part in enumerate(dealt) if not len(part)]
    if empty:
        raise ConfigError(
            f"task.partition: expected an example for each of {len(dealt)} clients; {len(empty)} of them, client {empty[0]} "
            f"first, have none of the {len(examples)}. Lower clients.total, or change the partition."
        )
    return tuple(examples[torch.from_numpy(part)] for part in dealt)


def fitting(
    model: Model, dataset: Dataset, compute: Compute | None, normalization: Normalization = "running"
) -> FlatNetwork:
    """The network, tried forward and backward on the smallest and the largest input.

    Raises:
        ConfigError: it does not fit the data, draws at random, or has parameters that it does not use.
    """
    extremes = torch.tensor(dataset.value_range).view(2, *(1 for _ in dataset.shape)).repeat(1, *dataset.shape)
    try:
        network = FlatNetwork(model, dataset.shape, dataset.classes, Rng(0), compute, normalization, dataset.tokens)
        network.value_range = dataset.value_range
        with torch.random.fork_rng(devices=[]):
            module, _ = duplicate(network.module, torch.device("cpu"))  # threads train on copies
            trained = select_trained(module)
            before = torch.get_rng_state()
            logits, again = module(extremes), module(extremes)
            draws = not torch.equal(before, torch.get_rng_state())  # Dropout may hit the same units twice
        if network.answers != (asked := tuple(dataset.train.y.shape[1:])):
            each, last = "a label of each token", "one label of a text"
            raise ConfigError(
                f"model {model}: gives {each if network.answers else last}; the data ask for {each if asked else last}. Let "
                "both say the same: targets of the data, and answers of the model transformer."
            )
        labels = (torch.arange(2) % dataset.classes).view(2, *(1 for _ in asked)).expand(2, *asked)
        loss = model.loss(logits, labels)
        slopes = torch.autograd.grad(loss, list(trained.values()), allow_unused=True)
    except ConfigError:
        raise
    except FAILURES as error:  # a network of the user's own may fail in any way
        low, high = dataset.value_range
        raise ConfigError(
            f"model {model}: fails on inputs of shape {list(dataset.shape)} from {low:g} to {high:g}: "
            f"{type(error).__name__}: {' '.join(str(error).split())}"
        ) from error
    if unused := [name for name, slope in zip(trained, slopes, strict=True) if slope is None]:
        raise ConfigError(
            f"model {model}: {unused[0]} is a parameter that forward does not use. Remove it, or freeze it: "
            "requires_grad=False."
        )
    if torch.promote_types(logits.dtype, extremes.dtype) != logits.dtype:
        used, wanted = (str(one.dtype).removeprefix("torch.") for one in (logits, extremes))
        raise ConfigError(
            f"model {model}: expected logits of {wanted} for inputs of {wanted}; got {used}. Make its constants of the type of "
            "its inputs (x.new_zeros), or leave out training.dtype."
        )
    if draws or not torch.allclose(logits, again, equal_nan=True):
        raise ConfigError(f"model {model}: expected the same logits for the same input; got others. Leave out Dropout.")
    if dataset.tokens is not None:
        check_padding(module, dataset.tokens, dataset.shape, str(model))
    return network
