"""Figures of a record that nobody else adds up again: counted by hand from made-up rounds that are lopsided."""

from __future__ import annotations

import pytest
import torch

from fedguard.algorithms.rl.actor_critic import ActorCritic
from fedguard.contracts import Evaluation, Fate, RoundReport
from fedguard.metrics.filtering import filtering
from fedguard.metrics.trajectory import summarize

MODEL = torch.zeros(3)


def report(round: int, clients, malicious, excluded=None, told=0, **more) -> RoundReport:
    return RoundReport(
        round,
        MODEL,
        tuple(clients),
        frozenset(malicious),
        told,
        excluded=excluded,
        behind=tuple((one,) for one in clients),
        **more,
    )


def test_a_filter_is_judged_by_whom_it_excluded():
    """Three rounds: 2 malicious of 3 excluded; 0 of 2; and nobody excluded of one malicious. A fourth has a rule without weights."""
    rounds = [
        report(1, range(8), {0, 1, 2}, (0, 1, 5)),
        report(2, range(4, 8), {7}, (4, 5)),
        report(3, (0, 4, 5, 6), {0}, ()),
        report(4, range(8), {0, 1, 2}, None),
    ]
    found = filtering(rounds)
    assert found["precision"] == pytest.approx(2 / 5)
    assert found["recall"] == pytest.approx(2 / 5)
    assert found["honest_excluded"] == pytest.approx(3 / 11)
    assert found["most_excluded"] == {"client": 5, "share": pytest.approx(2 / 3)}  # client 4: one of three rounds
    assert filtering([report(1, range(4), {0, 1, 2}, (0, 3))])["precision"] == pytest.approx(1 / 2)
    assert filtering([report(1, range(4), {0, 1, 2}, (0, 3))])["recall"] == pytest.approx(1 / 3)
    assert filtering(rounds[3:]) is None
    assert filtering(rounds[2:3])["precision"] is None


def test_what_was_not_finite_was_excluded_by_nobody():
    """A malicious update that is dropped before the rule is neither caught nor missed by it."""
    found = filtering([report(1, range(6), {0, 1}, (1, 4), fates=((0, Fate.NOT_FINITE),))])
    assert (found["precision"], found["recall"]) == (pytest.approx(1 / 2), 1.0)


def test_as_many_malicious_rows_as_the_rule_was_told_do_not_outvote_it():
    rounds = [
        report(round, range(9), range(malicious), told=told, evaluation=Evaluation(0.5, 0.5, (0.5, 0.5)))
        for round, (malicious, told) in enumerate([(2, 3), (3, 3), (4, 3), (1, 0), (0, 0)], 1)
    ]
    assert summarize(rounds)["rounds"]["outvoted"] == 2
    assert summarize(rounds)["rounds"]["worst_hostile_share"] == pytest.approx(4 / 9)


def test_a_gradient_that_is_shorter_than_its_clip_stays_as_it_is():
    gradients = torch.tensor([[0.3, 0.4], [3.0, 4.0], [0.0, 0.0], [0.0, 2.0]])  # lengths 0.5, 5, 0, and the clip itself
    found = ActorCritic(clip=2.0).clip_gradients(gradients)
    assert torch.equal(found[[0, 2, 3]], gradients[[0, 2, 3]])
    assert found[1].tolist() == pytest.approx([1.2, 1.6])
    assert torch.equal(ActorCritic(clip=None).clip_gradients(gradients), gradients)
