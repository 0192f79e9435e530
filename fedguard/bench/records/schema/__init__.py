"""The stored form of a run, field by field: its manifest and its records, as JSON.

The field of a metric is defined beside the function that computes it (`fedguard.metrics`), if that needs no torch. These types
are the reader: parsed content is checked against them and stays a dict, and fields that are not listed are not read. The types
are strict: a number is no text, and no number is infinite. Fields that records of earlier versions lack are ``NotRequired``.

Schema 2 is written. Schema 1 has other names for some fields (`fedguard.retired.RETIRED_FIELDS`), under today's of which it is
read (`fedguard.bench.records.schema.types`): a run may hold records of both.
"""

from fedguard.bench.records.schema.card import ThreatCard
from fedguard.bench.records.schema.manifest import MANIFEST, Manifest, Position
from fedguard.bench.records.schema.record import RECORD, CompletedRecord, IncompleteRecord, Record
from fedguard.bench.records.schema.result import Result
from fedguard.metrics.moments import Timeline
from fedguard.metrics.nodes import NodeMetrics

__all__ = [
    "MANIFEST",
    "RECORD",
    "CompletedRecord",
    "IncompleteRecord",
    "Manifest",
    "NodeMetrics",
    "Position",
    "Record",
    "Result",
    "ThreatCard",
    "Timeline",
]
