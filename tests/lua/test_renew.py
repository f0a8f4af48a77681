"""renew: a worker is there and still holds its deliveries; their leases start anew."""

from __future__ import annotations

import pytest

from delayq.redis.calls import deliver, produce
from delayq.redis.calls.deliver import Held, Renewed
from delayq.redis.keys import GROUP
from tests.support.engine import OURS, Engine

OTHER = "dq:other:1:b"


def renew(engine: Engine, held: list[Held], consumer: str = OURS) -> Renewed:
    return engine.run(deliver.renew(engine.scope, consumer, held))


def idle(engine: Engine) -> list[int]:
    rows = engine.client.xpending_range(engine.keys.stream, GROUP, "-", "+", 100)
    return [row["time_since_delivered"] for row in rows]


def deliveries(engine: Engine) -> list[int]:
    rows = engine.client.xpending_range(engine.keys.stream, GROUP, "-", "+", 100)
    return [row["times_delivered"] for row in rows]


def test_leases_start_anew(each_engine: Engine) -> None:
    engine = each_engine
    held = engine.reserved("a", "b")
    engine.rest([one.entry for one in held], 25_000)
    assert min(idle(engine)) >= 25_000
    assert renew(engine, held) == Renewed(30_000, 2, (), ())
    assert max(idle(engine)) < 20_000
    assert deliveries(engine) == [1, 1], "a renewal is no delivery"


def test_only_what_is_named(engine: Engine) -> None:
    held = engine.reserved("a", "b")
    engine.rest([one.entry for one in held], 25_000)
    assert renew(engine, held[:1]).pending == 2, "more than it named: a reply with deliveries was lost"
    first, second = idle(engine)
    assert first < 20_000 <= second


def test_what_is_no_longer_its_own_is_told_and_left_alone(each_engine: Engine) -> None:
    engine = each_engine
    mine, gone = engine.reserved("a", "b")
    engine.run(deliver.hand_back(engine.scope, [gone]))
    engine.read(OTHER)
    before = engine.pending()
    assert renew(engine, [mine, gone, Held("nobody", "1-1")]) == Renewed(30_000, 1, ("b", "nobody"), ())
    assert engine.pending() == before


def test_somebody_who_owns_nothing_of_it_changes_nothing(engine: Engine) -> None:
    """The entry id is the lease: who names another one is not the owner, whatever the consumer's name."""
    (held,) = engine.reserved("a")
    engine.rest([held.entry], 25_000)
    assert renew(engine, [Held("a", "1-1"), Held("b", held.entry)]).lost == ("a", "b")
    assert min(idle(engine)) >= 25_000


def test_a_request_to_stop_is_passed_on(engine: Engine) -> None:
    held = engine.reserved("a", "b")
    engine.run(produce.cancel(engine.scope, "b", running=True, token="t"))
    assert renew(engine, held).asked_to_stop == ("b",)
    assert renew(engine, held).asked_to_stop == ("b",), "until it is settled"
    engine.run(deliver.ack(engine.scope, [deliver.Acked(held[1])]))
    assert renew(engine, held).asked_to_stop == ()


def test_a_consumer_that_was_deleted_gets_its_rows_back(each_engine: Engine) -> None:
    engine = each_engine
    (held,) = engine.reserved("a")
    engine.client.xgroup_delconsumer(engine.keys.stream, GROUP, OURS)
    assert engine.pending() == {}
    assert renew(engine, [held]) == Renewed(30_000, 1, (), ())
    assert engine.pending() == {held.entry: OURS}


def test_an_entry_that_was_deleted_is_not_made_pending(each_engine: Engine) -> None:
    engine = each_engine
    (held,) = engine.reserved("a")
    with engine.damaged():
        engine.client.xack(engine.keys.stream, GROUP, held.entry)
        engine.client.xdel(engine.keys.stream, held.entry)
        assert renew(engine, [held]).pending == 0
        assert engine.pending() == {}
        engine.run(deliver.mend(engine.scope, ["a"]))


def test_the_queues_own_lease_is_told(engine: Engine) -> None:
    engine.with_options(lease_ms=5_000).ready("a")
    assert renew(engine, []).lease_ms == 5_000


@pytest.mark.parametrize("damage", ["group", "stream"])
def test_without_group_or_stream_it_still_tells_what_is_lost(engine: Engine, damage: str) -> None:
    (held,) = engine.reserved("a")
    with engine.damaged():
        if damage == "group":
            engine.client.xgroup_destroy(engine.keys.stream, GROUP)
        else:
            engine.client.delete(engine.keys.stream)
        assert engine.unchanged(deliver.renew(engine.scope, OURS, [held, Held("b", "1-1")])) == Renewed(
            30_000, 0, ("b",), ()
        )
        engine.client.flushall()


def test_before_the_first_read_it_makes_the_consumer_and_writes_it_down(each_engine: Engine) -> None:
    engine = each_engine
    engine.run(deliver.tidy(engine.scope))
    answer, names = engine.changes(deliver.renew(engine.scope, OURS, []))
    assert (answer, names) == (Renewed(30_000, 0, (), ()), {"stream", "meta"})
    assert engine.rows("meta")["consumers"] == OURS
    renew(engine, [], OTHER)
    assert engine.rows("meta")["consumers"] == f"{OURS} {OTHER}"
    engine.unchanged(deliver.renew(engine.scope, OTHER, []))


def test_a_name_inside_another_is_a_name_of_its_own(engine: Engine) -> None:
    engine.run(deliver.tidy(engine.scope))
    renew(engine, [], "dq:host:7:a12")
    renew(engine, [], "dq:host:7:a1")
    assert engine.rows("meta")["consumers"].split() == ["dq:host:7:a12", "dq:host:7:a1"]


def test_a_plain_consumer_is_not_written_down(engine: Engine) -> None:
    (held,) = engine.reserved("a", consumer="plain")
    engine.rest([held.entry], 25_000)
    assert renew(engine, [held], "plain") == Renewed(30_000, 1, (), ())
    assert "consumers" not in engine.rows("meta")
    assert max(idle(engine)) < 20_000


def test_five_hundred_at_once(engine: Engine) -> None:
    held = engine.reserved(*[f"j{n}" for n in range(500)])
    assert renew(engine, held) == Renewed(30_000, 500, (), ())
