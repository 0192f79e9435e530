"""Rules, attacks and secure sums on your own arrays: one round, without a training.

import fedguard as fg
fg.aggregate("nnm >> trimmed_mean", updates, f=2)
"""

from __future__ import annotations

import numbers
import re
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import numpy as np
import torch
from torch import Tensor

from fedguard.aggregation import KnownPipeline
from fedguard.aggregation import aggregate as run_pipeline
from fedguard.arguments import malicious_clients, of_kind, whole_number, words
from fedguard.contracts import (
    Algorithm,
    Pipeline,
    PoisonAttack,
    PoisonView,
    RuleContext,
    Sight,
    StatisticsFate,
    first_met,
    needs_in_words,
)
from fedguard.contracts.claims import as_claims, check_claims
from fedguard.errors import GuaranteeWarning, InputError, NotAllowed, NotObservable, PreconditionError, brief
from fedguard.guarded_statistics import JOINED, combine_statistics, read_fate
from fedguard.kernels import unusable_rows
from fedguard.memmap import wrap_memmap
from fedguard.reading import read_array, read_vector
from fedguard.registry import load_registry
from fedguard.retired import accept_retired_arguments
from fedguard.rng import MOST_SEED, Rng
from fedguard.robustness.kappa import Kappa, measure
from fedguard.secagg.simulation import Drop
from fedguard.secagg.simulation import Settings as SecureSettings
from fedguard.secagg.sums import SecureSum
from fedguard.secagg.sums import secure_sum as secure_sum_of
from fedguard.states import Layout, StateDict, read_state

if TYPE_CHECKING:
    from numpy.typing import NDArray

#: What a suite says of too few or too many updates, and what the caller of `aggregate` can do about them
REMEDIES = (
    (r"Lower f to (\d+) or raise clients\.per_round", r"Pass more rows or a smaller f, at most \1"),
    (r"Raise clients\.per_round", "Pass more rows"),
    (r"Lower f or clients\.per_round", "Pass fewer rows or a smaller f"),
)
#: The arguments of `aggregate` by what they let a rule see
GIVEN = {Sight.ROOT_DATA: "root", Sight.MODEL: "model", Sight.GRAPH: "own"}
#: Rows: numbers, or state dicts
Array = TypeVar("Array", bound="Tensor | NDArray[Any] | Sequence[Any]")


def aggregate(
    defense: str | Pipeline,
    updates: Array,
    *,
    f: int = 0,
    root: Array | None = None,
    model: Array | None = None,
    samples: Sequence[float] | None = None,
    own: int | None = None,
    seed: int = 0,
    statistics: str | Mapping[str, Any] | StatisticsFate = JOINED,
    **parameters: Any,
) -> Array:
    """Aggregate the updates of one round.

    Args:
        defense: ``"nnm >> trimmed_mean"``, or a pipeline object.
        updates: ``[n, d]``, numpy or torch (computed in float32) or nested lists. A float32 ``numpy.memmap`` may be larger than
            the memory: it is read in blocks. Or n state dicts, or paths of n safetensors files; ``root`` and ``model`` may have
            these forms too.
        f: number of malicious updates that the rule assumes.
        root: the server's own update ``[d]``, for rules such as fltrust.
        model: the global model ``[d]`` before the round, for rules such as crfl.
        samples: number of examples that each client claims, for weighted_mean.
        own: at a node without a server, the index of its own row, for rules such as nna.
        seed: seed of rules with random draws, such as bucketing.
        statistics: for state dicts, what becomes of running statistics of normalizing layers, as in `fedguard.Guard`. Unless
            they are ``"joined"``, their entries are each client's own statistics, not differences.
        parameters: parameters of the rule, if ``defense`` is a single name: ``aggregate("geometric_median", x, f=1, steps=3)``.

    Returns:
        ``[d]``, of the same kind as ``updates``; for state dicts a state dict.

    Raises:
        InputError: wrong shape or type, or values that are not finite.
        PreconditionError: too many malicious updates for the rule.
        NotAllowed: the rule needs something that was not given, such as ``root``.
        ConfigError: an unknown rule or parameter.

    This is a first round: rules that keep a state between rounds start with an empty one.
    """
    fate = read_fate(statistics)
    rows, back, beside = _matrix_apart(updates, "updates", fate)
    n, d = rows.shape
    f, seed = _f(f, 0, n), whole_number(seed, "seed", 0, MOST_SEED)
    pipeline = load_registry().pipeline(_spec(defense, parameters))
    seen = {
        "samples": as_claims([1.0] * n if samples is None else check_claims(samples, n)),
        "root": None if root is None else _vector(root, d, "root", apart=fate is not None),
        "model": None if model is None else _vector(model, d, "model", apart=fate is not None),
        "own": None if own is None else whole_number(own, "own", 0, n - 1),
    }
    _check_count(pipeline, n, f)
    granted = (
        Sight.EACH_UPDATE
        | Sight.TIMES
        | _grant_if_present(Sight.ROOT_DATA, root)
        | _grant_if_present(Sight.MODEL, model)
    )
    granted |= _grant_if_present(Sight.GRAPH, own)
    context = _round("fedguard.aggregate", granted, rows, n, f, seed, **seen)
    _check_needs(pipeline, granted)
    try:
        result: Array = back(run_pipeline(pipeline, rows, context).vector)
        if fate is not None and beside is not None:
            found, _ = combine_statistics(
                fate, beside.sent, samples, beside.layout, f, 1, Rng(seed).child("statistics")
            )
            result = beside.put_into(found, result)
    # Outside a suite this is not the rule's fault: the caller cannot provide what it reads
    except NotObservable:
        raise NotAllowed(
            f"{pipeline} asks the network, the clients' data, noise or times, which are there in a suite only: fedguard.run."
        ) from None
    return result


@accept_retired_arguments
def craft(
    attack: str | PoisonAttack,
    honest: Array,
    *,
    f: int,
    defense: str | Pipeline | None = None,
    model: Array | None = None,
    seed: int = 0,
    statistics: str | Mapping[str, Any] | StatisticsFate = JOINED,
    **parameters: Any,
) -> Array:
    """The updates of f malicious clients that see the honest updates of a round.

    Args:
        attack: ``"alie(z=1.5)"`` or an object; ``parameters`` go with a plain name: ``craft("alie", honest, f=4, z=1.5)``.
        honest: ``[h, d]``, numpy or torch (computed in float32) or nested lists; or h state dicts, or paths of safetensors
            files.
        f: number of malicious clients.
        defense: the server's defense, for attacks that know it.
        model: the global model ``[d]``, for attacks that know it.
        statistics: as for `aggregate`. Unless they are ``"joined"``, the attack sees parameters alone, and the malicious
            clients send the mean of the honest running statistics.

    Returns:
        ``[f, d]``, of the same kind as ``honest``; for state dicts f state dicts.

    Raises:
        InputError: wrong shape or type, or values that are not finite.
        NotAllowed: the attack needs something that cannot be given here, such as data to poison.
        ConfigError: an unknown attack or parameter.
    """
    fate = read_fate(statistics)
    rows, back, beside = _matrix_apart(honest, "honest", fate)
    f, seed = malicious_clients(f, "f", 1), whole_number(seed, "seed", 0, MOST_SEED)
    known = load_registry()
    of_kind(attack, "attack", (str, Algorithm), "a name or an attack")
    built: Any = _spec(attack, parameters)
    if not isinstance(built, Algorithm):
        built = known.build("attack", built)
    if not isinstance(built, PoisonAttack):
        raise NotAllowed(f"{built.name} crafts no updates of its own. It runs in a suite: fedguard.run.")
    granted = Sight.HONEST_UPDATES | _grant_if_present(Sight.RULE, defense) | _grant_if_present(Sight.MODEL, model)
    sees = first_met(built.needs, granted)
    if sees is None:
        raise NotAllowed(
            f"{built.name} needs {needs_in_words(built.needs)}; here it sees {granted.words()}. "
            "Attacks on data or local training run in a suite: fedguard.run."
        )
    pipeline = None if defense is None else known.pipeline(defense)

    def context(n: int, updates: Tensor) -> RuleContext:
        # The server's root data stay unknown: the mean of the honest updates, which come first, is the attackers' guess
        seen = {"samples": torch.ones(n, dtype=torch.float64), "root": updates[: len(rows)].mean(0)}
        party = "the malicious clients' copy of the rule"
        return _round(party, Sight.EACH_UPDATE | Sight.ROOT_DATA, rows, n, f, seed, **seen)

    view = PoisonView.of_round(
        built,
        sees,
        malicious=range(len(rows), len(rows) + f),
        rng=Rng(seed),
        honest=rows,
        model=None if model is None else _vector(model, rows.shape[1], "model", apart=fate is not None),
        rule=None if pipeline is None else KnownPipeline(pipeline, context),
    )
    crafted: Any = back(built.craft(view).clone())
    if beside is not None:
        crafted = [beside.put_into(beside.sent.mean(0), one) for one in crafted]
    return crafted  # type: ignore[no-any-return]


@accept_retired_arguments
def kappa(
    defense: str | Pipeline,
    *,
    n: int = 20,
    f: int = 4,
    seed: int = 0,
    effort: float = 1.0,
    plugins: Sequence[str] = (),
    **parameters: Any,
) -> Kappa:
    """Search for the largest robustness coefficient kappa of a rule: how far f malicious updates among n can move it.

    Args:
        defense: ``"nnm >> trimmed_mean"``, or a pipeline object.
        n, f: number of updates, and number of malicious ones among them, which the rule assumes.
        seed: seed of the search, and of the rule if it has random draws.
        effort: 1 evaluates the rule 8000 times, which takes some seconds on one core; more finds more.
        plugins: modules with your own rules.
        parameters: parameters of the rule, if ``defense`` is a single name.

    Returns:
        The largest value found, the input that shows it, the known bounds, and a verdict in words.

    Raises:
        InputError: n, f or effort out of range.
        PreconditionError: too many malicious updates for the rule, or for kappa to be defined.
        NotAllowed: the rule needs more than the updates, such as root data.
        ConfigError: an unknown rule or parameter.
    """
    known = load_registry().with_modules(words(plugins, "plugins"), Path.cwd())
    pipeline = known.pipeline(_spec(defense, parameters))
    found = measure(pipeline, n, f, seed=seed, effort=effort)
    for line in pipeline.unproven(n, f, "n"):
        warnings.warn(line, GuaranteeWarning, stacklevel=2)
    return found


def secure_sum(
    inputs: Array,
    weights: Sequence[int] | None = None,
    *,
    drop: Drop | None = None,
    clip: float | None = None,
    bits: int | None = None,
    rotate: bool = False,
    settings: SecureSettings | None = None,
) -> SecureSum:
    """Add up the rows of ``inputs`` with the real protocol of secure aggregation, all parties in this process.

    Args:
        inputs: ``[n, d]``, one row for each of $n >= 3$ clients: floats, or integers, which are summed exactly.
        weights: w_u, integers from 0, such as numbers of examples.
        drop: clients that drop out at a step, for the rest of the session: ``{"masked_input": [3]}``. The steps are
            advertise_keys, share_keys, masked_input, consistency and unmask.
        clip: C, coordinates are clipped to $[-C, C]$. By default the smallest power of two that clips nothing. In a deployment
            it is agreed on beforehand, since the inputs are secret.
        bits: bits of a coordinate; by default as many as the ring has room for with n inputs.
        rotate: rotate the inputs before they are clipped, which spreads a spike over all coordinates.
        settings: ring, suite and assumptions (`fedguard.secagg.simulation.Settings`).

    Returns:
        The sum, the survivors, the transcript, the bytes that were sent, and how far rounding moves the sum.

    Raises:
        InputError: wrong shape or type, or values that are not finite.
        ConfigError: too few clients, an unknown step, or sums that do not fit the ring.
        ProtocolError: too many clients dropped out, so that the protocol stops without a sum.
    """
    read = read_array(inputs, "inputs").cpu()
    # numpy has neither bfloat16 nor float8; float32 holds all their values
    narrow = read.is_floating_point() and read.dtype not in (torch.float16, torch.float32, torch.float64)
    rows = (read.float() if narrow else read).numpy()
    return secure_sum_of(rows, weights, drop=drop, clip=clip, bits=bits, rotate=rotate, settings=settings)


def _spec(algorithm: Any, parameters: dict[str, Any]) -> Any:
    """A name with its parameters, or an object."""
    if not parameters:
        return algorithm
    if not isinstance(algorithm, str):
        raise InputError(
            f"parameters go with a name; got {', '.join(parameters)} beside the object {brief(str(algorithm))}."
        )
    return {"name": algorithm, **parameters}


def _check_count(pipeline: Pipeline, n: int, f: int) -> None:
    """Raise `PreconditionError`, or warn of a missing guarantee, with the arguments of `aggregate` in the message."""
    try:
        pipeline.check(n, f)
    except PreconditionError as error:
        raise PreconditionError(_name_arguments(str(error))) from None
    for line in pipeline.unproven(n, f):
        warnings.warn(_name_arguments(line), GuaranteeWarning, stacklevel=3)


def _check_needs(pipeline: Pipeline, granted: Sight) -> None:
    """Raise `NotAllowed` for what a stage has to see and the caller did not pass."""
    for stage in pipeline.stages:
        if stage.needs and first_met(stage.needs, granted) is None:
            lacking = [f"{name}=" for sight, name in GIVEN.items() if sight in stage.needs[0] & ~granted]
            remedy = f" Pass {' and '.join(lacking)}." if lacking else ""
            raise NotAllowed(f"{stage.name} needs {needs_in_words(stage.needs)}.{remedy}")


def _name_arguments(message: str) -> str:
    """A message with the arguments of `aggregate` instead of keys of a suite."""
    for of_suite, of_call in REMEDIES:
        message = re.sub(of_suite, of_call, message)
    return message


def _grant_if_present(sight: Sight, value: Any) -> Sight:
    return Sight.NOTHING if value is None else sight


def _round(party: str, granted: Sight, rows: Tensor, n: int, f: int, seed: int, **seen: Any) -> RuleContext:
    """What a server knows in a first round of n updates of the length of ``rows``, without a training."""
    layers, clients = (rows.shape[1],), tuple(range(n))
    return RuleContext(party, granted, f=f, rng=Rng(seed), layers=layers, clients=clients, **seen)


def _matrix(values: Any, what: str) -> tuple[Tensor, Callable[[Tensor], Any]]:
    """float32 ``[n, d]``, and the conversion back to the caller's kind of array."""
    if states := _states(values, what):
        return _of_states(states, what)
    # torch has no negative strides, so a reversed map is read like any other array
    if isinstance(values, np.memmap) and values.dtype == np.float32 and all(one > 0 for one in values.strides):
        rows = wrap_memmap(values)
    else:
        rows = read_array(values, what)
    if rows.dim() != 2 or 0 in rows.shape:
        raise InputError(f"{what}: expected shape [n, d] with n, d >= 1; got {list(rows.shape)}.")
    if rows.dtype == torch.bool:
        raise InputError(f"{what}: expected real numbers; got booleans.")
    return _finite(rows.to(torch.float32), rows, what), _way_back(values)


class _Beside(NamedTuple):
    """Running statistics beside some rows: float32 ``[n, s]``, and their layout."""

    sent: Tensor
    layout: Layout

    def put_into(self, statistics: Tensor, state: Any) -> Any:
        """A state dict with these statistics, float32 ``[s]``."""
        return self.layout.state(statistics, state)


def _matrix_apart(
    values: Any, what: str, fate: StatisticsFate | None
) -> tuple[Tensor, Callable[[Tensor], Any], _Beside | None]:
    """As `_matrix`; if ``fate`` keeps running statistics apart, of the parameters alone, and the statistics beside them."""
    if fate is None:
        return *_matrix(values, what), None
    states = _states(values, what)
    if not states:
        raise InputError(
            f"statistics={fate}: expected {what} as state dicts, where names tell which are which; got {type(values).__name__}."
        )
    names = [f"{what}[{row}]" for row in range(len(states))]
    layout, own = Layout.of_several(states, names).split()
    rows, back = _of_states(states, what, layout)
    if own is None:
        return rows, back, None
    sent = torch.stack([own.vector(state, name) for state, name in zip(states, names, strict=True)])
    _finite(sent, sent, what)
    if bool((torch.cat([*torch.split(sent, list(own.sizes), 1)[1::2]], 1) < 0).any()):
        raise InputError(
            f"{what}: expected running variances of 0 or more; got some below. With statistics={fate} these entries are each "
            "client's own statistics, not differences."
        )
    return rows, back, _Beside(sent, own)


def _of_states(
    states: Sequence[StateDict], what: str, layout: Layout | None = None
) -> tuple[Tensor, Callable[[Tensor], Any]]:
    """The same for state dicts."""
    layout = layout or Layout.of_several(states, [f"{what}[{row}]" for row in range(len(states))])
    rows = torch.stack([layout.vector(state, f"{what}[{row}]") for row, state in enumerate(states)])

    def back(result: Tensor) -> Any:
        one = [layout.state(row, states[0]) for row in result.reshape(-1, result.shape[-1])]
        return one if result.dim() == 2 else one[0]

    return _finite(rows, rows, what), back


def _finite(rows: Tensor, read: Tensor, what: str) -> Tensor:
    """Check that the rows, float32 ``[n, d]``, can be added up; ``read`` holds them before the cast."""
    if bad := unusable_rows(rows):
        held = "values beyond 2^112 (5e33)" if bool(read[bad].double().isfinite().all()) else "NaN or infinity"
        raise InputError(
            f"{what}: expected finite values; rows {bad} hold {held}. Drop them, as the server does in a run."
        )
    return rows


def _way_back(values: Any) -> Callable[[Tensor], Any]:
    """Conversion from a tensor to the caller's kind of array."""
    if isinstance(values, Tensor):
        return lambda result: result
    return np.asarray if isinstance(values, np.ndarray) else (lambda result: result.tolist())


def _states(values: Any, what: str) -> list[StateDict]:
    """The state dicts from a list of them or of files; empty for anything else."""
    if isinstance(values, (Tensor, np.ndarray, str)) or not isinstance(values, Sequence) or not values:
        return []
    found = [read_state(value, f"{what}[{row}]") for row, value in enumerate(values)]
    states = [state for state in found if state is not None]
    if states and len(states) != len(found):
        raise InputError(
            f"{what}: expected state dicts alone; {what}[{found.index(None)}] is a {type(values[found.index(None)]).__name__}."
        )
    return states


def _vector(values: Any, length: int, what: str, apart: bool = False) -> Tensor:
    """float32 ``[length]``; without the running statistics of a state dict if they are kept ``apart``."""
    if (state := read_state(values, what)) is not None:
        layout = Layout.of(state, what)
        values = (layout.split()[0] if apart else layout).vector(state, what)
    return read_vector(values, length, what)


def _f(f: Any, least: int, n: int) -> int:
    """Check the number of malicious ones among n, which must not be all."""
    if isinstance(f, bool) or not isinstance(f, numbers.Integral):
        raise InputError(f"f: expected a whole number from {least} to n - 1 = {n - 1}; got {brief(f)}.")
    if not least <= int(f) < n:
        raise InputError(f"f: expected from {least} to n - 1 = {n - 1}; got {brief(f)}.")
    return int(f)
