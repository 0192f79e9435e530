"""How far the ensemble `worst_case` stays behind the best attack known, over many cells; and how far ALIE alone does.

For each of 45 cells (15 rules x 3 partitions of digits; n = 20, f = 4) the *gap* of an attack is the final accuracy that it
leaves, less the lowest that any attack of the catalogue leaves at any of its strengths, with the same seeds. That lowest of
some fifty means over few seeds is partly luck, so the gap is too large; it is also given *crossed*, with the best attack of
one seed judged on the others, which makes it too small. The truth lies between.

    python benchmarks/worst_case.py                  about an hour on two cores; the same command goes on where it stopped
    python benchmarks/worst_case.py --smoke          two cells, three rounds
    python benchmarks/worst_case.py --mixtures 24 --rounds 80    how low random mixtures of directions bring three cells

With ``--mixtures`` the yardstick is no known attack: as many random mixtures (`mixture.py`, none of them a member) race each
other as the ensemble's members do, on the same selection seeds, and both winners are reported on the same other seeds. The
difference is what is left to be found along these directions; below 0 it says that the search was too short to tell.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from pathlib import Path
from statistics import fmean
from typing import Any

import fedguard as fg
from fedguard.attacks.worst_case import CORE
from fedguard.config.document import Document

RULES = [
    "trimmed_mean",
    "median",
    "meamed",
    "krum",
    "multi_krum",
    "bulyan",
    "mda",
    "cge",
    "geometric_median",
    "centered_clipping",
    "dnc",
    "nnm >> trimmed_mean",
    "nnm >> median",
    "nnm >> krum",
    "nnm >> geometric_median",
]
PARTITIONS = ["iid", {"name": "dirichlet", "alpha": 1.0}, "label_sorted"]

#: What is not in the ensemble, at several strengths.
OTHERS = (
    "alie",
    *(f"alie(z={z:g})" for z in (-6, -2, 1, 2, 3, 8)),
    *(f"ipm(tau={tau:g})" for tau in (0.6, 3)),
    "sign_flip(scale=10)",
    "pairwise_flip",
    "rop",
    "hybrid_sparse",
)


#: Where mixtures once brought the accuracy lower than the ensemble did.
OUTDONE = {"label_sorted": ["nnm >> trimmed_mean"], "dirichlet": ["nnm >> krum", "median"]}


def mixtures(options: argparse.Namespace) -> list[Document]:
    """The ensemble and the random mixtures, as an ensemble of their own, on the cells of `OUTDONE`."""
    smoke = {"attacks": ["sign_flip", "ipm(tau=2)"], "selection_seeds": 1} if options.smoke else {}
    drawn = [f"mixture(draw={number})" for number in range(2 if options.smoke else options.mixtures)]
    races = [{"name": "worst_case", **smoke}, {"name": "worst_case", **smoke, "attacks": drawn}]
    known: list[Any] = ["label_sorted", {"name": "dirichlet", "alpha": 0.3}]
    settings = {
        **suite(options),
        "evaluation": {"every": 4},
        "plugins": ["mixture"],
        "seeds": 1 if options.smoke else 3,
    }
    cells = [
        {"name": f"mixtures-{kind}", "matrix": {"task.partition": [partition], "defense": rules, "attack": races}}
        for (kind, rules), partition in zip(OUTDONE.items(), known, strict=True)
    ]
    return [Document({**settings, **cell}, folder=Path(__file__).resolve().parent) for cell in cells]


def residual(runs: list[fg.Run], options: argparse.Namespace) -> None:
    """Print what the ensemble and the mixtures leave of each cell, and keep it."""
    left: dict[tuple[str, str], dict[str, list[float]]] = {}
    for row in (row for run in runs for row in run.rows() if row["status"] == "ok"):
        race = "mixtures" if "mixture" in row["attack"] else "worst_case"
        left.setdefault((row["task.partition"], row["defense"]), {}).setdefault(race, []).append(row["final_accuracy"])
    figures = []
    for (partition, rule), races in left.items():
        ours, theirs = fmean(races["worst_case"]), fmean(races["mixtures"])
        figures.append({"partition": partition, "rule": rule, "left": ours, "mixtures": theirs, "gap": ours - theirs})
        print(f"{partition:22} {rule:24} worst_case {100 * ours:5.1f} %, mixtures {100 * theirs:5.1f} %", end="")
        print(f", gap {100 * (ours - theirs):5.1f}")
    if options.json:
        options.json.write_text(json.dumps({"figures": figures}, indent=1))


def suite(options: argparse.Namespace) -> dict[str, Any]:
    """Every attack against every rule, and the ensemble."""
    attacks: list[Any] = [*dict.fromkeys((*CORE, *OTHERS))]
    rules, partitions, rounds = RULES, PARTITIONS, options.rounds
    ensemble: Any = "worst_case"
    if options.smoke:
        attacks, rules, partitions, rounds = ["sign_flip", "alie", "ipm(tau=2)"], RULES[:2], ["iid"], 3
        ensemble = {"name": "worst_case", "attacks": ["sign_flip", "ipm(tau=2)"]}
    return {
        "name": "gap",
        "task": {"data": "digits", "model": "softmax"},
        "clients": {"total": 20, "malicious": 4},
        "training": {"algorithm": "fedsgd", "rounds": rounds, "batch_size": 16, "lr": 0.5, "worker_momentum": 0.9},
        "evaluation": {"every": 5},
        "seeds": 1 if options.smoke else options.seeds,
        "matrix": {"task.partition": partitions, "defense": rules, "attack": ["none", ensemble, *attacks]},
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--smoke", action="store_true", help="two cells, three rounds: does it run at all?")
    parser.add_argument("--json", type=Path, help="write the figures to this file")
    parser.add_argument("--store", type=Path, help="folder of the run; by default a temporary one")
    parser.add_argument("--mixtures", type=int, metavar="N", help="race N random mixtures against the ensemble")
    parser.add_argument("--rounds", type=int, default=100)
    parser.add_argument("--seeds", type=int, default=2)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        store = options.store or temporary
        if options.mixtures:
            residual([fg.run(one, store=store) for one in mixtures(options)], options)
        else:
            report(fg.run(suite(options), store=store), options)


def report(run: fg.Run, options: argparse.Namespace) -> None:
    """Print the gaps, and keep them."""
    scores: dict[tuple[str, str], dict[str, dict[int, float]]] = {}
    for row in run.rows():
        if row["status"] == "ok" and row["attack"] != "none":
            cell = scores.setdefault((row["task.partition"], row["defense"]), {})
            cell.setdefault(row["attack"].partition("(attacks")[0], {})[row["seed"]] = row["final_accuracy"]
    figures = []
    for (partition, rule), attacks in scores.items():
        ours = fmean(attacks.pop(next(attack for attack in attacks if attack.startswith("worst_case"))).values())
        means = {attack: fmean(values.values()) for attack, values in attacks.items()}
        best = min(means, key=lambda one: means[one])
        crossed = _crossed(attacks)
        figures.append(
            {
                "partition": partition,
                "rule": rule,
                "best": best,
                "left": means[best],
                "gap": ours - means[best],
                "alie": means["alie"] - means[best],
                "gap_crossed": ours - crossed,
                "alie_crossed": means["alie"] - crossed,
            }
        )
        print(f"{partition:22} {rule:24} {100 * means[best]:5.1f} % {best:36}", end="")
        print(f" gap {100 * (ours - means[best]):5.1f}, ALIE {100 * (means['alie'] - means[best]):5.1f}")
    summary = {
        name: fmean(figure[name] for figure in figures) for name in ("gap", "alie", "gap_crossed", "alie_crossed")
    }
    print(f"\nmean gap over {len(figures)} cells, in points")
    for name, (gap, crossed) in {"worst_case": ("gap", "gap_crossed"), "ALIE": ("alie", "alie_crossed")}.items():
        print(f"  {name:12} {100 * summary[gap]:6.2f}, crossed {100 * summary[crossed]:6.2f}")
    if options.json:
        options.json.write_text(json.dumps({"figures": figures, "mean": summary}, indent=1))


def _crossed(attacks: dict[str, dict[int, float]]) -> float:
    """What the best attack of each seed leaves on the other seeds; with a single seed, on itself."""
    seeds = sorted(next(iter(attacks.values())))
    left = []
    for seed in seeds:
        best = min(attacks, key=lambda one: attacks[one][seed])
        left.append(fmean(attacks[best][other] for other in seeds if other != seed or len(seeds) == 1))
    return fmean(left)


if __name__ == "__main__":
    main()
