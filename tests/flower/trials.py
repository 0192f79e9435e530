"""A trial of a suite over an app, on an engine: what it is to be the same on, and how it is judged."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest

from fedguard import api
from fedguard.bench.records.record import from_text, to_text
from fedguard.bench.records.store import RunFolder
from fedguard.bench.results.run import Run
from fedguard.bench.running.apps import Apps, _build_request, run_app
from fedguard.bench.running.manifest import write_manifest
from fedguard.bridges import trial
from fedguard.bridges.flower import running
from fedguard.bridges.flower.deployment import run_deployed
from fedguard.commands.app_check import below
from tests.flower.conftest import DEPLOYED

APP = Path(__file__).parent / "app"
#: What its nodes train, for whoever looks at their messages.
LEARNS = {
    "training": {"model": "digits.task:Net", "data": "digits.task:load_data", "lr": "lr", "batch_size": "batch-size"}
}


class Shared:
    """Trials of deployments, on the SuperLink of all tests."""

    def __init__(self, federation):
        self._federation = federation

    def run_app_trial(self, cell, seed, folder=None):
        with pytest.MonkeyPatch.context() as patch:
            patch.setitem(running.ENGINES, "deployment", partial(run_deployed, on=self._federation))
            return {"log": "", **trial.answer(_build_request(cell, seed, folder))}

    def close(self):
        pass


def ran(engine, folder, attack="ipm(tau=5)", defense="median", on=None):
    """A trial of a suite on an engine, and what is to be judged of it: one of four nodes attacks a rule for a round."""
    plan = api.lay_out(
        {
            "name": engine,
            "app": {"folder": str(APP), "set": {"num-server-rounds": 1}, "engine": engine} | LEARNS,
            "clients": {"total": DEPLOYED, "malicious": 1},
            "matrix": {"attack": [attack], "defense": [defense]},
            "seeds": [3],
        }
    )[1]
    ((_, cell),) = plan.positions
    processes = Shared(on) if on else Apps()
    record, log = run_app(cell, 3, {}, processes)
    processes.close()
    assert record["status"] == "ok", f"{record['reason']}\n{log}"
    store = RunFolder(folder / engine)
    store.create()
    write_manifest(store, plan, {})
    store.write(record)
    from_text(to_text(record))
    return record["result"], Run.open(store.path, folder)


def judged(run):
    """By the floor of `fedguard flower check`: what ends it with 3, and what does not."""
    return [line.split(", ", 1)[1] for line in below(run, 0.999)], list(below(run, 0.1))
