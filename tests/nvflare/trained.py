"""A job of the tests: softmax regression on digits, six sites of 620 to 7 examples; and the same training by FedGuard's Guard."""

from __future__ import annotations

import importlib.util
import json
import shutil
from pathlib import Path

import numpy as np

from fedguard import Guard
from fedguard.bridges.jobs import TrialRequest

JOB = Path(__file__).parent / "job"
SITES = tuple(f"site-{number}" for number in range(1, 7))


def client():
    """The module of the job's sites."""
    spec = importlib.util.spec_from_file_location("nvflare_client_of_tests", JOB / "app" / "custom" / "client.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


CLIENT = client()
DATA = [CLIENT.load(site)[0] for site in range(6)]
TEST = CLIENT.load(0)[1]


def request(job=JOB, attack=None, defense=None, malicious=None, rounds=5, **more):
    """A trial; the rule assumes one malicious site."""
    return TrialRequest(
        str(job), {"num_rounds": rounds}, attack, defense, 1, 6, 3, framework="nvflare", malicious=malicious, **more
    )


def own(attack=None, defense=None, malicious=None, rounds=5, dies=None, first=None):
    """The models after each round, by `Guard` on what each site trains; a site that dies answers before its round alone."""
    guard = Guard(attack=attack, defense=defense or "weighted_mean", f=1, seed=3)
    model, models = np.zeros((65, 10), np.float32) if first is None else first, []
    for number in range(1, rounds + 1):
        there = [site for site in range(6) if dies is None or site != dies[0] or number < dies[1]]
        sent = [CLIENT.train(model, *DATA[site]) for site in there]
        sizes = [len(DATA[site][0]) for site in there]
        acting = [row for row, site in enumerate(there) if SITES[site] in (malicious or ())]
        model = np.asarray(guard.step({"w": model}, [{"w": one} for one in sent], malicious=acting, samples=sizes)["w"])
        models.append(model)
    return models


def changed(folder: Path, server=None, site=None, aggregator=None) -> Path:
    """A copy of the job with changes of its two configurations."""
    shutil.copytree(JOB, folder / "changed", ignore=shutil.ignore_patterns("__pycache__"))
    for name, change in (("server", server), ("client", site)):
        path = folder / "changed" / "app" / "config" / f"config_fed_{name}.json"
        told = json.loads(path.read_text())
        if change is not None:
            change(told)
        path.write_text(json.dumps(told))
    if aggregator is not None:
        (folder / "changed" / "app" / "custom" / "middle.py").write_text(aggregator)
    return folder / "changed"
