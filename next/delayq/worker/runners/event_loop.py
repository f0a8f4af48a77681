"""Async handlers, many at once, in one event loop that has a thread of its own.

An interruption cancels the task of the handler, which ends with the error of the interruption then. Tasks that a
handler started and left running are cancelled at its end: a job has ended when its handler has.
"""

import asyncio
import logging
import threading
from contextlib import suppress
from contextvars import Context, ContextVar
from typing import Any, Final

from delayq.core.control_flow import JobInterrupted
from delayq.worker.attempt import Attempt
from delayq.worker.in_flight import JobInFlight
from delayq.worker.runners.runner import AsyncEnd, Begin

logger: Final = logging.getLogger("delayq.worker")

LEFT_OVER_WAIT: Final = 1.0
"""Seconds that tasks which a handler left behind have to end."""

_tasks_of_job: Final[ContextVar[set[asyncio.Task[Any]] | None]] = ContextVar("delayq_tasks", default=None)


class EventLoopRunner:
    """Runs attempts in an event loop."""

    def __init__(self, begin: Begin, end: AsyncEnd) -> None:
        self._begin = begin
        self._end = end
        self._running: dict[JobInFlight, asyncio.Task[None]] = {}
        self._interruptions: dict[JobInFlight, JobInterrupted] = {}
        self._is_closed = False
        self._loop = asyncio.new_event_loop()
        self._loop.set_task_factory(_make_task)
        self._thread = threading.Thread(target=self._run, name="delayq-loop", daemon=True)
        self._thread.start()

    def run(self, job: JobInFlight, attempt: Attempt) -> None:
        """Start an attempt in the loop."""
        self._loop.call_soon_threadsafe(self._start, job, attempt)

    def interrupt(self, job: JobInFlight, error: JobInterrupted) -> None:
        """Cancel the task of a job."""
        self._interruptions[job] = error
        self._loop.call_soon_threadsafe(self._cancel, job)

    def close(self) -> None:
        """Stop the loop."""
        self._is_closed = True
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(timeout=LEFT_OVER_WAIT)
        if not self._loop.is_running():
            self._loop.close()

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        while not self._is_closed:
            try:
                self._loop.run_forever()
            except BaseException:
                logger.exception("a task of a handler raised through the event loop; the loop goes on")

    def _start(self, job: JobInFlight, attempt: Attempt) -> None:
        self._running[job] = self._loop.create_task(self._attempt(job, attempt), context=attempt.context)

    def _cancel(self, job: JobInFlight) -> None:
        task = self._running.get(job)
        if task is not None:
            # One turn later: a task that is cancelled before its first step never runs, so the job would never end.
            self._loop.call_soon(task.cancel)

    async def _attempt(self, job: JobInFlight, attempt: Attempt) -> None:
        """Await a handler, then end the tasks that it left behind. This runs in the context of the attempt."""
        result: Any = None
        error: BaseException | None = None
        tasks: set[asyncio.Task[Any]] = set()
        _tasks_of_job.set(tasks)
        self._begin(job, attempt)
        try:
            result = await attempt.acall()
        except (asyncio.CancelledError, BaseExceptionGroup) as raised:
            error = self._interruptions.get(job, raised)
        except BaseException as raised:
            error = raised
        del self._running[job]
        with suppress(asyncio.CancelledError):  # an interruption that was on its way when the handler ended
            await _end_tasks(job, tasks)
        self._interruptions.pop(job, None)
        await self._end(job, attempt, result, error)


def _make_task(loop: asyncio.AbstractEventLoop, coroutine: Any, **options: Any) -> asyncio.Task[Any]:
    """Make a task, and note it for the job whose handler started it. `options` differ between versions of Python."""
    context: Context | None = options.get("context")
    task = asyncio.Task(coroutine, loop=loop, **options)
    tasks = _tasks_of_job.get() if context is None else context.get(_tasks_of_job)
    if tasks is not None:
        tasks.add(task)
        task.add_done_callback(tasks.discard)
    return task


async def _end_tasks(job: JobInFlight, tasks: set[asyncio.Task[Any]]) -> None:
    """Cancel tasks that are still running, and wait for them. Log how many ignore it."""
    left = [task for task in tasks if not task.done()]
    if not left:
        return
    names = ", ".join(sorted(task.get_name() for task in left))[:500]
    logger.warning("job %s left %d tasks running; they are cancelled: %s", job.delivery.id, len(left), names)
    for task in left:
        task.cancel()
    _, stubborn = await asyncio.wait(left, timeout=LEFT_OVER_WAIT)
    if stubborn:
        logger.error("job %s: %d of these tasks ignored that and run on", job.delivery.id, len(stubborn))
