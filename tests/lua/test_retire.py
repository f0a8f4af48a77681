"""retire: a consumer that is gone for good leaves the list, if it holds nothing."""

from __future__ import annotations

import pytest

from delayq.redis.calls import deliver
from delayq.redis.keys import GROUP
from tests.support.engine import OURS, PLAIN, Engine

OTHER = "dq:other:1:b"


def consumers(engine: Engine) -> set[str]:
    return {row["name"].decode() for row in engine.client.xinfo_consumers(engine.keys.stream, GROUP)}


def retire(engine: Engine, name: str = OURS, idle_ms: int = 0) -> bool:
    return engine.run(deliver.retire(engine.scope, name, idle_ms))


def test_it_leaves_group_and_meta_in_one_step(each_engine: Engine) -> None:
    engine = each_engine
    engine.run(deliver.tidy(engine.scope))
    for name in (OTHER, OURS):
        engine.run(deliver.renew(engine.scope, name, []))
    assert engine.changes(deliver.retire(engine.scope, OURS, 0)) == (True, {"stream", "meta"})
    assert (consumers(engine), engine.rows("meta")["consumers"]) == ({OTHER}, OTHER)
    assert retire(engine, OTHER)
    assert (consumers(engine), "consumers" in engine.rows("meta")) == (set(), False)


def test_not_while_it_holds_something(each_engine: Engine) -> None:
    engine = each_engine
    (held,) = engine.reserved("a")
    assert not engine.unchanged(deliver.retire(engine.scope, OURS, 0))
    assert engine.pending() == {held.entry: OURS}


@pytest.mark.parametrize(("idle_ms", "retired"), [(3_600_000, False), (0, True)])
def test_not_while_it_may_be_alive(engine: Engine, idle_ms: int, retired: bool) -> None:
    (held,) = engine.reserved("a", consumer=PLAIN)
    engine.run(deliver.ack(engine.scope, [deliver.Acked(held)]))
    assert retire(engine, PLAIN, idle_ms) is retired
    assert consumers(engine) == (set() if retired else {PLAIN})


def test_one_that_is_not_there(engine: Engine) -> None:
    engine.ready("a")
    assert engine.unchanged(deliver.retire(engine.scope, OURS, 0))


def test_a_name_inside_another_is_a_name_of_its_own(engine: Engine) -> None:
    engine.run(deliver.tidy(engine.scope))
    for name in ("dq:h:1:a", "dq:h:1:ab"):
        engine.run(deliver.renew(engine.scope, name, []))
    retire(engine, "dq:h:1:a")
    assert engine.rows("meta")["consumers"] == "dq:h:1:ab"


@pytest.mark.parametrize("damage", ["no group", "no stream"])
def test_without_group_or_stream_only_its_name_goes(engine: Engine, damage: str) -> None:
    engine.reserved("a")
    with engine.damaged():
        if damage == "no group":
            engine.client.xgroup_destroy(engine.keys.stream, GROUP)
        else:
            engine.client.delete(engine.keys.stream)
        assert engine.changes(deliver.retire(engine.scope, OURS, 0)) == (True, {"meta"})
        engine.client.flushall()
