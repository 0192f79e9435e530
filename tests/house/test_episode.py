"""The picture that moves: it turns as the episodes do, and the one that the page shows says what stands beside it."""

from __future__ import annotations

import re
from xml.etree.ElementTree import fromstring

import numpy as np
import pytest

pytest.importorskip("altair")

from docs_tools import episode
from fedguard.rng import Rng
from fedguard.tasks.environments.pendulum import Pendulum
from fedguard.tasks.models.rssm import RSSM
from fedguard.tasks.playing import EnvironmentTask

SVG = "{http://www.w3.org/2000/svg}"


def turns(text: str) -> list[list[float]]:
    """Degrees clockwise of each pole of a picture, by the step."""
    return [
        [float(one) for one in found.get("values", "").split(";")]
        for found in fromstring(text).iter(f"{SVG}animateTransform")
    ]


def test_a_pole_turns_as_its_episode_does():
    up, left = np.array([np.pi, np.pi / 2, 0.0]), np.array([0.0, 0.1, -0.1])
    text = episode.drawn({"one": episode.Episode(up, -3.0), "another": episode.Episode(left, -1234.4)})
    assert turns(text) == [[-180.0, -90.0, -0.0], [-0.0, -5.7, 5.7]]
    assert [found.text for found in fromstring(text).iter(f"{SVG}text")] == ["one: -3", "another: -1,234"]
    assert {found.get("dur") for found in fromstring(text).iter(f"{SVG}animateTransform")} == {"0.15s"}


def test_what_is_drawn_is_a_test_episode_that_starts_below():
    task = EnvironmentTask.build_task(Pendulum(copies=1), RSSM(fixed=4, chance=3, inside=5), 1, Rng(0))
    model = 0.5 * task.initial_model(Rng(1)) + 0.1
    found = episode.played(task, model)
    assert len(found.angles) == 200
    starts = task.environment.start_episodes(100, task.rng.child("test").numpy()).x[:, 0]
    (number,) = np.flatnonzero(starts == found.angles[0])
    assert abs(starts[number]) == pytest.approx(np.pi, abs=0.1)
    assert found.returned == pytest.approx(task.evaluate(model).returns[number], rel=1e-4)


def test_the_page_shows_a_pole_that_stands_and_one_that_a_flood_keeps_down():
    """From the same start; in the last two seconds within 15 degrees of upright in the mean, and beyond 60."""
    page, text = (episode.ROOT / "docs" / "reinforcement_results.md").read_text(), episode.FILE.read_text()
    assert re.search(r"!\[[^\]]{40,}\]\(episode\.svg\)", page) and "python -m docs_tools.episode" in page
    assert "http" not in text.replace("http://www.w3.org", "")
    by = dict(zip(episode.SHOWN.values(), turns(text), strict=True))
    assert len({angles[0] for angles in by.values()}) == 1
    off = {name: np.abs((np.array(angles[-40:]) + 180) % 360 - 180).mean() for name, angles in by.items()}
    assert off["nobody attacks"] < 15 and off["replay_flood"] > 60, off
