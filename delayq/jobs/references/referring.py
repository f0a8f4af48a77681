"""The `Handler` that stands in the place of one whose payload holds models: it loads them, then lets it run."""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

import msgspec

from delayq.core.errors import ModelMissing
from delayq.core.events import JobModelMissing
from delayq.core.signals import Discard, Fail
from delayq.jobs.context import JobContext
from delayq.jobs.handler import Handler
from delayq.jobs.opened import Opened
from delayq.jobs.payload import Payload
from delayq.jobs.references.loading import Loading, Wanted
from delayq.jobs.references.reference import OnMissing
from delayq.jobs.stand_in import StandIn

log = logging.getLogger("delayq.jobs")


class Referring(StandIn):
    """A missing model is met here, before the handler and its middleware: nothing of the job has run then."""

    def __init__(self, inner: Handler, payload: Payload, tell: Callable[[object], None]) -> None:
        super().__init__(inner)
        self._payload = payload
        self._tell = tell

    def open(self, data: msgspec.Raw, context: Callable[[], JobContext]) -> Opened:
        """The inner one's job. The sessions of its models are closed by the time it is called."""
        with Loading() as loading:
            self._load(loading, data, context)
            with loading.current():
                return self.inner.open(data, context)

    def run(self, data: msgspec.Raw, context: Callable[[], JobContext]) -> Any:
        """Load the models, let the handler run, close what was opened."""
        if self.is_async:
            return self._arun(data, context)
        with ExitStack() as stack:
            loading = stack.enter_context(Loading())
            self._load(loading, data, context)
            with loading.current():
                result = self.inner.run(data, context)
            if inspect.isawaitable(result):
                return _awaited(result, loading, stack.pop_all())
            return result

    def failed(self, data: msgspec.Raw, error: BaseException) -> Any:
        """Tell the inner one, with models loaded anew. Without them there is no instance to tell."""
        if isinstance(error, ModelMissing):
            return None
        if self.is_async:
            return self._afailed(data, error)
        with ExitStack() as stack:
            loading = stack.enter_context(Loading())
            wanted = self._payload.wanted(data)
            loading.load(wanted)
            if self._untold(loading.missing(wanted)):
                return None
            with loading.current():
                answer = self.inner.failed(data, error)
            if inspect.isawaitable(answer):
                return _awaited(answer, loading, stack.pop_all())
            return answer

    async def _arun(self, data: msgspec.Raw, context: Callable[[], JobContext]) -> Any:
        wanted = self._payload.wanted(data)
        async with Loading() as loading:
            await loading.aload(wanted)
            self._refuse(loading.missing(wanted), context)
            with loading.current():
                return await self.inner.run(data, context)

    async def _afailed(self, data: msgspec.Raw, error: BaseException) -> None:
        wanted = self._payload.wanted(data)
        async with Loading() as loading:
            await loading.aload(wanted)
            if self._untold(loading.missing(wanted)):
                return
            with loading.current():
                answer = self.inner.failed(data, error)
                if inspect.isawaitable(answer):
                    await answer

    def _load(self, loading: Loading, data: msgspec.Raw, context: Callable[[], JobContext]) -> None:
        wanted = self._payload.wanted(data)
        loading.load(wanted)
        self._refuse(loading.missing(wanted), context)

    def _refuse(self, gone: Wanted | None, context: Callable[[], JobContext]) -> None:
        """Raises what ends a job whose model is gone: no retry would find it."""
        if gone is None:
            return
        policy = gone.linked.reference.on_missing or self.options.on_missing or OnMissing.FAIL
        discard = policy is OnMissing.DISCARD
        error = gone.error()
        known, outcome = context(), "discarded" if discard else "failed"
        model, key = gone.ref.model, gone.ref.key
        self._tell(JobModelMissing(known.id, self.name, known.queue, gone.linked.name, model, key, outcome))
        log.warning("job %s (%s) is %s: %s", known.id, self.name, outcome, error)
        raise Discard(str(error)) if discard else Fail(error)

    def _untold(self, gone: Wanted | None) -> bool:
        """Whether the failed hook cannot be called; the log says so."""
        if gone is not None:
            log.warning("the failed hook of %s was not called: %s", self.name, gone.error())
        return gone is not None


async def _awaited(running: Any, loading: Loading, sessions: ExitStack) -> Any:
    """The rest of a handler that answered with something to await; then the sessions are closed."""
    with sessions, loading.current():
        return await running


def refer(handler: Handler, ready: Handler, tell: Callable[[object], None]) -> Handler:
    """`ready`, with what loads models around it if the payload of `handler` holds any."""
    payload = handler.payload
    return Referring(ready, payload, tell) if payload is not None and payload.holds_models else ready
