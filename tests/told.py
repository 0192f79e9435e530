"""What `fedguard check` tells of data."""

from __future__ import annotations

import io

from rich.console import Console

from fedguard.api import lay_out
from fedguard.bench.running import check


def told(**data):
    document = {"name": "told", "task": {"data": data, "model": "softmax", "partition": "iid"}, "clients": {"total": 2}}
    plan = lay_out({**document, "training": {"rounds": 1, "batch_size": 4}, "seeds": 1})[1]
    console = Console(width=1000, file=io.StringIO())
    console.print(check.render_plan(plan, check.explain_refusals(plan)))
    return console.file.getvalue()
