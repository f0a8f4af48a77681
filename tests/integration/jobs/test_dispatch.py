"""Every way to hand a job in, on a real server: what is stored is what was said."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any, ClassVar

import pytest

from delayq import Job, JobContext, adispatch_many, dispatch, dispatch_many, handles, job
from delayq.core.envelope import Envelope
from delayq.core.errors import ConfigError, InvalidInput, InvalidPayload
from delayq.core.states import State
from delayq.core.views import Fate
from delayq.drivers.waiting import Waiting, send_committed
from delayq.jobs.registry import current
from delayq.manager import Manager
from tests.support.station import Station

pytestmark = pytest.mark.usefixtures("manager")


def close_order(station: Station | None = None, **options: Any) -> type[Any]:
    """A job class, declared in the registry of the test."""

    class CloseOrder(Job, **{"name": "order.close", **options}):
        order_id: int
        seen: ClassVar[Any] = [] if station is None else station.tape()

        def handle(self) -> None:
            self.seen.append(self.order_id)

    return CloseOrder


def envelope(station: Station, job_id: str, queue: str = "orders") -> Envelope:
    found = station.job(job_id, queue).envelope
    assert found is not None
    return found


def test_dispatch_and_run(station: Station) -> None:
    kind = close_order(station)
    ref = kind(order_id=42).dispatch()
    assert (ref.outcome, ref.state, ref.queue, ref.name) == ("created", State.READY, "orders", "order.close")
    station.drain()
    assert kind.seen == [42]
    assert station.state(ref.id) is State.ABSENT


def test_nothing_happens_without_a_verb(station: Station) -> None:
    with pytest.warns(ResourceWarning, match="was not sent"):
        close_order()(order_id=1).delay("15m").on_queue("vip").tags("a")
    assert station.client.queues() == []


def test_the_fluent_sentence(station: Station) -> None:
    ref = (
        close_order(tags=["declared"])(order_id=1)
        .delay("15m")
        .on_queue("vip")
        .with_headers({"trace": "1"})
        .with_headers({"span": "2"})
        .tags("a", "b")
        .tags("c")
        .dispatch(id="order-1")
    )
    assert (ref.id, ref.queue, ref.state) == ("order-1", "vip", State.SCHEDULED)
    found = envelope(station, "order-1", "vip")
    assert (found.headers, found.tags) == ({"trace": "1", "span": "2"}, ["declared", "a", "b", "c"])


def test_a_sentence_may_be_begun_once_and_ended_twice(station: Station) -> None:
    begun = close_order()(order_id=1).delay("1h")
    first, second = begun.on_queue("one").dispatch(), begun.dispatch()
    assert (first.queue, second.queue) == ("one", "orders")


async def test_adispatch(station: Station, manager: Manager) -> None:
    ref = await close_order()(order_id=1).adispatch(delay="15m", deadline="1m")
    assert ref.state is State.SCHEDULED
    deadline_ms = envelope(station, ref.id).deadline_ms
    assert ref.due_ms is not None
    assert deadline_ms is not None
    assert abs(deadline_ms - ref.due_ms - 60_000) < 2_000
    await manager.aclose()


def test_a_delay_a_time_and_neither(station: Station) -> None:
    kind = close_order(delay="1h")
    now_ms = station.client.run(station.client.verbs.server_ms())
    declared = kind(order_id=1).dispatch()
    at = datetime.now(UTC) + timedelta(hours=5)
    timed = kind(order_id=2).delay(at).dispatch()
    at_once = kind(order_id=3).without_delay().dispatch()
    said = kind(order_id=4).dispatch(delay=timedelta(minutes=1))
    assert declared.due_ms is not None
    assert said.due_ms is not None
    assert 3_600_000 <= declared.due_ms - now_ms < 3_630_000
    whole_ms, rest_us = divmod(at.microsecond, 1000)
    assert timed.due_ms == int(at.timestamp()) * 1000 + whole_ms + bool(rest_us), "rounded up: nothing runs early"
    assert at_once.state is State.READY
    assert 60_000 <= said.due_ms - now_ms < 90_000


def test_which_option_counts(station: Station, manager: Manager) -> None:
    manager.route("order.*", queue="by-name")
    declared, plain = close_order(queue="declared"), close_order(name="order.other")
    assert declared(order_id=1).dispatch(queue="said").queue == "said"
    assert declared(order_id=1).dispatch().queue == "declared"
    assert plain(order_id=1).dispatch().queue == "by-name"
    manager.route(plain, queue="by-class")
    assert plain(order_id=1).dispatch().queue == "by-class"
    assert close_order(name="elsewhere")(order_id=1).dispatch().queue == "orders"


def test_options_are_inherited_and_overridden() -> None:
    class Base(Job, queue="orders", tries=3, timeout="30s"):
        order_id: int

    class Close(Base, tries=9):
        why: str = "late"

        def handle(self) -> None: ...

    assert (Close.job_options.queue, Close.job_options.tries, Close.job_options.timeout_ms) == ("orders", 9, 30_000)
    assert current().names() == ("Close",)
    assert Close(order_id=1).why == "late"


def test_limits_travel_as_points_in_time(station: Station) -> None:
    kind = close_order(deadline="10m", retry_until="30m", max_exceptions=2)
    ref = kind(order_id=1).dispatch(delay="1h", max_exceptions=4, tries=7, timeout="5s", retention="1h")
    found = envelope(station, ref.id)
    assert ref.due_ms is not None
    assert found.deadline_ms is not None
    assert found.retry_until_ms is not None
    assert abs(found.deadline_ms - ref.due_ms - 600_000) < 2_000
    assert abs(found.retry_until_ms - ref.due_ms - 1_800_000) < 2_000
    assert (found.max_exceptions, found.tries, found.timeout_ms, found.retention_ms) == (4, 7, 5_000, 3_600_000)


def test_a_limit_before_the_job_is_due_is_refused(station: Station) -> None:
    with pytest.raises(InvalidInput, match=r"deadline .* lies before the job is due"):
        close_order()(order_id=1).dispatch(delay="1h", deadline=datetime.now(UTC) + timedelta(minutes=1))
    assert station.client.queues() == []


def test_what_cannot_be_written_is_refused_at_dispatch(station: Station) -> None:
    with pytest.raises(InvalidPayload, match=r"'order_id' of 'order\.close'"):
        close_order()(order_id=object()).dispatch()
    assert station.client.queues() == []


def test_many_in_one_call_for_each_queue(station: Station) -> None:
    kind = close_order()
    before = script_calls(station)
    jobs = [kind(order_id=n) if n % 2 else kind(order_id=n).on_queue("even") for n in range(600)]
    refs = dispatch_many([*jobs, kind(order_id=-1).on_connection("null")])
    assert [ref.queue for ref in refs[:4]] == ["even", "orders", "even", "orders"]
    assert refs[-1].outcome is Fate.DROPPED
    assert {row.queue: row.ready for row in station.client.stats()} == {"even": 300, "orders": 300}
    assert script_calls(station) - before <= 2 * 2 + 2  # two chunks of 250 a queue, and the statistics above


def script_calls(station: Station) -> int:
    """Scripts that ran; a server that does not know one yet says so, and is sent its text."""
    stats: dict[str, Any] = station.connector.commands().info("commandstats")
    found = [stats[name] for name in ("cmdstat_evalsha", "cmdstat_eval") if name in stats]
    return sum(int(one["calls"]) - int(one["failed_calls"]) for one in found)


async def test_many_awaited(station: Station, manager: Manager) -> None:
    refs = await adispatch_many([close_order()(order_id=n) for n in range(3)])
    assert [ref.outcome for ref in refs] == ["created"] * 3
    await manager.aclose()


def test_by_name_without_the_class(station: Station) -> None:
    kind = close_order(station)
    ref = dispatch("order.close", {"order_id": 7}, id="o-7")
    assert ref.outcome == "created"
    assert dispatch("order.close", {"order_id": 8}, id="o-7").outcome == "kept"
    station.drain()
    assert kind.seen == [7]


def test_string_jobs_name_a_method_of_a_registered_class(station: Station) -> None:
    seen = station.tape()

    @handles("Mailer")
    class Mailer:
        def send(self, context: JobContext, data: Any) -> None:
            seen.append((context.name, data))

        def fire(self, context: JobContext, data: Any) -> None:
            seen.append(("fired", data))

        def _secret(self, context: JobContext, data: Any) -> None:
            seen.append("secret")

    assert current().names() == ("Mailer@fire", "Mailer@send")
    unknown = ("Mailer@_secret", "Mailer@nothing", "os@remove")
    for name in ("Mailer@send", "Mailer", *unknown):
        dispatch(name, {"to": "ann"}, id=name, tries=1)
    station.drain()
    assert seen == [("Mailer@send", {"to": "ann"}), ("fired", {"to": "ann"})]
    for name in unknown:  # they wait for a worker that knows them
        found = station.job(name)
        assert (found.state, found.failure and found.failure.type) == (State.SCHEDULED, "UnknownJob")


def test_functions_are_dispatched_too(station: Station) -> None:
    seen = station.tape()

    @job("order.note", queue="orders", tries=2)
    def note(context: JobContext, order_id: int, *, text: str = "-") -> None:
        seen.append((context.attempt, order_id, text))

    ref = note.job(1, text="late").tags("x").dispatch()
    assert ref.queue == "orders"
    station.drain()
    assert seen == [(1, 1, "late")]
    with pytest.raises(InvalidPayload, match=r"'order_id' of 'order\.note'"):
        note.job("1").dispatch()  # type: ignore[arg-type]  # wrong on purpose


def test_an_envelope_goes_in_as_it_is(station: Station, manager: Manager) -> None:
    kind = close_order(station)
    raw = b"""{"v":1,"id":"raw-1","name":"order.close","queue":"x","data":{"order_id":5},"attempts":0,
        "created_ms":1,"new":[]}"""
    ref = manager.connection().push_raw(raw, queue="orders", delay="1h")
    assert (ref.id, ref.queue, ref.outcome, ref.state) == ("raw-1", "orders", "created", State.SCHEDULED)
    assert b'"new":[]' in station.job("raw-1").raw
    assert b'"queue":"orders"' in station.job("raw-1").raw
    station.client.run_now("raw-1")
    station.drain()
    assert kind.seen == [5]


def test_a_veto_is_in_the_answer(station: Station) -> None:
    class Shy(Job):
        def prepare_for_dispatch(self) -> bool:
            return False

        def handle(self) -> None: ...

    assert Shy().dispatch().outcome is Fate.VETOED
    assert Shy().dispatch_sync().fate is Fate.VETOED
    assert [ref.outcome for ref in dispatch_many([Shy(), Shy().delay("1h")])] == [Fate.VETOED] * 2
    assert station.client.queues() == []


def test_after_commit_waits_for_a_hook(station: Station, manager: Manager) -> None:
    kind = close_order(after_commit=True)
    with pytest.raises(ConfigError, match="waits for a commit, and nobody here knows of a database"):
        kind(order_id=1).dispatch()
    hook = Hook()
    manager.on_commit(hook)
    assert kind(order_id=1).dispatch(id="o-1").outcome is Fate.AFTER_COMMIT
    assert station.client.queues() == []
    send_committed(hook.waiting)
    assert station.state("o-1") is State.READY
    hook.open = False
    assert kind(order_id=2).dispatch().outcome == "created"
    assert kind(order_id=3).after_commit(False).dispatch().outcome == "created"


class Hook:
    """A database with one session and one transaction, open until told otherwise."""

    def __init__(self) -> None:
        self.open = True
        self.waiting: list[Waiting] = []

    def current(self) -> object | None:
        return self

    def after_commit(self, waiting: Waiting, session: object, *, named: bool) -> bool:
        assert (session, named) == (self, False)
        if self.open:
            self.waiting.append(waiting)
        return self.open
