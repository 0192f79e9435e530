"""The JSON Schema of stored documents, with the meaning of each field from the docstring of its type."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pydantic import TypeAdapter
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue
from pydantic_core import core_schema
from typing_extensions import get_original_bases

from fedguard.bench.docstrings import meaning, prose
from fedguard.bench.records.schema.manifest import MANIFEST
from fedguard.bench.records.schema.record import RECORD
from fedguard.metrics.figures import FIGURES

#: The documents of a run folder, by name.
FORMS: dict[str, TypeAdapter[Any]] = {"record": RECORD, "manifest": MANIFEST}


def json_schema(form: str) -> dict[str, Any]:
    """The schema of a document, in JSON Schema 2020-12.

    Args:
        form: a key of `FORMS`.
    """
    found = FORMS[form].json_schema(schema_generator=_SchemaGenerator)
    return {"$schema": _SchemaGenerator.schema_dialect, "title": f"FedGuard {form}", **found}


class _SchemaGenerator(GenerateJsonSchema):
    def typed_dict_schema(self, schema: core_schema.TypedDictSchema) -> JsonSchemaValue:
        kind, found = schema["cls"], super().typed_dict_schema(schema)
        found["description"] = prose(kind.__doc__ or "")
        for name, said in found["properties"].items():
            said.pop("title", None)
            if meant := _meaning(kind, name):
                said["description"] = meant
        return found


def _meaning(kind: type, name: str) -> str:
    """The description of a field in the docstring of a type or its bases; for a metric, in the table of metrics."""
    if kind.__name__ == "Result":
        for figure in FIGURES.values():
            if figure.path == ("result", name):
                return figure.title
    return next(filter(None, (meaning(one, name) for one in _with_bases(kind))), "")


def _with_bases(kind: type) -> Iterator[type]:
    """A typed dictionary and the ones that it extends, which Python does not keep as bases."""
    yield kind
    for base in get_original_bases(kind):
        if isinstance(base, type):
            yield from _with_bases(base)
