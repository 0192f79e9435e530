"""The same round has the same answer, whatever ran before, and whatever else draws random numbers."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator

import torch

from fedguard.bench.acceptance.case import ContractCase
from fedguard.bench.acceptance.findings import AcceptanceFinding
from fedguard.bench.acceptance.rounds import ToyRound, answer, draw_attacked, run_round
from fedguard.bench.running.plugin_state import diff_plugin_state, snapshot_modules
from fedguard.bench.running.shared_state import diff_shared_state, snapshot_shared_state
from fedguard.rng import Rng, global_generators

STREAM = "Draw from context.rng, which each trial sets from its seed."


def check_determinism(case: ContractCase) -> Iterator[AcceptanceFinding]:
    """The same round twice, and with other states of the process's own generators."""
    drawn = dict[str, None]()
    for one in (case.quiet_round, case.malicious_round):
        answers = list[torch.Tensor]()
        for seed in (1, 1, 2):
            with global_generators(Rng(seed)) as drawn_from:
                answers.append(answer(case.pipeline, one))
                drawn |= dict.fromkeys(drawn_from())
        if not torch.equal(answers[0], answers[1]):
            away = float((answers[0] - answers[1]).abs().max())
            yield AcceptanceFinding(
                "not_deterministic", "failed", "The same round twice, in the same process, has two answers.",
                f"{one.describe()}: they differ by up to {away:.3g}", STREAM, away,
            )  # fmt: skip
            return
    if drawn:
        yield AcceptanceFinding(
            "global_random", "failed",
            f"It draws from {' and '.join(drawn)} generator of the process, which others draw from as well.",
            case.quiet_round.describe(), STREAM,
        )  # fmt: skip
    if case.draws:
        yield AcceptanceFinding("draws", "noted", "Its answer depends on its own random stream, context.rng.")


def check_state(case: ContractCase) -> Iterator[AcceptanceFinding]:
    """What it keeps from one call to the next other than by `remember`: in its module, its object or the process."""
    names = case.submission.modules
    first = answer(case.pipeline, case.quiet_round)
    shared = snapshot_shared_state()
    for seed in range(6):
        n, d = case.quiet_round.rows.shape
        answer(case.pipeline, ToyRound(draw_attacked(n, case.f, d, seed, "far"), case.f, seed))
    changed = diff_plugin_state(case.modules, snapshot_modules(names))
    changed += diff_shared_state(shared, snapshot_shared_state())
    changed += [
        f"{stage.name}.{name}"
        for stage, before in zip(case.pipeline.stages, case.attributes, strict=True)
        for name, value in vars(stage).items()
        if name not in before or before[name] is not value
    ]
    remedy = "Return from remember() what the next round needs; context.state holds it then."
    if changed:
        words = f"Calls leave something behind: {', '.join(changed[:4])}. A later trial in this process would find it."
        yield AcceptanceFinding("keeps_state", "failed", words, remedy=remedy)
    if not torch.equal(first, answer(case.pipeline, case.quiet_round)):
        words = "A first round has another answer after other rounds than before them."
        yield AcceptanceFinding("keeps_state", "failed", words, case.quiet_round.describe(), remedy)


def fingerprint(case: ContractCase) -> str:
    """A digest of some answers, to be compared with the answers of another process."""
    digest = hashlib.sha256()
    for one in (case.quiet_round, case.malicious_round):
        first = run_round(case.pipeline, one)
        second = run_round(case.pipeline, ToyRound(one.rows.flip(0), one.f, 1, {"round": 2}, states=first.states))
        for found in (first, second):
            digest.update(found.vector.numpy().tobytes())
    return digest.hexdigest()
