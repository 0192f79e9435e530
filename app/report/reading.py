"""How to read the metrics, and what they do not say."""

from __future__ import annotations

from xml.etree.ElementTree import Element

from fedguard.bench.pages.elements import bullet_list, el
from fedguard.bench.records.reading import content
from fedguard.bench.results.run import Run
from fedguard.errors import StoreError
from fedguard.metrics.stats import ENOUGH

#: Configurations with more bytes than this are truncated
LONGEST = 200_000


#: Notes that apply to every run
ALWAYS = (
    "A seed sets the partition, the clients that are drawn, the training and the attack. The interval covers what these vary; "
    "it says nothing of other data, models or numbers of clients.",
    "Two intervals that overlap may still differ: all defenses share the seeds, so take differences seed by seed.",
    "Final accuracy is the mean of the last 5 evaluations; the best of any round is a diagnostic and no result.",
    "The worst of several attacks is chosen by the seeds that its value is of, and so looks a little worse than it is, "
    "unless it is an ensemble, which chooses on seeds of its own. Attacks that nobody ran may be worse still.",
    "Refused: attack, defense and protocol exclude each other, and the reason is given. Failed: the trial ended in an error. "
    "Missing: it has not been run. None of them counts as a value, and no mean is taken over the seeds that happened to work.",
    "An epsilon is an upper bound under the assumptions listed with it; what an attack finds is a lower one. Neither replaces "
    "the other. Noise from a trial's seed hides nothing from who has the record: see the first of the assumptions.",
)


def reading(run: Run) -> list[Element]:
    """Seeds, intervals, worst cases, refusals."""
    return [bullet_list([_seeds(len(run.seeds)), *ALWAYS])]


def _seeds(seeds: int) -> str:
    if seeds < ENOUGH:
        return (
            f"This run has {seeds} seed{'s' * (seeds > 1)}: no interval worth the name, and a difference between two figures "
            "may be chance."
        )
    said = (
        f"This run has {seeds} seeds. Brackets hold the 95 % interval of the mean over them, from its lower to its upper end: "
        "Student's, for shares on the logit scale, so that it stays between 0 and 100 %"
    )
    return (
        f"{said}."
        if seeds >= 5
        else f"{said}; with fewer than 5 seeds it is wide, and too few stand behind it for a claim."
    )


def configuration(run: Run) -> list[Element]:
    """The suite with every default spelled out."""
    path = run.folder.path / "config.resolved.yaml"
    try:
        if (
            path.is_symlink()
        ):  # a run of somebody else's might lead to a file that is not meant for readers of the report
            raise StoreError(f"{path.name} is a link, and not followed.")
        text = content(path).decode("utf-8", errors="replace")
    except (OSError, ValueError, StoreError) as error:
        return [el("p", f"The configuration cannot be shown: {getattr(error, 'strerror', None) or error}")]
    cut = [el("p", f"Cut after {LONGEST:,} characters.", class_="note")] if len(text) > LONGEST else []
    return [el("p", "Every default is spelled out; the file runs as it is."), el("pre", text[:LONGEST]), *cut]
