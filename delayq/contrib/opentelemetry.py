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

from opentelemetry import baggage, propagate, trace
from opentelemetry.context import Context, attach, detach
from opentelemetry.trace import (
    INVALID_SPAN_CONTEXT,
    Link,
    Span,
    SpanContext,
    SpanKind,
    Status,
    StatusCode,
    Tracer,
    TracerProvider,
)

from delayq.core.ran import entered_ms
from delayq.core.signals import Fail, JobSignal
from delayq.core.spec import JobSpec
from delayq.jobs.context import JobContext
from delayq.jobs.current import current_manager
from delayq.jobs.middleware.forms import Next
from delayq.jobs.middleware.running_job import RunningJob
from delayq.jobs.registry import use_middleware

NAME: Final = "delayq"
NS_OF_MS: Final = 1_000_000


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
    """Middleware: the span of an attempt, and of the promotion before it."""

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
        before = [trace.get_current_span(sent).get_span_context(), self._promotion(context, sent)]
        about = {
            **_about("process", context.queue),
            "messaging.message.id": context.id,
            "messaging.consumer.group.name": "delayq",
            "delayq.job.name": job.name,
            "delayq.attempt": context.attempt,
        }
        with (
            _within(sent if self._child else _luggage(sent)),
            self._tracer.start_as_current_span(
                f"process {context.queue}",
                kind=SpanKind.CONSUMER,
                attributes=about,
                links=[] if self._child else _links(*before),
                record_exception=False,
                set_status_on_exception=False,
            ) as span,
        ):
            try:
                yield
            except Exception as error:
                _tell(span, error)
                raise

    def _promotion(self, context: JobContext, sent: Context) -> SpanContext:
        """The span of the mover's part, told here by what the delivery says of it.

        None where no mover brought it: it was taken back from a worker that vanished, or the backend has no stream.
        """
        entered = None if context.recoveries else entered_ms(context.token)
        if entered is None:
            return INVALID_SPAN_CONTEXT
        span = self._tracer.start_span(
            f"promote {context.queue}",
            context=sent if self._child else Context(),
            kind=SpanKind.CLIENT,
            attributes={
                **_about("promote", context.queue, "send"),
                "messaging.message.id": context.id,
                "delayq.job.name": context.name,
            },
            links=[] if self._child else _links(trace.get_current_span(sent).get_span_context()),
            start_time=min(context.due_ms, entered) * NS_OF_MS,
        )
        span.end(entered * NS_OF_MS)
        return span.get_span_context()


def _luggage(sent: Context) -> Context:
    """What was sent along for the handler (W3C baggage), without the span that sent it."""
    context = Context()
    for name, value in baggage.get_all(sent).items():
        context = baggage.set_baggage(name, value, context)
    return context


@contextmanager
def _within(context: Context) -> Iterator[None]:
    token = attach(context)
    try:
        yield
    finally:
        detach(token)


def _links(*spans: SpanContext) -> list[Link]:
    return [Link(span) for span in spans if span.is_valid]


def _about(operation: str, queue: str, kind: str = "") -> dict[str, Any]:
    """`kind`: the conventions' word for the operation, where it is another than its name."""
    return {
        "messaging.system": "delayq",
        "messaging.operation.name": operation,
        "messaging.operation.type": kind or operation,
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
