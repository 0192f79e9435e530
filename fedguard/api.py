"""The Python front door. The commands are thin over it.

import fedguard as fg
run = fg.run("examples/quick.yaml")
print(run.table())
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import torch
from torch import Tensor

from fedguard.aggregation import KnownPipeline
from fedguard.aggregation import aggregate as run_pipeline
from fedguard.bench.audit import CellAudit, audit_suite
from fedguard.bench.code import forget_data
from fedguard.bench.execute import execute
from fedguard.bench.progress import Listener
from fedguard.bench.run import Run
from fedguard.bench.store import RunFolder
from fedguard.bench.tuning.outcome import Tuning
from fedguard.bench.tuning.tune import Proposal, tuned_file
from fedguard.config import Document, Plan, plan, read_document, read_suite
from fedguard.config.cells import override
from fedguard.config.schema import A_RUN_NAME, is_run_name
from fedguard.contracts import Pipeline, PoisonAttack, PoisonView, RuleContext, Sight, first_met, needs_in_words
from fedguard.errors import ConfigError, GuaranteeWarning, InputError, NotAllowed, NotObservable, UnknownName, brief
from fedguard.kernels import usable_rows
from fedguard.mapped import mapped
from fedguard.registry import registry
from fedguard.rng import Rng
from fedguard.robustness import Kappa, measure
from fedguard.secagg.simulation import Drop
from fedguard.secagg.simulation import Settings as SecureSettings
from fedguard.secagg.sums import SecureSum
from fedguard.secagg.sums import secure_sum as secure_sum_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

Array = TypeVar("Array", bound="Tensor | NDArray[Any] | Sequence[Sequence[float]]")
Suite = str | Path | Mapping[str, Any] | Document


def run(
    suite: Suite,
    *,
    name: str | None = None,
    store: str | Path = "runs",
    jobs: int | None = None,
    settings: Sequence[str] = (),
    retry_failed: bool = False,
    fresh: bool = False,
    memory: int | str | None = None,
    device: str = "cpu",
    timeout: float | None = None,
    limit: int | None = None,
    listener: Listener | None = None,
) -> Run:
    """Run a suite, or what is missing of it, and open the result.

    Args:
        suite: path of a suite file, or its content as a mapping.
        name: of the run folder; the suite's own name by default.
        store: folder of all runs.
        jobs: worker processes, one torch thread each; by default one per core.
        settings: ``"training.rounds=10"`` and so on, put over the suite.
        retry_failed: run failed trials again.
        fresh: run everything again, whatever is stored.
        memory: that all workers together may hold, in bytes or as "4G"; None for no limit.
        device: where the clients' training and the evaluation compute, ``cpu`` or ``cuda``; all else is done on the processor.
        timeout: seconds that a trial may take; its worker process is then ended, and the trial has failed. None for no limit.
        limit: how many of the trials that are missing to run, the first of the plan; None for all.
        listener: told of the progress; by default there are bars on a terminal or in a notebook, and nothing elsewhere.

    Raises:
        ConfigError: the suite cannot be run as it is written.
        StoreError: the store cannot be written.
    """
    laid_out = lay_out(suite, settings)[1]
    folder = run_folder(laid_out, store, name)
    return execute(
        laid_out,
        folder,
        jobs=jobs,
        listener=listener,
        retry_failed=retry_failed,
        fresh=fresh,
        memory=memory,
        device=device,
        timeout=timeout,
        limit=limit,
    )


def lay_out(suite: Suite, settings: Sequence[str] = ()) -> tuple[Document, Plan]:
    """Read a suite and lay out its matrix, without running anything."""
    if isinstance(suite, Mapping):
        suite = Document(dict(suite))
    forget_data()
    document = override(suite if isinstance(suite, Document) else read_document(suite), settings)
    return document, plan(document, read_suite(document))


def run_folder(laid_out: Plan, store: str | Path, name: str | None = None) -> RunFolder:
    """Where the run of a suite is stored; ``name`` instead of the suite's own.

    Raises:
        ConfigError: the name leads elsewhere.
    """
    if name is not None and not is_run_name(name):
        raise ConfigError(f"--name: expected {A_RUN_NAME}; got {brief(name)}.")
    return RunFolder(Path(store) / (name or laid_out.suite.name))


def audit(
    suite: Suite,
    *,
    method: str = "gdp_split",
    canaries: int = 1000,
    confidence: float = 0.95,
    seed: int = 0,
    settings: Sequence[str] = (),
) -> list[CellAudit]:
    """Run the code that adds a suite's noise on canaries, and hold what they show against the accountant's epsilon.

    Args:
        suite: path of a suite file, or its content as a mapping.
        method: ``gdp_split``, ``clopper_pearson``, ``one_run``, ``fdp_one_run``, or ``one_shot``, which only estimates.
        canaries: how many are in, and as many out, on average.
        confidence: of the lower bound on epsilon.
        seed: of the canaries and of all noise.
        settings: put over the suite, as in `run`.

    Returns:
        one audit for each kind of noise in the suite, with the cells that it speaks for.

    Raises:
        ConfigError: the suite or the method is not what it should be.
    """
    return audit_suite(lay_out(suite, settings)[1], method=method, canaries=canaries, confidence=confidence, seed=seed)


def tune(
    suite: Suite,
    *,
    budget: int = 8,
    attacks: Sequence[str] | None = None,
    seeds: int | Sequence[int] = 3,
    out: str | Path | None = None,
    force: bool = False,
    store: str | Path = "runs",
    jobs: int | None = None,
    settings: Sequence[str] = (),
    retry_failed: bool = False,
    listener: Listener | None = None,
) -> Tuning:
    """Tune the defenses of a suite with equal budgets, and write a suite that reports them on other attacks and seeds.

    The protocol stands in `fedguard.bench.tuning.tune`. The tuning itself is an ordinary run named ``<suite>-tuning``: what is
    stored is not run again.

    Args:
        suite: path of a suite file, or its content as a mapping.
        budget: settings tried for each defense at most, the configured one among them.
        attacks: to tune on, as names or specs; by default every second one of the suite.
        seeds: number of tuning seeds, counted from 10000, or the seeds themselves; none of the suite's own.
        out: the tuned suite; by default ``<suite>.tuned.yaml`` beside a suite file, or in the working directory.
        force: write over an existing file.
        store, jobs, settings, retry_failed, listener: as for `run`.

    Raises:
        ConfigError: there is nothing to tune, nothing to hold out, a seed of the suite among the tuning seeds, or the
            file exists.
        StoreError: the store cannot be written.
    """
    document, laid_out = lay_out(suite, settings)
    file = tuned_file(document, laid_out.suite.name, out, force)
    proposal = Proposal.of(document, laid_out, budget, attacks, seeds)
    done = run(proposal.document, store=store, jobs=jobs, retry_failed=retry_failed, listener=listener)
    tuning = proposal.judged(done, file)
    proposal.write(tuning)
    return tuning


def open_run(run: str | Path, store: str | Path = "runs") -> Run:
    """Open a finished or half-finished run by its name in the store, or by its path."""
    return Run.open(run, store)


def aggregate(
    defense: str | Pipeline,
    updates: Array,
    *,
    f: int = 0,
    root: Array | None = None,
    model: Array | None = None,
    samples: Sequence[float] | None = None,
    seed: int = 0,
    **parameters: Any,
) -> Array:
    """Aggregate the updates of one round.

    Args:
        defense: ``"nnm >> trimmed_mean"``, or a pipeline object.
        updates: ``[n, d]``, numpy or torch (computed in float32) or nested lists. A float32 ``numpy.memmap`` may be larger
            than the memory: it is read in blocks.
        f: number of malicious updates to expect.
        root: the server's own update ``[d]``, for rules such as fltrust.
        model: the global model ``[d]`` before the round, for rules such as crfl.
        samples: number of examples that each client claims, for weighted_mean.
        seed: for rules that draw, such as bucketing.
        parameters: of the rule, if ``defense`` is a single name: ``aggregate("geometric_median", x, f=1, steps=3)``.

    Returns:
        ``[d]``, of the same kind as ``updates``.

    Raises:
        InputError: wrong shape or type, or values that are not finite.
        PreconditionError: too many malicious updates for the rule.
        NotAllowed: the rule needs what was not given, such as ``root``.
        ConfigError: an unknown rule or parameter.

    The first round is computed: rules that carry something from one round to the next start empty.
    """
    rows, back = _matrix(updates, "updates")
    if not 0 <= f < len(rows):
        raise InputError(f"f: expected from 0 to n - 1 = {len(rows) - 1}; got {f}.")
    pipeline = registry().pipeline(
        {"name": defense, **parameters} if parameters and isinstance(defense, str) else defense
    )
    granted = Sight.EACH_UPDATE
    root_update = None
    if root is not None:
        root_update = _vector(root, rows.shape[1], "root")
        granted |= Sight.ROOT_DATA
    if model is not None:
        granted |= Sight.MODEL
    claims = torch.ones(len(rows)) if samples is None else _vector(samples, len(rows), "samples")
    pipeline.check(len(rows), f)
    for line in pipeline.unproven(len(rows), f):
        warnings.warn(line, GuaranteeWarning, stacklevel=2)
    before = None if model is None else _vector(model, rows.shape[1], "model")
    seen = {"samples": claims.double(), "root": root_update, "model": before}
    context = _round("fedguard.aggregate", granted, rows, len(rows), f, seed, **seen)
    try:
        result: Array = back(run_pipeline(pipeline, rows, context).vector)
    except NotObservable:
        raise NotAllowed(
            f"{pipeline} asks the network, the clients' data or their noise, which are there in a suite only: fedguard.run."
        ) from None
    return result


def craft(
    attack: str | PoisonAttack,
    honest: Array,
    *,
    f: int,
    rule: str | Pipeline | None = None,
    model: Array | None = None,
    seed: int = 0,
    **parameters: Any,
) -> Array:
    """What f colluders send who see the honest updates of a round.

    Args:
        attack: a name or an object; ``parameters`` go with a name: ``craft("alie", honest, f=4, z=1.5)``.
        honest: ``[h, d]``, numpy or torch (computed in float32) or nested lists.
        f: number of colluders.
        rule: the server's rule, for attacks that know it.
        model: the global model ``[d]``, for attacks that know it.

    Returns:
        ``[f, d]``, of the same kind as ``honest``.

    Raises:
        InputError: wrong shape or type, or values that are not finite.
        NotAllowed: the attack needs what cannot be given here, such as data to poison.
        ConfigError: an unknown attack or parameter.
    """
    rows, back = _matrix(honest, "honest")
    if f < 1:
        raise InputError(f"f: expected at least 1 colluder; got {f}.")
    known = registry()
    built = known.build("attack", {"name": attack, **parameters}) if isinstance(attack, str) else attack
    if not isinstance(built, PoisonAttack):
        raise NotAllowed(f"{built.name} crafts no updates of its own. It runs in a suite: fedguard.run.")
    granted = (
        Sight.HONEST_UPDATES
        | (Sight.RULE if rule else Sight.NOTHING)
        | (Sight.MODEL if model is not None else Sight.NOTHING)
    )
    sees = first_met(built.needs, granted)
    if sees is None:
        raise NotAllowed(
            f"{built.name} needs {needs_in_words(built.needs)}; here it sees {granted.words()}. "
            "Attacks on data or local training run in a suite: fedguard.run."
        )
    pipeline = None if rule is None else known.pipeline(rule)

    def context(n: int, updates: Tensor) -> RuleContext:
        seen = {"samples": torch.ones(n, dtype=torch.float64), "root": updates[: len(rows)].mean(0)}
        party = "the colluders' copy of the rule"
        return _round(party, Sight.EACH_UPDATE | Sight.ROOT_DATA, rows, n, f, seed, **seen)

    view = PoisonView(
        built.name,
        sees,
        round=1,
        n=len(rows) + f,
        dim=rows.shape[1],
        hostile=tuple(range(len(rows), len(rows) + f)),
        layers=(rows.shape[1],),
        server_lr=1.0,
        rng=Rng(seed),
        state={},
        honest=rows,
        honest_clients=tuple(range(len(rows))),
        model=None if model is None else _vector(model, rows.shape[1], "model"),
        rule=None if pipeline is None else KnownPipeline(pipeline, context),
    )
    crafted: Array = back(built.craft(view).clone())
    return crafted


def kappa(
    rule: str | Pipeline,
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
        rule: ``"nnm >> trimmed_mean"``, or a pipeline object.
        n, f: number of updates, and of malicious ones among them, which the rule is told.
        seed: of the search, and of the draws of a rule that draws.
        effort: 1 asks the rule 8000 times, which takes some seconds on one core; more finds more.
        plugins: modules that bring rules of your own.
        parameters: of the rule, if ``rule`` is a single name.

    Returns:
        The largest value found, the input that shows it, the bounds that are known, and a verdict in words.

    Raises:
        InputError: n, f or effort out of range.
        PreconditionError: too many malicious updates for the rule, or for kappa to be defined.
        NotAllowed: the rule needs more than the updates, such as root data.
        ConfigError: an unknown rule or parameter.
    """
    known = registry()
    if plugins:
        known.use_modules(plugins)
    pipeline = known.pipeline({"name": rule, **parameters} if parameters and isinstance(rule, str) else rule)
    found = measure(pipeline, n, f, seed=seed, effort=effort)
    for line in pipeline.unproven(n, f):
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
    """Add up the rows of ``inputs`` by the real protocol of secure aggregation, all parties in this process.

    Args:
        inputs: ``[n, d]``, one row for each of n >= 3 clients: floats, or whole numbers, which are summed exactly.
        weights: w_u, whole numbers from 0, such as numbers of examples.
        drop: clients that fall silent at a step and stay so: ``{"masked_input": [3]}``. The steps are advertise_keys,
            share_keys, masked_input, consistency and unmask.
        clip: C, coordinates are cut to [-C, C]. By default the smallest power of two that cuts nothing; in a deployment
            it is agreed on beforehand, since the inputs are secret.
        bits: of a coordinate; by default as many as n inputs leave room for in the ring.
        rotate: rotate the inputs before they are cut, which spreads a spike over all coordinates.
        settings: ring, suite and assumptions (`fedguard.secagg.simulation.Settings`).

    Returns:
        The sum, the survivors, the transcript, the bytes that were sent, and how far rounding moves the sum.

    Raises:
        InputError: wrong shape or type, or values that are not finite.
        ConfigError: too few clients, an unknown step, or sums that do not fit the ring.
        ProtocolError: too many clients dropped out, so that the protocol stops without a sum.
    """
    rows = inputs.detach().cpu().numpy() if isinstance(inputs, Tensor) else np.asarray(inputs)
    return secure_sum_of(rows, weights, drop=drop, clip=clip, bits=bits, rotate=rotate, settings=settings)


def _round(party: str, granted: Sight, rows: Tensor, n: int, f: int, seed: int, **seen: Any) -> RuleContext:
    """What a server knows in a first round of n updates as long as ``rows``, where nothing is trained."""
    facts = {"f": f, "round": 1, "rng": Rng(seed), "state": {}, "shape": (), "server_lr": 1.0}
    return RuleContext(party, granted, **facts, layers=(rows.shape[1],), clients=tuple(range(n)), **seen)


def _matrix(values: Any, what: str) -> tuple[Tensor, Callable[[Tensor], Any]]:
    """float32 ``[n, d]``, and the way back to the caller's own kind of array."""
    if isinstance(values, Tensor):
        rows, back = values, lambda result: result
    elif isinstance(values, np.memmap) and values.dtype == np.float32:
        rows, back = mapped(values), lambda result: result.numpy()
    else:
        try:
            rows = torch.as_tensor(np.asarray(values))
        except (TypeError, ValueError):
            raise InputError(
                f"{what}: expected numbers in a rectangle [n, d]; got {type(values).__name__} with rows of different kinds."
            ) from None
        back = (lambda result: result.numpy()) if isinstance(values, np.ndarray) else (lambda result: result.tolist())
    if rows.dim() != 2 or 0 in rows.shape:
        raise InputError(f"{what}: expected shape [n, d] with n, d >= 1; got {list(rows.shape)}.")
    if rows.is_complex() or rows.dtype == torch.bool:
        raise InputError(f"{what}: expected real numbers; got {rows.dtype}.")
    rows = rows.detach().to(torch.float32)
    if bad := (~usable_rows(rows)).nonzero()[:, 0].tolist():
        held = "values beyond 2^112 (5e33)" if bool(rows[bad].isfinite().all()) else "NaN or infinity"
        raise InputError(
            f"{what}: expected finite values; rows {bad} hold {held}. Drop them, as the server does in a run."
        )
    return rows, back


def _vector(values: Any, length: int, what: str) -> Tensor:
    vector = (
        torch.as_tensor(np.asarray(values) if not isinstance(values, Tensor) else values).detach().to(torch.float32)
    )
    if tuple(vector.shape) != (length,) or not bool(vector.isfinite().all()):
        raise InputError(f"{what}: expected {length} finite numbers; got shape {list(vector.shape)}.")
    return vector


def names(kind: str) -> list[str]:
    """The known names of a kind: attack, defense, data, partition, model ..."""
    from fedguard.registry import KINDS

    if kind not in KINDS:
        raise UnknownName("kind", kind, KINDS)
    return registry().names(kind)
