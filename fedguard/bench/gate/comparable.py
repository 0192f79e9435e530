"""Comparability of a run and a baseline: what prevents a comparison, and which differences are only worth a warning."""

from __future__ import annotations

from fedguard.bench.gate.pair import select_figures
from fedguard.bench.gate.snapshot import COMPARED, Snapshot, SnapshotCell, SnapshotPosition
from fedguard.bench.results.differences import differences


def incompatible(run: Snapshot, baseline: Snapshot) -> tuple[str, ...]:
    """Why nothing can be compared at all; empty if it can."""
    why = []
    if run.results_version != baseline.results_version:
        why.append(
            f"the baseline is of results version {baseline.results_version}, the run of {run.results_version}: figures of two "
            "versions are not comparable. Make a new baseline with `fedguard baseline update`."
        )
    both = [(run.cells[key], baseline.cells[key]) for key in run.cells.keys() & baseline.cells.keys()]
    data = sorted(
        {(one.config["task"]["data"]["name"], two.data, one.data) for one, two in both if other_data(one, two)}
    )
    why += [
        f"the data {name} had the digest {was} in the baseline and has {now} now: other data. If it is meant, make "
        "a new baseline."
        for name, was, now in data
    ]
    figures = {figure for part in (run, baseline) for cell in part.cells.values() for figure in cell.values}
    why += [f"gate.metrics: no cell has the metric {name}." for name in run.gate.metrics if name not in figures]
    return tuple(why)


def warnings(run: Snapshot, baseline: Snapshot) -> tuple[str, ...]:
    """Differences that need not matter, one line each."""
    found = []
    for key in COMPARED:
        was, now = baseline.environment.get(key, "unknown"), run.environment.get(key, "unknown")
        found += [f"{key} was {was}, is {now}."] if was != now else []
    for name in find_plugin_changes(run, baseline):
        was, now = (part.code.get(name, "absent")[:8] for part in (baseline, run))
        found.append(f"the code of the plug-in {name} was {was}, is {now}.")
    old, new = baseline.gate.model_dump(mode="json"), run.gate.model_dump(mode="json")
    found += [f"the gate's thresholds changed: {line}." for line in differences(old, new, "gate")]
    new_ones = newcomers(run, baseline)
    if new_ones:
        found.append(f"{len(new_ones)} positions are new and compared with nothing, such as {new_ones[0].words}.")
    if run.seeds != baseline.seeds:
        found.append(f"the seeds were {list(baseline.seeds)}, are {list(run.seeds)}; those of both are compared.")
    return tuple(found)


def find_plugin_changes(run: Snapshot, baseline: Snapshot) -> list[str]:
    """Modules other than FedGuard with a changed digest, or that only one of the two has."""
    modules = (run.code.keys() | baseline.code.keys()) - {"fedguard"}
    return sorted(name for name in modules if run.code.get(name) != baseline.code.get(name))


def list_relaxations(run: Snapshot, baseline: Snapshot) -> tuple[str, ...]:
    """Requirements of the baseline's gate that the run's gate relaxes, which takes a baseline update with a reason."""
    # Otherwise one commit could bring both the regression and the threshold that hides it
    there = {figure for part in (run, baseline) for cell in part.cells.values() for figure in cell.values}
    now, lines = {one.figure: one for one in select_figures(run.gate, there)}, []
    for was in select_figures(baseline.gate, there):
        new = now.get(was.figure)
        if new is None:
            lines.append(f"{was.figure} is not watched any more")
            continue
        if new.margin > was.margin:
            lines.append(f"the margin of {was.figure} was {was.margin:g}, is {new.margin:g}")
        for key, sign in (("floor", -1), ("ceiling", 1)):  # a lower floor and a higher ceiling ask for less
            old, bound = getattr(was, key), getattr(new, key)
            if old is not None and (bound is None or sign * bound > sign * old):
                lines.append(f"the {key} of {was.figure} was {old:g}, is {'none' if bound is None else f'{bound:g}'}")
    if run.gate.alpha < baseline.gate.alpha:  # a regression takes p < alpha, so a smaller alpha finds fewer
        lines.append(f"alpha was {baseline.gate.alpha:g}, is {run.gate.alpha:g}")
    if baseline.gate.audit and not run.gate.audit:
        lines.append("epsilons are not audited any more")
    if baseline.gate.single_seed == "fail" and run.gate.single_seed == "report":
        lines.append("a single ruined seed is only reported")
    if missing := sorted(set(baseline.seeds) - set(run.seeds)):
        lines.append(f"seeds {missing} are not run any more")
    return tuple(
        f"the gate asks for less: {line}. If it is meant: `fedguard baseline update --reason`." for line in lines
    )


def newcomers(run: Snapshot, baseline: Snapshot) -> list[SnapshotPosition]:
    """The positions that ran, but not in the baseline."""
    ran = {one.place for one in baseline.positions if baseline.cells[one.cell].status != "refused"}
    return [one for one in run.positions if one.place not in ran and run.cells[one.cell].status == "ok"]


def unlike(was: str, before: SnapshotCell, now: str | None, after: SnapshotCell | None) -> str | None:
    """Why a position of the baseline cannot be compared; None if it can.

    Args:
        was, now: the hashes of its cell.
    """
    if now is None or after is None:
        return "the run does not have it."
    if was != now:
        return f"configured otherwise: {'; '.join(differences(before.config, after.config))}."
    if after.status != "ok":
        return f"{after.status}: {after.reason}"
    return None


def other_data(one: SnapshotCell, two: SnapshotCell) -> bool:
    """Whether two cells are known to have been trained on different data."""
    return one.data is not None and two.data is not None and one.data != two.data
