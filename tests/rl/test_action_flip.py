"""Malicious actors that do the opposite of what they say: each step is taken again by hand."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from fedguard.attacks.poisoning.action_flip import ActionFlip
from fedguard.bench.running.trial import run_trial
from fedguard.contracts.channels import ACTIONS
from fedguard.errors import ContractError
from fedguard.rng import Rng
from fedguard.tasks.environments.cartpole import CartPole
from fedguard.tasks.environments.pendulum import Pendulum
from fedguard.tasks.models.mlp import MLP
from fedguard.tasks.playing import EnvironmentTask
from tests.rl.acting import cell


def flipped(attack, actions, space):
    return attack.report(ACTIONS, actions, space)


@pytest.mark.parametrize(
    ("world", "opposite"),
    [(CartPole(copies=3), lambda a: 1 - a), (Pendulum(copies=3), lambda a: -a)],
    ids=["cartpole", "pendulum"],
)
def test_what_it_met_with_follows_from_the_opposite_of_what_it_says(world, opposite):
    task = EnvironmentTask.build_task(world, MLP(hidden=(8,)), 3, Rng(0))
    lies = task.with_liars(ActionFlip().report, {1})
    models = task.initial_model(Rng(0)).expand(3, -1)
    states = [task.start_actor(Rng(seed).numpy()) for seed in range(3)]
    honest, told = (
        one.rollouts(models, range(3), states, 5, [Rng(seed).numpy() for seed in range(3)])[0] for one in (task, lies)
    )
    assert [torch.equal(a.after, b.after) for a, b in zip(honest, told, strict=True)] == [True, False, True]
    assert torch.equal(honest[1].actions[0], told[1].actions[0])  # the first is drawn before anything differs
    for number, turned in ((0, lambda a: a), (1, opposite)):
        state, rollout = states[number].world, told[number]
        for t in range(5):  # nobody falls in so few steps
            done = turned(rollout.actions[t].numpy())
            step = world.take_step(state, done)
            assert np.array_equal(world.observe_state(step.state), rollout.after[t].numpy())
            assert np.array_equal(step.rewards.astype(np.float32), rollout.rewards[t].numpy())
            state = step.state
    outputs, _ = task.outputs(models[1], told[1].seen[3])  # and the probabilities are those of what it says
    assert torch.allclose(task.policy.log_prob(outputs, told[1].actions[3]), told[1].behavior[3], atol=1e-6)


def test_it_is_turned_within_what_there_is():
    assert flipped(ActionFlip(), torch.tensor([0, 1, 4]), CartPole().actions.__class__(5)).tolist() == [4, 3, 0]
    box = Pendulum().actions.__class__(2, -1.0, 3.0)
    given = torch.tensor([[-1.0, 0.5], [3.0, 1.0]])
    assert flipped(ActionFlip(), given, box).tolist() == [[3.0, 1.5], [-1.0, 1.0]]


@pytest.mark.parametrize(
    "made",
    [lambda a, s: a + 1, lambda a, s: a - 1, lambda a, s: a[:1], lambda a, s: a.float(), lambda a, s: a.sub_(a)],
)
def test_actions_that_are_none_break_the_contract(made):
    class Wrong(ActionFlip):
        name = "wrong"

        def flip(self, actions, space):
            return made(actions, space)

    with pytest.raises(ContractError, match="wrong broke its contract: "):
        flipped(Wrong(), torch.tensor([0, 1, 1]), CartPole().actions)


@pytest.mark.parametrize(
    ("architecture", "algorithm"),
    [("a2c", "actor_critic(t_max=4)"), ("seed_rl", "vtrace(t_max=4)"), ("apex", "double_dqn(t_max=4)")],
)
def test_it_goes_with_every_system_of_actors_and_the_card_says_so(architecture, algorithm):
    made = cell(
        architecture, attack="action_flip", clients={"malicious": 1}, training={"algorithm": algorithm, "rounds": 2}
    )
    assert not made.verdict.reasons, made.verdict.reasons
    if architecture == "a2c":
        assert run_trial(made, 0, {})[0]["threat_card"]["acts_on"] == ["actions"]


def test_where_nobody_acts_it_is_refused():
    made = cell(
        "server",
        task={"data": "digits", "model": "softmax"},
        training={"algorithm": "fedavg"},
        attack="action_flip",
        clients={"malicious": 1},
    )
    assert any("lies about what its actors do, and in digits nobody acts" in reason for reason in made.verdict.reasons)
