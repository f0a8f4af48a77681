"""Traces with OpenTelemetry: the API alone, so nothing happens until the application sets up its SDK.

    from delayq.contrib.opentelemetry import trace_jobs

    trace_jobs()                                     # in the module that declares the jobs

A dispatch makes a span `create <queue>` and sends its context along in the headers of the job, as W3C writes it. The
attempt makes a span `process <queue>`, which begins a trace of its own and **links** to that one: a job may start days
after its dispatch, in a trace that nobody keeps open. Names and attributes are those of the messaging conventions.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

from opentelemetry import propagate, trace
from opentelemetry.context import Context
from opentelemetry.trace import Link, Span, SpanKind, Status, StatusCode, Tracer, TracerProvider

from delayq.core.signals import Fail, JobSignal
from delayq.core.spec import JobSpec
from delayq.jobs.current import current_manager
from delayq.jobs.middleware.forms import Next
from delayq.jobs.middleware.running_job import RunningJob
from delayq.jobs.registry import use_middleware

NAME: Final = "delayq"


def trace_jobs(*, provider: TracerProvider | None = None, child: bool = False) -> None:
    """Trace what is dispatched by the present manager, and the handlers of the present registry.

    `provider` None: the global one. `child`: attempts belong to the trace of their dispatch instead of linking to it,
    which suits jobs that start at once.
    """
    tracer = trace.get_tracer(NAME, tracer_provider=provider)
    current_manager().stamp(Stamp(tracer))
    use_middleware(Traced(tracer, child=child))


def trace_headers() -> dict[str, str]:
    """The present context as headers, for jobs that are scheduled without a dispatch."""
    headers: dict[str, str] = {}
    propagate.inject(headers)
    return headers


class Stamp:
    """Makes the span of a dispatch, and the headers that carry it."""

    def __init__(self, tracer: Tracer) -> None:
        self._tracer = tracer

    def __call__(self, spec: JobSpec) -> Mapping[str, str]:
        """The headers."""
        queue = spec.queue or current_manager().options_of(None).queue
        about = {**_about("create", queue), "delayq.job.name": spec.name}
        if spec.id is not None:
            about["messaging.message.id"] = spec.id
        with self._tracer.start_as_current_span(f"create {queue}", kind=SpanKind.PRODUCER, attributes=about):
            return trace_headers()


class Traced:
    """Middleware: the span of an attempt."""

    def __init__(self, tracer: Tracer, *, child: bool = False) -> None:
        self._tracer = tracer
        self._child = child

    def handle(self, job: RunningJob, next: Next) -> Any:
        """Around plain handlers."""
        with self._span(job):
            return next(job)

    async def ahandle(self, job: RunningJob, next: Next) -> Any:
        """Around async ones."""
        with self._span(job):
            return await next(job)

    @contextmanager
    def _span(self, job: RunningJob) -> Iterator[None]:
        context = job.context
        sent = propagate.extract(dict(context.headers), context=Context())
        origin = trace.get_current_span(sent).get_span_context()
        about = {
            **_about("process", context.queue),
            "messaging.message.id": context.id,
            "messaging.consumer.group.name": "delayq",
            "delayq.job.name": job.name,
            "delayq.attempt": context.attempt,
        }
        with self._tracer.start_as_current_span(
            f"process {context.queue}",
            context=sent if self._child else Context(),
            kind=SpanKind.CONSUMER,
            attributes=about,
            links=[Link(origin)] if origin.is_valid and not self._child else [],
            record_exception=False,
            set_status_on_exception=False,
        ) as span:
            try:
                yield
            except Exception as error:
                _tell(span, error)
                raise


def _about(operation: str, queue: str) -> dict[str, Any]:
    return {
        "messaging.system": "delayq",
        "messaging.operation.name": operation,
        "messaging.operation.type": operation,
        "messaging.destination.name": queue,
    }


def _tell(span: Span, error: Exception) -> None:
    """What a handler decides (`Retry`, `Snooze`, `Discard`) is no error of its span; `Fail` and all else are."""
    if isinstance(error, JobSignal) and not isinstance(error, Fail):
        span.set_attribute("delayq.signal", type(error).__name__)
        return
    span.set_attribute("error.type", type(error).__qualname__)
    span.record_exception(error)
    span.set_status(Status(StatusCode.ERROR, type(error).__qualname__))
