"""demo: orders that close by themselves unless they are paid, live, on a server that leaves nothing behind."""

from __future__ import annotations

import statistics
import tempfile
import threading
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from delayq.app import embedded_server, fallback_policy, make_worker, open_driver
from delayq.cli.session import Session
from delayq.cli.words import count
from delayq.core.errors import BackendError
from delayq.core.events import Event, JobEnded, JobStarted
from delayq.core.states import Answer
from delayq.core.when import format_instant
from delayq.drivers.redis_streams import RedisStreams
from delayq.jobs.function import job
from delayq.jobs.registry import Registry, using
from delayq.redis.client import Client
from delayq.settings import Settings
from delayq.worker.options import WorkerOptions
from delayq.worker.worker import Worker

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


@dataclass(slots=True)
class Shop:
    """The orders and what became of them. The worker's thread and the customers' both tell of it."""

    session: Session
    due: dict[str, str] = field(default_factory=dict)
    started: dict[str, JobStarted] = field(default_factory=dict)
    late_ms: list[int] = field(default_factory=list)
    closed: int = 0
    paid: int = 0
    open_orders: set[str] = field(default_factory=lambda: set(CLOSE_AFTER))
    settled: threading.Event = field(default_factory=threading.Event)

    def tell(self, order: str, outcome: str, started: JobStarted | None = None) -> None:
        """One line of the timeline."""
        at = _clock(started.due_ms + _late_ms(started)) if started else ""
        late = str(_late_ms(started)) if started else ""
        self.session.out.line(_LINE.format(order, self.due[order], at, late, outcome))

    def hear(self, event: Event) -> None:
        """A listener: what the worker does."""
        match event:
            case JobStarted():
                self.started[event.id] = event
                self.late_ms.append(_late_ms(event))
            case JobEnded():
                self.closed += event.outcome == "done"
                self.tell(event.id, "closed" if event.outcome == "done" else event.outcome, self.started[event.id])
                self.done_with(event.id)
            case _:
                pass

    def done_with(self, order: str) -> None:
        """An order that needs no more watching."""
        self.open_orders.discard(order)
        if not self.open_orders:
            self.settled.set()


def run(session: Session) -> int:
    """The whole demo; 0 when every order ended as it should."""
    with tempfile.TemporaryDirectory(prefix="delayq-demo-") as folder:
        settings = session.settings(data_dir=folder)
        with embedded_server(settings).start_child() as server:
            running = server.running
            session.out.note(f"{running.product} {running.version} runs in {Path(folder)} for as long as this lasts.")
            with open_driver(settings, url=running.url) as driver:
                return _open_shop(session, settings, driver)


def _open_shop(session: Session, settings: Settings, driver: RedisStreams) -> int:
    shop = Shop(session)
    worker = _worker(shop, settings, driver)
    client = Client(driver.connector, settings.options())
    _schedule(shop, client)
    customers = threading.Thread(target=_customers, args=(shop, client, worker), name="delayq-demo", daemon=True)
    customers.start()
    worker.run()
    customers.join()
    if shop.late_ms:
        middle, worst = statistics.median(shop.late_ms), max(shop.late_ms)
        session.out.line(
            f"{count(shop.closed, 'order')} closed, {shop.paid} paid in time, 1 postponed; "
            f"late by {middle:g} ms in the middle, {worst} ms at worst."
        )
    return 0 if shop.settled.is_set() and shop.closed == len(CLOSE_AFTER) - len(PAID) else 1


def _worker(shop: Shop, settings: Settings, driver: RedisStreams) -> Worker:
    with using(Registry()) as registry:
        job("order.close")(close_order)
    options = WorkerOptions(queues=(QUEUE,), fallback=fallback_policy(settings))
    return make_worker(driver, registry, options, [shop.hear])


def close_order(order: str) -> str:
    """What happens to an order that nobody paid."""
    return f"{order} is closed"


def _schedule(shop: Shop, client: Client) -> None:
    out = shop.session.out
    out.note(f"{len(CLOSE_AFTER)} orders close by themselves unless somebody pays. Times are UTC.")
    out.line(_LINE.format("order", "due", "started", "late ms", "outcome").rstrip())
    for order, delay in CLOSE_AFTER.items():
        ref = client.schedule("order.close", {"order": order}, delay=delay, id=order, queue=QUEUE)
        shop.due[order] = _clock(ref.due_ms or 0)
        shop.tell(order, f"closes in {delay}")


def _customers(shop: Shop, client: Client, worker: Worker) -> None:
    """Pay two orders, ask for more time for one, and close the shop when all are settled."""
    late_order, late_after, more = POSTPONED
    plan = sorted([*((after, order) for order, after in PAID.items()), (late_after, late_order)])
    now = 0.0
    try:
        for after, order in plan:
            if worker.signals.asked.wait(after - now):
                return
            now = after
            if order == late_order:
                ref = client.reschedule(order, queue=QUEUE, delay=more)
                shop.due[order] = _clock(ref.due_ms or 0)
                shop.tell(order, f"postponed, closes in {more}")
                continue
            answer = client.cancel(order, queue=QUEUE)
            shop.paid += answer is Answer.CANCELLED
            shop.tell(order, f"paid: {answer}")
            shop.done_with(order)
        shop.settled.wait(PATIENCE_S)
    except BackendError as error:
        shop.session.out.error(error.message, error.hint)
    finally:
        worker.signals.ask()


def _late_ms(event: JobStarted) -> int:
    """Never early: the server decides what is due, and the worker's idea of its clock may be a millisecond behind."""
    return max(0, event.late_ms)


def _clock(ms: int) -> str:
    """'15:00:00.250'."""
    return format_instant(ms)[11:23]
