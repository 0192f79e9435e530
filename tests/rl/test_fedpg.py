"""FedPG's steps at the server, against the paper's loop in float64 and by their laws."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from scipy import stats
from torch import Tensor

from fedguard.algorithms.rl.fedpg import SERVER, FedPG
from fedguard.attacks.poisoning.reward_flip import RewardFlip
from fedguard.contracts import Rollout
from fedguard.errors import ConfigError
from fedguard.rng import Rng
from tests.rl.acting import cell, playing, scene
from tests.rl.test_actor_critic import Actors, forward, loop_of_loss

ALGORITHM = FedPG(t_max=4, batch=5, gamma=0.95, entropy=0.05, value=0.3)


def acted(now: Tensor, copies: int, steps: int, seed: int = 0) -> tuple[Any, Rollout]:
    """The server's task, and what it met with at the start of its episodes."""
    task = playing().with_copies(copies)
    (rollout,), _ = task.rollouts(
        now[None], [SERVER], [task.start_actor(Rng(seed).numpy())], steps, [Rng(seed).numpy()]
    )
    return task, rollout


def loop_of_step(
    task: Any, algorithm: FedPG, start: Tensor, now: Tensor, aggregate: Tensor, rollout: Rollout
) -> Tensor:
    """v_k, trajectory by trajectory in float64."""
    found = aggregate.double().clone()
    copies = rollout.rewards.shape[1]
    for j in range(copies):
        one = Rollout(*(part[:, j : j + 1] for part in rollout.parts))
        slopes = []
        for model in (now, start):
            wide = model.double().requires_grad_()
            slopes.append(torch.autograd.grad(loop_of_loss(task, algorithm, wide, one), wide)[0])
        omega = 1.0
        for t in range(len(one.rewards)):
            for model, power in ((start, 1), (now, -1)):
                chances = torch.softmax(forward(task, model.double(), one.seen[t, 0].double())[:-1], 0)
                omega *= float(chances[one.actions[t, 0]]) ** power
        found -= (slopes[0] - omega * slopes[1]) / copies
    return found


def near(model: Tensor, by: float) -> Tensor:
    return model + by * torch.randn(len(model), generator=torch.Generator().manual_seed(1))


def test_a_step_is_the_papers_difference_of_weighted_gradients() -> None:
    start = playing().initial_model(Rng(0))
    now, aggregate = near(start, 0.3), torch.linspace(-1, 1, len(start))
    task, rollout = acted(now, 5, 4)
    found = ALGORITHM.step(task, start, now, aggregate, rollout)
    wanted = loop_of_step(task, ALGORITHM, start, now, aggregate, rollout)
    assert (found - wanted).norm() < 1e-5 * (wanted - aggregate).norm()
    assert torch.equal(replace(ALGORITHM, clip=1e-3).step(task, start, now, aggregate, rollout), found)


def test_weights_make_old_gradients_of_new_trajectories_and_the_difference_varies_less() -> None:
    """By the law of importance: omega g(theta_0) of what theta_k acted has the mean that g(theta_0) has where theta_0 acted."""
    start = playing().initial_model(Rng(0))
    now, nothing = near(start, 0.2), torch.zeros(len(start))
    task, new = acted(now, 2000, 4)
    _, old = acted(start, 2000, 4, seed=1)

    def each(model: Tensor, rollout: Rollout) -> Tensor:
        ones = [Rollout(*(part[:, j : j + 1] for part in rollout.parts)) for j in range(2000)]
        return -ALGORITHM.slopes(task, model.expand(2000, -1), ones)

    here, there = each(now, new), each(start, old)
    weighed = here.mean(0) - ALGORITHM.step(task, start, now, nothing, new)  # omega g(theta_0), on average
    spread = (there.var(0) / 1000).sqrt().clamp(min=1e-7)
    away = ((weighed - there.mean(0)) / spread).abs()
    assert (
        away.max() < 5 and (here.mean(0) - there.mean(0)).div(spread).abs().max() > 5
    )  # without weights it would be seen
    some = [ALGORITHM.step(task, start, now, nothing, part) for part in parts(new, 8)]
    plain = here.view(250, 8, -1).mean(1)
    assert torch.stack(some).var(0).sum() < 0.5 * plain.var(0).sum()


def parts(rollout: Rollout, size: int) -> list[Rollout]:
    cut = [torch.split(part, size, dim=1) for part in rollout.parts]
    return [Rollout(*some) for some in zip(*cut, strict=True)]


def test_the_number_of_steps_is_geometric() -> None:
    _, setup = scene("a2c", training={"algorithm": "fedpg(t_max=4, batch=2)"})  # three copies an actor
    local = setup.cell.algorithm.start(setup)
    rng = np.random.default_rng(0)
    seen = Counter(min(local.steps(rng), 8) for _ in range(5000))
    chance = 3 / (3 + 2)
    wanted = [chance**k * (1 - chance) for k in range(8)] + [chance**8]
    assert stats.chisquare([seen[k] for k in range(9)], 5000 * np.array(wanted)).pvalue > 1e-3
    assert local.gain(4) == pytest.approx(chance / (1 - chance))


def test_a_training_is_the_papers_loop() -> None:
    made, setup = scene("a2c", training={"algorithm": "fedpg(t_max=4, batch=2)", "rounds": 8})
    algorithm = setup.cell.algorithm
    actors, n, own = Actors(setup), setup.cell.clients.total, setup.task.with_copies(2)
    model = start = setup.task.initial_model(setup.rng.child("model")).double()
    stream, took = setup.rng.child("server acts"), []
    state = own.start_actor(stream.child("start").numpy())
    for round in range(1, setup.cell.training.rounds + 1):
        aggregate = -sum(actors.gradient(actor, round, model) for actor in range(n)) / n
        rng = stream.child("aggregate", round).numpy()
        now, steps = model, rng.geometric(1 - 3 / (3 + 2)) - 1
        took.append(steps)
        for k in range(steps):
            direction = aggregate
            if k:
                (rollout,), (state,) = own.rollouts(now.float()[None], [SERVER], [state], 4, [rng])
                direction = loop_of_step(own, algorithm, model.float(), now.float(), aggregate, rollout)
            now = now + setup.cell.training.server_lr * setup.cell.training.lr * direction
        model = now
    assert 0 in took and max(took) > 2
    *_, last = made.architecture.run(setup)
    assert (last.model.double() - model).norm() < 1e-4 * (model - start).norm()


def test_lies_are_the_actors_and_never_the_servers() -> None:
    _, setup = scene("a2c", training={"algorithm": "fedpg(t_max=4, batch=2)"})
    lies = setup.task.with_liars(RewardFlip().report, range(4))
    here, there = (setup.cell.algorithm.start(replace(setup, task=task)) for task in (setup.task, lies))
    model = setup.task.initial_model(setup.rng.child("model"))
    aggregate = near(torch.zeros_like(model), 0.5)
    for _ in range(8):
        assert torch.equal(*(local.settle(aggregate, (), model) for local in (here, there)))


@pytest.mark.parametrize("more", [{"server_optimizer": {"name": "adam"}}, {"server_momentum": 0.5}])
def test_it_takes_plain_steps_alone(more: dict[str, Any]) -> None:
    with pytest.raises(
        ConfigError, match="fedpg takes plain steps from each aggregate; expected neither server_optimizer"
    ):
        cell("a2c", training={"algorithm": "fedpg", **more})
