"""The fake: jobs are written down instead of sent, and asked for afterwards. Laravel's `Queue::fake()`.

    def test_checkout(delayq_fake):
        checkout(order_id=42)
        delayq_fake.assert_pushed(CloseOrder, lambda job: job.order_id == 42)
        delayq_fake.assert_pushed_with_delay(CloseOrder, "15m")

It sees whatever this process schedules: what is dispatched, by whichever verb and manager, and what a `DelayQ` or an
`AsyncDelayQ` schedules, also one that was made before. What runs here at once (`dispatch_sync`) runs. Other calls of a
client (`cancel`, `get`, …) raise, as there is no queue to ask: `delayq_travel` has one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from datetime import timedelta

from delayq.core.durations import duration_ms, format_duration
from delayq.core.options import Options
from delayq.core.spec import Delay, Instant
from delayq.core.when import format_instant, instant_ms
from delayq.drivers.connection import Connection
from delayq.jobs.running import wall_ms
from delayq.manager import Manager, interposed
from delayq.redis.interception import intercepting
from delayq.settings.tables import ConnectionSettings
from delayq.testing.book import Book
from delayq.testing.fake_connection import FakeConnection, Gatekeeper
from delayq.testing.pushed import Batched, Predicate, Pushed, Shape, What, fits, matches, named, shape_text


class Fake:
    """What was pushed, and assertions about it. A failed one says what was pushed instead.

    `what` is a job class, one of its jobs, a function made with `@job`, or a name, which may be a pattern. The
    predicate is given the job where a class was named, else the `Pushed`.
    """

    def __init__(self, book: Book) -> None:
        self._book = book

    # -- which jobs --------------------------------------------------------------------------------------------------

    def only(self, *what: What) -> None:
        """Fake these jobs only; all others are really sent."""
        self._book.choose(what, ())

    def all_but(self, *what: What) -> None:
        """Fake all jobs but these, which are really sent."""
        self._book.choose((), what)

    def clear(self) -> None:
        """Forget what was pushed; ids and unique keys are free again."""
        self._book.clear()

    # -- looking -----------------------------------------------------------------------------------------------------

    def pushed(self, what: What | None = None, predicate: Predicate | None = None) -> list[Pushed]:
        """What was pushed, in order; all of it, or what is meant."""
        if what is None:
            return self._book.all()
        named(what)  # refuses what could never be pushed, also while nothing was
        return [one for one in self._book.all() if fits(one, what, predicate)]

    def assert_pushed(self, what: What, predicate: Predicate | None = None) -> None:
        """At least one such job was pushed."""
        __tracebackhide__ = True
        if not self.pushed(what, predicate):
            self._fail(f"No {self._shown(what, predicate)} was pushed")

    def assert_not_pushed(self, what: What, predicate: Predicate | None = None) -> None:
        """No such job was pushed."""
        __tracebackhide__ = True
        if found := len(self.pushed(what, predicate)):
            self._fail(f"{found} of {self._shown(what, predicate)} {_were(found)} pushed, and none should be")

    def assert_pushed_times(self, what: What, times: int, predicate: Predicate | None = None) -> None:
        """So many such jobs were pushed, no more and no fewer."""
        __tracebackhide__ = True
        if (found := len(self.pushed(what, predicate))) != times:
            self._fail(f"{found} of {self._shown(what, predicate)} {_were(found)} pushed, and {times} should be")

    def assert_pushed_on(self, queue: str, what: What, predicate: Predicate | None = None) -> None:
        """At least one such job was pushed to that queue."""
        __tracebackhide__ = True
        if not any(one.queue == queue for one in self.pushed(what, predicate)):
            self._fail(f"No {self._shown(what, predicate)} was pushed to {queue!r}")

    def assert_pushed_with_delay(self, what: What, delay: Delay | Instant, predicate: Predicate | None = None) -> None:
        """At least one such job was pushed with exactly this delay ('15m'); or for this time, if it was given one."""
        __tracebackhide__ = True
        if isinstance(delay, timedelta) or (isinstance(delay, str) and "-" not in delay):
            wanted = duration_ms(delay)
            found = any(one.delay_ms == wanted for one in self.pushed(what, predicate))
            when = f"with a delay of {format_duration(wanted)}"
        else:
            wanted = instant_ms(delay, now_ms=wall_ms())
            found = any(one.delay_ms is None and one.due_ms == wanted for one in self.pushed(what, predicate))
            when = f"for {format_instant(wanted)}"
        if not found:
            self._fail(f"No {self._shown(what, predicate)} was pushed {when}")

    def assert_nothing_pushed(self) -> None:
        """Nothing was pushed."""
        __tracebackhide__ = True
        self.assert_count(0)

    def assert_count(self, count: int) -> None:
        """So many jobs were pushed, whatever they are."""
        __tracebackhide__ = True
        if (found := len(self._book.all())) != count:
            self._fail(f"{found} {'job' if found == 1 else 'jobs'} {_were(found)} pushed, and {count} should be")

    # -- chains and batches ------------------------------------------------------------------------------------------

    def assert_chained(self, links: Sequence[Shape], predicate: Predicate | None = None) -> None:
        """A chain of exactly these links, in this order, was pushed.

        A link is what `assert_pushed` takes, or a list: a batch with these members. The predicate is asked about the
        first link, as by `assert_pushed`.
        """
        __tracebackhide__ = True
        if len(links) < 2:
            raise TypeError(f"A chain has at least two links, and {len(links)} were given; use assert_pushed.")
        found = any(matches(one, links) and fits(one, _job(links[0]), predicate) for one in self._book.all())
        if not found:
            self._fail(f"No chain {shape_text(links)}{' that the predicate accepts' if predicate else ''} was pushed")

    def assert_not_chained(self, what: What, predicate: Predicate | None = None) -> None:
        """Such a job was pushed, and none of them with a chain behind it."""
        __tracebackhide__ = True
        found = self.pushed(what, predicate)
        if not found:
            self._fail(f"No {self._shown(what, predicate)} was pushed")
        if chained := sum(bool(one.chain) for one in found):
            self._fail(f"{chained} of {self._shown(what, predicate)} {_were(chained)} pushed with a chain")

    def batched(self, predicate: Callable[[Batched], object] | None = None) -> list[Batched]:
        """The batches that were dispatched, in order; all of them, or those that the predicate accepts."""
        return [one for one in self._book.batches() if predicate is None or predicate(one)]

    def assert_batched(
        self, members: Sequence[Shape] | None = None, predicate: Callable[[Batched], object] | None = None
    ) -> None:
        """A batch of exactly these members, in this order, was dispatched; None: any batch.

        A member is what `assert_pushed` takes, or a list: a chain of these links, or a batch inside the batch.
        """
        __tracebackhide__ = True
        if not any(members is None or matches(one, members) for one in self.batched(predicate)):
            what = "batch" if members is None else f"batch of {shape_text(members)}"
            self._fail(f"No {what}{' that the predicate accepts' if predicate else ''} was dispatched")

    def assert_batch_count(self, count: int) -> None:
        """So many batches were dispatched, whatever they hold."""
        __tracebackhide__ = True
        if (found := len(self._book.batches())) != count:
            self._fail(f"{found} {'batch' if found == 1 else 'batches'} {_were(found)} dispatched, not {count}")

    def assert_nothing_batched(self) -> None:
        """No batch was dispatched."""
        __tracebackhide__ = True
        self.assert_batch_count(0)

    def _shown(self, what: What, predicate: Predicate | None) -> str:
        return f"{named(what)}{' that the predicate accepts' if predicate else ''}"

    def _fail(self, sentence: str) -> None:
        __tracebackhide__ = True
        entries = [*self._book.all(), *self._book.batches()]
        rest = "".join(f"\n  {entry}" for entry in entries) if entries else " nothing"
        raise AssertionError(f"{sentence}. Pushed:{rest}")


@contextmanager
def faking(
    *, only: tuple[What, ...] = (), but: tuple[What, ...] = (), manager: Manager | None = None
) -> Iterator[Fake]:
    """A fake for as long as the block lasts, for all threads: of everything that this process sends.

    `only` these jobs are faked, or all `but` those; the others are really sent. With a `manager`: of what that one
    sends, and of nothing else.
    """
    book = Book()
    book.choose(only, but)
    fake = Fake(book)

    def between(
        name: str, given: ConnectionSettings, options: Options, real: Callable[[], Connection]
    ) -> FakeConnection:
        return FakeConnection(name, options, book, real)

    with interposed(between, only=manager), nullcontext() if manager else intercepting(Gatekeeper(book)):
        yield fake


def _job(shape: Shape) -> What:
    """The job at the head of a chain. Raises `TypeError` for a batch, which no predicate is asked about."""
    if isinstance(shape, Sequence) and not isinstance(shape, str):
        raise TypeError("A chain that begins with a batch is a batch: use assert_batched.")
    return shape


def _were(count: int) -> str:
    return "was" if count == 1 else "were"
