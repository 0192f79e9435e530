"""It sees what it declares, no more, and runs on each alternative that it declares."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from fedguard.bench.acceptance.case import ContractCase
from fedguard.bench.acceptance.findings import AcceptanceFinding
from fedguard.bench.acceptance.rounds import (
    ALL,
    GROUPS,
    ToyRound,
    WatchedContext,
    draw_honest,
    explain_error,
    least_rows,
    run_round,
)
from fedguard.contracts import Defense, Sight, first_met
from fedguard.errors import NotObservable


def check_sights(case: ContractCase) -> Iterator[AcceptanceFinding]:
    """What each stage has to see, and whether the pipeline runs where no more than that is granted."""
    if not _runs(case, case.quiet_round):
        return  # check_answers says so
    seen = [(stage, need) for stage in _on_server(case) for need in stage.needs]
    for stage, need in seen:
        others = [first_met(other.needs, ALL) or Sight.NOTHING for other in _on_server(case) if other is not stage]
        granted = need
        for other in others:
            granted |= other
        WatchedContext.refused.clear()
        try:
            run_round(case.pipeline, ToyRound(case.quiet_round.rows, case.quiet_round.f, sees=granted))
            if WatchedContext.refused:
                raise NotObservable(WatchedContext.refused[0])
        except NotObservable as error:
            yield AcceptanceFinding(
                "undeclared_sight", "failed", explain_error(error), f"granted: {granted.words()}",
                f"Add it to the needs of {stage.name}, or do without it.",
            )  # fmt: skip
            return
        except Exception as error:
            yield AcceptanceFinding(
                "crashes_at_sight", "failed",
                f"{stage.name} declares that {need.words()} is enough, and raises {explain_error(error)}",
                f"granted: {granted.words()}", f"Take this alternative out of the needs of {stage.name}, or handle it.",
            )  # fmt: skip
            return
    least = Sight.NOTHING
    for stage in _on_server(case):
        least |= stage.needs[-1]
    yield AcceptanceFinding("sees", "noted", f"It has to see at least {least.words()}.")


def check_groups(case: ContractCase) -> Iterator[AcceptanceFinding]:
    """Under masks with groups a row is the mean of several clients, and nothing is known of who is behind it."""
    if any(first_met(stage.needs, GROUPS) is None for stage in _on_server(case)):
        yield AcceptanceFinding("no_groups", "noted", "It cannot run on sums of groups, as it declares.")
        return
    for f in (0, case.f):
        least = least_rows(case.pipeline, f)
        for n in [] if least is None else [max(least, 3), least + 2]:
            one = ToyRound(draw_honest(n, 7, n), f, sees=GROUPS)
            if not _runs(case, replace(one, sees=ALL)):
                continue
            try:
                run_round(case.pipeline, one)
            except Exception as error:
                yield AcceptanceFinding(
                    "crashes_under_groups", "failed",
                    f"It declares that sums of groups are enough, and raises {explain_error(error)}", one.describe(),
                    "Take Sight.GROUP_SUMS out of its needs, or do without what only single updates have.",
                )  # fmt: skip
                return


def _runs(case: ContractCase, one: ToyRound) -> bool:
    """Whether it answers a round where all is granted that it declares."""
    try:
        run_round(case.pipeline, one)
    except NotObservable:
        return True
    except Exception:
        return False
    return True


def _on_server(case: ContractCase) -> list[Defense]:
    return [*case.pipeline.mixings, case.pipeline.rule]
