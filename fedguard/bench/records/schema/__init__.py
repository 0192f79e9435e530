"""What is stored of a run, field by field: its manifest and its records, as JSON.

A figure's field stands beside the function that computes it (`fedguard.metrics`), where that needs no torch. These types are
the reader: what is parsed is checked against them and left a dict, and what does not stand here is not read. They are strict: a
number is no text, and none is infinite. A field that records of earlier versions lack is `NotRequired`; ``schema`` is raised
where a reader of today could not read on.
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
