"""The Python front door. The commands are thin over it.

import fedguard as fg
run = fg.run("examples/quick.yaml")
print(run.table())
"""

from __future__ import annotations

import dataclasses
import inspect
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, overload

from fedguard.arguments import is_whole, of_kind, path_like, truth, words
from fedguard.bench.records.store import RunFolder
from fedguard.bench.results.run import Run
from fedguard.bench.running.code import forget_data
from fedguard.bench.running.execute import execute
from fedguard.bench.running.manifest import choose_folder
from fedguard.bench.running.progress import Listener, choose_listener
from fedguard.bench.tuning.outcome import Tuning
from fedguard.bench.tuning.proxy import regret as regrets
from fedguard.bench.tuning.tune import Proposal, resolve_output_file
from fedguard.config import Document, Plan, plan, read_document, read_suite
from fedguard.config.document import document_of
from fedguard.config.layout import override
from fedguard.config.schema import A_RUN_NAME, is_run_name
from fedguard.errors import ConfigError, brief
from fedguard.modules import folder_of_script
from fedguard.retired import accept_retired_arguments

if TYPE_CHECKING:
    from fedguard.bench.audits.suites import CellAudit
    from fedguard.bench.running.engines.ray import Ray
    from fedguard.privacy.blackbox import EpsilonClaim, MechanismAudit

Suite = str | Path | Mapping[str, Any] | Document


@accept_retired_arguments
def run(
    suite: Suite,
    *,
    name: str | None = None,
    store: str | Path = "runs",
    jobs: int | None = None,
    overrides: Sequence[str] = (),
    retry_failed: bool = False,
    fresh: bool = False,
    memory: int | str | None = None,
    device: str = "cpu",
    timeout: float | None = None,
    limit: int | None = None,
    secret_noise: bool = False,
    listener: Listener | None = None,
    engine: Ray | None = None,
) -> Run:
    """Run a suite, or the missing part of it, and open the result.

    Args:
        suite: path of a suite file, or its content as a mapping.
        name: name of the run folder; by default the suite's own. A file without a name is stored under its stem, a mapping
            without one as ``untitled-HASH``.
        store: folder of all runs.
        jobs: number of worker processes with one torch thread each; by default one per core of this machine, or of the cluster.
        overrides: settings that replace the suite's, such as ``"training.rounds=10"``.
        retry_failed: run failed trials again.
        fresh: run everything again, whatever is stored.
        memory: limit for all workers together, in bytes or as "4G"; None for no limit.
        device: where the clients' training and the evaluation compute, ``cpu`` or ``cuda``; everything else runs on the CPU.
        timeout: seconds that a trial may take. After that its worker process is ended, and the trial has failed. None for no
            limit.
        limit: run only this number of missing trials, in the order of the plan; None for all.
        secret_noise: draw noise for privacy from the operating system, for those who publish models or records: the seed
            reveals everything that is drawn from it. Trials with noise are then not reproducible, and their records say so. A
            run started this way continues this way unless it is ``fresh``.
        listener: receives the progress; by default progress bars on a terminal or in a notebook, and nothing elsewhere.
        engine: a Ray cluster that runs the workers, such as ``fg.Ray("auto")``; None for processes on this machine.

    Raises:
        ConfigError: the suite cannot be run as it is written, or no cluster answers.
        MissingExtra: Ray is not installed.
        StoreError: the store cannot be written, or the name belongs to a run of another suite.
    """
    laid_out = lay_out(suite, overrides)[1]
    folder, listener = run_folder(laid_out, store, name), choose_listener(listener)
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
        secret_noise=secret_noise,
        engine=engine,
    )


def lay_out(suite: Suite, overrides: Sequence[str] = ()) -> tuple[Document, Plan]:
    """Read a suite and lay out its matrix, without running anything."""
    of_kind(
        suite, "suite", (str, os.PathLike, Mapping, Document), "the path of a suite file, or its content as a mapping"
    )
    if isinstance(suite, Mapping):
        suite = document_of(suite, folder_of_script())
    forget_data()
    document = override(suite if isinstance(suite, Document) else read_document(suite), words(overrides, "overrides"))
    return document, plan(document, read_suite(document))


def run_folder(laid_out: Plan, store: str | Path, name: str | None = None) -> RunFolder:
    """Open the folder in which the run of a suite is stored; ``name`` replaces the suite's own.

    Raises:
        ConfigError: the name is not a valid run name.
        StoreError: the folder belongs to a run of another suite.
    """
    path_like(store, "store")
    if name is not None and not (isinstance(name, str) and is_run_name(name)):
        raise ConfigError(f"--name: expected {A_RUN_NAME}; got {brief(name)}.")
    return choose_folder(laid_out, Path(store), name)


@overload
def audit(
    subject: Suite,
    *,
    method: str = ...,
    canaries: int = ...,
    confidence: float = ...,
    seed: int = ...,
    overrides: Sequence[str] = ...,
) -> list[CellAudit]: ...


@overload
def audit(
    subject: Any,
    claim: EpsilonClaim | str | Mapping[str, Any] | None = ...,
    *,
    shapes: Sequence[tuple[int, ...]] | None = ...,
    rounds: int = ...,
    clip: float = ...,
    samples: int | None = ...,
    budget: float = ...,
    seed: int = ...,
) -> MechanismAudit: ...


@accept_retired_arguments
def audit(
    subject: Any,
    claim: EpsilonClaim | str | Mapping[str, Any] | None = None,
    *,
    method: str = "gdp_split",
    canaries: int = 1000,
    confidence: float = 0.95,
    overrides: Sequence[str] = (),
    shapes: Sequence[tuple[int, ...]] | None = None,
    rounds: int = 50,
    clip: float = 1.0,
    samples: int | None = None,
    budget: float = 120.0,
    seed: int = 0,
) -> list[CellAudit] | MechanismAudit:
    """Does code keep the epsilon that it prints or claims? A suite's noise on canaries, or a mechanism of your own.

    Args:
        subject: path of a suite file, or its content as a mapping: each mechanism of the suite is audited. Or a mechanism: a
            function that takes a list of arrays and returns what leaves, a list of arrays or a pair of arrays and a mapping of
            what leaves beside them; a class or factory without arguments, or an object, that is called so; or what one of the
            adapters knows by its type, such as a mod or strategy of Flower.
        claim: of a mechanism, such as ``epsilon=8, delta=1e-5, per=release, relation=replace, law=gaussian``, or the same as a
            mapping; by default what the adapter reads from it.
        method: of a suite: ``gdp_split``, ``clopper_pearson``, ``one_run``, ``fdp_one_run``, or ``one_shot`` (an estimate).
        canaries: of a suite: expected number of canaries that are included, and of those that are left out.
        confidence: of a suite: confidence level of the lower bound on epsilon.
        overrides: settings that replace the suite's, as in `run`.
        shapes: of an update's arrays; by default four small layers.
        rounds: releases over which a mechanism's bound is given beside the bound for one.
        clip: presumed length to which a mechanism clips; only the scale of the search.
        samples: calls of a mechanism with each input; by default as many as the claim needs and the budget allows.
        budget: CPU seconds for a mechanism.
        seed: of the canaries and of all noise of a suite; of the inputs of a mechanism, whose noise is its own.

    Returns:
        one audit for each mechanism with its parameters in the suite, with the cells to which it applies; or the audit of the
        mechanism.

    Raises:
        ConfigError: the suite, the mechanism, the claim or a setting is invalid, or a setting says nothing of such a subject.
        InputError: the mechanism raises on ordinary updates.
    """
    of_suites: dict[str, Any] = {
        "method": method,
        "canaries": canaries,
        "confidence": confidence,
        "overrides": overrides,
    }
    of_mechanisms: dict[str, Any] = {
        "shapes": shapes,
        "rounds": rounds,
        "clip": clip,
        "samples": samples,
        "budget": budget,
    }
    if isinstance(subject, (str, Path, Mapping, Document)):
        _refuse_ignored({"claim": claim, **of_mechanisms}, "a suite")
        from fedguard.bench.audits.cells import audit_suite  # what it needs takes a second to load

        settings: dict[str, Any] = {"method": method, "canaries": canaries, "confidence": confidence}
        return audit_suite(lay_out(subject, overrides)[1], seed=seed, **settings)
    _refuse_ignored(of_suites, "a mechanism")
    from fedguard.bench.audits.mechanisms import audit_own

    return audit_own(subject, claim, seed=seed, **of_mechanisms)


def _refuse_ignored(given: Mapping[str, Any], what: str) -> None:
    """Refuse settings of `audit` that differ from their defaults and would be ignored."""
    defaults = inspect.signature(audit).parameters
    for name, value in given.items():
        default = defaults[name].default
        if value is not default and not (type(value) is type(default) and value == default):
            raise ConfigError(f"audit: {name} says nothing of {what}. Leave it out.")


@accept_retired_arguments
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
    overrides: Sequence[str] = (),
    proxy: Sequence[str] = (),
    regret: bool = False,
    retry_failed: bool = False,
    listener: Listener | None = None,
    engine: Ray | None = None,
) -> Tuning:
    """Tune the defenses of a suite with equal budgets, and write a suite that reports them on other attacks and seeds.

    The protocol is documented in `fedguard.bench.tuning.tune`. The tuning itself is an ordinary run named ``<suite>-tuning``:
    stored trials are not run again.

    Args:
        suite: path of a suite file, or its content as a mapping.
        budget: largest number of settings tried per defense, including the configured one.
        attacks: attacks of the tuning, as names or specs; by default every second attack of the suite.
        seeds: number of tuning seeds, counted from 10000, or the seeds themselves; none may be a seed of the suite.
        out: path of the tuned suite; by default ``<suite>.tuned.yaml`` beside a suite file, or in the working directory.
        force: overwrite an existing file.
        store, jobs, overrides, retry_failed, listener, engine: as for `run`.
        proxy: settings such as ``"task.data=wine"`` that replace the suite's during the tuning only. Its run is then
            named ``<suite>-proxy``.
        regret: tune on the suite's own data too, and report the cost of the choices on the proxy there.

    Raises:
        ConfigError: there is nothing to tune, no attack to hold out, a seed of the suite among the tuning seeds, or the file
            exists.
        StoreError: the store cannot be written.
    """
    document, laid_out = lay_out(suite, overrides)
    for option, chosen in (("force", force), ("regret", regret), ("retry_failed", retry_failed)):
        truth(chosen, option)
    if out is not None:
        path_like(out, "out")
    if attacks is not None:
        words(attacks, "attacks")
    file, proxy = resolve_output_file(document, laid_out.suite.name, out, force), words(proxy, "proxy")
    several = (is_whole(seeds) and seeds < 2) or (isinstance(seeds, Sequence) and len(seeds) < 2)  # type: ignore[operator]
    if regret and (not proxy or several):
        raise ConfigError(
            "regret: expected a proxy that it is of, and two tuning seeds or more. Set --proxy and --seeds."
        )
    proposals = [
        Proposal.of(document, laid_out, budget, attacks, seeds, over) for over in ([proxy, ()] if regret else [proxy])
    ]
    where: dict[str, Any] = {"store": store, "jobs": jobs, "engine": engine}
    tunings = [
        proposal.judge_run(run(proposal.document, retry_failed=retry_failed, listener=listener, **where), file)
        for proposal in proposals
    ]
    tuning = tunings[0]
    if regret:
        tuning = dataclasses.replace(tuning, regret=regrets(*tunings), failed=sum(one.failed for one in tunings))
    proposals[0].write(tuning)
    return tuning
