"""It answers every round that it accepts, with finite numbers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import torch
from torch import Tensor

from fedguard.aggregation import Aggregate
from fedguard.bench.acceptance.case import ContractCase
from fedguard.bench.acceptance.findings import AcceptanceFinding
from fedguard.bench.acceptance.rounds import ToyRound, explain_error, least_rows, run_round
from fedguard.contracts import State
from fedguard.errors import ContractError, PreconditionError
from fedguard.kernels import LARGEST


def check_answers(case: ContractCase) -> Iterator[AcceptanceFinding]:
    """On few and many updates, equal ones, one that is zero, tiny and very large ones, in one dimension and in many."""
    if least_rows(case.pipeline, 0) is None:
        yield AcceptanceFinding(
            "never_runs", "failed", "It accepts no round of up to 200 updates, even without malicious ones.",
            remedy="Lower min_rows.",
        )  # fmt: skip
        return
    seen = set[str]()
    for finding in _try_course(case):
        seen.add(finding.code)
        yield finding
    for one in case.rounds():
        for kind, rows in _variants(one.rows):
            tried = ToyRound(rows, one.f)
            found = _run(case, tried, f"{tried.describe()}, {kind}")
            if isinstance(found, Aggregate):
                later = replace(tried, states=found.states, facts={"round": 2})
                found = _run(case, later, f"{tried.describe()}, {kind}, twice")
            if isinstance(found, AcceptanceFinding) and found.code not in seen:
                seen.add(found.code)
                yield found


def _try_course(case: ContractCase) -> Iterator[AcceptanceFinding]:
    """Eight rounds in a row, and a late one: what it remembers from round to round."""
    states: Sequence[State] = ()
    for number in (*range(1, 9), 200):
        one = replace(case.quiet_round, seed=number, facts={"round": number}, states=states)
        before = [{name: value.clone() for name, value in state.items()} for state in states]
        found = _run(case, one, f"{one.describe()}, round {number}")
        if isinstance(found, AcceptanceFinding):
            yield found
            return
        if not all(_is_unchanged(state, was) for state, was in zip(states, before, strict=True)):
            yield AcceptanceFinding(
                "changes_state", "failed", "It changes the state of the round before in place.", f"round {number}",
                "Return new tensors from remember().",
            )  # fmt: skip
            return
        states = found.states
        if not all(_is_state(state) for state in states):
            yield AcceptanceFinding(
                "wrong_state", "failed", "What remember() returns is no mapping of names to tensors.", f"round {number}",
                "Return a dict of tensors.",
            )  # fmt: skip
            return


def _is_state(state: object) -> bool:
    return isinstance(state, Mapping) and all(
        isinstance(name, str) and isinstance(value, torch.Tensor) for name, value in state.items()
    )


def _is_unchanged(state: State, was: State) -> bool:
    return state.keys() == was.keys() and all(
        state[name].shape == value.shape and torch.allclose(state[name], value, rtol=0, atol=0, equal_nan=True)
        for name, value in was.items()
    )


def _variants(rows: Tensor) -> Iterator[tuple[str, Tensor]]:
    zero = rows.clone()
    zero[0] = 0
    yield "updates in general position", rows
    yield "equal updates", rows[:1].expand(len(rows), -1).clone()
    yield "updates that are all zero", torch.zeros_like(rows)
    yield "one update that is zero", zero
    yield "tiny updates", rows * 1e-30
    huge = rows.clone()
    huge[-1] *= LARGEST / rows[-1].abs().max()
    yield "one update as large as the server lets through", huge


def _run(case: ContractCase, one: ToyRound, where: str) -> Aggregate | AcceptanceFinding:
    """The answer to a round, or what is wrong with it."""
    try:
        return run_round(case.pipeline, one)
    except PreconditionError as error:
        return AcceptanceFinding(
            "refuses_late", "failed", f"It accepts a round in check() and refuses it later: {explain_error(error)}", where,
            "Let min_rows or check() say which rounds it cannot run on.",
        )  # fmt: skip
    except ContractError as error:
        text = explain_error(error)
        changed = "it changed the updates" in text
        code = "changes_input" if changed else "not_finite" if "NaN" in text else "wrong_return"
        return AcceptanceFinding(code, "failed", text, where, "Work on a copy." if changed else "Handle this input.")
    except Exception as error:
        return AcceptanceFinding("crashes", "failed", f"It raises {explain_error(error)}", where, "Handle this input.")
