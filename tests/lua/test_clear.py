"""clear: everything that waits is dropped; what is reserved runs on."""

from __future__ import annotations

import pytest

from delayq.core.states import State
from delayq.redis.calls import deliver, inspect
from delayq.redis.keys import GROUP
from tests.support.engine import Engine


def test_clear_drops_what_waits_and_leaves_what_runs(each_engine: Engine) -> None:
    engine = each_engine
    engine.failed("f")
    engine.completed("c")
    (held,) = engine.reserved("r", digest="dr")
    engine.ready("y", digest="dy")
    engine.schedule([engine.job("s", digest="ds")])
    engine.client.hset(engine.keys.of("recoveries"), mapping={"r": 1, "s": 1})
    engine.client.hset(engine.keys.of("errors"), "s", "{}")
    dropped, names = engine.changes(inspect.clear(engine.scope))
    assert dropped == 2
    assert names == {"scheduled", "jobs", "stream", "entries", "recoveries", "errors", "unique", "locks"}
    assert [engine.state(name) for name in "fcrys"] == [
        State.FAILED, State.COMPLETED, State.RESERVED, State.ABSENT, State.ABSENT,
    ]  # fmt: skip
    assert engine.run(deliver.ack(engine.scope, [deliver.Acked(held)])) == [True]
    assert engine.run(inspect.clear(engine.scope)) == 0


def test_clear_in_batches(engine: Engine) -> None:
    engine.ready(*[f"y{n:02}" for n in range(40)])
    engine.schedule([engine.job(f"s{n}") for n in range(3)])
    assert [engine.run(inspect.clear(engine.scope, 20)) for _ in range(4)] == [20, 20, 3, 0]
    assert engine.key_names() == {"stream", "meta"}


def test_clear_passes_garbage_by(engine: Engine) -> None:
    engine.run(deliver.tidy(engine.scope))
    with engine.damaged():
        for n in range(40):
            engine.client.xadd(engine.keys.stream, {"junk": str(n)})
        engine.client.xadd(engine.keys.stream, {"id": "a", "junk": "x"})
        engine.schedule([engine.job("a", "+0")])
        assert [engine.run(inspect.clear(engine.scope)) for _ in range(2)] == [1, 0]
        assert len(engine.entries()) == 41
        engine.client.flushall()


def test_clear_of_an_empty_database(engine: Engine) -> None:
    assert engine.unchanged(inspect.clear(engine.scope)) == 0


@pytest.mark.parametrize("damage", ["group gone", "group set back"])
def test_clear_leaves_alone_what_may_be_running(engine: Engine, damage: str) -> None:
    engine.reserved("a")
    engine.run(deliver.tidy(engine.scope))
    engine.client.xgroup_destroy(engine.keys.stream, GROUP)
    if damage == "group set back":
        engine.client.xgroup_create(engine.keys.stream, GROUP, "0")
    assert engine.unchanged(inspect.clear(engine.scope)) == 0
