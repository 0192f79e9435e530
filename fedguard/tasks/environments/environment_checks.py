"""Checks of environments against their contract: each step of a training, and some steps before it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedguard.contracts import Environment, Policy, Step
from fedguard.contracts.return_checks import check_return, contract_error, describe_value
from fedguard.errors import ConfigError
from fedguard.rng import Rng, global_generators

#: Environments that are tried before a training, and the steps of each; the first `TWICE` are taken twice.
COPIES, STEPS, TWICE = 8, 200, 5


def observe_copies(world: Environment, state: Any, copies: int) -> NDArray[np.float32]:
    """float32 ``[B, *shape]``: what actors see.

    Raises:
        ContractError: they do not.
    """
    seen = world.observe_state(state)
    shape = (copies, *world.shape)
    if not isinstance(seen, np.ndarray) or seen.dtype != np.float32 or seen.shape != shape:
        raise contract_error(
            world, f"observe_state: expected a numpy array of float32 {list(shape)}; got {describe_value(seen)}"
        )
    if not np.isfinite(seen).all():
        raise contract_error(world, f"observe_state: expected finite numbers; got {seen[~np.isfinite(seen)].flat[0]}")
    return seen


def step_copies(world: Environment, state: Any, actions: NDArray[Any]) -> Step:
    """One step of each copy.

    Raises:
        ContractError: it is not what a `Step` has to be.
    """
    step, copies = check_return(world, "take_step", world.take_step(state, actions), Step), len(actions)
    for name, kinds, words in (("rewards", "fiu", "numbers"), ("terminated", "b", "bool"), ("truncated", "b", "bool")):
        found = getattr(step, name)
        if not isinstance(found, np.ndarray) or found.dtype.kind not in kinds or found.shape != (copies,):
            raise contract_error(
                world, f"take_step: {name}: expected a numpy array of {words} [{copies}]; got {describe_value(found)}"
            )
    if not np.isfinite(step.rewards).all():
        raise contract_error(world, f"take_step: rewards: expected finite numbers; got {step.rewards.tolist()}")
    return step


def try_environment(world: Environment, policy: Policy, rng: Rng) -> NDArray[np.float64]:
    """Play one episode in each of `COPIES` environments by random actions; the returns of episodes that end in `STEPS` steps.

    Each environment is made twice, and from some states a step is taken twice: the answers must be equal, or a seed does not
    reproduce a training. Draws from global generators are the same in both.

    Raises:
        ConfigError: an environment does not answer as it should, or answers another thing when it is asked again.
        ContractError: a plug-in breaks its contract.
    """
    with global_generators(rng):
        return _play_copies(world, policy, rng)


def _play_copies(world: Environment, policy: Policy, rng: Rng) -> NDArray[np.float64]:
    draws, again = rng.child("actions").numpy(), replace(world)
    with global_generators(rng):
        state = world.start_episodes(COPIES, rng.child("start").numpy())
    with global_generators(rng):
        twin = again.start_episodes(COPIES, rng.child("start").numpy())
    if not np.array_equal(observe_copies(world, state, COPIES), observe_copies(again, twin, COPIES)):
        raise ConfigError(
            f"{world}: expected the same start from the same seed; got two that differ. Draw from a generator that is made of "
            "the seed which reset is given."
        )
    returns, playing = np.zeros(COPIES), np.ones(COPIES, bool)
    for at in range(STEPS):
        actions = policy.random((COPIES,), draws)
        with global_generators(rng.child(at)):
            step = step_copies(world, state, actions)
        if at < TWICE:
            _same(world, again, (state, twin), step, actions, rng.child(at), at + 1)
            with global_generators(rng.child(at)):
                twin = again.take_step(twin, actions).state
        returns += np.where(playing, step.rewards, 0.0)
        over = step.terminated | step.truncated
        playing, state = playing & ~over, step.state
        observe_copies(world, state, COPIES)
        if not playing.any():
            break
        if over.any():
            state = world.restart_episodes(state, over, draws)
            observe_copies(world, state, COPIES)
            if at < TWICE:
                twin = state
    return returns[~playing]


def _same(
    world: Environment,
    again: Environment,
    states: tuple[Any, Any],
    step: Step,
    actions: NDArray[Any],
    rng: Rng,
    at: int,
) -> None:
    """Raise ConfigError if a step from the same state, here or in an environment made in the same way, differs."""
    for one, state, remedy in (
        (world, states[0], "Keep all that it goes by in the environment itself, where copy.deepcopy copies it"),
        (again, states[1], "Draw from a generator that is made of the seed which reset is given"),
    ):
        with global_generators(rng):
            other = step_copies(one, state, actions)
        alike = all(
            np.array_equal(getattr(step, name), getattr(other, name)) for name in ("rewards", "terminated", "truncated")
        )
        if not alike or not np.array_equal(world.observe_state(step.state), one.observe_state(other.state)):
            raise ConfigError(
                f"{world}: step {at}: expected the same answer to the same action in the same state; got two that differ. "
                f"{remedy}."
            )
