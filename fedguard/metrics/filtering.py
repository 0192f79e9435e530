"""How well a rule that excludes updates finds the malicious ones."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

from typing_extensions import TypedDict

from fedguard.metrics.quantities import Count, Share

if TYPE_CHECKING:
    from fedguard.contracts import RoundReport


class ExcludedClient(TypedDict):
    """The honest client that was excluded most often, and in which share of its rounds.

    Attributes:
        client: its number.
        share: share of its rounds in which it was excluded.
    """

    client: Count
    share: Share


class Filter(TypedDict):
    """The clients that a rule excludes.

    Attributes:
        precision: share of malicious clients among the excluded; null if there are none.
        recall: share of excluded clients among the malicious; null if there are none.
        honest_excluded: share of excluded clients among the honest.
        most_excluded: the honest client that was excluded most often.
    """

    precision: Share | None
    recall: Share | None
    honest_excluded: Share | None
    most_excluded: ExcludedClient | None


def filtering(reports: Sequence[RoundReport]) -> Filter | None:
    """The exclusions in the reports; None for rules without weights."""
    judged = [report for report in reports if report.excluded is not None]
    if not judged:
        return None
    caught = removed = malicious = honest = lost = 0
    seen: Counter[int] = Counter()
    excluded: Counter[int] = Counter()
    for report in judged:
        out = set(report.excluded or ())
        here = set(report.clients) - set(report.not_finite)
        good = here - report.malicious
        caught, removed = caught + len(out & report.malicious), removed + len(out)
        malicious, honest, lost = malicious + len(here & report.malicious), honest + len(good), lost + len(out & good)
        seen.update(good)
        excluded.update(out & good)
    worst = max(seen, key=lambda client: (excluded[client] / seen[client], -client), default=None)
    return {
        "precision": caught / removed if removed else None,
        "recall": caught / malicious if malicious else None,
        "honest_excluded": lost / honest if honest else None,
        "most_excluded": None if worst is None else {"client": worst, "share": excluded[worst] / seen[worst]},
    }
