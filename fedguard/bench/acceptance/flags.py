"""Signs that a better attacker could do much better, or that the metrics of a cell say little."""

from __future__ import annotations

from collections.abc import Iterator

from fedguard.bench.acceptance.findings import AcceptanceFinding
from fedguard.bench.results.run import Run

#: Accuracy in [0, 1] by which selection and report may differ, and the spread between seeds that is still one result
LUCKY, CHAOTIC = 0.05, 0.15


def flag_cell(name: str, judged: Run, worst: str) -> Iterator[AcceptanceFinding]:
    """The flags of one cell.

    Args:
        judged: its run with the rule.
        worst: the attack of the run that is the worst case.
    """
    rows = [row for row in judged.rows() if row["status"] == "ok"]
    attacked = [row for row in rows if row["attack"] == worst]
    finals = [row["final_accuracy"] for row in attacked if row["final_accuracy"] is not None]
    if not finals:
        return
    mean = sum(finals) / len(finals)
    selected = next((one["result"]["worst_case"] for one in judged.ran.values() if "worst_case" in one["result"]), None)
    on_selection = None if selected is None else selected["selection_accuracy"]
    if on_selection is not None and abs(on_selection - mean) > LUCKY:
        yield AcceptanceFinding(
            "lucky_seeds", "flagged",
            f"{name}: the worst attack leaves {100 * on_selection:.1f} % on the seeds that chose it, and {100 * mean:.1f} % on "
            "the reported ones.",
            remedy="Raise the number of selection and report seeds.", number=mean - on_selection,
        )  # fmt: skip
    harm = [row["harm"] for row in attacked if row["harm"] is not None]
    if harm and sum(harm) / len(harm) <= 0:
        yield AcceptanceFinding(
            "no_harm", "flagged", f"{name}: no attack hurts more than malicious clients that send nothing.",
            remedy="The cell tells nothing of the rule.", number=sum(harm) / len(harm),
        )  # fmt: skip
    if max(finals) - min(finals) > CHAOTIC:
        yield AcceptanceFinding(
            "chaotic", "flagged",
            f"{name}: under the worst attack seeds end between {100 * min(finals):.1f} and {100 * max(finals):.1f} %.",
            remedy="Look at each seed; the mean stands for none of them.", number=max(finals) - min(finals),
        )  # fmt: skip
    clean = [one for one in judged.ran.values() if one["config"]["attack"] == "none" and one["result"]["diverged"]]
    if clean:
        yield AcceptanceFinding(
            "diverges_clean", "flagged", f"{name}: without attack {len(clean)} trainings diverged.",
            remedy="Lower the step, or the rule does not fit the training.", number=float(len(clean)),
        )  # fmt: skip
