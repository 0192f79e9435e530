"""Planted faults and right mechanisms, audited as a user would: how many faults are found, how many alarms are false?

    python -m tests.privacy.blackbox.acceptance --budget 60 --seeds 3 --right 100 --json FILE

A fault is found if its claim is called violated, or if what it leaves unpaid has the code that stands beside it in `FAULTS`. An
alarm is a right mechanism that is called violated; a structural one, a finding that says no finite epsilon fits.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import fedguard as fg
from tests.privacy.blackbox import mechanisms
from tests.privacy.blackbox.mechanisms import GAUSSIAN, PURE, SHAPES, Faults

#: Fault: the code of what is unpaid that finds it, if no verdict does.
FAULTS = {
    **dict.fromkeys(
        ("identity", "bare_layer", "coins", "floats_alone", "half", "each_layer", "clipped_after", "no_clip"), ""
    ),
    **dict.fromkeys(("laplace_l2", "scaled", "signed_zeros", "sometimes_bare", "clipped_each_value", "noisy_half"), ""),
    **dict.fromkeys(("scalars_left", "seeded", "repeating", "Fading", "Forgetful", "Reusing"), ""),
    "tells_loss": "metrics",
    "raises_beyond": "stops",
}
RIGHT = ("gaussian", "laplace_l1", "on_a_grid", "skipping", "constant", "randomized_response", "Growing", "Exhausted")
#: Methods that make a release instead of being one.
FACTORIES = ("seeded", "repeating")


def subject(name: str, seed: int) -> Any:
    """The mechanism of that name, with a generator of its own."""
    if name[0].isupper():
        return getattr(mechanisms, name)
    found: Callable[..., Any] = getattr(Faults(seed), name)
    return type(name, (), {"__new__": staticmethod(lambda _: found())}) if name in FACTORIES else found


def audited(name: str, seed: int, budget: float) -> dict[str, Any]:
    """One audit, in short."""
    claim = PURE if name.startswith(("laplace", "randomized")) else GAUSSIAN
    began = time.process_time()
    found = fg.audit(subject(name, seed), claim, shapes=SHAPES, budget=budget, seed=seed)
    bounds = found.bounds[0] if found.bounds else None
    return {
        "name": name,
        "seed": seed,
        "verdict": found.verdict,
        "structural": [one.code for one in found.findings if one.refutes],
        "unpaid": [one.code for one in found.unpaid],
        "calls": bounds.calls if bounds else 0,
        "proven": bounds.proven.epsilon if bounds else None,
        "proven_rounds": bounds.proven_rounds.epsilon if bounds else None,
        "shown": bounds.shown.epsilon if bounds and bounds.shown else None,
        "lives": bounds.lives.proven.epsilon if bounds and bounds.lives else None,
        "seconds": round(time.process_time() - began, 1),
        "words": found.words,
    }


def is_found(one: dict[str, Any]) -> bool:
    """Whether an audit of a fault finds it."""
    return one["verdict"] == "violated" or FAULTS[one["name"]] in one["unpaid"]


def run(budget: float, seeds: int, right: int) -> Iterator[dict[str, Any]]:
    """All audits: each fault with each seed, right mechanisms in turn between them, so that a run cut short shows both."""
    faults = [(name, seed) for seed in range(seeds) for name in FAULTS]
    others = [(RIGHT[number % len(RIGHT)], 100 + number // len(RIGHT)) for number in range(right)]
    for number in range(max(len(faults), len(others))):
        for name, seed in (*faults[number : number + 1], *others[number : number + 1]):
            yield audited(name, seed, budget)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--budget", type=float, default=60)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--right", type=int, default=100)
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    done = []
    for one in run(given.budget, given.seeds, given.right):
        done.append(one)
        fault = one["name"] in FAULTS
        mark = (
            ("found" if is_found(one) else "MISSED")
            if fault
            else ("ALARM" if one["verdict"] == "violated" else "quiet")
        )
        print(
            f"{one['name']:>20} {one['seed']:>4} {mark:>7} {one['verdict']:>12} {one['seconds']:>6} s  {one['words'][:120]}",
            flush=True,
        )
    faults = [one for one in done if one["name"] in FAULTS]
    others = [one for one in done if one["name"] not in FAULTS]
    print(f"faults: {sum(map(is_found, faults))} of {len(faults)} found")
    alarms = [one for one in others if one["verdict"] == "violated"]
    structural = sum(bool(one["structural"]) for one in others)
    print(f"right: {len(alarms)} alarms of {len(others)}, {structural} structural")
    if given.json:
        given.json.write_text(json.dumps(done, indent=1) + "\n")


if __name__ == "__main__":
    main()
