"""Runs coroutine functions, many at a time, in one event loop. The loop has its own thread.

To interrupt a handler, its task is cancelled, which raises CancelledError in the handler. If the handler lets
CancelledError pass, the attempt ends with the error of the interruption, such as JobTimedOut. Tasks that a handler
started and left running are cancelled when the handler ends, because no code of a job should run after the job.
"""

import asyncio
import logging
import threading
from contextlib import suppress
from contextvars import Context, ContextVar
from typing import Any, Final

from delayq.core.control_flow import JobInterrupted
from delayq.worker.attempt import Attempt, CurrentAttempt, current_attempt
from delayq.worker.in_flight import JobInFlight
from delayq.worker.runners.runner import AsyncEnd, Begin

logger: Final = logging.getLogger("delayq.worker")

LEFT_OVER_WAIT: Final = 1.0
"""How long to wait until cancelled tasks of a handler have ended, and until a stopped loop has ended, in seconds."""

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
        """Start an attempt in the loop, without waiting for it."""
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
                logger.exception("an error such as SystemExit in a task stopped the event loop; the loop runs again")

    def _start(self, job: JobInFlight, attempt: Attempt) -> None:
        self._running[job] = self._loop.create_task(self._attempt(job, attempt), context=attempt.context)

    def _cancel(self, job: JobInFlight) -> None:
        task = self._running.get(job)
        if task is not None:
            # Cancel one turn later. A task that is cancelled before its first step never runs, and its job would never
            # end.
            self._loop.call_soon(task.cancel)

    async def _attempt(self, job: JobInFlight, attempt: Attempt) -> None:
        """Await a handler, cancel the tasks that it left running, and end the attempt.

        This task runs in the context of the attempt.
        """
        result: Any = None
        error: BaseException | None = None
        tasks: set[asyncio.Task[Any]] = set()
        _tasks_of_job.set(tasks)
        current_attempt.set(CurrentAttempt(attempt))
        self._begin(job, attempt)
        try:
            result = await attempt.acall()
        except (asyncio.CancelledError, BaseExceptionGroup) as raised:
            error = self._interruptions.get(job, raised)
        except BaseException as raised:
            error = raised
        del self._running[job]
        with suppress(asyncio.CancelledError):  # an interruption may arrive just after the handler has ended
            await _end_tasks(job, tasks)
        self._interruptions.pop(job, None)
        await self._end(job, attempt, result, error)


def _make_task(loop: asyncio.AbstractEventLoop, coroutine: Any, **options: Any) -> asyncio.Task[Any]:
    """Make a task, and record the task for the job whose handler started it.

    `options` are passed on unchanged, because they differ between versions of Python.
    """
    context: Context | None = options.get("context")
    task = asyncio.Task(coroutine, loop=loop, **options)
    tasks = _tasks_of_job.get() if context is None else context.get(_tasks_of_job)
    if tasks is not None:
        tasks.add(task)
        task.add_done_callback(tasks.discard)
    return task


async def _end_tasks(job: JobInFlight, tasks: set[asyncio.Task[Any]]) -> None:
    """Cancel the tasks that still run, and wait for them. Log how many ignore the cancellation."""
    left = [task for task in tasks if not task.done()]
    if not left:
        return
    names = ", ".join(sorted(task.get_name() for task in left))[:500]
    logger.warning("job %s left %d tasks running; they are cancelled: %s", job.delivery.id, len(left), names)
    for task in left:
        task.cancel()
    _, stubborn = await asyncio.wait(left, timeout=LEFT_OVER_WAIT)
    if stubborn:
        logger.error("job %s: %d of these tasks ignored the cancellation and still run", job.delivery.id, len(stubborn))
