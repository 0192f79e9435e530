"""Actors: returns and gradients against plain loops in float64, and the systems around them against the papers' loops."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from scipy import stats
from torch import Tensor

from fedguard.algorithms.rl.actor_critic import ActorCritic
from fedguard.algorithms.rl.rollouts import n_step_returns
from fedguard.attacks.poisoning.reward_flip import RewardFlip
from fedguard.contracts import Box, Choices, Rollout
from fedguard.rng import Rng
from fedguard.tasks.environments.cartpole import CartPole
from fedguard.tasks.environments.pendulum import Pendulum
from fedguard.tasks.models.mlp import MLP
from fedguard.tasks.playing import EnvironmentTask
from fedguard.tasks.policies import GaussianPolicy, policy_of
from tests.rl.acting import playing, reports, scene
from tests.systems.test_asynchronous import course

GAMMA = 0.9


def loop_of_returns(rewards: Any, after: Any, terminated: Any, truncated: Any, gamma: float) -> list[float]:
    """R_t of one environment, each from its own sum: rewards up to the first end, and what the critic says of the state there."""
    found = []
    for t in range(len(rewards)):
        total, weight = 0.0, 1.0
        for k in range(t, len(rewards)):
            total += weight * float(rewards[k])
            weight *= gamma
            if terminated[k]:
                break
            if truncated[k] or k == len(rewards) - 1:
                total += weight * float(after[k])
                break
        found.append(total)
    return found


def test_n_step_returns_are_the_sums_of_the_paper() -> None:
    rng = np.random.default_rng(0)
    steps, copies = 12, 40
    rewards, after = rng.normal(size=(2, steps, copies))
    ends = rng.integers(8, size=(steps, copies))
    terminated, truncated = ends == 0, ends == 1
    found = n_step_returns(*map(torch.from_numpy, (rewards, after, terminated, truncated)), GAMMA)
    for copy in range(copies):
        wanted = loop_of_returns(rewards[:, copy], after[:, copy], terminated[:, copy], truncated[:, copy], GAMMA)
        assert found[:, copy].tolist() == pytest.approx(wanted, abs=1e-12)


def test_a_law_of_choices_draws_what_it_says() -> None:
    policy, outputs = policy_of(Choices(3)), torch.tensor([0.3, -1.0, 0.9])
    chances = np.exp(outputs.double().numpy()) / np.exp(outputs.double().numpy()).sum()
    draws = torch.from_numpy(policy.draws((40_000,), np.random.default_rng(0)))
    drawn = policy.draw_actions(outputs.expand(40_000, -1), draws)
    assert stats.chisquare(torch.bincount(drawn).numpy(), 40_000 * chances).pvalue > 1e-3
    logs = policy.log_prob(outputs.expand(3, -1), torch.arange(3))
    assert logs.tolist() == pytest.approx(np.log(chances).tolist(), abs=1e-6)
    assert float(policy.entropy(outputs)) == pytest.approx(-float((chances * np.log(chances)).sum()), abs=1e-6)


def test_a_law_of_vectors_is_the_normal_one_around_the_middle_of_its_bounds() -> None:
    policy, outputs = policy_of(Box(2, -1.0, 3.0)), torch.tensor([0.25, -0.5, 0.4, 1.2])
    assert isinstance(policy, GaussianPolicy)
    mean = np.array([1 + 2 * 0.25, 1 - 2 * 0.5])
    spread = 2 * (np.log1p(np.exp(np.array([0.4, 1.2]))) + 1e-3)
    action = np.array([0.7, -0.2])
    wanted = stats.norm.logpdf(action, mean, spread).sum()
    assert float(policy.log_prob(outputs, torch.tensor(action))) == pytest.approx(wanted, abs=1e-5)
    assert float(policy.entropy(outputs)) == pytest.approx(stats.norm.entropy(mean, spread).sum(), abs=1e-5)
    draws = torch.from_numpy(policy.draws((20_000,), np.random.default_rng(0)))
    drawn = policy.draw_actions(outputs.expand(20_000, -1), draws).double().numpy()
    for column in range(2):
        assert stats.kstest(drawn[:, column], stats.norm(mean[column], spread[column]).cdf).pvalue > 1e-3


def forward(task: EnvironmentTask, model: Tensor, x: Tensor) -> Tensor:
    """An MLP with one hidden layer, by hand."""
    inputs, outputs = math.prod(task.shape), task.classes
    width = (len(model) - outputs) // (inputs + 1 + outputs)
    cut = [width * inputs, width, outputs * width, outputs]
    first, bias, second, last = torch.split(model, cut)
    return torch.relu(x @ first.view(width, inputs).T + bias) @ second.view(outputs, width).T + last


def loop_of_loss(task: EnvironmentTask, algorithm: ActorCritic, model: Tensor, rollout: Rollout) -> Tensor:
    """The loss of A3C, step by step in float64."""
    steps, copies = rollout.rewards.shape
    total = torch.zeros((), dtype=torch.float64)
    for copy in range(copies):
        values = [float(forward(task, model, x.double())[-1].detach()) for x in rollout.after[:, copy]]
        ends = rollout.terminated[:, copy], rollout.truncated[:, copy]
        rewards = [algorithm.reward_scale * float(reward) for reward in rollout.rewards[:, copy]]
        returns = loop_of_returns(rewards, values, *ends, algorithm.gamma)
        for t in range(steps):
            out = forward(task, model, rollout.seen[t, copy].double())
            if isinstance(task.environment, CartPole):
                chances = torch.exp(out[:-1]) / torch.exp(out[:-1]).sum()
                log, entropy = torch.log(chances[rollout.actions[t, copy]]), -(chances * torch.log(chances)).sum()
            else:
                law = torch.distributions.Normal(2 * out[0], 2 * (torch.log1p(torch.exp(out[1])) + 1e-3))
                log, entropy = law.log_prob(rollout.actions[t, copy, 0].double()), law.entropy()
            advantage = returns[t] - float(out[-1].detach())
            total = total - log * advantage - algorithm.entropy * entropy
            total = total + algorithm.value * (returns[t] - out[-1]) ** 2
    return total / (steps * copies)


@pytest.mark.parametrize("world", [CartPole(copies=3), Pendulum(copies=3)])
def test_a_gradient_is_that_of_the_papers_loss(world: CartPole | Pendulum) -> None:
    task = EnvironmentTask.build_task(world, MLP(hidden=(8,)), 2, Rng(0))
    algorithm = ActorCritic(gamma=0.95, entropy=0.05, value=0.3, reward_scale=0.4)
    models = torch.stack([task.initial_model(Rng(seed)) for seed in range(2)])
    states = [task.start_actor(Rng(seed).numpy()) for seed in range(2)]
    for _ in range(3):  # until some episodes are over
        draws = [Rng(seed).numpy() for seed in range(2)]
        rollouts, states = task.rollouts(models, range(2), states, 12, draws)
    if isinstance(world, CartPole):
        assert any(one.terminated.any() for one in rollouts)
    found = algorithm.gradients(task, models, rollouts)
    for row, model, rollout in zip(found, models, rollouts, strict=True):
        wide = model.double().requires_grad_()
        (wanted,) = torch.autograd.grad(loop_of_loss(task, algorithm, wide, rollout), wide)
        assert (row - wanted).norm() < 2e-6 * wanted.norm()
    short = replace(algorithm, clip=0.01).gradients(task, models, rollouts)
    assert short.norm(dim=1).tolist() == pytest.approx([0.01, 0.01], rel=1e-4)
    assert torch.cosine_similarity(short, found).min() > 1 - 1e-6


def test_a_rollout_goes_on_where_the_last_one_ended_and_shows_the_state_before_a_new_start() -> None:
    task = EnvironmentTask.build_task(CartPole(copies=4), MLP(hidden=(8,)), 1, Rng(0))
    model, state = task.initial_model(Rng(1)), task.start_actor(Rng(2).numpy())
    (first,), (after,) = task.rollouts(model[None], [0], [state], 40, [Rng(3).numpy()])
    over = first.terminated | first.truncated
    assert over.any()
    assert torch.equal(first.after[:-1][~over[:-1]], first.seen[1:][~over[:-1]])
    assert (first.after[:, :, 2].abs() > math.radians(12))[
        first.terminated
    ].all()  # where it fell, and not where it starts
    assert (first.seen.abs()[1:][over[:-1]] <= 0.05).all()
    (second,), _ = task.rollouts(model[None], [0], [after], 1, [Rng(4).numpy()])
    assert torch.equal(second.seen[0], torch.from_numpy(task.environment.observe_state(after.world)))
    logs = task.policy.log_prob(forward(task, model, first.seen)[..., :-1], first.actions)
    assert torch.allclose(first.behavior, logs, atol=1e-6)


def test_what_an_actor_does_depends_on_itself_alone() -> None:
    task = EnvironmentTask.build_task(CartPole(copies=4), MLP(hidden=(8,)), 3, Rng(0))
    models = torch.stack([task.initial_model(Rng(seed)) for seed in range(3)])
    states = [task.start_actor(Rng(seed).numpy()) for seed in range(3)]
    together, _ = task.rollouts(models, range(3), states, 6, [Rng(seed).numpy() for seed in range(3)])
    (alone,), _ = task.rollouts(models[1:2], [1], states[1:2], 6, [Rng(1).numpy()])
    assert all(torch.allclose(*parts, atol=1e-6) for parts in zip(together[1].parts, alone.parts, strict=True))


class Actors:
    """All actors of a training, one after the other, each with its own environments."""

    def __init__(self, setup: Any) -> None:
        self.setup, self.algorithm = setup, setup.cell.training.algorithm
        self.states = {
            one: setup.task.start_actor(setup.rng.child("actor", one).numpy()) for one in range(len(setup.task.sizes))
        }

    def gradient(self, actor: int, turn: int, model: Tensor) -> Tensor:
        """float64 ``[d]``: of the actor's next rollout."""
        task = self.setup.task
        rng = self.setup.rng.child("round", turn).child("client", actor).numpy()
        steps = self.algorithm.t_max
        (rollout,), (state,) = task.rollouts(model.float()[None], [actor], [self.states[actor]], steps, [rng])
        self.states[actor] = state
        wide = model.float().double().requires_grad_()
        return torch.autograd.grad(loop_of_loss(task, self.algorithm, wide, rollout), wide)[0]


def test_a3c_is_the_papers_loop_over_who_came_when() -> None:
    made, setup = scene("a3c", network={"compute": {"seconds": 0.01, "spread": 0.6}, "link": {"latency": 0.05}})
    actors, n = Actors(setup), setup.cell.clients.total
    models = [setup.task.initial_model(setup.rng.child("model")).double()]
    begun: dict[tuple[int, int], Tensor] = {}
    releases = course(made, setup)
    late = 0
    for _ in range(setup.cell.training.rounds * n):
        release = next(releases)
        begun.update(dict.fromkeys((one.key for one in release.begun), models[-1]))
        (arrival,) = release.arrivals
        gradient = actors.gradient(arrival.client, arrival.turn, begun.pop(arrival.key))
        late += release.version - arrival.version
        models.append(models[-1] - setup.cell.training.server_lr * setup.cell.training.lr * gradient / n)
    *_, last = made.architecture.run(setup)
    moved = (models[-1] - models[0]).norm()
    assert late > 0
    assert (last.model.double() - models[-1]).norm() < 1e-5 * moved


def test_a2c_is_the_papers_loop_in_step() -> None:
    made, setup = scene("a2c")
    actors, n = Actors(setup), setup.cell.clients.total
    model = start = setup.task.initial_model(setup.rng.child("model")).double()
    for round in range(1, setup.cell.training.rounds + 1):
        gradients = [actors.gradient(actor, round, model) for actor in range(n)]
        model = model - setup.cell.training.server_lr * setup.cell.training.lr * sum(gradients) / n
    *_, last = made.architecture.run(setup)
    assert (last.model.double() - model).norm() < 1e-5 * (model - start).norm()


@pytest.mark.parametrize(
    ("one", "other"),
    [("a3c", "parameter_server(consistency='eventual')"), ("a2c", "parameter_server"), ("a2c", "server")],
)
def test_each_is_a_server_of_another_name_with_actors_for_clients(one: str, other: str) -> None:
    *_, first = reports(one)
    *_, second = reports(other)
    assert torch.equal(first.model, second.model)


def test_in_fedbuff_an_actor_that_comes_twice_goes_on_from_its_first_rollout() -> None:
    quick = {"compute": {"seconds": 0.01, "slow": {"share": 0.5, "factor": 30}}, "link": {"latency": 0.0}}
    made, setup = scene("fedbuff(buffer=6, scaled=False)", network=quick)
    actors, models = Actors(setup), [setup.task.initial_model(setup.rng.child("model")).double()]
    begun: dict[tuple[int, int], Tensor] = {}
    releases, twice = course(made, setup), False
    found = [report.model for report in made.architecture.aggregates(setup)]
    for _ in found:
        release = next(releases)
        begun.update(dict.fromkeys((one.key for one in release.begun), models[-1]))
        keys = sorted((one.key for one in release.arrivals), key=lambda key: key[::-1])
        twice = twice or len({device for device, _ in keys}) < len(keys)
        gradients = [actors.gradient(*key, begun.pop(key)) for key in keys]
        models.append(
            models[-1] - setup.cell.training.server_lr * setup.cell.training.lr * sum(gradients) / len(gradients)
        )
    assert twice
    assert (found[-1].double() - models[-1]).norm() < 1e-5 * (models[-1] - models[0]).norm()


def test_malicious_actors_learn_from_the_opposite_and_nobody_else_does() -> None:
    task = playing()
    lies = task.with_liars(RewardFlip().report, {1})
    models = task.initial_model(Rng(0)).expand(3, -1)
    states = [task.start_actor(Rng(seed).numpy()) for seed in range(3)]
    honest, told = (
        one.rollouts(models, range(3), states, 5, [Rng(seed).numpy() for seed in range(3)])[0] for one in (task, lies)
    )
    assert [torch.equal(a.rewards, b.rewards) for a, b in zip(honest, told, strict=True)] == [True, False, True]
    assert torch.equal(honest[1].rewards, -told[1].rewards)
    assert torch.equal(honest[1].actions, told[1].actions)


def test_reward_flip_sends_the_gradient_of_the_opposite_task() -> None:
    made, setup = scene("a2c", attack="reward_flip", clients={"total": 3, "malicious": 1}, training={"rounds": 1})
    (bad,) = setup.malicious
    actors = Actors(setup)
    model = setup.task.initial_model(setup.rng.child("model")).double()
    honest = sum(actors.gradient(one, 1, model) for one in range(3) if one != bad)
    liar = Actors(setup)
    liar.setup = type("Setup", (), {"task": setup.task.with_liars(RewardFlip().report, {bad}), "rng": setup.rng})
    wanted = (
        model - setup.cell.training.lr * setup.cell.training.server_lr * (honest + liar.gradient(bad, 1, model)) / 3
    )
    *_, last = made.architecture.run(setup)
    assert (last.model.double() - wanted).norm() < 1e-5 * (wanted - model).norm()


def test_an_evaluation_plays_each_episode_once_and_to_its_end() -> None:
    task = playing()
    model = task.initial_model(Rng(5))
    returns = task.evaluate(model).returns
    state = task.environment.start_episodes(100, task.rng.child("test").numpy())
    lengths = np.zeros(100)
    for row in range(100):
        one = type(state)(state.x[row : row + 1], state.steps[row : row + 1])
        over = False
        while not over:
            best = int(forward(task, model, torch.from_numpy(task.environment.observe_state(one)))[0, :-1].argmax())
            step = task.environment.take_step(one, np.array([best]))
            one, over = step.state, bool(step.terminated[0] or step.truncated[0])
            lengths[row] += 1
    assert returns == tuple(lengths.tolist())
    assert 15 < task.guess < 35  # about 22 steps, as is well known
