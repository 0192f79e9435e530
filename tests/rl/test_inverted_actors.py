"""What the inversions of the catalogue read off one actor's gradient: its observations, where it took few steps."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from fedguard.contracts import LocalPlan, Reconstruction, Sight
from fedguard.inference import inference_view
from fedguard.registry import load_registry
from fedguard.rng import Rng
from tests.rl.acting import scene


def missed(attack: str, steps: int, trials: int) -> Tensor:
    """By how much the nearest claim misses each true observation, over its length; of one actor with one environment."""
    task_of = {"data": "cartpole(copies=1)", "model": "mlp(hidden=[64])"}
    made, setup = scene("a3c", task=task_of, training={"algorithm": f"actor_critic(t_max={steps})"})
    task, model = setup.task, setup.task.initial_model(setup.rng.child("model"))
    found = []
    for trial in range(trials):
        started = [task.start_actor(Rng(trial).numpy())]
        (met,), _ = task.rollouts(model[None], [0], started, steps, [Rng(100 + trial).numpy()])
        view = inference_view(
            "the server",
            Sight.EACH_UPDATE | Sight.MODEL,
            task.module,
            models=torch.stack([model, model]),
            shape=task.shape,
            classes=task.classes,
            plan=LocalPlan(lr=1.0, steps=1),
            counts=(steps,),
            updates=-made.algorithm.gradients(task, model[None], [met])[None],
            value_range=task.value_range,
        )
        claim = load_registry().build("inference", attack).infer(view)
        assert isinstance(claim, Reconstruction)
        seen = met.seen.flatten(0, 1)
        found.append(torch.cdist(seen, claim.x).min(1).values / seen.norm(dim=1))
    return torch.cat(found)


@pytest.mark.parametrize(
    ("attack", "steps", "least", "most"),
    [
        ("analytic", 1, 1.0, 1.0),
        ("analytic", 4, 0.0, 0.05),
        ("spear", 1, 1.0, 1.0),
        ("spear", 2, 0.85, 1.0),
        pytest.param("spear", 4, 0.0, 0.4, marks=pytest.mark.slow),
    ],
)
def test_the_fewer_steps_are_behind_a_gradient_the_more_of_what_was_observed_is_read_off_it(
    attack: str, steps: int, least: float, most: float
) -> None:
    """A share of the observations is known to a hundredth."""
    known = float((missed(attack, steps, 8 if steps == 4 else 20) < 0.01).float().mean())
    assert least <= known <= most
