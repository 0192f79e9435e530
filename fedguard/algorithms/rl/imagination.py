"""The loss of a world model, and imagined rollouts in it (Hafner et al., ICML 2019, ICLR 2020)."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits

from fedguard.algorithms.rl.sequences import Sequences
from fedguard.contracts import Policy, WorldModel

Belief = tuple[Tensor, Tensor]


@dataclass(frozen=True)
class Weights:
    """Weights of the parts of a world model's loss.

    Attributes:
        free: nats of each divergence that cost nothing.
        prior: what the divergence counts for the prior, which follows the posterior.
        posterior: what it counts for the posterior.
    """

    free: float
    prior: float
    posterior: float


def divergence(one: Belief, other: Belief) -> Tensor:
    r"""float ``[...]``: $KL = sum_i log(s_i' / s_i) + (s_i^2 + (m_i - m_i')^2) / (2 s_i'^2) - 1/2$ of one from the other.

    Args:
        one, other: means and spreads, ``[..., Z]``.
    """
    (mean, spread), (mean_, spread_) = one, other
    apart = (spread.square() + (mean - mean_).square()) / (2 * spread_.square())
    return ((spread_ / spread).log() + apart - 0.5).sum(-1)


def lambda_returns(rewards: Tensor, discounts: Tensor, values: Tensor, share: float) -> Tensor:
    r"""float ``[H, N]``: $V_k = r_k + c_k ((1 - lambda) v_{k+1} + lambda V_{k+1})$ with $V_H = v_H$.

    Args:
        rewards: of the H steps, ``[H, N]``.
        discounts: what comes after each counts, ``[H, N]``.
        values: of the H + 1 states, ``[H + 1, N]``.
        share: lambda.

    Source: Hafner et al., ICLR 2020, equation 6, as a recursion.
    """
    follows, found = values[-1], []
    for reward, discount, value in zip(rewards.flip(0), discounts.flip(0), values[1:].flip(0), strict=True):
        follows = reward + discount * ((1 - share) * value + share * follows)
        found.append(follows)
    return torch.stack(found[::-1])


def infer_posterior(net: WorldModel, given: Sequences, heard: Tensor, noise: Tensor) -> tuple[Tensor, Belief]:
    """States after each step, ``[L, B, S]``, drawn from the posterior, and the posterior's means and spreads.

    A sequence starts like an episode, and so does each step after an end.

    Args:
        given: with the dimension of steps first.
        heard: ``[L, B, outputs]``: the encoded actions.
        noise: normal, ``[2, L, B, Z]``: of states in which episodes start, and of those after each step.
    """
    starts, read = given.starts()[..., None], net.reads(given.after.flatten(2))
    size = net.fixed + net.chance
    first = net.advance_state(noise.new_zeros(*starts.shape[:2], size), torch.zeros_like(heard))
    state = fresh = torch.cat(
        [first, sample_belief(net.posterior(first, net.reads(given.seen.flatten(2))), noise[0])], -1
    )
    states, beliefs = [], []
    for t in range(len(starts)):
        # After an end the next step belongs to another episode, which must not remember this one
        before = fresh[0] if t == 0 else torch.where(starts[t], fresh[t], state)
        h = net.advance_state(before, heard[t])
        belief = net.posterior(h, read[t])
        state = torch.cat([h, sample_belief(belief, noise[1, t])], -1)
        states.append(state)
        beliefs.append(belief)
    mean, spread = (torch.stack(part) for part in zip(*beliefs, strict=True))
    return torch.stack(states), (mean, spread)


def sample_belief(belief: Belief, noise: Tensor) -> Tensor:
    return belief[0] + belief[1] * noise


def world_loss(
    net: WorldModel, given: Sequences, heard: Tensor, noise: Tensor, weights: Weights
) -> tuple[Tensor, Tensor]:
    r"""The prediction loss of a model on sequences, and the posterior states, ``[L, B, S]``.

    $L = mean_t |x_t - X(s_t)|^2 / 2 + (r_t - r(s_t))^2 / 2 - log p(e_t | s_t) + a max(f, KL(sg(q) | p))
    + b max(f, KL(q | sg(p)))$ with the observation as it is read, the reward, whether the episode continues, and posterior q
    and prior p of each state; sg stops gradients.

    Source: Hafner et al., ICLR 2020, equation 10; the two halves of the divergence by Hafner et al., ICLR 2021, section 2.2.
    """
    states, posterior = infer_posterior(net, given, heard, noise)
    prior = net.prior(states[..., : net.fixed])
    pictures = (net.predict_observation(states) - net.reads(given.after.flatten(2))).square().sum(-1).mean() / 2
    rewards = (net.predict_reward(states) - given.rewards).square().mean() / 2
    ends = binary_cross_entropy_with_logits(net.lasts(states), (~given.terminated).to(states.dtype))
    follows = divergence(_stop_gradient(posterior), prior).clamp(min=weights.free).mean()
    led = divergence(posterior, _stop_gradient(prior)).clamp(min=weights.free).mean()
    return pictures + rewards + ends + weights.prior * follows + weights.posterior * led, states


def _stop_gradient(belief: Belief) -> Belief:
    return belief[0].detach(), belief[1].detach()


@dataclass(frozen=True)
class Dream:
    """H steps of N dreams.

    Attributes:
        states: ``[H + 1, N, S]``, from where each started.
        outputs: of the policy, ``[H, N, outputs]``.
        rewards: of each step, ``[H, N]``.
        lasts: the probability that the episode goes on after it, ``[H, N]``.
    """

    states: Tensor
    outputs: Tensor
    rewards: Tensor
    lasts: Tensor


def imagine_rollout(net: WorldModel, policy: Policy, state: Tensor, noise: Tensor, draws: Tensor) -> Dream:
    """Rollouts of the actor in the world that the model predicts, from states ``[N, S]`` on.

    Args:
        noise: normal, ``[H, N, Z]``: of the states.
        draws: normal, ``[H, N, n]``: of the actions.
    """
    states, outputs = [state], []
    for of_state, of_action in zip(noise, draws, strict=True):
        # The actor's gradient flows through what its actions lead to, but not through the states in which later ones are chosen
        told = net.actor(state.detach())
        h = net.advance_state(state, policy.encode_actions(policy.draw_actions(told, of_action)))
        state = torch.cat([h, sample_belief(net.prior(h), of_state)], -1)
        states.append(state)
        outputs.append(told)
    found = torch.stack(states)
    return Dream(found, torch.stack(outputs), net.predict_reward(found[1:]), net.lasts(found[1:]).sigmoid())
