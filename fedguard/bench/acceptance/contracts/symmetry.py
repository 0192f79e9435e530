"""Neither places nor numbers of clients decide; and which maps of the updates the answer follows."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

import torch
from torch import Tensor

from fedguard.bench.acceptance.case import ContractCase
from fedguard.bench.acceptance.findings import AcceptanceFinding
from fedguard.bench.acceptance.rounds import ToyRound, draw_tied
from fedguard.rng import Rng

#: Two means further apart than this many standard errors of their difference differ
ERRORS = 6.0


def check_order(case: ContractCase) -> Iterator[AcceptanceFinding]:
    """The answer does not depend on the places of the rows: malicious clients may be anywhere."""
    tied = ToyRound(draw_tied(case.sizes.n, case.quiet_round.rows.shape[1], 3), case.f)
    for one in (case.quiet_round, case.malicious_round, tied):
        facts = {"root": _root_of(one)}
        # Whoever listens to some places more than to others hears the longest updates in one order and not in the other
        order = one.rows.norm(dim=1).argsort(stable=True)
        first, last = (ToyRound(one.rows[o], one.f, facts=facts, who=o) for o in (order, order.flip(0)))
        away = _apart(case, first, last)
        if away is not None:
            # Of equal updates and scores the places decide in many programs: little harm, and worth knowing
            code, words = "order", "Its answer depends on the places of the updates."
            if one is tied:
                code, words = "ties", "Where updates tie, their places decide."
            yield AcceptanceFinding(
                code, "flagged" if one is tied else "failed", words,
                f"{one.describe()}: the same updates in another order move it by up to {away:.3g}",
                "Where ties have to be broken, use gram.order or context.rng.", away,
            )  # fmt: skip
            return


def check_clients(case: ContractCase) -> Iterator[AcceptanceFinding]:
    """In a first round, nothing depends on which client has which number."""
    for one in (case.quiet_round, case.malicious_round):
        order = torch.randperm(len(one.rows), generator=Rng(11).child("numbers").torch())
        # The same numbers dealt out anew, and numbers that no client had
        for numbers in (order, 1000 + 7 * order):
            away = _apart(case, one, replace(one, facts={"clients": tuple(numbers.tolist())}))
            if away is not None:
                yield AcceptanceFinding(
                    "client_numbers", "flagged", "In a first round, its answer depends on the numbers of the clients.",
                    f"{one.describe()}: other numbers move it by up to {away:.3g}",
                    "Say which client is trusted, and why; or use numbers only to recognize who has come before.", away,
                )  # fmt: skip
                return


def check_maps(case: ContractCase) -> Iterator[AcceptanceFinding]:
    """Properties of the rule, none of which is required: with which maps of the updates it commutes."""
    d = case.quiet_round.rows.shape[1]
    draw = Rng(3).child("maps").torch()
    shift, turn = torch.randn(d, generator=draw), torch.linalg.qr(torch.randn(d, d, generator=draw)).Q
    maps: dict[str, Callable[[Tensor], Tensor]] = {
        "scaling": lambda rows: rows * 2.0,
        "translation": lambda rows: rows + shift.to(rows.dtype),
        "rotation": lambda rows: rows @ turn.to(rows.dtype),
    }
    follows = list[str]()
    for name, change in maps.items():
        pairs = [
            (ToyRound(one.rows, one.f, 0, {"root": _root_of(one)}),
             ToyRound(change(one.rows), one.f, 0, {"root": change(_root_of(one))}))
            for one in (case.quiet_round, case.malicious_round)
        ]  # fmt: skip
        if all(_apart(case, a, b, change) is None for a, b in pairs):
            follows.append(name)
    others = [name for name in maps if name not in follows]
    words = f"Its answer follows {_list(follows)}" + (f", and not {_list(others)}." if others else ".")
    yield AcceptanceFinding("maps", "noted", words)


def _apart(
    case: ContractCase, a: ToyRound, b: ToyRound, change: Callable[[Tensor], Tensor] | None = None
) -> float | None:
    """How far the answers to two rounds are apart, the first one mapped by ``change``; None if no more than chance explains."""
    (first, first_error), (second, second_error) = case.mean_and_error(a), case.mean_and_error(b, 1000)
    first = first if change is None else change(first)
    away = (first - second).abs()
    rounding = 1e-4 * (1e-6 + max(float(one.rows.abs().max()) for one in (a, b)))
    # A map of the answer mixes its coordinates, so the largest error stands for all of them
    error = (first_error.square() + second_error.square()).sqrt()
    error = error.max() if change is not None else error
    return float(away.max()) if bool((away > rounding + ERRORS * error).any()) else None


def _root_of(one: ToyRound) -> Tensor:
    """The server's root update of a round, which must not depend on the order of its rows."""
    return one.rows.median(0).values


def _list(names: list[str]) -> str:
    return "nothing of scaling, translation and rotation" if not names else " and ".join(names)
