"""The scripts place_acquire, place_release and rate_acquire."""

import random
from typing import Final

import pytest

from delayq.core.errors import BackendFull
from delayq.core.limits import RateLimit
from delayq.redis.calls import limits
from delayq.redis.calls.limits import Taken
from delayq.redis.keys import Keys
from tests.support.queue import HOUR, NOW, SECOND, QueueOnServer

EXPIRE: Final = 70 * SECOND


class LimitOnServer:
    """The limit `mail`."""

    def __init__(self, queue: QueueOnServer) -> None:
        self.queue = queue
        self.server = queue.server

    def key(self, role: str) -> str:
        return self.queue.keys.of_limit("mail", role)

    def acquire(self, job: str, *, limit: int = 2, key: str = "", now: int = NOW, expire_ms: int = EXPIRE) -> Taken:
        call = limits.acquire_place(
            self.queue.keys,
            "mail",
            limit=limit,
            holder=f"orders {job}",
            key=key,
            expire_ms=expire_ms,
            now_ms=str(now),
        )
        return self.queue.run(call)

    def release(self, job: str, expires_ms: int, *, key: str = "") -> bool:
        return self.queue.run(
            limits.release_place(self.queue.keys, "mail", holder=f"orders {job}", key=key, expires_ms=expires_ms)
        )

    def take(self, *rates: RateLimit, key: str = "", now: float = NOW) -> bool:
        call = limits.acquire_rate(self.queue.keys, "mail", rates, key=key, now_ms=str(now))
        return self.queue.run(call)

    def holders(self, key: str = "") -> dict[str, float]:
        return dict(self.server.zrange(self.key(f"holders:{key}"), 0, -1, withscores=True))

    def counters(self) -> tuple[int, int]:
        granted, refused = self.queue.run(limits.read_counters(self.queue.keys, "mail"))
        return granted, refused


@pytest.fixture
def limit(queue: QueueOnServer) -> LimitOnServer:
    return LimitOnServer(queue)


def test_the_keys_of_a_limit_are_in_one_slot() -> None:
    assert Keys("test").of_limit("mail", "holders:ann") == "test:{limit:mail}:holders:ann"
    assert Keys("test").limits == "test:limits"


# --- places


def test_places_are_granted_up_to_the_limit(limit: LimitOnServer) -> None:
    assert limit.acquire("a") == Taken(NOW + EXPIRE)
    assert limit.acquire("b") == Taken(NOW + EXPIRE)
    assert limit.acquire("c") == Taken(None, 2)
    assert limit.holders() == {"orders a": NOW + EXPIRE, "orders b": NOW + EXPIRE}
    assert limit.counters() == (2, 1)


def test_a_freed_place_goes_to_the_next_job(limit: LimitOnServer) -> None:
    limit.acquire("a", limit=1)
    assert limit.acquire("b", limit=1).expires_ms is None
    assert limit.release("a", NOW + EXPIRE)
    assert limit.acquire("b", limit=1).expires_ms == NOW + EXPIRE


def test_a_place_is_free_from_its_end_on(limit: LimitOnServer) -> None:
    limit.acquire("a", limit=1)
    assert limit.acquire("b", limit=1, now=NOW + EXPIRE - 1).expires_ms is None
    assert limit.acquire("b", limit=1, now=NOW + EXPIRE).expires_ms == NOW + 2 * EXPIRE
    assert limit.holders() == {"orders b": NOW + 2 * EXPIRE}


def test_a_later_attempt_takes_over_the_place_of_its_job(limit: LimitOnServer) -> None:
    limit.acquire("a", limit=1)
    later = limit.acquire("a", limit=1, now=NOW + SECOND)
    assert later == Taken(NOW + SECOND + EXPIRE)
    assert not limit.release("a", NOW + EXPIRE)  # the end of the first attempt
    assert limit.acquire("b", limit=1, now=NOW + SECOND).expires_ms is None
    assert limit.release("a", NOW + SECOND + EXPIRE)
    assert limit.counters() == (1, 1)


def test_a_job_whose_place_has_expired_asks_as_any_other(limit: LimitOnServer) -> None:
    limit.acquire("a", limit=1)
    limit.acquire("b", limit=1, now=NOW + EXPIRE)
    assert limit.acquire("a", limit=1, now=NOW + EXPIRE).expires_ms is None


def test_jobs_with_the_same_id_in_two_queues_are_two_holders(limit: LimitOnServer) -> None:
    limit.acquire("a", limit=1)
    call = limits.acquire_place(
        limit.queue.keys, "mail", limit=1, holder="mails a", key="", expire_ms=EXPIRE, now_ms=str(NOW)
    )
    assert limit.queue.run(call).expires_ms is None


def test_a_lower_limit_applies_at_once(limit: LimitOnServer) -> None:
    for job in "abc":
        limit.acquire(job, limit=3)
    assert limit.acquire("d", limit=1) == Taken(None, 3)


def test_each_key_has_its_own_places(limit: LimitOnServer) -> None:
    assert limit.acquire("a", limit=1, key="ann").expires_ms
    assert limit.acquire("b", limit=1, key="bob").expires_ms
    assert limit.acquire("c", limit=1, key="ann").expires_ms is None
    in_use = limits.keys_in_use(limit.queue.keys, "mail", after_ms=NOW)
    assert sorted(limit.queue.run(in_use)) == ["ann", "bob"]


def test_nothing_of_places_outlives_the_last_of_them(limit: LimitOnServer) -> None:
    limit.acquire("a", expire_ms=HOUR)
    limit.acquire("b", expire_ms=SECOND)
    limit.acquire("c", limit=5, key="ann", expire_ms=SECOND)
    for role in ("holders:", "places"):
        assert HOUR - 60 * SECOND < limit.server.pttl(limit.key(role)) <= HOUR
    assert limit.server.pttl(limit.key("holders:ann")) <= SECOND
    limit.acquire("d", limit=5, key="bob", now=NOW + SECOND)
    assert limit.server.zrange(limit.key("places"), 0, -1) == ["bob", ""]


def test_a_full_server_lets_places_be_freed_and_grants_none(limit: LimitOnServer) -> None:
    limit.acquire("a")
    with limit.queue.full():
        with pytest.raises(BackendFull):
            limit.acquire("b")
        assert limit.release("a", NOW + EXPIRE)


def test_random_jobs_never_exceed_a_limit(limit: LimitOnServer) -> None:
    draw = random.Random(7)
    now, running = NOW, dict[str, int]()
    for _ in range(400):
        now += draw.randrange(EXPIRE // 8)
        running = {job: until for job, until in running.items() if until > now}
        job = f"j{draw.randrange(8)}"
        if job in running and draw.random() < 0.5:
            assert limit.release(job, running.pop(job))
        else:
            taken = limit.acquire(job, limit=3, now=now)
            assert (taken.expires_ms is not None) == (job in running or len(running) < 3)
            if taken.expires_ms is not None:
                running[job] = taken.expires_ms
        assert len(running) <= 3


# --- rates


def test_a_full_bucket_is_taken_at_once_and_comes_back_evenly(limit: LimitOnServer) -> None:
    rate = RateLimit.bucket(10, per="10s", burst=3)
    assert [limit.take(rate) for _ in range(4)] == [True, True, True, False]
    assert not limit.take(rate, now=NOW + 999)
    assert limit.take(rate, now=NOW + 1_000)
    assert not limit.take(rate, now=NOW + 1_001)
    assert [limit.take(rate, now=NOW + HOUR) for _ in range(4)] == [True, True, True, False]
    assert limit.counters() == (7, 4)


def test_all_rates_grant_or_none_is_used(limit: LimitOnServer) -> None:
    fast, slow = RateLimit.bucket(1, per="1s"), RateLimit.bucket(2, per="1h")
    assert limit.take(fast, slow)
    assert not limit.take(fast, slow)
    assert limit.take(fast, slow, now=NOW + SECOND)
    assert not limit.take(fast, slow, now=NOW + 2 * SECOND)  # slow refuses, and takes nothing of fast
    assert limit.take(fast, now=NOW + 2 * SECOND)


def test_each_key_has_its_own_bucket(limit: LimitOnServer) -> None:
    rate = RateLimit.per_day(1)
    assert limit.take(rate, key="ann")
    assert limit.take(rate, key="bob")
    assert not limit.take(rate, key="ann")


def test_a_rate_above_one_per_ms_counts_parts_of_a_ms(limit: LimitOnServer) -> None:
    slow = RateLimit.bucket(1_000, per="1h")  # keeps the key, although the test does not wait between its calls
    rate = RateLimit.bucket(3_000, per="1s", burst=1)
    granted = [step for step in range(100) if limit.take(rate, slow, now=NOW + step / 10)]
    assert granted == list(range(0, 100, 4))  # one per 1/3 ms, asked every 0.1 ms


def test_a_changed_rate_begins_with_a_full_bucket(limit: LimitOnServer) -> None:
    assert limit.take(RateLimit.per_day(1))
    assert not limit.take(RateLimit.per_day(1))
    assert limit.take(RateLimit.per_second(1))
    assert not limit.take(RateLimit.per_day(1))


def test_a_bucket_is_gone_when_it_is_full_again(limit: LimitOnServer) -> None:
    limit.take(RateLimit.bucket(1, per="1h", burst=5), RateLimit.per_second(1))
    limit.take(RateLimit.per_second(2))
    assert HOUR - 60 * SECOND < limit.server.pttl(limit.key("rates:")) <= HOUR


def test_a_rate_call_is_not_repeated() -> None:
    assert not limits.acquire_rate(Keys("test"), "mail", [RateLimit.per_day(1)], key="").repeatable
    assert limits.acquire_rate(Keys("test"), "mail", [RateLimit.per_day(1)], key="").name == (
        "rate_acquire of the limit mail"
    )
