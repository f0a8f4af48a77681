"""Dispatch in all forms: where a job goes, what it takes along, and what is said about one never sent."""

import asyncio
import gc
import warnings
from collections.abc import Callable
from typing import Any

import pytest

from delayq import (
    DelayQ,
    FoundElsewhere,
    InvalidInput,
    Job,
    JobContext,
    JobSpec,
    Manager,
    Unique,
    adispatch,
    adispatch_many,
    current_manager,
    dispatch,
    dispatch_many,
    handles,
    job,
    using_manager,
)
from delayq.core.errors import ConfigError
from delayq.jobs.registry import registry


class CloseOrder(Job, name="dispatch.close", queue="orders", delay="15m", tags=["shop"], tries=3):
    order_id: int

    def handle(self) -> None: ...


class Routed(Job, name="routed.mail"):
    def handle(self) -> None: ...


class Vetoed(Job):
    def handle(self) -> None: ...

    def prepare_for_dispatch(self) -> bool:
        return False


@job("function.close", queue="orders")
def close_order(order_id: int, reason: str = "unpaid") -> str:
    """Close an order."""
    return f"{order_id} {reason}"


@job("function.context")
def with_context(context: JobContext, n: int) -> None: ...


@handles("Mailer", queue="mail")
class Mailer:
    def send(self, context: JobContext, data: Any) -> tuple[str, Any]:
        return context.name, data

    async def fire(self, context: JobContext, data: Any) -> str:
        return "fired"

    def _secret(self, context: JobContext, data: Any) -> None: ...


@pytest.fixture(autouse=True)
def declared(forgotten_jobs: None) -> None:
    """The jobs above are known in each test."""
    assert {"dispatch.close", "Mailer"} <= set(registry.names())


def test_a_job_goes_where_its_class_says(sent: DelayQ) -> None:
    ref = CloseOrder(order_id=42).dispatch(id="order-42")
    assert (ref.queue, ref.state, ref.outcome) == ("orders", "scheduled", "created")
    info = sent.get("order-42", queue="orders")
    assert info is not None and info.envelope is not None
    assert (info.data, info.envelope.tags, info.envelope.tries) == ({"order_id": 42}, ["shop"], None)


@pytest.mark.parametrize(
    "send",
    [
        lambda: (
            CloseOrder(order_id=1).on_queue("vip").without_delay().tags("a").with_headers({"trace": "1"}).dispatch()
        ),
        lambda: CloseOrder(order_id=1).dispatch(queue="vip", delay="0s", tags=["shop", "a"], headers={"trace": "1"}),
        lambda: asyncio.run(
            CloseOrder(order_id=1).on_queue("vip").delay("0s").tags("a").adispatch(headers={"trace": "1"})
        ),
    ],
)
def test_what_a_dispatch_says_goes_before_what_is_declared(send: Callable[[], Any], sent: DelayQ) -> None:
    ref = send()
    info = sent.get(ref.id, queue="vip")
    assert info is not None and info.envelope is not None
    assert (info.state, info.envelope.tags, info.envelope.headers) == ("ready", ["shop", "a"], {"trace": "1"})


def test_routes_say_what_a_class_leaves_open(sent: DelayQ, manager: Manager) -> None:
    assert Routed().dispatch().queue == "elsewhere"
    assert Routed().dispatch(queue="said").queue == "said"
    manager.route("routed.*", queue="newer")
    assert Routed().dispatch().queue == "newer"


def test_a_route_may_name_a_connection(sent: DelayQ, manager: Manager) -> None:
    manager.define("reports", prefix="reports", queue="slow")
    ref = Routed().dispatch(connection="reports")
    assert ref.queue == "elsewhere"
    assert sent.get(ref.id, queue="elsewhere") is None
    assert manager.connection("reports").client.get(ref.id, queue="elsewhere") is not None
    with pytest.raises(ConfigError, match="Unknown connection 'nowhere'"):
        Routed().dispatch(connection="nowhere")


def test_a_function_is_called_as_before_and_sent_by_job(sent: DelayQ) -> None:
    assert close_order(42) == "42 unpaid"
    assert (getattr(close_order, "__name__", ""), close_order.__doc__) == ("close_order", "Close an order.")
    ref = close_order.job(42, reason="fraud").dispatch()
    info = sent.get(ref.id, queue="orders")
    assert info is not None and info.data == {"order_id": 42, "reason": "fraud"}
    assert with_context.job(n=1).dispatch().name == "function.context"
    with pytest.raises(TypeError, match="order_id"):
        close_order.job()  # type: ignore[call-arg]
    with pytest.raises(AttributeError, match=r"close_order.job\(…\).dispatch\(\)"):
        close_order.delay  # type: ignore[attr-defined]  # noqa: B018
    with pytest.raises(TypeError, match="needs the name"):
        job(close_order)  # type: ignore[arg-type]


def test_a_job_is_sent_by_its_name_with_the_options_it_declares_here(sent: DelayQ) -> None:
    assert dispatch("dispatch.close", {"order_id": 1}).queue == "orders"
    assert dispatch("unknown.here", {"a": 1}, queue="q").state == "ready"
    assert asyncio.run(adispatch("dispatch.close", {"order_id": 1}, delay="1h")).state == "scheduled"
    with pytest.raises(InvalidInput, match=r"no option 'qeue'\. Did you mean queue"):
        dispatch("dispatch.close", None, qeue="x")  # type: ignore[call-arg]


def test_a_string_job_names_a_method(sent: DelayQ) -> None:
    ref = dispatch("Mailer@send", {"to": "ann"})
    assert ref.queue == "mail"
    handler = registry.get("Mailer@send")
    assert registry.get("Mailer").is_async
    assert handler.read(b'{"to": "ann"}') == {"to": "ann"}
    for hidden in ("Mailer@_secret", "Mailer@__init__", "Mailer@nothing", "os@system"):
        assert registry.find(hidden) is None


def test_many_are_sent_in_their_order_to_where_each_goes(sent: DelayQ) -> None:
    jobs = [CloseOrder(order_id=1), Routed(), close_order.job(2), Vetoed(), CloseOrder(order_id=3).on_queue("vip")]
    refs = dispatch_many(jobs)
    assert [(ref.queue, ref.outcome) for ref in refs] == [
        ("orders", "created"),
        ("elsewhere", "created"),
        ("orders", "created"),
        ("", "vetoed"),
        ("vip", "created"),
    ]
    again = asyncio.run(adispatch_many([CloseOrder(order_id=1), Vetoed()]))
    assert [ref.outcome for ref in again] == ["created", "vetoed"]
    with pytest.raises(InvalidInput, match=r"jobs\[1\] is 3, which is not a job"):
        dispatch_many([CloseOrder(order_id=1), 3])  # type: ignore[list-item]
    with pytest.raises(InvalidInput, match="and not a list of jobs"):
        dispatch_many(CloseOrder(order_id=1))  # type: ignore[arg-type]


def test_nothing_is_sent_when_one_of_many_is_wrong(sent: DelayQ) -> None:
    with pytest.raises(InvalidInput):
        dispatch_many([CloseOrder(order_id=1), CloseOrder(order_id="x")])  # type: ignore[arg-type]
    assert sent.queues() == []


def test_spread_scatters_due_times_by_the_id(sent: DelayQ) -> None:
    due = [
        ref.due_ms
        for ref in dispatch_many([CloseOrder(order_id=n).delay("2026-12-01T00:00:00Z") for n in range(20)], spread="1h")
    ]
    first = 1_796_083_200_000
    assert all(at is not None and first <= at < first + 3_600_000 for at in due)
    assert len(set(due)) == 20


def test_a_job_is_cancelled_and_found_by_its_class(sent: DelayQ) -> None:
    CloseOrder(order_id=42).dispatch(id="order-42")
    found = CloseOrder.find("order-42")
    assert found is not None and found.state == "scheduled"
    assert CloseOrder.cancel("order-42") == "cancelled"
    assert CloseOrder.cancel("order-42") == "unknown"
    assert asyncio.run(CloseOrder.afind("order-42")) is None
    CloseOrder(order_id=43).dispatch(id="order-43", queue="vip")
    with pytest.raises(FoundElsewhere, match="'orders' has no job 'order-43', but the queue 'vip' has a job"):
        CloseOrder.cancel("order-43")
    with pytest.raises(FoundElsewhere):
        close_order.find("order-43")


def test_a_dispatch_that_is_never_sent_warns(manager: Manager) -> None:
    with pytest.warns(RuntimeWarning, match="'dispatch.close' was never sent"):
        CloseOrder(order_id=1).delay("15m")
        gc.collect()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        CloseOrder(order_id=1).delay("15m").on_queue("orders").dispatch()
        CloseOrder(order_id=1)
        gc.collect()


def test_headers_of_the_application_travel_with_every_job(sent: DelayQ, manager: Manager) -> None:
    manager.add_headers(lambda spec: {"trace": spec.name, "tenant": "a"})
    ref = CloseOrder(order_id=1).dispatch(headers={"tenant": "b"})
    info = sent.get(ref.id, queue="orders")
    assert info is not None and info.envelope is not None
    assert info.envelope.headers == {"trace": "dispatch.close", "tenant": "b"}


def test_a_manager_may_be_used_for_a_block(manager: Manager) -> None:
    other = Manager(manager.settings)
    with using_manager(other):
        assert current_manager() is other
    assert current_manager() is manager


def test_an_awaited_local_run_takes_plain_and_async_handlers() -> None:
    async def run_both() -> tuple[Any, Any]:
        fired = await _by_name("Mailer").adispatch_sync()
        called = await close_order.job(1).adispatch_sync()
        return fired.result, called.result

    assert asyncio.run(run_both()) == ("fired", "1 unpaid")

    async def blocks() -> None:
        _by_name("Mailer").dispatch_sync()

    with pytest.raises(InvalidInput, match="adispatch_sync"):
        asyncio.run(blocks())


def _by_name(name: str) -> Any:
    from delayq.jobs import dispatch as module

    return module._by_name(name, None)


@pytest.mark.parametrize(
    ("option", "hint"),
    [
        ("countdown", "Did you mean delay?"),
        ("eta", "Did you mean at?"),
        ("max_retries", "Did you mean tries?"),
        ("cron", "delayq has no recurring jobs yet."),
    ],
)
def test_an_option_of_another_queue_is_told_with_the_right_one(option: str, hint: str) -> None:
    with pytest.raises(InvalidInput, match=f"has no option '{option}'") as refused:
        CloseOrder(order_id=1).dispatch(**{option: "5m"})  # type: ignore[arg-type]
    assert refused.value.hint == hint


def test_a_delay_that_is_none_is_refused_where_it_is_given() -> None:
    with pytest.raises(InvalidInput, match=r"^delay 3 is not a duration"):
        CloseOrder(order_id=1).delay(3)  # type: ignore[arg-type]


class Recount(Job, name="dispatch.recount", queue="stock", unique=Unique(key=["warehouse"])):
    warehouse: str
    reason: str = ""

    def handle(self) -> None: ...


@job("dispatch.notify", queue="stock", unique=Unique(key=lambda data: str(data["user"]).lower()))
def notify(user: str) -> None: ...


def test_a_declared_key_holds_in_every_way_to_send(sent: DelayQ) -> None:
    first = Recount(warehouse="north").dispatch(delay="1h")
    again = [
        Recount(warehouse="north", reason="other").dispatch(),
        dispatch("dispatch.recount", {"warehouse": "north"}),
        dispatch_many([Recount(warehouse="north")])[0],
        sent.schedule("dispatch.recount", {"warehouse": "north"}),
        sent.schedule_many([JobSpec(name="dispatch.recount", data={"warehouse": "north"})])[0],
    ]
    assert [(ref.outcome, ref.id) for ref in again] == [("kept", first.id)] * 5
    assert Recount(warehouse="south").dispatch().outcome == "created"
    assert notify.job(user="Ann").dispatch(delay="1h").outcome == "created"
    assert notify.job(user="ann").dispatch().outcome == "kept"


def test_a_dispatch_may_have_another_key(sent: DelayQ) -> None:
    Recount(warehouse="east").dispatch(delay="1h")
    by_reason = Unique(key=["reason"])
    assert Recount(warehouse="east", reason="a").dispatch(unique=by_reason).outcome == "created"
    assert Recount(warehouse="west", reason="a").dispatch(unique=by_reason).outcome == "kept"
    with pytest.raises(InvalidInput, match="names the member 'nobody', but the payload does not have this member"):
        Recount(warehouse="east").dispatch(unique=Unique(key=["nobody"]))
    with pytest.raises(InvalidInput, match="unique is 42"):
        Recount(warehouse="east").dispatch(unique=42)  # type: ignore[arg-type]


def test_a_key_that_cannot_be_declared() -> None:
    with pytest.raises(InvalidInput, match=r"The job 'dispatch.bad' cannot be declared: unique is 42"):
        job("dispatch.bad", unique=42)  # type: ignore[arg-type]
