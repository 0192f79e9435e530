"""Planning in a model of the world, by the cross-entropy method (Hafner et al., ICML 2019, algorithm 2)."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from fedguard.algorithms.rl.imagination import sample_belief
from fedguard.contracts import Policy, WorldModel


def plan_first_actions(
    net: WorldModel,
    policy: Policy,
    state: Tensor,
    normal: Callable[..., Tensor],
    *,
    horizon: int,
    candidates: int,
    best: int,
    iterations: int,
) -> Tensor:
    r"""The first action of a plan for each state, float ``[N, n]``.

    A plan is the mean of normal actions $a_1 ... a_H$, at first the middle of the bounds, with half their width as spread.
    I times, J plans are drawn and clipped to the bounds. The K plans with the highest predicted return give the new mean
    $m_t = 1/K sum_k a_t^{(k)}$ and the new spread $1/(K-1) sum_k |a_t^{(k)} - m_t|$.

    Args:
        state: the state in which a plan starts, ``[N, S]``.
        normal: draws normal numbers of a shape.
        horizon: H, steps of a plan.
        candidates: J.
        best: K, of J and at least 2.
        iterations: I.

    Source: Hafner et al., Learning Latent Dynamics for Planning from Pixels, ICML 2019, algorithm 2.
    """
    middle = policy.best(state.new_zeros(policy.outputs))  # outputs of 1 stand for the upper bound
    half = policy.best(state.new_ones(policy.outputs)) - middle
    mean, spread = middle.expand(horizon, len(state), 1, -1), half.expand(horizon, len(state), 1, -1)
    for _ in range(iterations):
        shape = horizon, len(state), candidates
        actions = (mean + spread * normal(*shape, policy.numbers)).clamp(middle - half, middle + half)
        worth = predict_returns(net, state, policy.encode_actions(actions), normal(*shape, net.chance))
        chosen = actions.take_along_dim(worth.topk(best, -1).indices[None, ..., None], 2)
        mean = chosen.mean(2, keepdim=True)
        # A mean absolute deviation and no standard deviation, as in algorithm 2
        spread = (chosen - mean).abs().sum(2, keepdim=True) / (best - 1)
    return mean[0, :, 0]


def predict_returns(net: WorldModel, state: Tensor, heard: Tensor, noise: Tensor) -> Tensor:
    """Predicted returns of plans, ``[N, J]``: the sum of rewards, each times the probability that the episode lasts so long.

    Args:
        state: the states in which plans start, ``[N, S]``.
        heard: their encoded actions, ``[H, N, J, outputs]``.
        noise: normal, ``[H, N, J, Z]``: of the states.
    """
    state = state[:, None].expand(-1, heard.shape[2], -1)
    total, lasts = state.new_zeros(()), state.new_ones(())
    for told, of_state in zip(heard, noise, strict=True):
        h = net.advance_state(state, told)
        state = torch.cat([h, sample_belief(net.prior(h), of_state)], -1)
        total = total + lasts * net.predict_reward(state)
        lasts = lasts * net.lasts(state).sigmoid()
    return total
