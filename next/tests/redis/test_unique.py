"""Unique jobs: clients on a real server."""

import threading
import time
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
import redis

from delayq import Conflict, DelayQ, InvalidInput, JobSpec, Unique
from delayq.core.shards import shard_names, shard_number
from delayq.core.unique import digest_of, lock_of
from tests.support.proxy import proxy_to

FIELDS = Unique(key=["order_id"])
DATA = {"order_id": 42}


@pytest.fixture
def client(url: str, server: redis.Redis) -> Iterator[DelayQ]:
    with DelayQ(url, queue="orders") as client:
        yield client


def keys(server: redis.Redis) -> tuple[int, int]:
    """Return the numbers of taken keys and of jobs that own one."""
    taken: Any = server.hlen("delayq:{orders}:unique")
    locks: Any = server.hlen("delayq:{orders}:locks")
    return taken, locks


@pytest.mark.parametrize("unique", ["order-42", FIELDS, Unique(), Unique(key=["order_id"], until="start")])
def test_a_duplicate_is_answered_with_the_owner(client: DelayQ, unique: Any) -> None:
    owner = client.schedule("order.close", DATA, delay="1h", unique=unique)
    again = client.schedule("order.close", DATA, delay="2h", unique=unique)
    assert (owner.outcome, again.outcome, again.id, again.state) == ("created", "kept", owner.id, "scheduled")
    assert again.due_ms == owner.due_ms
    assert client.stats("orders")[0].scheduled == 1
    with pytest.raises(Conflict, match=f"is taken by the job '{owner.id}', which is scheduled"):
        client.schedule("order.close", DATA, unique=unique, on_conflict="error")
    for word in ("replace", "postpone"):
        kept = client.schedule("order.close", DATA, unique=unique, on_conflict=word)
        assert (kept.outcome, kept.id) == ("kept", owner.id)
    assert client.cancel(owner.id) == "cancelled"
    assert client.schedule("order.close", DATA, delay="1h", unique=unique).outcome == "created"


def test_many_jobs_of_one_call(client: DelayQ) -> None:
    specs = [JobSpec(name="n", data={"order_id": n % 3}, delay="1h", unique=FIELDS) for n in range(9)]
    refs = client.schedule_many(specs)
    assert Counter(ref.outcome for ref in refs) == {"created": 3, "kept": 6}
    assert len({ref.id for ref in refs}) == 3


@pytest.mark.parametrize("way", ["cancel", "clear", "archive"])
def test_the_end_of_the_owner_frees_the_key(client: DelayQ, server: redis.Redis, way: str) -> None:
    owner = client.schedule("n", DATA, delay="1h", unique=FIELDS)
    assert keys(server) == (1, 1)
    if way == "clear":
        client.clear()
    else:
        getattr(client, way)(owner.id)
    assert keys(server) == (0, 0)


def test_a_retry_takes_the_key_again(client: DelayQ, server: redis.Redis) -> None:
    owner = client.schedule("n", DATA, delay="1h", unique=FIELDS)
    client.archive(owner.id)
    client.retry(owner.id)
    assert client.schedule("n", DATA, unique=FIELDS).id == owner.id
    client.archive(owner.id)
    other = client.schedule("n", DATA, delay="1h", unique=FIELDS)
    with pytest.raises(Conflict, match=f"The job '{other.id}' owns the unique key"):
        client.retry(owner.id)


def test_a_window_lasts_although_the_job_has_ended(client: DelayQ, server: redis.Redis) -> None:
    window = Unique(key=["order_id"], until="window", window="1s")
    owner = client.schedule("n", DATA, delay="1h", unique=window)
    assert client.cancel(owner.id) == "cancelled"
    kept = client.schedule("n", DATA, unique=window)
    assert (kept.outcome, kept.id, kept.state) == ("kept", owner.id, "absent")
    owner.cancel()
    with pytest.raises(Conflict, match=r"which has ended\. Wait until the window of the key is over"):
        client.schedule("n", DATA, unique=window, on_conflict="error")
    with pytest.raises(InvalidInput, match="on_conflict is 'replace', which cannot be used with a unique key"):
        client.schedule("n", DATA, unique=window, on_conflict="replace")
    time.sleep(1.1)
    assert client.schedule("n", DATA, delay="1h", unique=window).outcome == "created"


def test_a_lost_reply_is_no_duplicate(client: DelayQ, url: str) -> None:
    with proxy_to(url) as proxy, DelayQ(proxy.url, queue="orders") as careful:
        careful.schedule("n", delay="1h")
        proxy.lose(1)
        assert careful.schedule("n", DATA, delay="1h", unique=FIELDS).outcome == "created"
    assert client.schedule("n", DATA, unique=FIELDS).outcome == "kept"


def test_an_envelope_that_is_sent_again_takes_its_key(client: DelayQ) -> None:
    owner = client.schedule("n", DATA, delay="1h", unique=FIELDS)
    raw = client.get(owner.id)
    client.cancel(owner.id)
    assert raw is not None and client.push_raw(raw.raw, delay="1h").outcome == "created"
    assert client.schedule("n", DATA, unique=FIELDS).id == owner.id


def test_a_thousand_dispatches_of_one_key(url: str, server: redis.Redis) -> None:
    outcomes: Counter[str] = Counter()
    lock = threading.Lock()

    def produce() -> None:
        with DelayQ(url, queue="orders") as client:
            for _ in range(125):
                outcome = client.schedule("n", DATA, delay="1h", unique=FIELDS).outcome
                with lock:
                    outcomes[outcome] += 1

    producers = [threading.Thread(target=produce) for _ in range(8)]
    for producer in producers:
        producer.start()
    for producer in producers:
        producer.join()
    assert outcomes == {"created": 1, "kept": 999}


def test_on_a_queue_with_shards_the_key_decides_the_shard(client: DelayQ, url: str, server: redis.Redis) -> None:
    client.queue_set("orders", shards=8)
    for n in range(20):
        with DelayQ(url, queue="orders") as stranger:  # does not know the number
            made = stranger.schedule("n", {"order_id": n}, delay="1h", unique=FIELDS)
        digest = digest_of(lock_of(FIELDS, "n", b'{"order_id":%d}' % n))
        assert shard_number(made.id, 8) == shard_number(digest, 8)
        job = client.get(made.id)
        assert job is not None and job.envelope is not None and job.envelope.id == made.id
        again = client.schedule("n", {"order_id": n}, unique=FIELDS)
        assert (again.outcome, again.id) == ("kept", made.id)
    assert client.stats("orders")[0].scheduled == 20
    assert sum(int(server.hlen(f"delayq:{{{name}}}:locks")) for name in shard_names("orders", 8)) == 20
    with pytest.raises(InvalidInput, match=r"has the id 'mine' and a unique key, but the queue 'orders' has 8 shards"):
        client.schedule("n", DATA, id="mine", unique=FIELDS)
