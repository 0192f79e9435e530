"""Reconstructions beside the truth, drawn from arrays: image files of a run are never embedded."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterator
from xml.etree.ElementTree import Element

from fedguard.bench.pages.elements import bullet_list, el
from fedguard.bench.results.disclosure import ReconstructionResult, picture, rebuilt
from fedguard.bench.results.run import Run
from fedguard.errors import StoreError

#: Largest number of bytes of images in one report
ROOM = 1_000_000


def pictures(run: Run) -> list[Element]:
    """One target of each attack, defense and setting, from the first seed, within the limit of bytes."""
    chosen: dict[tuple[str, str, str], ReconstructionResult] = {}
    for one in rebuilt(run):
        if one.arrays is not None:
            chosen.setdefault((one.place.setting, one.place.attack, one.place.defense), one)
    if not chosen:
        return []
    shown, left = list[Element](), list[str]()
    used = 0
    for one in chosen.values():
        drawn, why = _render_picture(one, ROOM - used)
        used += len(drawn or b"")
        if drawn is None:
            left.append(f"{_describe_trial(one)}: {why}")
        else:
            shown.append(_figure(one, drawn))
    said = "Above the true inputs, below what the attack made of them: the first target of the first seed."
    return [el("p", said), el("div", *shown, class_="pictures"), *([bullet_list(left)] if left else [])]


def _render_picture(one: ReconstructionResult, room: int) -> tuple[bytes | None, str]:
    assert one.arrays is not None
    try:
        drawn = picture(one.arrays)
    except StoreError as error:
        return None, str(error)
    if drawn is None:
        return None, "no images"
    return (drawn, "") if len(drawn) <= room else (None, "left out, since the report would become too large")


def _figure(one: ReconstructionResult, drawn: bytes) -> Element:
    scores = ", ".join(_scores(one))
    says = f"{_describe_trial(one)}" + (f": {scores}" if scores else "")
    image = el(
        "img", src=f"data:image/png;base64,{b64encode(drawn).decode()}", alt=f"Inputs and what was rebuilt: {says}"
    )
    return el("figure", image, el("figcaption", says))


def _describe_trial(one: ReconstructionResult) -> str:
    place = one.place
    setting = f", {place.setting}" if place.setting else ""
    return f"{place.attack} against {place.defense}{setting}, seed {place.seed}"


def _scores(one: ReconstructionResult) -> Iterator[str]:
    psnr, gain = one.score.get("psnr"), one.score.get("gain")
    if psnr:
        yield f"PSNR {psnr['mean']:.1f} dB"
    if gain:
        yield f"{gain['mean']:+.1f} dB beside the best trivial guess"
    if one.score.get("revealed") is not None:
        exact, revealed, images = one.score["exact"], one.score["revealed"], one.score["images"]
        yield f"of {images} inputs {exact} recovered exactly and {revealed} nearer than any trivial guess"
