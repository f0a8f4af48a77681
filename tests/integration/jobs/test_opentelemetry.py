"""Spans of dispatches and attempts, end to end: a worker's children write theirs where the test reads them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import datetime
from typing import Any

import pytest
from opentelemetry import baggage, trace
from opentelemetry.context import attach, detach
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor, SpanExporter, SpanExportResult
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from delayq import Retry, dispatch
from delayq.contrib.opentelemetry import NAME, Stamp, Traced, trace_headers
from delayq.core.at_work import trace_id_of
from delayq.jobs.middleware.forms import Next
from delayq.jobs.middleware.running_job import RunningJob
from delayq.manager import Manager
from tests.support.around import KINDS, declare
from tests.support.station import QUEUE, Station
from tests.support.waiting import wait_until

pytestmark = pytest.mark.usefixtures("manager")


class Taped(SpanExporter):
    """Exports to a tape, from every process."""

    def __init__(self, tape: Any) -> None:
        self._tape = tape

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        for span in spans:
            self._tape.append(span.to_json(indent=None))
        return SpanExportResult.SUCCESS

    def shutdown(self) -> None:
        """Nothing was opened."""

    def force_flush(self, timeout_millis: int = 30_000) -> bool:
        return True


class Traces:
    """A provider whose spans can be read back by name."""

    def __init__(self, station: Station) -> None:
        self._tape = station.tape()
        self.provider = TracerProvider(shutdown_on_exit=False)
        self.provider.add_span_processor(SimpleSpanProcessor(Taped(self._tape)))
        self.tracer = self.provider.get_tracer(NAME)

    def __getitem__(self, name: str) -> dict[str, Any]:
        [found] = [span for span in map(json.loads, list(self._tape)) if span["name"] == name]
        return dict(found)

    def __contains__(self, name: str) -> bool:
        return name in [json.loads(span)["name"] for span in list(self._tape)]


def ids(span: dict[str, Any]) -> tuple[str, str]:
    """What a span is known by."""
    return span["context"]["trace_id"], span["context"]["span_id"]


def linked(span: dict[str, Any]) -> list[tuple[str, str]]:
    """Those a span links to."""
    return [ids(link) for link in span["links"]]


def stamp_ms(stamp: str) -> int:
    """A time of a span, epoch ms."""
    return round(datetime.fromisoformat(stamp).timestamp() * 1000)


@pytest.fixture
def traces(station: Station) -> Traces:
    return Traces(station)


def ran(station: Station, manager: Manager, traces: Traces, kind: str, **options: Any) -> str:
    """Dispatch a job of that kind inside a span of the application's, and run it; its id."""
    manager.stamp(Stamp(traces.tracer))
    act = declare(kind, station.tape(), [Traced(traces.tracer, **options)])
    with traces.tracer.start_as_current_span("shop"):
        job_id = act()
    station.drain()
    return job_id


@pytest.mark.parametrize("kind", KINDS)
def test_the_attempt_links_to_its_dispatch(station: Station, manager: Manager, traces: Traces, kind: str) -> None:
    job_id = ran(station, manager, traces, kind)
    create, shop, process = traces[f"create {QUEUE}"], traces["shop"], traces[f"process {QUEUE}"]
    assert (create["kind"], process["kind"]) == ("SpanKind.PRODUCER", "SpanKind.CONSUMER")
    assert create["parent_id"] == shop["context"]["span_id"]
    assert process["parent_id"] is None
    assert process["context"]["trace_id"] != create["context"]["trace_id"]
    assert linked(process) == [ids(create), ids(traces[f"promote {QUEUE}"])]
    said = process["attributes"]
    assert said["messaging.system"] == "delayq"
    assert (said["messaging.operation.name"], said["messaging.operation.type"]) == ("process", "process")
    assert (said["messaging.destination.name"], said["messaging.message.id"]) == (QUEUE, job_id)
    assert (said["messaging.consumer.group.name"], said["delayq.attempt"]) == ("delayq", 1)
    assert create["attributes"]["messaging.operation.type"] == "create"
    assert process["status"]["status_code"] == "UNSET"


class Reads:
    """Middleware that writes down what baggage the handler would find."""

    def __init__(self, tape: Any) -> None:
        self._tape = tape

    def handle(self, job: RunningJob, next: Next) -> Any:
        self._tape.append(baggage.get_baggage("tenant"))
        return next(job)

    async def ahandle(self, job: RunningJob, next: Next) -> Any:
        self._tape.append(baggage.get_baggage("tenant"))
        return await next(job)


@pytest.mark.parametrize("kind", KINDS)
def test_baggage_reaches_the_handler(station: Station, manager: Manager, traces: Traces, kind: str) -> None:
    manager.stamp(Stamp(traces.tracer))
    found = station.tape()
    act = declare(kind, station.tape(), [Traced(traces.tracer), Reads(found)])
    token = attach(baggage.set_baggage("tenant", "acme"))
    try:
        act()
    finally:
        detach(token)
    station.drain()
    assert list(found) == ["acme"]


def test_between_them_stands_how_long_the_mover_took(station: Station, manager: Manager, traces: Traces) -> None:
    manager.stamp(Stamp(traces.tracer))
    act = declare(KINDS[0], station.tape(), [Traced(traces.tracer)], delay="5ms")
    job_id = act()
    due_ms = station.job(job_id).due_ms
    wait_until(lambda: station.driver.promote(QUEUE).moved == 1, what="it is promoted")
    entered_ms = int(station.job(job_id).entry.partition("-")[0])
    station.drain()
    create, promote = traces[f"create {QUEUE}"], traces[f"promote {QUEUE}"]
    assert (stamp_ms(promote["start_time"]), stamp_ms(promote["end_time"])) == (due_ms, entered_ms)
    assert (promote["kind"], promote["parent_id"], linked(promote)) == ("SpanKind.CLIENT", None, [ids(create)])
    said = promote["attributes"]
    assert (said["messaging.operation.name"], said["messaging.operation.type"]) == ("promote", "send")
    assert (said["messaging.destination.name"], said["messaging.message.id"]) == (QUEUE, job_id)
    assert linked(traces[f"process {QUEUE}"]) == [ids(create), ids(promote)]


def test_nobody_promoted_what_was_taken_back(station: Station, manager: Manager, traces: Traces) -> None:
    manager.stamp(Stamp(traces.tracer))
    job_id = declare(KINDS[0], station.tape(), [Traced(traces.tracer)], delay="5ms")()
    station.connector.commands().hset(station.keys().of("recoveries"), job_id, "1")
    wait_until(lambda: station.driver.promote(QUEUE).moved == 1, what="it is promoted")
    station.drain()
    assert f"promote {QUEUE}" not in traces
    assert linked(traces[f"process {QUEUE}"]) == [ids(traces[f"create {QUEUE}"])]


def test_as_a_child_it_belongs_to_the_same_trace(station: Station, manager: Manager, traces: Traces) -> None:
    ran(station, manager, traces, KINDS[0], child=True)
    create, process = traces[f"create {QUEUE}"], traces[f"process {QUEUE}"]
    assert process["parent_id"] == create["context"]["span_id"]
    assert process["links"] == []
    assert traces[f"promote {QUEUE}"]["parent_id"] == create["context"]["span_id"]


@pytest.mark.parametrize(("error", "failed"), [(ValueError("no"), True), (Retry("1h"), False)])
def test_what_a_handler_raises_is_an_error_unless_it_is_a_decision(
    station: Station, traces: Traces, error: Exception, failed: bool
) -> None:
    def breaks() -> None:
        raise error

    station.handles("break", breaks, middleware=[Traced(traces.tracer)], tries=1)
    station.client.schedule("break", id="b", queue=QUEUE)
    station.drain()
    span = traces[f"process {QUEUE}"]
    assert (span["status"]["status_code"] == "ERROR") == failed
    assert (span["attributes"].get("error.type") == "ValueError") == failed
    assert (span["attributes"].get("delayq.signal") == "Retry") != failed
    assert len(span["events"]) == failed


def test_headers_for_a_job_that_is_scheduled_without_a_dispatch() -> None:
    provider, exporter = TracerProvider(shutdown_on_exit=False), InMemorySpanExporter()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    assert trace_headers() == {}
    with provider.get_tracer(NAME).start_as_current_span("shop") as span:
        assert trace_id_of(trace_headers()) == trace.format_trace_id(span.get_span_context().trace_id)
    assert [span.name for span in exporter.get_finished_spans()] == ["shop"]


def test_without_an_sdk_nothing_is_sent_along(station: Station, manager: Manager) -> None:
    manager.stamp(Stamp(trace.get_tracer(NAME)))
    dispatch("x", id="j", queue=QUEUE)
    envelope = station.job("j").envelope
    assert envelope is not None
    assert not envelope.headers
