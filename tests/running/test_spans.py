"""Spans of OpenTelemetry: what a collector gets of a run. `make test-tracking` installs what it needs."""

from __future__ import annotations

import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from itertools import pairwise
from types import SimpleNamespace

import pytest

import fedguard as fg
from fedguard.bench.running.progress import Listener
from fedguard.errors import FedGuardError
from tests.forked import called, fedguard

SUITE = {
    "name": "spans",
    "clients": {"total": 4, "malicious": 1},
    "training": {"rounds": 3},
    "seeds": 2,
    "matrix": {"attack": ["none", "ipm"], "defense": ["median"]},
}


def test_a_run_loads_nothing_of_it(tmp_path):
    (tmp_path / "loads.py").write_text(
        "import sys\n"
        "for name in [name for name in sys.modules if name.split('.')[0] in ('fedguard', 'opentelemetry')]:\n"
        "    del sys.modules[name]\n"
        "import fedguard.cli, fedguard.bench.running.runner\n"
        "sys.exit('opentelemetry' in sys.modules)\n"
    )
    assert called("python", "loads.py", cwd=tmp_path).returncode == 0


@pytest.fixture
def otel():
    """A tracer, and what it has made in the order in which spans ended."""
    pytest.importorskip("opentelemetry.sdk", reason="OpenTelemetry is not installed: make test-tracking")
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import SimpleSpanProcessor
    from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

    provider, kept = TracerProvider(shutdown_on_exit=False), InMemorySpanExporter()
    provider.add_span_processor(SimpleSpanProcessor(kept))
    yield SimpleNamespace(tracer=provider.get_tracer("tests"), spans=kept.get_finished_spans)
    provider.shutdown()


def spans(otel, **more):
    from fedguard.bench.running.spans import Spans

    return Spans(Listener(), otel.tracer, **more)


def within(one, other):
    return (
        one.parent.span_id == other.context.span_id
        and other.start_time <= one.start_time <= one.end_time <= other.end_time
    )


pytestmark = [pytest.mark.tracking, pytest.mark.filterwarnings("ignore")]


def test_a_run_holds_its_trials(otel, tmp_path):
    over = []
    found = fg.run(SUITE, store=tmp_path, jobs=1, listener=spans(otel, over=lambda: over.append(len(otel.spans()))))
    *trials, run = otel.spans()
    assert over == [len(trials) + 1] and run.name == "run" and run.parent is None
    many = len(found.records)  # of the suite, and those that it is held against
    assert run.attributes == {
        "fedguard.trials": many,
        "fedguard.stored": 0,
        "fedguard.refused": 0,
        "fedguard.workers": 1,
    }
    trials = [one for one in trials if one.name == "trial"]
    assert all(within(one, run) for one in trials)
    told = {(one.attributes["fedguard.cell"], one.attributes["fedguard.seed"]): one.attributes for one in trials}
    assert told.keys() == found.records.keys() and len(told) == len(trials)
    assert all(
        one["fedguard.status"] == "ok" and one["fedguard.label"] == found.records[key]["label"]
        for key, one in told.items()
    )
    fg.run(SUITE, store=tmp_path, jobs=1, listener=spans(otel))
    assert [one.name for one in otel.spans()[len(trials) + 1 :] if one.name != "rounds"] == ["run"]


def test_a_trial_holds_the_rounds_that_were_told_together(otel):
    from opentelemetry.trace import StatusCode

    one = spans(otel)
    one.begin(2, 0, 0, 1)
    one.note_start(("a", 0), "alie against median")
    one.note_progress(("a", 0), 2, 9, [(1, 0.25), (2, 0.5)])
    one.note_progress(("a", 0), 7, 9, [])
    one.note("lost")
    one.note_progress(("a", 0), 1, 9, [(1, 0.25)])  # from the beginning, on another machine
    one.note_record({"cell": "a", "seed": 0, "status": "failed", "reason": "no such luck"})
    one.note_record({"cell": "b", "seed": 0, "status": "failed", "reason": "every attack of the ensemble failed."})
    one.note_start(("b", 1), "ipm against median")
    one.close()  # Ctrl-C
    *rounds, failed, cut, run = otel.spans()
    told = [{key.removeprefix("fedguard."): value for key, value in one.attributes.items()} for one in rounds]
    assert told == [
        {"first_round": 1, "last_round": 2, "rounds": 9, "score": 0.5},
        {"first_round": 3, "last_round": 7, "rounds": 9},
        {"first_round": 1, "last_round": 1, "rounds": 9, "score": 0.25},
    ]
    assert all(one.start_time < one.end_time for one in rounds)
    assert all(within(one, failed) for one in rounds) and within(failed, run) and within(cut, run)
    assert failed.start_time <= rounds[0].start_time and all(a.end_time == b.start_time for a, b in pairwise(rounds))
    assert (failed.status.status_code, failed.status.description) == (StatusCode.ERROR, "no such luck")
    assert "fedguard.status" not in cut.attributes and run.events[0].attributes == {"fedguard.text": "lost"}


def test_a_collector_gets_them(otel, tmp_path):
    from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

    got = []

    class Collector(BaseHTTPRequestHandler):
        def do_POST(self):
            got.append((self.path, self.rfile.read(int(self.headers["Content-Length"]))))
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_):
            pass

    (tmp_path / "suite.yaml").write_text(str(SUITE))
    with HTTPServer(("127.0.0.1", 0), Collector) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        said = fedguard(
            "run", "suite.yaml", "--jobs", "1", "--otlp", f"http://127.0.0.1:{server.server_port}", cwd=tmp_path
        )
        server.shutdown()
        thread.join()
    assert said.returncode == 0, said.stderr
    assert {path for path, _ in got} == {"/v1/traces"}
    requests = [ExportTraceServiceRequest.FromString(data) for _, data in got]
    parts = [part for request in requests for part in request.resource_spans]
    assert {
        one.value.string_value for part in parts for one in part.resource.attributes if one.key == "service.name"
    } == {"fedguard"}
    names = [span.name for part in parts for scope in part.scope_spans for span in scope.spans]
    assert (names.count("run"), names.count("trial")) == (1, len(fg.open_run(tmp_path / "runs" / "spans").records))


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("http://127.0.0.1:9", "--otlp: expected a collector at 127.0.0.1:9; got no answer (Connection refused)"),
        (
            "127.0.0.1:4318",
            "--otlp: expected the address of a collector, such as http://127.0.0.1:4318; got '127.0.0.1:4318'",
        ),
        ("http://127.0.0.1:port", "--otlp: expected the address of a collector, such as http://127.0.0.1:4318; got"),
    ],
)
def test_without_a_collector_nothing_runs(otel, tmp_path, url, said):
    from fedguard.bench.running.spans import to_collector

    with pytest.raises(FedGuardError) as raised:
        to_collector(Listener(), url)
    assert str(raised.value).startswith(said) and "\n" not in str(raised.value)
    (tmp_path / "suite.yaml").write_text(str(SUITE))
    ended = fedguard("run", "suite.yaml", "--otlp", url, cwd=tmp_path)
    assert ended.returncode == 2 and said in ended.stderr and not (tmp_path / "runs").exists()
