"""silent: which delivered jobs have a holder that has been silent for longer than the lease."""

from __future__ import annotations

from delayq.core.views import Silent
from delayq.redis.calls import deliver, inspect
from delayq.redis.calls.deliver import Acked
from delayq.redis.keys import GROUP
from tests.support.engine import PLAIN, Engine

LEASE_MS = 30_000


def silent(engine: Engine) -> Silent:
    return engine.unchanged(inspect.silent(engine.scope))


def test_an_unknown_queue_has_no_silent_holder(each_engine: Engine) -> None:
    assert silent(each_engine) == Silent(0, ())


def test_a_holder_is_silent_when_its_lease_is_over_and_not_before(each_engine: Engine) -> None:
    engine = each_engine
    gone, well = engine.reserved("gone", "well")
    engine.rest([gone.entry], LEASE_MS + 5_000)
    engine.rest([well.entry], LEASE_MS - 5_000)
    found = silent(engine)
    assert found.count == 1
    [job] = found.jobs
    assert (job.id, job.worker) == ("gone", "dq:host:7:a1")
    assert LEASE_MS + 5_000 <= job.silent_ms == found.longest_ms < LEASE_MS + 60_000


def test_a_plain_consumer_is_held_to_the_lease_too(engine: Engine) -> None:
    [held] = engine.reserved("a", consumer=PLAIN)
    engine.rest([held.entry], LEASE_MS + 1_000)
    assert [job.worker for job in silent(engine).jobs] == [PLAIN]


def test_what_was_settled_or_deleted_is_not_counted(engine: Engine) -> None:
    one, two, three = engine.reserved("one", "two", "three")
    engine.rest([one.entry, two.entry, three.entry], LEASE_MS + 1_000)
    engine.run(deliver.ack(engine.scope, [Acked(one)]))
    engine.sound = False
    engine.client.xdel(engine.keys.stream, two.entry)
    assert [job.id for job in silent(engine).jobs] == ["three"]
    assert silent(engine).count == 1


def test_more_than_are_named_are_counted(engine: Engine) -> None:
    held = engine.reserved(*(f"job-{n:02}" for n in range(40)))
    engine.rest([one.entry for one in held], LEASE_MS + 1_000)
    found = silent(engine)
    assert (found.count, len(found.jobs)) == (40, inspect.SILENT_SHOWN)


def test_large_payloads_are_read_up_to_a_megabyte(engine: Engine) -> None:
    held = engine.reserved(*(f"job-{n}" for n in range(9)), data=b'"' + b"x" * 300_000 + b'"')
    engine.rest([one.entry for one in held], LEASE_MS + 1_000)
    found = silent(engine)
    assert (found.count, len(found.jobs)) == (9, 4), "the fourth passes a megabyte"


def test_without_the_group_or_the_lease_nobody_is_judged(engine: Engine) -> None:
    [held] = engine.reserved("a")
    engine.rest([held.entry], LEASE_MS + 1_000)
    engine.sound = False
    engine.client.hdel(engine.keys.meta, "lease_ms")
    assert silent(engine) == Silent(0, ())
    engine.client.hset(engine.keys.meta, "lease_ms", "soon")
    assert silent(engine) == Silent(0, ())
    engine.client.hset(engine.keys.meta, "lease_ms", LEASE_MS)
    engine.client.xgroup_destroy(engine.keys.stream, GROUP)
    assert silent(engine) == Silent(0, ())
