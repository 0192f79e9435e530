"""Privacy: claimed epsilons, results of audits, cost and leakage, and membership inference."""

from __future__ import annotations

from collections.abc import Iterator
from xml.etree.ElementTree import Element

from fedguard.app.charts.privacy import audit_names, bounds, frontier, roc
from fedguard.bench.audits.suites import StoredAudit, load_audit
from fedguard.bench.pages.elements import bullet_list, el, paragraphs, table
from fedguard.bench.pages.svg import draw_figure
from fedguard.bench.results.disclosure import PrivacyClaim, list_membership_targets, promises
from fedguard.bench.results.matrix import MatrixEntry
from fedguard.bench.results.run import Run
from fedguard.bench.results.trilemma import LEAKAGE, Point, Trilemma, WorstAttack, points
from fedguard.errors import StoreError
from fedguard.metrics.figures import FIGURES


def privacy(run: Run) -> list[Element]:
    """Every epsilon with its unit and assumptions, then the trilemma."""
    return [*_render_promises(run), *_render_audits(run), *_trilemma(run), *_members(run)]


def _render_promises(run: Run) -> Iterator[Element]:
    found = promises(run)
    if all(not one.facts for one in found):
        return
    yield el("h3", "What is proven")
    heads = ["setting", "epsilon", "hides one", "what it says", "trials"]
    rows = [
        (one.setting or "every cell", one.figure, one.unit or "nothing", one.words, str(one.trials)) for one in found
    ]
    yield table("Upper bounds on what one record or one client changes; smaller hides more", heads, rows, "lrllr")
    resting = _assumptions(found)
    if resting:
        yield el("h4", "What these rest on")
        yield bullet_list(resting)


def _assumptions(found: list[PrivacyClaim]) -> list[str]:
    """Each assumption once, with the settings to which it applies."""
    told: dict[str, list[str]] = {}
    for one in found:
        for line in one.facts.get("assumptions") or ():
            told.setdefault(str(line), []).append(one.setting or "every cell")
    return [f"{line} ({'; '.join(dict.fromkeys(settings))})" for line, settings in told.items()]


def _render_audits(run: Run) -> Iterator[Element]:
    try:
        stored = load_audit(run.folder)
    except StoreError as error:
        stored = None
        yield el("p", str(error), class_="note")
    if stored is not None:
        yield from _bounds(run, stored)


def _bounds(run: Run, stored: StoredAudit) -> Iterator[Element]:
    yield el("h3", "What an audit found")
    yield from paragraphs(stored.doubts(run), class_="note")
    if stored.audits:
        yield draw_figure(
            bounds(stored.audits), "Lower bounds by canaries as bars, the accountant's epsilon as diamonds."
        )
        named = zip(audit_names(stored.audits), stored.audits, strict=True)
        rows = [(name, one.audit.verdict, one.audit.words) for name, one in named]
        yield table(f"Audits by {stored.method}", ["of", "verdict", "in words"], rows, "l")


def _trilemma(run: Run) -> Iterator[Element]:
    found = Trilemma(run.name, points(run.rows(), run.swept))
    figures = [figure for figure in LEAKAGE if any(figure in point.leakage for point in found.points)]
    if not figures and all(point.epsilon is None for point in found.points):
        return
    yield el("h3", "What it costs, and what still leaks")
    if len({point.epsilon for point in found.points}) > 1:
        units = {one.setting: str(one.unit) for one in promises(run) if one.unit}
        says = "Accuracy under the worst attack and what leaks, over epsilon; bars are 95 % intervals over seeds."
        yield draw_figure(frontier(found, units), says)
    heads = ["setting", "defense", "epsilon", "final accuracy, worst", *(FIGURES[figure].heading for figure in figures)]
    rows = [_point(point, figures) for point in found.points]
    yield table("Each metric is the worst over its attacks", heads, rows, "llrr")
    yield from paragraphs([found.note] if found.note else [], class_="note")


def _point(point: Point, figures: list[str]) -> list[str]:
    epsilon = "none" if point.epsilon is None else f"{point.epsilon:.3g}"
    worst = [_worst(point.leakage.get(figure), figure) for figure in figures]
    return [point.setting or "every cell", point.defense, epsilon, _worst(point.accuracy, "final_accuracy"), *worst]


def _worst(one: WorstAttack | None, figure: str) -> str:
    return "-" if one is None else f"{MatrixEntry(one.estimate, 'ok', FIGURES[figure]).text()} ({one.attack})"


def _members(run: Run) -> Iterator[Element]:
    """Membership attacks on logarithmic axes: what an attack finds without false positives does the harm."""
    targets = list_membership_targets(run)
    if any(true > 0 and false > 0 for target in targets for false, true in target.score["roc"]):
        yield el("h3", "Who is recognised as a member")
        yield draw_figure(
            roc(targets), "True over false positives of the membership attacks, both on a logarithmic axis."
        )
