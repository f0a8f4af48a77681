"""A chain and a batch for consumers that know neither, and the loops that carry what follows."""

from __future__ import annotations

import msgspec

from delayq.core.envelope import VERSION, Envelope, encode
from delayq.core.followups import Callbacks, Chain, Link, Plan, Send, encode_chain, encode_membership
from delayq.drivers.redis_streams import RedisStreams
from delayq.redis.callbacks import Bound
from delayq.redis.client import Client
from delayq.redis.follow_verbs import FollowVerbs
from tests.consumers.programs import Program

QUEUE = "orders"


def envelope(job_id: str, **members: msgspec.Raw) -> msgspec.Raw:
    """A job without a payload."""
    data = msgspec.Raw(b"null")
    made = Envelope(v=VERSION, id=job_id, name="order.close", queue=QUEUE, data=data, attempts=0, created_ms=0)
    return msgspec.Raw(encode(msgspec.structs.replace(made, **members)))


def linked_jobs(client: Client) -> str:
    """Send the chain `first`, `second` and a batch of `m-1` and `m-2` that ends with `then`; the id of the batch."""
    follow = FollowVerbs(client.verbs)
    chain = Chain(id="c", next=[Link(job=envelope("second"))])
    first = Send(QUEUE, "first", envelope("first", chain=encode_chain(chain)))
    assert client.run(follow.send([Bound("first", first)])) == [True]
    members = [Link(job=envelope(name, batch=encode_membership("b"))) for name in ("m-1", "m-2")]
    client.run(follow.open(Plan(id="b", members=members, callbacks=Callbacks(then=[Link(job=envelope("then"))]))))
    return "b"


def all_followed(client: Client, driver: RedisStreams, batch_id: str, consumer: Program) -> bool:
    """One turn of janitor, relay and mover; whether all five jobs were handled and the batch has finished."""
    driver.tidy(QUEUE)
    driver.relay(QUEUE)
    driver.promote(QUEUE)
    finished = client.batches.get(batch_id).finished_ms is not None
    return finished and {"second", "then"} <= set(consumer.ids())
