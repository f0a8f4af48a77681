"""What follows a job is never lost, also when a worker of another kind settles it with ack, done or fail.

The calls are made here as such a worker makes them: the text of the script, its keys by its manual, and no argument
that only delayq's own workers use.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from typing import Any

import msgspec
import pytest
import redis
from redis.exceptions import ResponseError

from delayq.core.envelope import decode as decode_envelope
from delayq.core.followups import Callbacks, Chain, Link, Plan, encode_chain, encode_membership
from delayq.core.options import Options
from delayq.core.spec import Prepared
from delayq.core.states import State
from delayq.redis.calls import deliver, produce
from delayq.redis.calls.deliver import Acked, Failed, Held
from delayq.redis.client import Client
from delayq.redis.connect import Connector
from delayq.redis.follow_verbs import FollowVerbs
from delayq.redis.relaying import Relaying
from delayq.redis.scripts import load
from tests.support.engine import HOUR, PLAIN, Engine, envelope

WHY = b'{"type":"E","message":"the printer burns"}'
SETTLED = {"ack": "done", "done": "done", "fail": "failed"}
each_script = pytest.mark.parametrize("script", SETTLED)


@pytest.fixture
def client(each_redis_url: str) -> Iterator[Client]:
    """Of delayq, on the server of `each_engine`."""
    with closing(Connector(each_redis_url)) as connector:
        yield Client(connector, Options())


def settle(engine: Engine, script: str, *held: Held) -> Any:
    """As a worker of another kind settles."""
    now = str(engine.now)
    given: dict[str, list[Any]] = {
        "ack": [now, *(word for one in held for word in (one.id, one.entry, "0", ""))],
        "done": [msgspec.msgpack.encode([[one.id for one in held], [one.entry for one in held]])],
        "fail": [now, *(word for one in held for word in (one.id, one.entry, "", WHY))],
    }
    args, loaded = given[script], load(script)
    keys = [engine.keys.of(role) for role in loaded.keys]
    return engine.client.eval(loaded.text, len(keys), *keys, *args)


def held_jobs(engine: Engine, *envelopes: bytes) -> list[Held]:
    """Jobs with these envelopes, read by a consumer that is not delayq's."""
    jobs = [Prepared(decode_envelope(raw).id, raw, "+0", "", "order.close", engine.queue, True) for raw in envelopes]
    engine.schedule(jobs)
    return engine.read(PLAIN)


def link(job_id: str, **members: Any) -> Link:
    return Link(job=msgspec.Raw(envelope(job_id, **members)))


def chained(job_id: str, *next_ids: str, catch: tuple[str, ...] = ()) -> bytes:
    chain = Chain(id="c", next=[link(one) for one in next_ids], catch=[link(one) for one in catch])
    return envelope(job_id, chain=encode_chain(chain))


def outbox(engine: Engine) -> list[dict[bytes, bytes]]:
    return [fields for _, fields in engine.client.xrange(engine.keys.of("outbox"))]


def carry(engine: Engine, client: Client) -> None:
    """As a relay does, until there is nothing left."""
    while engine.client.xlen(engine.keys.of("outbox")):
        assert client.run(Relaying(client.verbs).relay(engine.queue)).trouble == ()


@pytest.mark.parametrize("script", ["ack", "done"])
def test_the_next_link_of_a_chain_follows(each_engine: Engine, client: Client, script: str) -> None:
    first = held_jobs(each_engine, chained("a", "b", "c"))
    settle(each_engine, script, *first)
    carry(each_engine, client)
    assert list(each_engine.rows("jobs")) == ["b"]
    rest = decode_envelope(each_engine.rows("jobs")["b"].encode()).chain
    assert msgspec.json.decode(rest, type=Chain).next[0].id == "c"


def test_the_jobs_that_catch_a_failure_follow_and_hear_of_it(each_engine: Engine, client: Client) -> None:
    first = held_jobs(each_engine, chained("a", "b", catch=("caught",)))
    settle(each_engine, "fail", *first)
    carry(each_engine, client)
    assert set(each_engine.rows("jobs")) == {"a", "caught"}
    assert each_engine.state("a") is State.FAILED
    caught = decode_envelope(each_engine.rows("jobs")["caught"].encode())
    assert caught.headers == {
        "delayq-failed-id": "a",
        "delayq-failed-queue": "orders",
        "delayq-failed-error": "E",
        "delayq-failed-message": "the printer burns",
    }


@pytest.mark.parametrize("script", ["reclaim", "recover"])
def test_the_jobs_that_catch_a_failure_hear_of_a_vanished_worker(
    each_engine: Engine, client: Client, script: str
) -> None:
    engine = each_engine.with_options(max_recoveries=0)
    (held,) = held_jobs(engine, chained("a", "b", catch=("caught",)))
    if script == "reclaim":
        engine.calm()
        engine.rest([held.entry], engine.options.lease_ms)
        engine.run(deliver.reclaim(engine.scope, 500))
    else:
        engine.run(deliver.recover(engine.scope, [held]))
    assert engine.state("a") is State.FAILED
    record = msgspec.json.decode(engine.rows("errors")["a"])
    carry(engine, client)
    caught = decode_envelope(engine.rows("jobs")["caught"].encode())
    assert caught.headers == {
        "delayq-failed-id": "a",
        "delayq-failed-queue": "orders",
        "delayq-failed-error": record["type"],
        "delayq-failed-message": record["message"],
    }


@each_script
def test_a_batch_of_two_ends(each_engine: Engine, client: Client, script: str) -> None:
    members = [link(name, batch=encode_membership("b")) for name in ("m", "n")]
    callbacks = Callbacks(then=[link("then")], catch=[link("catch")])
    plan = Plan(id="b", members=members, callbacks=callbacks, allow_failures=True)
    client.run(FollowVerbs(client.verbs).open(plan))
    held = each_engine.read(PLAIN)
    assert {one.id for one in held} == {"m", "n"}
    for one in held:
        settle(each_engine, script, one)
        carry(each_engine, client)
    info = client.batches.get("b")
    assert (info.pending, info.done, info.failed) == ((0, 0, 2) if script == "fail" else (0, 2, 0))
    assert info.finished_ms is not None
    sent = "catch" if script == "fail" else "then"
    assert [job_id for job_id in each_engine.rows("jobs") if job_id not in ("m", "n")] == [sent]


@each_script
def test_it_is_written_once_and_only_for_those_that_something_follows(each_engine: Engine, script: str) -> None:
    linked = chained("a", "b")
    held = held_jobs(each_engine, envelope("plain"), linked, envelope("member", batch=msgspec.Raw(b'"b"')))
    expected = {b"ended": SETTLED[script].encode(), b"job": linked}
    settle(each_engine, script, *held)
    first, second = outbox(each_engine)
    assert {name: first[name] for name in (b"ended", b"job")} == expected
    assert decode_envelope(second[b"job"]).id == "member"
    settle(each_engine, script, *held)
    assert len(outbox(each_engine)) == 2


@each_script
def test_a_stranger_to_the_entry_writes_nothing(each_engine: Engine, script: str) -> None:
    held_jobs(each_engine, chained("a", "b"))
    settle(each_engine, script, Held("a", "1-1"))
    assert (outbox(each_engine), each_engine.state("a")) == ([], State.RESERVED)


def test_a_job_that_is_kept_goes_on_too(each_engine: Engine, client: Client) -> None:
    (held,) = held_jobs(each_engine, chained("a", "b"))
    each_engine.run(deliver.ack(each_engine.scope, [Acked(held, HOUR, b"1")]))
    carry(each_engine, client)
    assert each_engine.state("a") is State.COMPLETED
    assert set(each_engine.rows("jobs")) == {"a", "b"}


@each_script
def test_a_payload_whose_row_was_lost_is_read_in_its_entry(each_engine: Engine, client: Client, script: str) -> None:
    held = held_jobs(each_engine, chained("a", "b", catch=("b",)))
    with each_engine.damaged():
        each_engine.client.hdel(each_engine.keys.of("jobs"), "a")
        settle(each_engine, script, *held)
        carry(each_engine, client)
        each_engine.client.delete(each_engine.keys.of("failed"), each_engine.keys.of("errors"))
    assert list(each_engine.rows("jobs")) == ["b"]


@each_script
def test_the_mover_is_told_at_once(each_engine: Engine, script: str) -> None:
    held = held_jobs(each_engine, chained("a", "b"))
    with closing(each_engine.client.pubsub()) as heard:
        heard.subscribe("delayq:wake")
        assert heard.get_message(timeout=5.0)["type"] == "subscribe"
        settle(each_engine, script, *held)
        assert heard.get_message(timeout=5.0)["data"] == b"orders 0"


@each_script
def test_a_full_server_takes_what_follows(each_engine: Engine, script: str) -> None:
    held = held_jobs(each_engine, chained("a", "b"))
    with each_engine.full():
        settle(each_engine, script, *held)
    assert len(outbox(each_engine)) == 1


@each_script
def test_a_user_that_may_not_write_to_the_outbox_leaves_the_job_acknowledged(
    each_engine: Engine, each_redis_url: str, script: str
) -> None:
    """Refused after the XACK, as users are that were made for an earlier release: the janitor closes the job then."""
    held = held_jobs(each_engine, chained("a", "b"))
    each_engine.client.execute_command("ACL", "SETUSER", "older", "on", ">x", "~*", "&*", "+@all", "-xadd")
    with closing(redis.Redis.from_url(each_redis_url, username="older", password="x")) as older:
        mine = Engine(older)
        mine.now = each_engine.now
        with pytest.raises(ResponseError, match=r"can't run this command|no permissions to run"):
            settle(mine, script, *held)
    each_engine.client.execute_command("ACL", "DELUSER", "older")
    assert each_engine.pending() == {}
    assert each_engine.state("a") is State.RESERVED
    assert list(each_engine.rows("jobs")) == ["a"]


@pytest.mark.parametrize("script", ["ack", "fail"])
def test_a_worker_that_has_read_the_envelopes_says_so(each_engine: Engine, script: str) -> None:
    """`alone`: the caller answers for it that nothing follows, and the script reads no envelope."""
    (held,) = held_jobs(each_engine, chained("a", "b"))
    item: Any = Acked(held) if script == "ack" else Failed(held, b"", WHY)
    send = deliver.ack if script == "ack" else deliver.fail
    assert each_engine.run(send(each_engine.scope, [item], alone=True)) == [True]
    assert outbox(each_engine) == []


def test_any_other_word_behind_the_deliveries_is_refused(each_engine: Engine) -> None:
    (held,) = held_jobs(each_engine, envelope("a"))
    for script in ("ack", "fail"):
        loaded = load(script)
        keys = [each_engine.keys.of(role) for role in loaded.keys]
        with pytest.raises(ResponseError, match="a delivery is"):
            each_engine.client.eval(loaded.text, len(keys), *keys, "", held.id, held.entry, "0", "", "allone")
    assert each_engine.state("a") is State.RESERVED


def test_a_cancel_and_a_release_leave_the_chain_where_it_was(each_engine: Engine, client: Client) -> None:
    (held,) = held_jobs(each_engine, chained("a", "b"))
    each_engine.run(deliver.release(each_engine.scope, [deliver.Released(held, 0)]))
    assert outbox(each_engine) == []
    each_engine.run(produce.cancel(each_engine.scope, "a", running=False, token="t"))
    carry(each_engine, client)
    assert each_engine.rows("jobs") == {}


def test_the_words_in_a_payload_cost_a_look_and_nothing_else(each_engine: Engine, client: Client) -> None:
    held = held_jobs(each_engine, envelope("a", data=b'{"chain":{}}'))
    settle(each_engine, "ack", *held)
    carry(each_engine, client)
    assert each_engine.rows("jobs") == {}
