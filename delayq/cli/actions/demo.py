"""demo: orders that close by themselves unless they are paid, live, on a server that leaves nothing behind.

this process     schedules, pays, and prints what the other one tells through a pipe
the worker       a supervisor with its children, as `delayq work` makes them
"""

from __future__ import annotations

import os
import select
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Final

import msgspec

from delayq.app import fallback_policy, make_plan, open_driver
from delayq.cli.session import Session
from delayq.cli.words import count
from delayq.core.errors import BackendError
from delayq.core.events import Event, JobEnded, JobStarted
from delayq.core.states import Answer
from delayq.core.when import format_instant
from delayq.jobs.function import job
from delayq.jobs.registry import Registry, using
from delayq.redis.client import Client
from delayq.redis.opening import embedded_server
from delayq.settings import Settings
from delayq.worker.fork import fork, is_told
from delayq.worker.options import WorkerOptions
from delayq.worker.supervisor import Supervisor

QUEUE: Final = "orders"
CLOSE_AFTER: Final = {
    "order-1": "2s",
    "order-2": "2.5s",
    "order-3": "3s",
    "order-4": "3.5s",
    "order-5": "4s",
    "order-6": "4s",
    "order-7": "4.5s",
}
PAID: Final = {"order-2": 1.0, "order-5": 1.4}
"""Which orders are paid, and how many seconds after the start."""
POSTPONED: Final = ("order-3", 1.8, "3.5s")
PATIENCE_S: Final = 20.0
_LINE: Final = "{:<8}  {:<12}  {:<12}  {:>7}  {}"


class News(msgspec.Struct, frozen=True):
    """What the worker tells of an order: that it starts, `late_ms` after it was due, or what became of it."""

    order: str
    due_ms: int = 0
    late_ms: int = 0
    outcome: str = ""


@dataclass(slots=True)
class Shop:
    """The orders and what became of them."""

    session: Session
    client: Client
    due: dict[str, str] = field(default_factory=dict)
    started: dict[str, News] = field(default_factory=dict)
    closed: int = 0
    paid: int = 0
    open_orders: set[str] = field(default_factory=lambda: set(CLOSE_AFTER))

    def take_orders(self) -> None:
        """Each closes by itself after a while."""
        out = self.session.out
        out.note(f"{len(CLOSE_AFTER)} orders close by themselves unless somebody pays. Times are UTC.")
        out.line(_LINE.format("order", "due", "started", "late ms", "outcome").rstrip())
        for order, delay in CLOSE_AFTER.items():
            ref = self.client.schedule("order.close", {"order": order}, delay=delay, id=order, queue=QUEUE)
            self.due[order] = _clock(ref.due_ms or 0)
            self.tell(order, f"closes in {delay}")

    def pay(self, order: str) -> None:
        """Cancelling decides whether the payment is in time."""
        answer = self.client.cancel(order, queue=QUEUE)
        self.paid += answer is Answer.CANCELLED
        self.tell(order, f"paid: {answer}")
        self.open_orders.discard(order)

    def postpone(self, order: str, more: str) -> None:
        """The customer asked for more time."""
        ref = self.client.reschedule(order, queue=QUEUE, delay=more)
        self.due[order] = _clock(ref.due_ms or 0)
        self.tell(order, f"postponed, closes in {more}")

    def hear(self, news: News) -> None:
        """What the worker does."""
        if not news.outcome:
            self.started[news.order] = news
            return
        done = news.outcome == "done"
        self.closed += done
        self.tell(news.order, "closed" if done else news.outcome, self.started.get(news.order))
        self.open_orders.discard(news.order)

    def tell(self, order: str, outcome: str, started: News | None = None) -> None:
        """One line of the timeline."""
        at = _clock(started.due_ms + started.late_ms) if started else ""
        late = str(started.late_ms) if started else ""
        self.session.out.line(_LINE.format(order, self.due[order], at, late, outcome))


def run(session: Session) -> int:
    """The whole demo; 0 when every order ended as it should."""
    with tempfile.TemporaryDirectory(prefix="delayq-demo-") as folder:
        settings = session.settings(data_dir=folder)
        with embedded_server(settings).start_child() as server:
            running = server.running
            session.out.note(f"{running.product} {running.version} runs in {Path(folder)} for as long as this lasts.")
            with _working(settings, running.url) as news, open_driver(settings, url=running.url) as driver:
                shop = Shop(session, Client(driver.connector, settings.options()))
                return _keep(shop, news)


def close_order(order: str) -> str:
    """What happens to an order that nobody paid."""
    return f"{order} is closed"


def _keep(shop: Shop, news: int) -> int:
    """Keep the shop open until all orders are settled."""
    try:
        shop.take_orders()
        _play(shop, news)
    except BackendError as error:
        shop.session.out.error(error.message, error.hint)
        return 1
    late_ms = [started.late_ms for started in shop.started.values()]
    if late_ms:
        shop.session.out.line(
            f"{count(shop.closed, 'order')} closed, {shop.paid} paid in time, 1 postponed; "
            f"late by {statistics.median(late_ms):g} ms in the middle, {max(late_ms)} ms at worst."
        )
    return 0 if not shop.open_orders and shop.closed == len(CLOSE_AFTER) - len(PAID) else 1


def _play(shop: Shop, news: int) -> None:
    """What customers do, each at its time, and what the worker tells in between."""
    late_order, late_after, more = POSTPONED
    plan: list[tuple[float, Callable[[], None]]] = [
        *((after, lambda order=order: shop.pay(order)) for order, after in PAID.items()),
        (late_after, lambda: shop.postpone(late_order, more)),
    ]
    plan.sort(key=lambda step: step[0])
    began, lines = time.monotonic(), _Lines(news)
    while shop.open_orders and (now := time.monotonic() - began) < PATIENCE_S:
        if plan and now >= plan[0][0]:
            plan.pop(0)[1]()
            continue
        for line in lines.read((plan[0][0] if plan else PATIENCE_S) - now):
            shop.hear(msgspec.json.decode(line, type=News))


@contextmanager
def _working(settings: Settings, url: str) -> Iterator[int]:
    """Inside the block a worker runs; its news come out of the pipe, one line each."""
    with using(Registry()) as registry:
        job("order.close")(close_order)
    options = WorkerOptions(queues=(QUEUE,), fallback=fallback_policy(settings))
    reader, writer = os.pipe()

    def work(pipe: int) -> None:
        tell = partial(_report, writer)
        plan = make_plan(settings, url, registry, options, listeners=[tell])
        Supervisor(replace(plan, told=partial(is_told, pipe))).run()

    worker = fork(work, [])
    os.close(writer)
    try:
        yield reader
    finally:
        worker.tell()
        worker.wait()
        os.close(reader)


def _report(pipe: int, event: Event) -> None:
    """A listener, in the process that runs the job. Lines this short are written in one piece."""
    match event:
        case JobStarted():
            # The server decides what is due, and the worker's idea of its clock may be a millisecond behind.
            os.write(pipe, msgspec.json.encode(News(event.id, event.due_ms, max(0, event.late_ms))) + b"\n")
        case JobEnded():
            os.write(pipe, msgspec.json.encode(News(event.id, outcome=event.outcome)) + b"\n")


class _Lines:
    """Whole lines out of a pipe."""

    def __init__(self, pipe: int) -> None:
        self._pipe = pipe
        self._rest = b""

    def read(self, seconds: float) -> list[bytes]:
        """What came within `seconds`, as soon as something did."""
        if not select.select([self._pipe], [], [], max(0.0, seconds))[0]:
            return []
        chunk = os.read(self._pipe, 65_536)
        if not chunk:
            raise BackendError("The demo's worker ended before its time.")
        *lines, self._rest = (self._rest + chunk).split(b"\n")
        return lines


def _clock(ms: int) -> str:
    """'15:00:00.250'."""
    return format_instant(ms)[11:23]
