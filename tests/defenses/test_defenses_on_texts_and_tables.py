"""Defenses of images on texts and tables: what cannot work there is refused before anything runs, whatever the network."""

from __future__ import annotations

from functools import cache

import pytest

from fedguard.bench.running.procedures import refusals
from fedguard.bench.running.trial import set_up
from fedguard.bench.running.workbench import Workbench
from fedguard.config import Document, plan, read_suite
from fedguard.config.cells import PlannedCell
from fedguard.config.document import parse_yaml
from fedguard.config.layout import override
from fedguard.contracts import ClientTransform, Mixing, Sight
from fedguard.registry import load_registry

SUITE = """\
clients: {total: 6, malicious: 1}
training: {rounds: 1, local_steps: 1, batch_size: 8, lr: 0.05}
server: {root_data: 20}
attack: sign_flip
"""
TEXT = "{name: python_topics, topics: 6, window: 6, stride: 64}"
TASKS = {
    "text": f"task={{data: {TEXT}, model: {{name: transformer, width: 8, heads: 2, layers: 1}}, partition: natural}}",
    "text, read as numbers": f"task={{data: {TEXT}, model: {{name: mlp, hidden: [4]}}, partition: natural}}",
    "table": "task={data: wine, model: {name: mlp, hidden: [4]}, partition: iid}",
}
#: By kind of data, who cannot work on it, and what the reason says.
REFUSED = {
    "text": {
        "ats": "needs images",
        "soteria": "tokens by number",
        "grad_defense": "tokens by number",
        "deepsight": "tokens by number",
    },
    "table": {"ats": "needs images"},
}
#: These need what this suite does not give: privacy levels, and more clients.
ELSEWHERE = {"inverse_variance", "bulyan"}


@cache
def suite(task: str) -> Document:
    data, lines = parse_yaml(SUITE, "small.yaml")
    return override(Document(data, "small.yaml", None, lines), [task])


def cell(task: str, *settings: str) -> PlannedCell:
    document = override(suite(task), settings)
    return plan(document, read_suite(document)).positions[0][1]


def pipeline(name: str) -> str:
    whole = issubclass(load_registry().get("defense", name), (Mixing, ClientTransform))
    return f"{name} >> mean" if whole else name


@pytest.mark.parametrize("task", TASKS)
def test_each_defense_runs_on_texts_and_tables_or_says_before_why_it_cannot(task):
    bench, cells = Workbench(), {}
    for name in load_registry().names("defense"):
        if name in ELSEWHERE:
            continue
        needs = load_registry().get("defense", name).needs
        timed, linked = (any(sight in need for need in needs) for sight in (Sight.TIMES, Sight.GRAPH))
        linked_by = ["architecture={name: d_psgd, graph: complete}"] if linked else []
        system = ["architecture=fedbuff"] if timed else linked_by
        cells[name] = cell(TASKS[task], f"defense={pipeline(name)}", *system)
        assert cells[name].verdict.reasons == (), name
    refused = refusals(cells.values(), 0)
    for name, one in cells.items():
        said = REFUSED[task.partition(",")[0]].get(name)
        if said is not None:
            assert said in refused[one.id], name
            assert "\n" not in refused[one.id]
        else:
            assert one.id not in refused, (name, refused[one.id])
            (report,) = one.architecture.run(set_up(one, 0, bench.task(one, 0)))
            assert bool(report.model.isfinite().all()), name


def test_an_algorithm_that_the_model_does_not_fit_is_refused_before_anything_runs():
    one = cell("task={data: wine, model: softmax, partition: iid}", "training.algorithm=fedper")
    assert "fedper: expected a model with layers below the last" in refusals([one], 0)[one.id]
