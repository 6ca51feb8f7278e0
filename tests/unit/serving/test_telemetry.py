"""What operators see of a server: `/metrics`, what a collector is sent, and the log."""

from __future__ import annotations

import json
import logging
import os
import re
import sys
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from tests.polling import until
from tests.tasks import Gate
from tests.unit.serving.conftest import ask, call

from ropewalk import Bus
from ropewalk._errors import ServingError
from ropewalk.serving import Server, _logs
from ropewalk.serving._dashboard import Beside

# Here and not where it is used: a test that is skipped half-way leaves callers behind.
pytest.importorskip("prometheus_client")

TRACE, SPAN = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
PARENT = f"00-{TRACE}-{SPAN}-01"
ROOT = Path(__file__).parents[3]

Make = Callable[..., Server]


@pytest.fixture(autouse=True)
def without_collectors(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith("OTEL_")]:
        monkeypatch.delenv(name)


def samples(server: Server, *, of_openmetrics: bool = False) -> dict[str, list[tuple[dict[str, str], float]]]:
    """The values of each name, with their labels, as Prometheus's own parsers read them."""
    if of_openmetrics:
        from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse

        accept = "application/openmetrics-text; version=1.0.0"
    else:
        from prometheus_client.parser import text_string_to_metric_families as parse

        accept = "text/plain"
    said = ask(server, "GET", "/metrics", headers={"accept": accept})
    assert said.status == 200
    assert said.headers["content-type"].startswith(accept)
    found: dict[str, list[tuple[dict[str, str], float]]] = {}
    for family in parse(said.body.decode()):
        for sample in family.samples:
            found.setdefault(sample.name, []).append((dict(sample.labels), sample.value))
    return found


def value(server: Server, name: str, **labels: str) -> float | None:
    """The sum of a name's values with these labels among others; `None` if there is none."""
    fitting = [each for own, each in samples(server).get(name, []) if labels.items() <= own.items()]
    return sum(fitting) if fitting else None


def test_calls_and_their_times_are_counted_by_tool(make_server: Make) -> None:
    server = make_server()
    for number in range(5):
        assert call(server, "add", {"a": number}).json == number + 1
    assert call(server, "divide", {"a": 1, "b": 0}).status == 500
    assert call(server, "add", {"a": "x"}).status == 422
    total, code = "ropewalk_tool_calls_total", "rpc_response_status_code"
    until(lambda: value(server, total, tool="add", **{code: "OK"}) == 5)
    until(lambda: value(server, total, tool="divide", protocol="http", **{code: "UNKNOWN"}) == 1)
    until(lambda: value(server, total, tool="add", **{code: "INVALID_ARGUMENT"}) == 1)
    # The worker has checked the arguments of all six, and has answered.
    for times in ("queue", "run"):
        until(
            lambda name=f"ropewalk_tool_{times}_duration_seconds": (
                value(server, f"{name}_count", tool="add") == 6
            )
        )
        spent = value(server, f"ropewalk_tool_{times}_duration_seconds_sum", tool="add")
        assert spent is not None
        assert spent > 0
    assert value(server, "ropewalk_tool_calls_active", tool="add") == 0
    pool = server.runtime["tools"].statistics()
    assert value(server, "ropewalk_pool_tasks_total", pool="tools", outcome="returned") == pool.completed
    assert value(server, "ropewalk_server_ready") == 1


def test_what_waits_and_what_is_shed_is_seen(make_server: Make, tmp_path: Path, gate: Gate) -> None:
    config = tmp_path / "serve.toml"
    config.write_text('default = "only"\n[pools.only]\nworkers = 1\ncapacity = 1\n')
    server = make_server(config=config)
    assert server.wait_ready(60)
    callers = [
        threading.Thread(target=call, args=(server, "hold", {"folder": str(gate.folder)})) for _ in range(2)
    ]
    callers[0].start()
    until(lambda: value(server, "ropewalk_pool_tasks_running", pool="only") == 1)
    callers[1].start()
    until(lambda: value(server, "ropewalk_pool_tasks_queued", pool="only") == 1)
    assert value(server, "ropewalk_pool_saturation_ratio", pool="only") == 1
    until(lambda: value(server, "ropewalk_tool_calls_active", tool="hold") == 2)
    assert (value(server, "ropewalk_pool_queue_age_seconds", pool="only") or 0) > 0
    assert call(server, "add", {"a": 1}).status == 429
    until(lambda: value(server, "ropewalk_tool_calls_shed_total", tool="add", cause="queue_full") == 1)
    gate.open()
    for caller in callers:
        caller.join(60)
    until(lambda: value(server, "ropewalk_tool_calls_active", tool="hold") == 0)


def test_workers_and_their_memory_are_seen(make_server: Make) -> None:
    server = make_server(workers=2)
    assert server.wait_ready(60)
    pool = server.runtime["tools"]
    found = samples(server)
    memory = {labels["worker"]: size for labels, size in found["process_memory_usage_bytes"]}
    assert memory.keys() == {"0", "1"}
    assert min(memory.values()) > 1 << 20
    assert value(server, "ropewalk_pool_workers", pool="tools") == 2
    assert call(server, "die").status == 503
    until(lambda: value(server, "ropewalk_pool_worker_restarts_total", cause="crashed") == 1)
    pool.recycle()
    until(lambda: (value(server, "ropewalk_pool_worker_restarts_total", cause="asked") or 0) > 0)
    assert (value(server, "ropewalk_shared_memory_usage_bytes") or 0) >= 0


def test_items_of_streams_are_counted(make_server: Make) -> None:
    server = make_server()
    assert len(call(server, "count", {"n": 7}).body.splitlines()) == 7
    until(lambda: value(server, "ropewalk_tool_stream_items_total", tool="count") == 7)


def test_both_formats_have_the_same_names(make_server: Make) -> None:
    server = make_server()
    call(server, "add", {"a": 1})
    plain, modern = samples(server), samples(server, of_openmetrics=True)
    assert plain.keys() == modern.keys()


def test_the_lag_of_signals_is_seen(make_server: Make) -> None:
    server = make_server()
    assert value(server, "ropewalk_bus_messages_waiting") is None
    with Bus() as bus:
        lagging = bus.subscribe("*")
        server.show("news", bus)
        for number in range(3):
            bus.publish("a", number)
        until(lambda: value(server, "ropewalk_bus_messages_waiting", bus="news") == 3)
        assert value(server, "ropewalk_bus_messages_published_total", bus="news") == 3
        assert value(server, "ropewalk_bus_handlers_failed_total", bus="news") == 0
        assert lagging.recv() == 0
        until(lambda: value(server, "ropewalk_bus_messages_waiting", bus="news") == 2)
    # One that is closed is shown no more.
    assert value(server, "ropewalk_bus_messages_waiting") is None


def test_a_bus_that_is_shown_before_the_start_is_counted(app: Path) -> None:
    with Bus() as bus:
        server = Server(app, http="127.0.0.1:0", workers=1)
        server.show("early", bus)
        with server:
            until(lambda: value(server, "ropewalk_bus_messages_waiting", bus="early") == 0)


def test_numbers_come_though_the_program_does_not_count_its_buses(
    make_server: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    goes_on = threading.Event()

    def hang(_beside: Beside) -> list[tuple[str, int, int, int]]:
        goes_on.wait(60)
        return [("hung", 1, 2, 3)]

    monkeypatch.setattr(Beside, "buses", hang)
    server = make_server()
    with Bus() as bus:
        server.show("hung", bus)
        assert value(server, "ropewalk_pool_workers") is not None
        assert value(server, "ropewalk_bus_messages_waiting") is None
        goes_on.set()
        until(lambda: value(server, "ropewalk_bus_messages_waiting", bus="hung") == 2)


def test_the_dashboard_asks_for_names_that_there_are(app: Path, make_server: Make, tmp_path: Path) -> None:
    file = tmp_path / "tools_of_grafana.py"
    file.write_text(app.read_text() + "\n@tool(session=True)\nclass Kept:\n    def ask(self) -> int: ...\n")
    server = make_server(file)
    call(server, "add", {"a": 1})
    with Bus() as bus:
        server.show("news", bus)
        _check_grafana(server)


def _check_grafana(server: Server) -> None:
    known = samples(server)
    labels = {name: {label for own, _ in found for label in own} for name, found in known.items()}
    dashboard = json.loads((ROOT / "dashboards/grafana.json").read_text())
    queries = [target["expr"] for panel in dashboard["panels"] for target in panel.get("targets", [])]
    queries += [one["query"]["query"] for one in dashboard["templating"]["list"] if one["type"] == "query"]
    assert len(queries) > 20
    for query in queries:
        names = re.findall(r"\b((?:ropewalk|http|process)_\w+)\b(?=[{,)])(?:\{([^}]*)\})?", query)
        asked = [
            (name, chosen)
            for name, chosen in names
            if name not in {"http_route", "http_response_status_code"}
        ]
        assert asked, query
        for name, chosen in asked:
            assert name in known, query
            wanted = set(re.findall(r"(\w+)\s*(?:=~|!=|=)", chosen)) - {"instance"}
            wanted |= {label for by in re.findall(r"by \(([^)]*)\)", query) for label in by.split(", ")}
            assert wanted - {"instance", "le"} <= labels[name], query


def test_a_tool_reads_the_trace_of_its_caller(make_server: Make) -> None:
    server = make_server()
    given = call(server, "metadata", traceparent=PARENT, tracestate="a=b").json
    assert given == {"traceparent": PARENT, "tracestate": "a=b"}


# --- a collector ----------------------------------------------------------------------------------------------------


class Collector:
    """A collector of OpenTelemetry, which keeps what it is sent."""

    def __init__(self) -> None:
        from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
        from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

        self.spans: list[Any] = []
        self.resources: list[Any] = []
        self.metrics: dict[str, Any] = {}
        collector = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["content-length"]))
                assert self.headers["content-type"] == "application/x-protobuf"
                if self.path == "/v1/traces":
                    for resource in ExportTraceServiceRequest.FromString(body).resource_spans:
                        collector.resources.append(resource.resource)
                        for scope in resource.scope_spans:
                            collector.spans.extend(scope.spans)
                elif self.path == "/v1/metrics":
                    for resource in ExportMetricsServiceRequest.FromString(body).resource_metrics:
                        for scope in resource.scope_metrics:
                            collector.metrics.update({metric.name: metric for metric in scope.metrics})
                self.send_response(200)
                self.send_header("content-length", "0")
                self.end_headers()

            def log_message(self, format: str, *args: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.thread = threading.Thread(target=self.server.serve_forever, args=(0.01,))
        self.thread.start()

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.server.server_port}"

    def close(self) -> None:
        self.server.shutdown()
        self.server.server_close()
        self.thread.join()


@pytest.fixture
def collector() -> Iterator[Collector]:
    pytest.importorskip("opentelemetry.proto.collector.trace.v1.trace_service_pb2")
    made = Collector()
    yield made
    made.close()


def attributes(span: Any) -> dict[str, Any]:
    return {one.key: getattr(one.value, one.value.WhichOneof("value")) for one in span.attributes}


def test_a_worker_s_run_is_a_span_of_its_caller_s_trace(make_server: Make, collector: Collector) -> None:
    server = make_server(otlp=collector.address)
    given = call(server, "metadata", traceparent=PARENT).json
    process = call(server, "process", traceparent=PARENT).json
    server.drain()
    spans = {span.name: span for span in collector.spans if attributes(span)["ropewalk.tool"] == "process"}
    request, run = spans["POST /v1/tools/{name}"], spans["run process"]
    assert {request.trace_id.hex(), run.trace_id.hex()} == {TRACE}
    assert request.parent_span_id.hex() == SPAN
    assert run.parent_span_id == request.span_id
    assert request.start_time_unix_nano <= run.start_time_unix_nano <= run.end_time_unix_nano
    assert attributes(run)["process.pid"] == process
    assert attributes(run)["ropewalk.task.outcome"] == "returned"
    assert attributes(run)["ropewalk.task.queue.duration"] > 0
    assert attributes(request)["http.response.status_code"] == 200
    # Spans that the tool makes are children of its run.
    runs = [span for span in collector.spans if span.name == "run metadata"]
    assert given["traceparent"] == f"00-{TRACE}-{runs[0].span_id.hex()}-01"


def test_a_crash_is_an_error_of_the_run_and_of_the_request(make_server: Make, collector: Collector) -> None:
    server = make_server(otlp=collector.address)
    assert call(server, "die").status == 503
    server.drain()
    run, request = sorted(collector.spans, key=lambda span: bool(span.kind == 2))
    assert attributes(run)["ropewalk.task.outcome"] == "crashed"
    assert {run.status.code, request.status.code} == {2}
    assert attributes(request)["error.type"] == "UNAVAILABLE"


def test_the_environment_names_the_collector_and_the_service(
    make_server: Make, collector: Collector, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector.address)
    monkeypatch.setenv("OTEL_RESOURCE_ATTRIBUTES", "service.name=shop,deployment.environment.name=test")
    monkeypatch.setenv("OTEL_METRICS_EXPORTER", "none")
    monkeypatch.setenv("OTEL_TRACES_SAMPLER", "parentbased_always_off")
    server = make_server()
    call(server, "add", {"a": 1})
    call(server, "add", {"a": 1}, traceparent=PARENT)
    server.drain()
    assert {span.trace_id.hex() for span in collector.spans} == {TRACE}
    assert len(collector.spans) == 2
    named = {attribute.key: attribute.value.string_value for attribute in collector.resources[0].attributes}
    assert named["service.name"] == "shop"
    assert named["deployment.environment.name"] == "test"
    assert not collector.metrics


def test_the_collector_has_the_numbers_of_the_metrics_page(make_server: Make, collector: Collector) -> None:
    server = make_server(otlp=collector.address)
    for number in range(3):
        call(server, "add", {"a": number})
    until(lambda: value(server, "ropewalk_tool_run_duration_seconds_count", tool="add") == 3)
    known = {re.sub(r"_(total|bucket|sum|count)$", "", name) for name in samples(server)}
    server.drain()
    calls = collector.metrics["ropewalk.tool.calls"].sum.data_points
    assert [point.as_int for point in calls] == [3]
    assert collector.metrics["ropewalk.tool.run.duration"].histogram.data_points[0].count == 3
    assert collector.metrics["process.memory.usage"].sum.data_points[0].as_int > 1 << 20
    units = {"s": "_seconds", "By": "_bytes", "1": "_ratio"}
    sent = {name.replace(".", "_") + units.get(one.unit, "") for name, one in collector.metrics.items()}
    assert known == sent


def test_without_a_collector_nothing_is_sent(make_server: Make, collector: Collector) -> None:
    server = make_server()
    call(server, "add", {"a": 1}, traceparent=PARENT)
    server.drain()
    assert not collector.spans
    assert not collector.metrics


def test_a_collector_that_is_none_is_refused(
    make_server: Make, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    with pytest.raises(ValueError, match="otlp must have no user and no password") as caught:
        make_server(otlp="http://ada:hunter2@127.0.0.1:4318")
    assert "hunter2" not in str(caught.value)
    with pytest.raises(ValueError, match="otlp must be the address of a collector"):
        make_server(otlp="ftp://collector:4318")
    with pytest.raises(ServingError, match=r"otlp_ca: the file .* cannot be read"):
        make_server(otlp="https://collector:4318", otlp_ca=tmp_path / "none")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "ftp://collector:4318")
    with pytest.raises(ServingError, match="write http://HOST:PORT"):
        make_server()


# --- the log --------------------------------------------------------------------------------------------------------


def records(caplog: pytest.LogCaptureFixture) -> list[Any]:
    return [record for record in caplog.records if record.name == "ropewalk.serving"]


def test_failures_are_logged_with_what_the_task_s_record_says(
    make_server: Make, caplog: pytest.LogCaptureFixture
) -> None:
    server = make_server()
    with caplog.at_level(logging.INFO, "ropewalk.serving"):
        call(server, "add", {"a": 1})
        call(server, "add", {"a": "wrong"})
        call(server, "divide", {"a": 1, "b": 0}, traceparent=PARENT)
        server.drain()
        (record,) = records(caplog)
    assert record.levelno == logging.ERROR
    assert (record.tool, record.protocol, record.status) == ("divide", "http", "UNKNOWN")
    assert record.error.startswith("ZeroDivisionError: ")
    assert record.trace_id == TRACE
    assert record.worker_pid > 0
    assert 0 <= record.run_duration <= record.duration
    assert not hasattr(record, "items")


def test_all_calls_are_logged_and_no_secrets(make_server: Make, caplog: pytest.LogCaptureFixture) -> None:
    server = make_server(log="calls")
    with caplog.at_level(logging.INFO, "ropewalk.serving"):
        call(server, "reverse", b"argument-secret", content_type="application/octet-stream")
        call(
            server, "count", {"n": 3}, x_ropewalk_meta_key="meta-secret", authorization="Bearer token-secret"
        )
        call(server, "made-up")
        server.drain()
        found = records(caplog)
    assert [(one.tool, one.status) for one in found] == [
        ("reverse", "OK"),
        ("count", "OK"),
        ("_unknown", "NOT_FOUND"),
    ]
    assert found[1].items == 3
    assert "secret" not in "".join(_logs.Json().format(one) for one in found)


def test_what_is_wrong_with_arguments_is_in_no_record(
    make_server: Make, caplog: pytest.LogCaptureFixture
) -> None:
    server = make_server(log="calls")
    with caplog.at_level(logging.INFO, "ropewalk.serving"):
        said = call(server, "add", {"a": 1, "argument-secret": 2})
        call(server, "refuse", {"status": "INVALID_ARGUMENT"})
        server.drain()
        found = records(caplog)
    assert "argument-secret" in said.error["message"], "the caller reads it"
    assert [(one.tool, one.status) for one in found] == [
        ("add", "INVALID_ARGUMENT"),
        ("refuse", "INVALID_ARGUMENT"),
    ]
    assert not [one for one in found if hasattr(one, "error")]
    written = "".join(_logs.formatter(form).format(one) for form in ("json", "text") for one in found)
    assert "secret" not in written
    assert "not today" not in written


def test_nothing_is_logged_if_that_is_wanted(make_server: Make, caplog: pytest.LogCaptureFixture) -> None:
    server = make_server(log="nothing")
    with caplog.at_level(logging.INFO, "ropewalk.serving"):
        call(server, "divide", {"a": 1, "b": 0})
        server.drain()
    assert not records(caplog)


def test_a_record_is_one_line_of_json() -> None:
    circle: dict[str, Any] = {}
    circle["itself"] = circle
    made = logging.makeLogRecord(
        {
            "name": "a",
            "levelname": "INFO",
            "msg": "two\n%s",
            "args": ("lines",),
            "created": 0.5,
            "seen": {1},
            "it": 2,
        }
    )
    line = _logs.Json().format(made)
    assert "\n" not in line
    assert json.loads(line) == {
        "time": "1970-01-01T00:00:00.500Z",
        "level": "INFO",
        "logger": "a",
        "message": "two\nlines",
        "seen": "{1}",
        "it": 2,
    }
    made.circle = circle
    assert json.loads(_logs.Json().format(made))["circle"] == str(circle)
    try:
        raise KeyError("why")
    except KeyError:
        made.exc_info = sys.exc_info()
    assert "KeyError: 'why'" in json.loads(_logs.Json().format(made))["exception.stacktrace"]
    # As a record comes from a worker.
    made.exc_info, made.exc_text = None, "of a worker"
    assert json.loads(_logs.Json().format(made))["exception.stacktrace"] == "of a worker"


def test_records_that_were_dropped_are_counted(caplog: pytest.LogCaptureFixture) -> None:
    _logs.write([], [], 7)
    assert "7 records of calls were dropped" in caplog.text


def test_what_is_written_meanwhile_is_written_once(capsys: pytest.CaptureFixture[str]) -> None:
    root = logging.getLogger()
    before, level = list(root.handlers), _logs.LOG.level
    own = logging.StreamHandler(sys.stderr)
    root.addHandler(own)
    try:
        with _logs.written("json"):
            _logs.LOG.info("hello")
        assert json.loads(capsys.readouterr().err)["message"] == "hello"
        with _logs.written("text"):
            _logs.LOG.error("hello")
        assert capsys.readouterr().err == "ropewalk: ERROR: hello\n"
        with _logs.written(None):
            pass
        assert root.handlers == [*before, own]
        assert _logs.LOG.level == level
    finally:
        root.removeHandler(own)


@pytest.mark.parametrize(
    ("setting", "wrong"), [("log", "all"), ("log_format", "xml"), ("otlp", "collector:4318")]
)
def test_wrong_settings_are_refused(make_server: Make, setting: str, wrong: str) -> None:
    with pytest.raises(ValueError, match=setting):
        make_server(**{setting: wrong})


def test_a_record_is_one_line_whatever_callers_say() -> None:
    said = "no such key \n ropewalk: INFO: all is well\x1b]0;owned\x07\x9b2J\u2028"
    record = logging.LogRecord("ropewalk.serving", logging.ERROR, "", 0, said, (), None)
    written = _logs.formatter("text").format(record)
    assert written.isprintable()
    assert written.startswith("ropewalk: ERROR: no such key \\n ropewalk: INFO: all is well\\x1b]0;owned")
    assert len(_logs.formatter("json").format(record).splitlines()) == 1
