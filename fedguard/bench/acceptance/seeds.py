"""The seeds of the trainings that are reported: they follow from the submission's bytes, so that nobody can tune on them."""

from __future__ import annotations

import hashlib

from fedguard.bench.acceptance.standard import Standard
from fedguard.bench.acceptance.submission import Submission

#: Report seeds are below this, and so none of the ensemble's selection seeds
MOST_REPORT_SEED = 1_000_000


def report_seeds(submission: Submission, standard: Standard) -> tuple[int, ...]:
    """The report seeds, drawn from the digests of submission and standard.

    They are in the order of the draw; no two are equal.
    """
    found = dict[int, None]()
    draw = 0
    while len(found) < standard.trainings.seeds:
        text = "|".join((submission.digest, standard.digest, str(draw)))
        found[int.from_bytes(hashlib.sha256(text.encode()).digest()[:8]) % MOST_REPORT_SEED] = None
        draw += 1
    return tuple(found)
