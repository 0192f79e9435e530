"""Small stores for the tests of the dashboard: a run in which everything occurs, damaged ones, and malicious names."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import yaml

import fedguard as fg
from fedguard.bench.records.record import to_text

#: What no page may take for HTML, Markdown, LaTeX or a directive of Streamlit; the picture would be fetched from elsewhere.
HOSTILE = (
    "<img src=x onerror=alert(1)> **bold** $x^2$ :red[red] `code` [link](javascript:alert(1)) ![x](//example.com/x)"
)

#: The same as the name of a folder, in which no slash can stand.
HOSTILE_NAME = HOSTILE.replace("/", "")

#: An attack that fails in every trial and says what it is told.
PLUGIN = '''
from dataclasses import dataclass
from fedguard.contracts import PoisonAttack, Sight

@dataclass(frozen=True, kw_only=True)
class Fails(PoisonAttack):
    """Raises what it is told."""
    name = "fails"
    needs = (Sight.NOTHING,)
    said: str = "no such luck"
    def craft(self, view):
        raise ValueError(self.said)
'''

#: Refused (the median under full masking), failed, malicious names, a swept number, secure aggregation, differential
#: privacy, a reconstruction with pictures, a membership inference; two seeds, so that there are intervals.
EVERYTHING = {
    "name": "everything",
    "task": {"model": {"name": "mlp", "hidden": [16]}, "partition": {"kind": "dirichlet", "alpha": 1.0}},
    "clients": {"total": 5},
    "threat": {"knowledge": ["own_data", "model"]},
    "training": {"algorithm": "fedsgd", "rounds": 2, "batch_size": 8, "lr": 0.5},
    "server": {"root_data": 50},
    "observer": {"server": "malicious", "victims": 2, "candidates": 20},
    "seeds": 2,
    "plugins": ["brings_failure"],
    "matrix": {
        "protocol": [
            {"secure_aggregation": "off"},
            {"secure_aggregation": "full"},
            {"privacy": {"kind": "record", "clip": 1.0, "noise_multiplier": 1.0, "delta": 1.0e-5, "sample_rate": 0.1}},
        ],
        "clients.malicious": [1, 2],
        "attack": ["none", "ipm(tau=5)", {"name": "fails", "said": HOSTILE}, "robbing_the_fed", "fed_mia"],
        "defense": ["mean", "median"],
    },
}

#: Nothing but a matrix.
SHORT = {
    "name": "short",
    "clients": {"total": 8, "malicious": 2},
    "training": {"rounds": 2},
    "seeds": 2,
    "matrix": {"attack": ["none", "sign_flip"], "defense": ["mean", "median"]},
}

#: 42 columns, with names as long as those of pipelines are.
WIDE = {
    "name": "wide",
    "clients": {"total": 8, "malicious": 2},
    "training": {"rounds": 1},
    "seeds": 1,
    "matrix": {
        "attack": ["none", "sign_flip"],
        "defense": [f"nnm >> centered_clipping(tau={tau})" for tau in range(1, 43)],
    },
}


def everything(store: Path) -> fg.Run:
    """The run in which everything occurs. Its plug-in is gone afterwards, as on the machine of another reader."""
    folder = store.parent / "suite"
    folder.mkdir()
    (folder / "brings_failure.py").write_text(PLUGIN)
    (folder / "everything.yaml").write_text(yaml.safe_dump(EVERYTHING))
    run = fg.run(folder / "everything.yaml", store=store)
    shutil.rmtree(folder)
    return run


def short(store: Path, name: str = "short", rounds: int = 2) -> fg.Run:
    """A run of a few seconds."""
    return fg.run(SHORT, name=name, store=store, jobs=1, overrides=[f"training.rounds={rounds}"])


def wide(store: Path) -> fg.Run:
    """A run with many more columns than a window has room for."""
    return fg.run(WIDE, store=store, jobs=1)


def copied(run: fg.Run, store: Path, name: str) -> Path:
    """A copy of a run in another store, to be damaged."""
    return Path(shutil.copytree(run.folder.path, store / name))


def break_record(folder: Path) -> Path:
    """Cut one record of a run short, as a full disk does."""
    path = next(path for path in sorted(folder.glob("cells/*/*.json")) if '"status": "ok"' in path.read_text())
    path.write_text(path.read_text()[:200])
    return path


def lose_records(folder: Path) -> None:
    """Take away every record of every second cell, as in a run that was interrupted."""
    for path in sorted(folder.glob("cells/*"))[::2]:
        shutil.rmtree(path)


def of_an_app(folder: Path) -> None:
    """Take from a run what nobody knows of an app of other people: classes, the chance of a guess, how unlike its nodes are."""
    for path in folder.glob("cells/*/*.json"):
        record = json.loads(path.read_bytes())
        if record["status"] == "ok":
            record["result"].update(worst_class_accuracy=None, class_accuracy=[], chance=None)
            record["threat_card"]["dissimilarity"] = None
        path.write_bytes(to_text(record))


def break_manifest(folder: Path) -> None:
    """Cut the manifest of a run short."""
    (folder / "manifest.json").write_text("{")


def all_kinds(store: Path) -> None:
    """Every kind of run in one store, since one that is damaged must not keep the others from being shown.

    The names of the runs are those of `KINDS`.
    """
    whole = everything(store)
    few = short(store)
    of_an_app(copied(few, store, "app"))
    break_record(copied(few, store, "broken-record"))
    break_manifest(copied(whole, store, "broken-manifest"))
    lose_records(copied(whole, store, "interrupted"))
    copied(whole, store, HOSTILE_NAME)


#: The runs of `all_kinds`.
KINDS = ("everything", "short", "app", "broken-record", "broken-manifest", "interrupted", HOSTILE_NAME)
