"""The reference of stored data: every field of records and manifests, their JSON Schemas, and the table of metrics."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

from docs_tools.markup import code, inline, page, table
from fedguard.bench.records.schema.document import FORMS, json_schema
from fedguard.metrics.figures import FIGURES, Metric

_RECORDS = """What is stored of a trial is a record, `cells/CELL/seed-000.json` in the folder of its run, which has a
`manifest.json`. These are the types that FedGuard reads them by; [record.schema.json](record.schema.json) and
[manifest.schema.json](manifest.schema.json) say the same in JSON Schema, as does `fedguard schema record`. Accuracies, rates
and shares are in [0, 1], times in seconds. Fields in brackets are missing in records of earlier versions, or where they do not
apply; `null` is what does not apply."""

_FIGURES = """Each figure is a column of `run.frame()` and of `fedguard export`, and has a matrix
(`fedguard show RUN --metric NAME`), a breakdown, a comparison and a place in the report. *Unasked* names where it stands
besides: in what `fedguard show` says, as a heatmap in the HTML report, as what leaks in a trilemma, on the scorecard of the
dashboard's Lab. The margin is how much worse a cell's mean may become before `fedguard gate` fails, where the suite does not
say: those in bold are watched unasked, those without one never; what it takes to a target has the margin that the suite says.

How long a training took to a target accuracy is a figure for any target: `rounds_to(0.9)`, `updates_to(0.9)`, and of
[simulated time](../simulated_time.md) `seconds_to(0.9)`, `bytes_to(0.9)` and `joules_to(0.9)`. It is read from the stored
curve, so no target has to be known before a run. It is reached at the first evaluation after which none falls short of it.
A seed that
does not get there is *censored*: what it took in all is a lower bound, a mean over such seeds is written `>12.3` and has
no interval, an attack under which more seeds are censored is the worse one, and a comparison leaves such a cell out."""


def pages() -> dict[str, str]:
    """``reference/records.md``, ``reference/figures.md`` and the schemas."""
    schemas = {form: json_schema(form) for form in FORMS}
    parts = [part for form, schema in schemas.items() for part in _written(form, schema)]
    files = {f"reference/{form}.schema.json": json.dumps(schema, indent=1) for form, schema in schemas.items()}
    heads = ["figure", "what it is", "unit", "better", "attacks", "margin", "unasked", "in a record"]
    rows = [_row(name, figure) for name, figure in FIGURES.items()]
    return {
        "reference/records.md": page("Records", _RECORDS, *parts),
        "reference/figures.md": page("Figures", _FIGURES, table(heads, rows)),
        **files,
    }


def _row(name: str, figure: Metric) -> list[str]:
    margin = "" if figure.margin is None else f"{figure.margin:g}"
    return [
        code(name),
        inline(figure.title),
        figure.unit,
        "more" if figure.more_is_better else "less",
        figure.goal,
        f"<strong>{margin}</strong>" if figure.watched else margin,
        ", ".join(figure.shown),
        code(".".join(figure.path)),
    ]


def _written(form: str, schema: Mapping[str, Any]) -> Iterator[str]:
    """All types, the outermost first."""
    known = {form.title(): schema} if "properties" in schema else {}
    waiting = _named_in(schema if known else schema["oneOf"])
    while waiting:
        name = waiting.pop(0)
        if name not in known:
            known[name] = schema["$defs"][name]
            waiting += _named_in(known[name])
    for name, kind in known.items():
        fields = [
            [
                code(key if key in kind.get("required", ()) else f"[{key}]"),
                _type(said, form),
                inline(said["description"]),
            ]
            for key, said in kind["properties"].items()
        ]
        heading = f"## {name} {{ #{form}-{name.lower()} }}"
        yield f"{heading}\n\n{inline(kind['description'])}\n\n{table(['field', 'type', 'meaning'], fields)}"


def _named_in(part: Any) -> list[str]:
    """The types that a part of a schema refers to, except from within ``$defs``."""
    part = {key: value for key, value in part.items() if key != "$defs"} if isinstance(part, dict) else part
    return re.findall(r'"#/\$defs/(\w+)"', json.dumps(part))


def _type(said: Mapping[str, Any], form: str) -> str:
    """``number in [0, 1] or null``."""
    if alternatives := said.get("anyOf") or said.get("oneOf"):
        return " or ".join(dict.fromkeys(_type(one, form) for one in alternatives))
    found = str(said.get("type", "anything"))
    if "$ref" in said:
        name = said["$ref"].rpartition("/")[2]
        found = f'<a href="#{form}-{name.lower()}">{name}</a>'
    elif "const" in said or "enum" in said:
        found = " or ".join(code(json.dumps(one)) for one in said.get("enum", [said.get("const")]))
    elif found == "array":
        found = f"list of {_type(said['items'], form)}"
    elif isinstance(inner := said.get("additionalProperties"), dict):
        found = f"{_type(inner, form)} by name"
    elif said.get("maximum") == 1:
        found = f"number in [{said['minimum']:g}, 1]"
    return found
