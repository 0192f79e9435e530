"""It changes nothing of others, and reaches for nothing outside of its arguments."""

from __future__ import annotations

from collections.abc import Iterator

from fedguard.bench.acceptance.case import ContractCase
from fedguard.bench.acceptance.findings import AcceptanceFinding
from fedguard.bench.acceptance.rounds import ToyRound, run_round


def check_reach(case: ContractCase) -> Iterator[AcceptanceFinding]:
    """The clock, the process, its callers, files, sockets and other processes."""

    def run_both() -> None:
        for one in (case.quiet_round, case.malicious_round):
            first = run_round(case.pipeline, one)
            run_round(case.pipeline, ToyRound(one.rows, one.f, 1, {"round": 2}, states=first.states))

    try:
        revealed = case.watch.find_revealing_calls(run_both)
    except Exception:  # another check says so
        revealed = []
    if revealed:
        yield AcceptanceFinding(
            "reads_process", "failed", f"Its code asks for {', '.join(revealed)}.",
            remedy="An answer may depend on the updates, context and state alone.",
        )  # fmt: skip
    if case.watch.reached:
        words = f"Its code reaches outside of its process: {', '.join(dict.fromkeys(case.watch.reached))}."
        yield AcceptanceFinding("reaches_outside", "failed", words, remedy="Take it out.")


def check_code(case: ContractCase) -> Iterator[AcceptanceFinding]:
    """Whether a function or class of FedGuard, torch, numpy or Python has been replaced since before the import."""
    replaced = case.before.find_replaced()
    if replaced:
        yield AcceptanceFinding(
            "replaces_code", "failed", f"It replaces code of others: {', '.join(replaced[:5])}.",
            remedy="Leave it: attacks and the training are not the rule's to change.",
        )  # fmt: skip
