"""retry: a failed job gets all its tries again, now."""

from __future__ import annotations

from delayq.core.envelope import fingerprint
from delayq.core.states import Answer
from delayq.redis.calls import deliver, produce
from delayq.redis.calls.call import Call
from delayq.redis.calls.produce import Outcome
from tests.support.engine import Engine, envelope


def retrying(engine: Engine, *, new: bytes = b"", digest: str = "") -> Call[Outcome]:
    raw = engine.client.hget(engine.keys.of("jobs"), "a")
    return produce.retry(engine.scope, "a", fingerprint(raw), new or envelope("a"), digest)


def test_it_waits_due_now_with_its_new_envelope(each_engine: Engine) -> None:
    engine = each_engine
    engine.failed("a", "b")
    engine.client.hset(engine.keys.of("recoveries"), mapping={"a": 4, "b": 1})
    fresh = envelope("a", tries=3)
    answer, names = engine.changes(retrying(engine, new=fresh, digest="d"))
    assert answer == (Answer.SCHEDULED, engine.now, "")
    assert names == {"failed", "scheduled", "jobs", "recoveries", "unique", "locks"}
    assert engine.scores("scheduled") == {"a": engine.now}
    assert list(engine.scores("failed")) == ["b"]
    assert engine.rows("jobs")["a"] == fresh.decode()
    assert engine.rows("recoveries") == {"b": "1"}


def test_the_failure_stays_until_the_job_succeeds(engine: Engine) -> None:
    engine.failed("a")
    engine.run(retrying(engine))
    assert engine.rows("errors").keys() == {"a"}
    engine.run(deliver.promote(engine.scope))
    engine.run(deliver.ack(engine.scope, [deliver.Acked(engine.read()[0])]))
    assert engine.rows("errors") == {}


def test_an_envelope_that_changed_meanwhile_is_not_overwritten(engine: Engine) -> None:
    engine.failed("a")
    call = retrying(engine)
    engine.client.hset(engine.keys.of("jobs"), "a", b"another")
    assert engine.unchanged(call) == (Answer.CHANGED, None, "")


def test_a_payload_that_was_lost_counts_as_changed(engine: Engine) -> None:
    engine.failed("a")
    call = retrying(engine)
    with engine.damaged():
        engine.client.hdel(engine.keys.of("jobs"), "a")
        assert engine.unchanged(call).answer == Answer.CHANGED
        engine.run(deliver.mend(engine.scope, ["a"]))


def test_while_paused_it_waits_like_everything(engine: Engine) -> None:
    engine.failed("a")
    engine.client.hset(engine.keys.meta, "paused_until_ms", "0")
    assert engine.run(retrying(engine)).answer == Answer.SCHEDULED
    assert engine.run(deliver.promote(engine.scope)).wait_us == -3
