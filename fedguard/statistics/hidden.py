"""No running statistics: layers normalize by the batch, at test time too."""

from __future__ import annotations

from dataclasses import dataclass

from fedguard.contracts import StatisticsFate


@dataclass(frozen=True, kw_only=True)
class Hidden(StatisticsFate):
    """Layers keep no running statistics (``track_running_stats=False``) and normalize each batch by itself, at test time too.

    Nobody sends statistics. What the model says of a test example depends on the others in its batch. Accuracy is measured
    in batches of 1,000 in the order of the test set, and a record has the red flag ``transductive``.
    """

    name = "hidden"
    source = "track_running_stats=False in torch"
    words = (
        "nobody keeps statistics: layers normalize by the batch at test time too, so that accuracy depends on which examples "
        "share a test batch (1,000 in the order of the test set)"
    )
    normalization = "batch"
