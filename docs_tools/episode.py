"""One episode of a pendulum as it is swung up before and under attack: a picture that moves, on the page on actors.

python -m docs_tools.episode        trains the models of `examples/actors_dreamer.yaml`, seed 0, into docs/episode.svg: minutes
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from xml.etree.ElementTree import Element, SubElement, tostring

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedguard.app.charts.colors import COLORS
from fedguard.bench.running.trial import run_trial
from fedguard.bench.running.workbench import Workbench
from fedguard.config import plan, read_document, read_suite
from fedguard.tasks.environments.pendulum import SECONDS
from fedguard.tasks.playing import EPISODES, EnvironmentTask

ROOT = Path(__file__).parents[1]
FILE = ROOT / "docs" / "episode.svg"
#: The cells that are shown, by attack, and the caption of each.
SHOWN = {"None": "nobody attacks", "reward_flip": "reward_flip", "replay_flood": "replay_flood"}

_SIDE, _LENGTH, _TIMES = 220, 70, 5


@dataclass(frozen=True)
class Episode:
    """Angles from upright before each step, float64 ``[T]``, counter-clockwise in radians; and the sum of the rewards."""

    angles: NDArray[np.float64]
    returned: float


@torch.no_grad()
def played(task: EnvironmentTask, model: Tensor) -> Episode:
    """The test episode of a model that starts nearest to hanging down, played by its likeliest actions."""
    world, memory = task.environment, torch.zeros(EPISODES, task.memory)
    state, over = world.start_episodes(EPISODES, task.rng.child("test").numpy()), False
    angles, returned, number = [], 0.0, int(np.cos(state.x[:, 0]).argmin())
    while not over:
        angles.append(float(state.x[number, 0]))
        outputs, _, memory = task.outputs_from_memory(model, torch.from_numpy(world.observe_state(state)), memory)
        actions = task.policy.best(outputs)
        memory = task.remember_actions(memory, actions)
        step = world.take_step(state, actions.numpy())
        state, over = step.state, bool(step.truncated[number])
        returned += float(step.rewards[number])
    return Episode(np.array(angles), returned)


def drawn(episodes: Mapping[str, Episode]) -> str:
    """Poles side by side that turn as in their episodes, in the environment's own seconds, five times; as SVG on white."""
    size = {"width": f"{_SIDE * len(episodes)}", "height": f"{_SIDE}"}
    svg = Element("svg", {"xmlns": "http://www.w3.org/2000/svg", **size, "font-family": "sans-serif"})
    SubElement(svg, "rect", {**size, "fill": "white"})
    for number, (name, one) in enumerate(episodes.items()):
        panel = SubElement(svg, "g", {"transform": f"translate({_SIDE * number + _SIDE // 2} {_SIDE // 2 - 10})"})
        stroke = {"stroke": COLORS[number], "stroke-width": "10", "stroke-linecap": "round"}
        pole = SubElement(panel, "line", {"y2": f"-{_LENGTH}", **stroke})
        SubElement(
            pole,
            "animateTransform",
            {
                "attributeName": "transform",
                "type": "rotate",
                "values": ";".join(f"{-angle:.1f}" for angle in np.degrees(one.angles)),
                "dur": f"{SECONDS * len(one.angles):g}s",
                "repeatCount": f"{_TIMES}",
                "fill": "freeze",
            },
        )
        SubElement(panel, "circle", {"r": "4"})
        said = SubElement(panel, "text", {"y": f"{_SIDE // 2 - 10}", "text-anchor": "middle", "font-size": "13"})
        said.text = f"{name}: {one.returned:,.0f}"
    return tostring(svg, encoding="unicode") + "\n"


def main() -> None:
    document = read_document(ROOT / "examples" / "actors_dreamer.yaml")
    cells = {str(cell.attack): cell for cell in reversed(plan(document, read_suite(document)).cells)}
    bench, episodes = Workbench(), {}
    for attack, said in SHOWN.items():
        task = bench.task(cells[attack], 0)
        assert isinstance(task, EnvironmentTask)
        episodes[said] = played(task, run_trial(cells[attack], 0, {}, bench)[1])
    FILE.write_text(drawn(episodes), encoding="utf-8")
    sys.stdout.write(f"{FILE}\n")


if __name__ == "__main__":
    main()
