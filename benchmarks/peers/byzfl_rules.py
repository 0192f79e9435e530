"""ByzFL's aggregators, timed when asked: `../peers.py` runs this in an interpreter that has byzfl.

Arguments: n, d, f. Each line that comes in names a rule; the answer is a line of JSON: CPU seconds of one call, on one
thread. With a file's path after the name, the result is saved there.
"""

from __future__ import annotations

import json
import sys
import time

import torch
from byzfl import NNM, CenteredClipping, GeometricMedian, Krum, Median, TrMean


def main() -> None:
    n, d, f = map(int, sys.argv[1:])
    torch.set_num_threads(1)
    updates = torch.randn(n, d, generator=torch.Generator().manual_seed(0))
    rules = {
        "median": Median(),
        "trimmed_mean": TrMean(f),
        "krum": Krum(f),
        "geometric_median": GeometricMedian(nu=0.1, T=3),
        "nnm >> trimmed_mean": lambda x: TrMean(f)(NNM(f)(x)),
        "centered_clipping": lambda x: CenteredClipping().__call__(x),
    }
    for line in sys.stdin:
        rule, *file = json.loads(line)
        begun = time.process_time()
        result = rules[rule](updates)
        seconds = time.process_time() - begun
        if file:
            torch.save(result, file[0])
        print(json.dumps(seconds), flush=True)


if __name__ == "__main__":
    main()
