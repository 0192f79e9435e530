"""What `explain` draws: everything in the catalogue can be explained, and the pictures say what is true."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import numpy as np
import pytest
import torch
from rich.console import Console

from fedguard.bench.explain.catalogue import Explanation
from fedguard.bench.explain.picture import HEIGHT, WIDTH, ChartLayer, scatter
from fedguard.bench.explain.toy import picture_of
from fedguard.contracts import Defense, Ensemble, InferenceAttack, MatrixRule, PoisonAttack, Sight
from fedguard.registry import load_registry

FRAME = "+" + "-" * WIDTH + "+"
CATALOGUE = [(kind, cls) for kind, cls in load_registry().classes()]

#: What is drawn of each, once for all tests; `explain` draws it anew.
picture_once = cache(picture_of)


def printed(renderable, columns: int = 80) -> str:
    console = Console(width=columns, record=True, file=None, color_system=None, quiet=False)
    with console.capture() as said:
        console.print(renderable)
    return said.get()


def cells(text: str) -> dict[str, list[tuple[int, int]]]:
    """Where each character stands in the picture: (column, row)."""
    lines = text.splitlines()
    first = lines.index(FRAME)
    assert lines[first + HEIGHT + 1] == FRAME
    found: dict[str, list[tuple[int, int]]] = {}
    for row, line in enumerate(lines[first + 1 : first + HEIGHT + 1]):
        assert len(line) == WIDTH + 2
        for column, character in enumerate(line[1:-1]):
            if character != " ":
                found.setdefault(character, []).append((column, row))
    return found


def drawn(name: str) -> dict[str, list[tuple[int, int]]]:
    kind = "defense" if name in load_registry().names("defense") else "attack"
    return cells(printed(picture_of(load_registry().get(kind, name))))


def within(point, cloud) -> bool:
    columns, rows = zip(*cloud, strict=True)
    return min(columns) <= point[0] <= max(columns) and min(rows) <= point[1] <= max(rows)


@pytest.mark.parametrize("cls", [cls for _, cls in CATALOGUE], ids=lambda cls: f"{cls.kind} {cls.name}")
def test_everything_is_explained_and_drawn_where_it_can_be(cls):
    said = printed(Explanation(load_registry(), cls.name))
    assert said.startswith(cls.name)
    picture = picture_once(cls)
    assert (FRAME in said) == (picture is not None)
    assert all(len(line) <= 80 for line in said.splitlines())
    if issubclass(cls, Defense):  # one that looks through the network, or at times, cannot be drawn without
        assert picture is not None or any((Sight.MODEL | Sight.TIMES) & alternative for alternative in cls.needs)
    elif issubclass(cls, PoisonAttack):
        own = {hook for base in cls.__mro__ if base is not PoisonAttack for hook in vars(base)}
        assert (picture is not None) == ("craft" in own and not own & {"poison", "plan"})
    else:
        assert picture is None
    if picture is not None:
        shown = printed(picture)
        legend = shown.split(FRAME)[2]
        for character in cells(shown):
            assert f"\n{character} " in legend


def test_most_of_the_catalogue_is_drawn():
    for kind, cls in CATALOGUE:
        if kind == "defense" and cls.name not in ("deepsight", "kardam", "asyncfilter", "staleness_clipping"):
            assert picture_once(cls) is not None, cls.name
    assert sum(picture_once(cls) is not None for kind, cls in CATALOGUE if kind == "attack") >= 10
    assert {kind for kind, cls in CATALOGUE if picture_once(cls) is not None} == {"attack", "defense"}


def test_the_trimmed_mean_answers_from_the_honest_crowd_and_the_mean_does_not():
    trimmed, mean = drawn("trimmed_mean"), drawn("mean")
    (answer,), (plain,) = trimmed["R"], trimmed["m"]
    assert within(answer, trimmed["o"])
    assert not within(plain, trimmed["o"])
    (answer,) = mean["R"]
    assert answer == plain
    assert not within(answer, mean["O"])
    assert "m" not in mean
    assert "m the plain mean (under R)" in printed(picture_of(load_registry().get("defense", "mean")))


def test_who_got_weight():
    krum = printed(picture_of(load_registry().get("defense", "krum")))
    assert "O honest, with weight (under R)" in krum
    assert "x malicious, without weight" in krum
    assert "X" not in cells(krum)
    assert "the malicious updates got 0 %" in krum
    assert "the malicious updates got 20 %" in printed(picture_of(load_registry().get("defense", "mean")))


def test_mixings_and_client_transforms_before_and_after():
    nnm = drawn("nnm")
    assert all(within(place, nnm["o"]) for place in nnm["O"])
    assert not any(within(place, nnm["x"]) for place in nnm["X"])
    clipped = drawn("client_clipping")
    (zero,) = clipped["0"]

    def away(place):
        return np.hypot(place[0] - zero[0], 2 * (place[1] - zero[1]))

    assert max(away(place) for place in clipped["O"]) < min(away(place) for place in clipped["o"])


def test_where_colluders_land():
    flipped = drawn("sign_flip")
    (zero,), (mean,), (sent,) = flipped["0"], flipped["m"], flipped["x"]
    assert np.allclose(np.subtract(zero, mean), np.subtract(sent, zero), atol=2)
    assert "which are not finite" in printed(picture_of(load_registry().get("attack", "nan")))
    assert "beyond the frame" in printed(picture_of(load_registry().get("attack", "huge_value")))
    assert "here the trimmed mean" in printed(picture_of(load_registry().get("attack", "opt_alie")))


@dataclass(frozen=True, kw_only=True)
class Demanding(MatrixRule):
    """Has a parameter without a default."""

    name, needs = "demanding", (Sight.EACH_UPDATE,)
    size: int

    def combine(self, updates, context):
        return updates[0]


class Looks(MatrixRule):
    """Looks at logits, which no toy has."""

    name, needs = "looks", (Sight.EACH_UPDATE | Sight.MODEL,)

    def combine(self, updates, context):
        return context.predict(context.model, updates)


class Raises(MatrixRule):
    """Is broken."""

    name, needs = "raises", (Sight.EACH_UPDATE,)

    def combine(self, updates, context):
        raise ZeroDivisionError


def test_what_cannot_run_on_the_toy_is_left_out_and_a_fault_is_not_hidden():
    assert picture_of(Demanding) is None
    assert picture_of(Looks) is None
    with pytest.raises(ZeroDivisionError):
        picture_of(Raises)
    assert picture_of(Ensemble) is None
    assert picture_of(InferenceAttack) is None


# The drawing itself.


def layer(points, symbol="o"):
    return ChartLayer(np.array(points, dtype=float).reshape(-1, 2), symbol, f"meaning of {symbol}", "")


def test_both_axes_have_the_same_scale():
    found = cells(printed(scatter([layer([[0, 0], [6, 0], [0, 6], [6, 6]])], "A square")))["o"]
    columns, rows = {column for column, _ in found}, {row for _, row in found}
    assert len(found) == 4
    assert max(columns) - min(columns) == 2 * (max(rows) - min(rows))
    assert max(rows) - min(rows) == HEIGHT - 1
    assert abs(sum(columns) - (WIDTH - 1)) <= 1  # in the middle


def test_up_is_up_and_right_is_right():
    found = cells(printed(scatter([layer([[0, 0]], "a"), layer([[5, 0]], "b"), layer([[0, 3]], "c")], "")))
    (a,), (b,), (c,) = found["a"], found["b"], found["c"]
    assert b[0] > a[0] and b[1] == a[1]
    assert c[1] < a[1] and c[0] == a[0]


def test_what_is_out_of_sight_is_told():
    said = printed(scatter([layer([[0, 0], [1, 1]]), layer([[0, 900.0]], "x")], "Far"))
    ((_, row),) = cells(said)["x"]
    assert row == 0
    assert "x meaning of x, beyond the frame: as far as (0, 900)" in said
    said = printed(scatter([layer([[0, 0], [1, 1]]), layer([[np.nan, 0.0]], "x")], "Nowhere"))
    assert "x" not in cells(said)
    assert "x meaning of x, which are not finite" in said
    said = printed(scatter([layer([[0, 0], [1, 1]], "m"), layer([[0, 0], [1, 1]], "R"), layer([], "q")], "Under"))
    assert "m meaning of m (under R)" in said
    assert "q" not in said
    assert cells(printed(scatter([layer([[2, 2]])], "One point")))["o"]
    assert "beyond the frame" in printed(scatter([layer([[50, 50]])], "Nothing near"))


def test_narrow_terminals_lose_columns_of_the_picture_but_no_words():
    said = printed(picture_of(load_registry().get("defense", "mean")), columns=40)
    assert all(len(line) <= 40 for line in said.splitlines())
    assert "20 %" in " ".join(said.split())


def test_it_is_the_same_at_each_call_and_leaves_the_toy_as_it_was():
    first = printed(picture_of(load_registry().get("defense", "bucketing")))
    torch.manual_seed(5)
    picture_of(load_registry().get("defense", "trimmed_mean"))
    assert printed(picture_of(load_registry().get("defense", "bucketing"))) == first
