"""The fake: it records the jobs that this process sends, and has assertions about them."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from delayq.core import clock
from delayq.core.display import several
from delayq.core.errors import InvalidInput
from delayq.core.times import Duration, duration_ms, format_duration
from delayq.jobs.dispatch import Sendable
from delayq.jobs.function import JobFunction
from delayq.jobs.job import Job
from delayq.jobs.notification import Notification
from delayq.jobs.transactions import waiting_jobs
from delayq.redis.interception import intercepted
from delayq.testing.fake_server import FakeExecutor, FakeServer
from delayq.testing.recorded import FakeBatch, FakeJob, Shape, batch_of

AnyJob = str | type[Job] | type[Notification] | JobFunction[..., Any]
"""A job name, a class of jobs or notifications, or a function with the decorator `@job`."""

Where = Callable[[FakeJob], bool]
"""A function that gets a recorded job. A job counts only if the function returns True for it."""


@contextmanager
def faking() -> "Iterator[Fake]":
    """Record all jobs that this process sends inside the `with` block, and send nothing.

    This covers `dispatch` and all clients, also clients that were made before the block. No server, socket or data
    directory is used. Ids and unique keys have the same effect as in Redis. Raises RuntimeError for a call that needs a
    server, and if the process is already in a block of `faking` or `travelling`.

        with faking() as fake:
            place_order(42)
        fake.assert_pushed(CloseOrder)
    """
    server = FakeServer()
    with intercepted(lambda session: FakeExecutor(server, session)), clock.given(clock.system_time):
        yield Fake(server)


class Fake:
    """The recorded jobs and batches, with assertions. `faking` and the fixture `delayq_fake` create this object.

    In all methods, `job` is a job name, a class of jobs or notifications, or a function with `@job`. `where` is a
    function that gets a FakeJob and returns True if the job counts. A job counts once, even if a later call cancels or
    replaces it.
    """

    def __init__(self, server: FakeServer) -> None:
        self._server = server

    @property
    def jobs(self) -> list[FakeJob]:
        """All recorded jobs, the first one first."""
        return list(self._server.jobs)

    @property
    def batches(self) -> list[FakeBatch]:
        """All recorded batches, the first one first."""
        return [batch_of(batch.plan, self._server.jobs) for batch in self._server.batches.values()]

    def pushed(self, job: AnyJob, where: Where | None = None) -> list[FakeJob]:
        """Return the recorded jobs of this name."""
        name = _name_of(job)
        return [one for one in self._server.jobs if one.name == name and (where is None or where(one))]

    def assert_pushed(self, job: AnyJob, where: Where | None = None) -> None:
        """Fail unless a job of this name was sent."""
        matching = "" if where is None else " that matches `where`"
        _check(bool(self.pushed(job, where)), f"No job {_name_of(job)!r}{matching} was sent.", self._seen())

    def assert_pushed_times(self, job: AnyJob, times: int, where: Where | None = None) -> None:
        """Fail unless exactly `times` jobs of this name were sent."""
        sent = len(self.pushed(job, where))
        _check(sent == times, f"Matching jobs {_name_of(job)!r} sent: {sent}, not {times}.", self._seen())

    def assert_pushed_on(self, queue: str, job: AnyJob, where: Where | None = None) -> None:
        """Fail unless a job of this name was sent to this queue."""
        found = [one for one in self.pushed(job, where) if one.queue == queue]
        _check(bool(found), f"No matching job {_name_of(job)!r} was sent to the queue {queue!r}.", self._seen())

    def assert_pushed_with_delay(self, job: AnyJob, delay: Duration, where: Where | None = None) -> None:
        """Fail unless a job of this name was sent with exactly this delay, such as "15m"."""
        wanted_ms = duration_ms(delay)
        found = [one for one in self.pushed(job, where) if one.delay_ms == wanted_ms]
        wanted = format_duration(wanted_ms)
        _check(bool(found), f"No matching job {_name_of(job)!r} was sent with a delay of {wanted}.", self._seen())

    def assert_not_pushed(self, job: AnyJob, where: Where | None = None) -> None:
        """Fail if a job of this name was sent."""
        _check(not self.pushed(job, where), f"The job {_name_of(job)!r} was sent.", self._seen())

    def assert_nothing_pushed(self) -> None:
        """Fail if any job was sent, or any batch."""
        _check(not self._server.jobs and not self._server.batches, "Jobs were sent.", self._seen())

    def assert_chained(self, jobs: Sequence[Any]) -> None:
        """Fail unless a chain of exactly these jobs, in this order, was sent.

        Write a batch in the chain as the list of its members.

        fake.assert_chained([Charge, [PrintLabel, PrintInvoice], Ship])
        """
        wanted = [_shape_of(job) for job in jobs]
        chains = [[one.name, *one.chain] for one in self._server.jobs if one.chain]
        chains += [[batch.members, *batch.after] for batch in self.batches if batch.after]
        sent = "".join(f"\n  {_shown(names)}" for names in chains) or " none"
        _check(wanted in chains, f"No chain {_shown(wanted)} was sent.", f"Chains sent:{sent}")

    def assert_batched(self, members: Sequence[Any], *, name: str | None = None) -> None:
        """Fail unless a batch of exactly these members, in this order, was sent.

        Write a member that is a chain as the list of its jobs. `name`: the name of the batch; None = any name.

        fake.assert_batched([ImportPage, ImportPage, [Fetch, Parse]], name="import")
        """
        wanted = [_shape_of(member) for member in members]
        found = [one for one in self.batches if one.members == wanted and name in (None, one.name)]
        sent = "".join(f"\n  {one.name or one.id}: {_shown(one.members)}" for one in self.batches) or " none"
        named = "" if name is None else f" with the name {name!r}"
        _check(bool(found), f"No batch of {_shown(wanted)}{named} was sent.", f"Batches sent:{sent}")

    def _seen(self) -> str:
        rows = [f"\n  {job.name} (queue {job.queue}, {_delay_shown(job)})" for job in self._server.jobs]
        waits = waiting_jobs()
        hint = f"\nWaiting for the commit of a transaction: {several(waits, 'job')}." if waits else ""
        return f"Jobs sent:{''.join(rows) or ' none'}{hint}"


def _delay_shown(job: FakeJob) -> str:
    if job.state in ("absent", "failed"):
        return "cancelled" if job.state == "absent" else "archived"
    return f"in {format_duration(job.delay_ms)}" if job.delay_ms else "due at once"


def _name_of(job: AnyJob) -> str:
    """Return the name of a job. Raises InvalidInput."""
    if isinstance(job, str):
        return job
    if isinstance(job, JobFunction):
        return job._handler.name
    if isinstance(job, type) and issubclass(job, Job | Notification):
        return job.job_name
    if isinstance(job, Sendable):
        raise InvalidInput(
            f"{job!r} is a job object, but a class, a function with @job or a job name is needed.",
            hint="Give the class, the function or the name of this job, and check its data with `where=`.",
            field="job",
        )
    raise InvalidInput(
        f"{job!r} is not a job.",
        hint="Use a job name, a class of jobs or notifications, or a function with @job.",
        field="job",
    )


def _shape_of(job: Any) -> Shape:
    return [_shape_of(one) for one in job] if isinstance(job, list | tuple) else _name_of(job)


def _shown(shape: Shape) -> str:
    return shape if isinstance(shape, str) else f"[{', '.join(_shown(one) for one in shape)}]"


def _check(is_true: bool, problem: str, seen: str) -> None:
    if not is_true:
        raise AssertionError(f"{problem} {seen}")
