"""get: everything known about one job."""

from __future__ import annotations

from delayq.core.states import State
from delayq.core.views import JobInfo
from delayq.redis.calls import deliver, inspect, produce
from delayq.redis.calls.deliver import Released
from delayq.redis.keys import GROUP
from tests.support.engine import HOUR, OURS, START, Engine


def get(engine: Engine, job_id: str = "a") -> JobInfo:
    info = engine.unchanged(inspect.get(engine.scope, job_id))
    assert info is not None
    return info


def test_nobody(each_engine: Engine) -> None:
    assert each_engine.unchanged(inspect.get(each_engine.scope, "nobody")) is None


def test_scheduled(each_engine: Engine) -> None:
    engine, job = each_engine, each_engine.job("a", data=b'{"n":1}')
    engine.schedule([job])
    info = get(engine)
    assert (info.state, info.due_ms, info.raw) == (State.SCHEDULED, START + HOUR, job.envelope)
    assert (info.name, info.data, info.recoveries, info.entry) == ("order.close", {"n": 1}, 0, "")
    assert (info.failed_ms, info.forget_ms, info.failure, info.result) == (None, None, None, None)


def test_ready(engine: Engine) -> None:
    engine.ready("a")
    info = get(engine)
    assert (info.state, info.due_ms, info.entry) == (State.READY, START, engine.held("a").entry)
    assert (info.consumer, info.idle_ms) == ("", None)


def test_reserved_with_all_there_is(each_engine: Engine) -> None:
    engine = each_engine
    (held,) = engine.reserved("a")
    engine.run(deliver.release(engine.scope, [Released(held, 0, b"", b'{"type":"E","message":"m"}')]))
    engine.client.hset(engine.keys.of("recoveries"), "a", 2)
    engine.run(deliver.promote(engine.scope))
    (held,) = engine.read()
    engine.run(produce.cancel(engine.scope, "a", running=True, token="t"))
    engine.rest([held.entry], 5_000)
    info = get(engine)
    assert (info.state, info.entry, info.consumer, info.recoveries) == (State.RESERVED, held.entry, OURS, 2)
    assert (info.due_ms, info.cancel_asked_ms) == (START, START)
    assert info.idle_ms is not None
    assert info.idle_ms >= 5_000
    assert info.failure is not None
    assert info.failure.message == "m"


def test_failed_and_completed(engine: Engine) -> None:
    engine.failed("f")
    engine.completed("c")
    failed, completed = get(engine, "f"), get(engine, "c")
    assert (failed.state, failed.failed_ms, failed.forget_ms, failed.due_ms) == (State.FAILED, START, None, None)
    assert (completed.state, completed.forget_ms, completed.failed_ms) == (State.COMPLETED, START + HOUR, None)
    assert completed.result == "ok"


def test_delivered_and_no_longer_pending_is_reserved_all_the_same(engine: Engine) -> None:
    (held,) = engine.reserved("a")
    engine.client.xack(engine.keys.stream, GROUP, held.entry)
    info = get(engine)
    assert (info.state, info.consumer) == (State.RESERVED, "")


def test_damage_is_no_error(engine: Engine) -> None:
    (held,) = engine.reserved("a")
    with engine.damaged():
        engine.client.xgroup_destroy(engine.keys.stream, GROUP)
        assert get(engine).state == State.RESERVED
        engine.client.xdel(engine.keys.stream, held.entry)
        engine.client.delete(engine.keys.stream)
        assert (get(engine).state, get(engine).due_ms) == (State.RESERVED, None)
        engine.client.delete(engine.keys.of("entries"))
        assert engine.unchanged(inspect.get(engine.scope, "a")) is None, "a payload without a place is no job yet"
        engine.client.hset(engine.keys.of("entries"), "a", "junk")
        assert get(engine).raw
        engine.client.flushall()
