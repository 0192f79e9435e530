"""Defenses: the three kinds of rule, what clients do before they send, and the pipelines they form.

Three kinds cover nearly all rules. A *weight rule* returns a weighted sum of the updates and finds the weights from inner
products. A *mixing* replaces the updates by weighted sums of them, before another rule. A *coordinate rule* works on each
coordinate by itself. The few rules that fit none of these are *matrix rules*: they read the whole matrix. A *client transform*
is what honest clients do to their own examples and update before they send it.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from types import MappingProxyType
from typing import Any, ClassVar

from torch import Tensor, nn

from fedguard.contracts.algorithm import Algorithm
from fedguard.contracts.gram import Gram
from fedguard.contracts.sight import Needs, Sight, SightField, UndeclaredNeeds, View
from fedguard.contracts.tasks import Examples, LocalPlan
from fedguard.errors import ConfigError, PreconditionError
from fedguard.rng import Rng

#: What a rule keeps from one round to the next
State = Mapping[str, Tensor]

#: The key of a suite that decides the number of updates in a round
PER_ROUND = "clients.per_round"

#: Rules that take the rows of a round as they come: single updates, or the means of groups
ROWS: Needs = (Sight.EACH_UPDATE, Sight.GROUP_SUMS)


class RuleContext(View):
    """What the server sees beside the updates themselves.

    ``f`` is the number of malicious updates that the rule assumes. ``state`` is what `Defense.remember` returned in the round
    before, empty at first. ``rng`` is the rule's own stream for this round. ``layers`` are the sizes of the network's parameter
    tensors, which add up to d. ``shape`` is the shape of one input. The server adds ``server_lr`` times the aggregate to the
    model. The defaults are those of a first round of rows alone, without a training.

    At a node without a server, ``mixing`` (float64 ``[n]``) is the weight of each row in the graph. It is None at servers, and
    after a mixing, unless the rule looks up the node behind each row.
    """

    f: int
    rng: Rng
    round: int = 1
    state: State = MappingProxyType({})
    layers: tuple[int, ...] = ()
    shape: tuple[int, ...] = ()
    server_lr: float = 1.0
    mixing: Tensor | None = None
    clients = SightField[tuple[int, ...]](Sight.EACH_UPDATE, "the client behind each row")
    samples = SightField[Tensor](Sight.SUM, "float64 [n]: the number of examples that each client claims")
    noise = SightField[Tensor](
        Sight.EACH_UPDATE, "float64 [n]: z C, the noise that each client's privacy level adds to a step"
    )
    root = SightField[Tensor](
        Sight.ROOT_DATA,
        "float32 [d]: the update computed on the server's clean data; at a node without a server its own",
    )
    root_loss = SightField[Callable[[Tensor], float]](
        Sight.ROOT_DATA, "the loss of a model [d] on the server's clean data"
    )
    model = SightField[Tensor](Sight.MODEL, "float32 [d]: the global model before this round")
    predict = SightField[Callable[[Tensor, Tensor], Tensor]](
        Sight.MODEL, "logits [B, C] of the network with the parameters [d] for inputs [B, *shape]"
    )
    staleness = SightField[Tensor](
        Sight.TIMES, "int64 [n]: how often the model has moved since the one that each update was trained from"
    )
    versions = SightField[Tensor](
        Sight.TIMES,
        "int64 [n]: the number of the model that each update was trained from: how often the first one had moved",
    )
    arrived = SightField[Tensor](Sight.TIMES, "float64 [n]: when each update came, in simulated seconds")
    scale = SightField[Tensor](
        Sight.TIMES, "float64 [n]: what the architecture has multiplied each update by for its age"
    )
    federation = SightField[tuple[int, int]](Sight.TIMES, "(f, n): of n clients in all f are reckoned to be malicious")
    starts = SightField[Tensor](
        Sight.TIMES | Sight.MODEL, "float32 [n, d]: the model that each update was trained from"
    )
    own = SightField[int](Sight.GRAPH, "which row is the node's own, where there is no server")


class Defense(Algorithm):
    """Base of every stage of a defense pipeline.

    Stages are composed with ``>>``: client transforms, then mixings, then exactly one rule.
    """

    kind: ClassVar[str] = "defense"
    needs: ClassVar[Needs] = UndeclaredNeeds(  # type: ignore[assignment]
        "Write needs = ROWS, of fedguard.contracts, if it looks at single updates, or at means of groups where masks leave no "
        "more; needs = (Sight.SUM,) if what it makes of their mean is what it makes of them."
    )
    #: (a, b): it cannot run on fewer than ``a * f + b`` rows
    min_rows: ClassVar[tuple[int, int]] = (0, 1)
    #: (a, b): the source's guarantee holds from ``a * f + b`` rows on; None if that equals `min_rows`
    proven_rows: ClassVar[tuple[int, int] | None] = None
    #: The largest malicious share that it withstands, as a formula
    breakdown: ClassVar[str] = "none"
    #: Work beyond reading the updates
    cost: ClassVar[str] = "O(nd)"
    #: Whether it uses facts of the client behind a row, and so cannot follow a mixing that does not keep the rows
    reads_clients: ClassVar[bool] = False
    #: Whether it can handle two rows of one client, as in asynchronous aggregation, when it uses facts of clients
    meets_again: ClassVar[bool] = False
    #: Whether it weighs the clients by their examples; under masks each client then weighs its own update
    by_samples: ClassVar[bool] = False
    #: Whether it weighs the clients by the noise of their privacy levels, and so cannot run without noise
    by_noise: ClassVar[bool] = False
    #: Whether its result estimates the mean of honest updates, in direction and norm, without added noise
    estimates_mean: ClassVar[bool] = True
    #: Whether it feeds generated inputs to the model, which are meaningless for texts
    makes_inputs: ClassVar[bool] = False
    #: Values to try for each parameter when the defense is tuned; the default need not be among them
    grid: ClassVar[Mapping[str, tuple[Any, ...]]] = {}

    def rows_out(self, n: int) -> int:
        """Number of rows that this stage passes on."""
        return n

    def check(self, n: int, f: int) -> None:
        """Raise `PreconditionError` if the stage cannot run on n rows of which f may be malicious."""
        slope, offset = self.min_rows
        if n < slope * f + offset:
            raise PreconditionError(_too_few(self.name, self.min_rows, n, f))

    def remember(self, context: RuleContext, aggregate: Tensor, gram: Gram) -> State:
        """The state for the next round, after ``aggregate`` (float32 ``[d]``) came out of the pipeline.

        ``gram`` holds the rows that this stage got.
        """
        return {}

    def __rshift__(self, after: Defense | Pipeline) -> Pipeline:
        return Pipeline((self,)) >> after


class AggregationRule(Defense):
    """Base of the rules, which end a pipeline."""

    #: Whether it never needs all updates as one matrix in memory: neither ``gram.vectors``, nor more than blocks of columns
    by_blocks: ClassVar[bool] = True
    #: Whether at a node without a server it is the sum of the received values, weighted by the graph; so of a single row it
    #: makes this row, and it keeps no state
    by_graph: ClassVar[bool] = False

    def kappa(self, n: int, f: int) -> float | None:
        """The published upper bound on the robustness coefficient kappa (`fedguard.aggregation`); None if none is known."""
        return None


class WeightRule(AggregationRule):
    """A rule with a weighted sum of the updates as its result, with weights found in the Gram matrix.

    A complete rule (the update with the smallest norm)::

        class Smallest(WeightRule):
            name, needs = "smallest", ROWS

            def weights(self, gram, context):
                return torch.nn.functional.one_hot(gram.norms().argmin(), gram.n).double()
    """

    def anchors(self, context: RuleContext, dim: int) -> Mapping[str, Tensor]:
        """Extra rows (float32 ``[d]`` each) beside the updates in the Gram matrix, by name."""
        return {}

    @abstractmethod
    def weights(self, gram: Gram, context: RuleContext) -> Tensor:
        """float64 ``[n]``, or ``[n + len(anchors)]``; the zero vector takes the rest of a sum of one."""


class Mixing(Defense):
    """A stage that replaces the updates by weighted sums of them; the next stage sees ``matrix @ X``."""

    #: Whether its matrix is diagonal in all cases, so that row i stays an update of client i, as `Defense.reads_clients` needs
    keeps_rows: ClassVar[bool] = False

    @abstractmethod
    def matrix(self, gram: Gram, context: RuleContext) -> Tensor:
        """float64 ``[m, n]``; the zero vector takes the rest of a row sum of one."""

    def kappa_of(self, n: int, f: int, after: float) -> float | None:
        """The bound on kappa of this mixing before a rule whose bound is ``after``; None if none is known."""
        return None


class CoordinateRule(AggregationRule):
    """A rule that works on each coordinate by itself, on blocks of columns that fit the cache."""

    @abstractmethod
    def reduce(self, block: Tensor, context: RuleContext) -> Tensor:
        """float32 ``[n, b]`` -> ``[b]``. The block is scratch memory, stored by columns, and may be overwritten."""


class MatrixRule(AggregationRule):
    """A rule that neither inner products nor single coordinates can express, because of layers or of signs across rows."""

    by_blocks = False

    @abstractmethod
    def combine(self, updates: Tensor, context: RuleContext) -> Tensor:
        """float32 ``[n, d]``, read-only -> ``[d]``."""


class ClientContext(View):
    """What a client knows when it prepares its own update: its data, and the model that it received.

    ``module`` is the network with meaningless weights, and must not be changed; ``plan`` is how the client trains.
    """

    round: int
    rng: Rng
    examples = SightField[Examples](
        Sight.OWN_DATA, "its own; once it has trained, those it trained on: its batch where it took one step"
    )
    value_range = SightField[tuple[float, float]](Sight.OWN_DATA, "smallest and largest value of an input")
    model = SightField[Tensor](Sight.MODEL, "float32 [d]: the model that it started from")
    module = SightField[nn.Module](Sight.MODEL, "the network")
    predict = SightField[Callable[[Tensor, Tensor], Tensor]](
        Sight.MODEL, "logits [B, C] of the network with the parameters [d] for inputs [B, *shape]"
    )
    plan = SightField[LocalPlan](Sight.MODEL, "how it trains")


class ClientTransform(Defense):
    """What each honest client does to its own update before it sends it. Malicious clients need not do it.

    `needs` concerns the server, which sees no more because of it. A client sees its own data and the model anyway.
    """

    needs: ClassVar[Needs] = (Sight.NOTHING,)
    #: Whether `apply` reads the client's examples, so that noise meant to hide them would prove nothing
    reads_data: ClassVar[bool] = False
    #: Whether it assumes that the loss of the model is cross-entropy
    by_cross_entropy: ClassVar[bool] = False

    def prepare(self, examples: Examples, context: ClientContext) -> Examples:
        """The examples on which the client trains in this round, as many as ``examples``; unchanged by default."""
        return examples

    @abstractmethod
    def apply(self, update: Tensor, context: ClientContext) -> Tensor:
        """float32 ``[d]`` -> ``[d]``: one client's update. The input is not changed."""

    def adapt(self, dummy: Tensor, observed: Tensor, module: nn.Module) -> tuple[Tensor, Tensor]:
        """What an attacker that knows this transform compares; both unchanged by default.

        Args:
            dummy: float32 ``[..., d]``: updates that training alone would give; gradients flow through what is returned.
            observed: float32 ``[d]``: what one client sent.
            module: the network.

        Returns:
            Both, in the same shapes; coordinates without information are 0 in both.
        """
        return dummy, observed


@dataclass(frozen=True)
class Pipeline:
    """Client transforms, then mixings, then one rule: a whole defense.

    >>> str(NNM() >> TrimmedMean())     # doctest: +SKIP
    'nnm >> trimmed_mean'
    """

    stages: tuple[Defense, ...] = field(default=())

    def __post_init__(self) -> None:
        order = [0 if isinstance(s, ClientTransform) else 1 if isinstance(s, Mixing) else 2 for s in self.stages]
        if order != sorted(order) or order.count(2) > 1:
            raise ConfigError(
                f"defense '{self}': expected client transforms, then mixings, then one rule, as in "
                "'client_clipping(bound=1) >> nnm >> trimmed_mean'."
            )
        mixer = ""
        for stage in self.stages:
            if mixer and stage.reads_clients:
                raise ConfigError(
                    f"defense '{self}': {stage.name} looks up the client behind each row, and {mixer} mixes the rows. Use a "
                    "rule that does not, such as mean, or a mixing that keeps them, such as clip."
                )
            mixer = mixer or (stage.name if isinstance(stage, Mixing) and not stage.keeps_rows else "")

    def __rshift__(self, after: Defense | Pipeline) -> Pipeline:
        return Pipeline(self.stages + (after.stages if isinstance(after, Pipeline) else (after,)))

    def __str__(self) -> str:
        return " >> ".join(str(stage) for stage in self.stages)

    @property
    def transforms(self) -> tuple[ClientTransform, ...]:
        return tuple(stage for stage in self.stages if isinstance(stage, ClientTransform))

    @cached_property
    def mixings(self) -> tuple[Mixing, ...]:
        return tuple(stage for stage in self.stages if isinstance(stage, Mixing))

    @cached_property
    def rule(self) -> WeightRule | CoordinateRule | MatrixRule:
        """The last stage. Raises `ConfigError` if the pipeline ends without a rule."""
        last = self.stages[-1] if self.stages else None
        if not isinstance(last, WeightRule | CoordinateRule | MatrixRule):
            raise ConfigError(f"defense '{self}' ends without a rule. Add one, as in '{self} >> mean'.")
        return last

    @property
    def looking_at_data(self) -> list[str]:
        """The client transforms that read a client's examples."""
        return [one.name for one in self.transforms if one.reads_data or type(one).prepare != ClientTransform.prepare]

    def check(self, n: int, f: int, seat: str = PER_ROUND) -> None:
        """Raise `PreconditionError` unless every stage can run on the rows that the one before passes on.

        Args:
            seat: what decides the number of updates in this context, for the message.
        """
        for stage in self.stages:
            try:
                stage.check(n, f)
            except PreconditionError as error:
                raise PreconditionError(_at_seat(str(error), seat)) from None
            n = stage.rows_out(n)

    def adapt(self, module: nn.Module) -> Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]:
        """``(dummy [..., d], observed [d])`` -> what an attacker that knows all transforms compares."""

        def adapt_pair(dummy: Tensor, observed: Tensor) -> tuple[Tensor, Tensor]:
            for transform in self.transforms:
                dummy, observed = transform.adapt(dummy, observed, module)
            return dummy, observed

        return adapt_pair

    def unproven(self, n: int, f: int, seat: str = PER_ROUND) -> list[str]:
        """One line for each stage that runs outside the guarantee of its source; ``seat`` as in `check`."""
        lines = []
        for stage in self.stages:
            bound = stage.proven_rows
            if bound is not None and n < bound[0] * f + bound[1]:
                lines.append(f"outside its guarantee: {_at_seat(_too_few(stage.name, bound, n, f), seat)}")
            n = stage.rows_out(n)
        return lines

    def kappa(self, n: int, f: int) -> float | None:
        """The published upper bound on kappa of the whole pipeline; None if none is known."""
        rows = [n]
        for stage in self.mixings:
            rows.append(stage.rows_out(rows[-1]))
        bound = self.rule.kappa(rows[-1], f)
        for stage, count in zip(reversed(self.mixings), reversed(rows[:-1]), strict=True):
            bound = None if bound is None else stage.kappa_of(count, f, bound)
        return bound

    def spec(self) -> list[dict[str, object]]:
        """The stages' specs: JSON that rebuilds the pipeline and enters a cell's identity."""
        return [stage.spec() for stage in self.stages]


def _too_few(name: str, bound: tuple[int, int], n: int, f: int) -> str:
    slope, offset = bound
    formula = (
        "n >= " + (f"{slope}f" if slope else "") + (" + " if slope and offset else "") + (str(offset) if offset else "")
    )
    most = (n - offset) // slope if slope and n >= offset else None
    remedy = f"Lower f to {most} or raise" if most is not None else "Raise"
    return f"{name} needs {formula}, with f = {f}: {slope * f + offset} updates; got n = {n}. {remedy} {PER_ROUND}."


def _at_seat(message: str, seat: str) -> str:
    """A stage's message names a key of suites; elsewhere something else decides the number of updates."""
    return message.replace(PER_ROUND, seat)
