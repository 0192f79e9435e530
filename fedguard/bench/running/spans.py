"""A run as spans of OpenTelemetry (https://opentelemetry.io): itself, in it its trials, and in each its rounds.

This module is imported only on request.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from fedguard.bench.running.progress import Curve, Listener, Trial
from fedguard.errors import ConfigError, MissingExtra

try:
    from opentelemetry.trace import Span, Status, StatusCode, Tracer, set_span_in_context
except ImportError:
    raise MissingExtra("--otlp", "opentelemetry", "otlp") from None


#: Where a collector listens whose address has no port, and seconds in which it has to answer.
PORT, PATIENCE = 4318, 5.0


@dataclass
class _OpenSpan:
    """A running trial: its span, and the time and round after which its work is not yet in a span."""

    span: Span
    since: int
    round: int = 0


class Spans(Listener):
    """Passes on all events, and makes spans of them.

    The span ``run`` holds a span ``trial`` for each trial, from its start in a worker until its record is stored. A ``trial``
    holds a span ``rounds`` for each progress message, a few per second at most. Attributes are named ``fedguard.*``.

    Args:
        inner: the listener that receives the events as well.
        tracer: makes the spans.
        over: called at the end of the run, to send pending spans.
    """

    def __init__(self, inner: Listener, tracer: Tracer, over: Callable[[], object] = lambda: None) -> None:
        self._inner, self._tracer, self._over = inner, tracer, over
        self._run: Span | None = None
        self._trials: dict[Trial, _OpenSpan] = {}

    def begin(self, total: int, stored: int, refused: int, jobs: int) -> None:
        counts = {"trials": total, "stored": stored, "refused": refused, "workers": jobs}
        self._run = self._span("run", None, counts)
        self._inner.begin(total, stored, refused, jobs)

    def grew(self, trials: int) -> None:
        self._inner.grew(trials)

    def note_start(self, trial: Trial, label: str) -> None:
        cell, seed = trial
        span = self._span("trial", self._run, {"label": label, "cell": cell, "seed": seed})
        self._trials[trial] = _OpenSpan(span, time.time_ns())
        self._inner.note_start(trial, label)

    def note_progress(self, trial: Trial, round: int, rounds: int, scores: Curve) -> None:
        if one := self._trials.get(trial):
            first = one.round + 1 if round > one.round else 1  # one whose machine was lost begins anew
            told: dict[str, Any] = {"first_round": first, "last_round": round, "rounds": rounds}
            if scores:
                told["score"] = scores[-1][1]
            span = self._span("rounds", one.span, told, one.since)
            one.since, one.round = time.time_ns(), round
            span.end(one.since)
        self._inner.note_progress(trial, round, rounds, scores)

    def note_record(self, record: Mapping[str, Any]) -> None:
        if one := self._trials.pop((record["cell"], record["seed"]), None):
            one.span.set_attribute("fedguard.status", record["status"])
            if record["status"] == "failed":
                one.span.set_status(Status(StatusCode.ERROR, record["reason"]))
            one.span.end()
        self._inner.note_record(record)

    def waiting(self) -> None:
        self._inner.waiting()

    def note(self, text: str) -> None:
        if self._run is not None:
            self._run.add_event("note", {"fedguard.text": text})
        self._inner.note(text)

    def close(self) -> None:
        for span in (*(one.span for one in self._trials.values()), self._run):
            if span is not None:
                span.end()
        self._trials, self._run = {}, None
        self._inner.close()
        self._over()

    def _span(self, name: str, within: Span | None, told: Mapping[str, Any], since: int | None = None) -> Span:
        context = None if within is None else set_span_in_context(within)
        attributes = {f"fedguard.{key}": value for key, value in told.items()}
        return self._tracer.start_span(name, context, attributes=attributes, start_time=since)


def to_collector(inner: Listener, url: str) -> Spans:
    """Spans that are sent by OTLP over HTTP to a collector, such as ``http://127.0.0.1:4318``.

    Raises:
        MissingExtra: OpenTelemetry is not installed.
        ConfigError: nothing answers there.
    """
    try:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
    except ImportError:
        raise MissingExtra("--otlp", "opentelemetry-exporter-otlp-proto-http", "otlp") from None
    _answers(url)
    provider = TracerProvider(resource=Resource.create({"service.name": "fedguard"}), shutdown_on_exit=False)
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter(f"{url.rstrip('/')}/v1/traces")))
    return Spans(inner, provider.get_tracer("fedguard"), provider.shutdown)


def _answers(url: str) -> None:
    """Raise ConfigError if nothing answers: the exporter would retry for a long time, and only log the failure."""
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port or PORT
    except ValueError:
        host, port = None, 0
    if not host or parts.scheme not in ("http", "https"):
        raise ConfigError(f"--otlp: expected the address of a collector, such as http://127.0.0.1:{PORT}; got {url!r}.")
    try:
        socket.create_connection((host, port), timeout=PATIENCE).close()
    except OSError as error:
        raise ConfigError(
            f"--otlp: expected a collector at {host}:{port}; got no answer ({error.strerror or error}). Start one there, or "
            "leave out --otlp."
        ) from None
