"""The first release of a mechanism in a process of its own: JSON in, JSON out.

in   {"address": "MODULE:NAME", "arrays": [[...], ...]}
out  the release, flattened
"""

from __future__ import annotations

import json
import os
import sys

import numpy as np


def main() -> None:
    """Answer the request on standard input."""
    out = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # what the mechanism prints must not get into the answer
    from fedguard.bench.audits.mechanisms import as_mechanism, find_mechanism
    from fedguard.privacy.blackbox.mechanism import BlackBoxMechanism, call

    asked = json.load(sys.stdin)
    arrays = tuple(np.asarray(one, np.float32) for one in asked["arrays"])
    mechanism = as_mechanism(find_mechanism(asked["address"]), shapes=[array.shape for array in arrays])
    assert isinstance(mechanism, BlackBoxMechanism)  # a training has no release to repeat
    outcome = call(mechanism.fresh(), arrays)
    json.dump([] if outcome.vector is None else outcome.vector.tolist(), out)
    out.flush()


if __name__ == "__main__":
    main()
