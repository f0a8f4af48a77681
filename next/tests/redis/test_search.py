"""Searches over several queues. Most tests run with both clients."""

import random
import time
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
import redis

from delayq import FoundJobs, InvalidInput, JobInfo, JobNotFailed, JobNotFound, JobSearch, JobSpec
from delayq.core.envelope import UNKNOWN_SINCE
from delayq.core.errors import BackendError, CallRefused, NodeUnavailable
from delayq.core.views import JobState
from delayq.redis.backend import RedisBackend
from delayq.redis.calls.call import Call
from delayq.redis.connection.leaf import drive
from delayq.redis.search import open_search
from delayq.redis.session import NO_ROUTES, Session
from delayq.settings.model import load_settings

START = 1_900_000_000_000
QUEUES = ("mail", "money", "orders")


def at(ms: int) -> str:
    return f"{time.strftime('%Y-%m-%dT%H:%M:%S', time.gmtime(ms / 1000))}.{ms % 1000:03}Z"


def pages(client: Any, search: JobSearch, *, limit: int = 100) -> Iterator[FoundJobs]:
    """Yield all pages of a search by their cursors."""
    cursor = ""
    while True:
        page = client.search(search, cursor=cursor, limit=limit)
        assert len(page.jobs) <= limit
        assert page.looked <= 2_000
        yield page
        cursor = page.cursor
        if not cursor:
            return


def found(client: Any, *, limit: int = 100, **search: Any) -> list[str]:
    return [job.id for page in pages(client, JobSearch(**search), limit=limit) for job in page.jobs]


def put(server: redis.Redis, queue: str, ids: Sequence[str], *, state: str = "scheduled", start: int = START) -> None:
    """Store jobs, one per millisecond, without the scripts."""
    server.zadd(f"test:{{{queue}}}:{state}", {id: start + number for number, id in enumerate(ids)})
    envelope = '{"v":1,"id":"%s","name":"n","queue":"%s","data":{},"attempts":0,"created_ms":1}'
    server.hset(f"test:{{{queue}}}:jobs", mapping={id: envelope % (id, queue) for id in ids})
    server.sadd("test:queues", queue)


@pytest.fixture
def spread(client: Any) -> list[tuple[str, str]]:
    """Three queues with 40 jobs each. Return (queue, id) in the order of the due times; many times are equal."""
    draw = random.Random(6)
    jobs = [(START + draw.randrange(30), queue, f"job-{number:02}") for queue in QUEUES for number in range(40)]
    specs = [JobSpec(name="n", id=id, queue=queue, at=at(ms)) for ms, queue, id in draw.sample(jobs, len(jobs))]
    client.schedule_many(specs)
    return [(queue, id) for _, queue, id in sorted(jobs)]


def places(jobs: Sequence[JobInfo]) -> list[tuple[str, str]]:
    return [(job.queue, job.id) for job in jobs]


@pytest.mark.parametrize("limit", [1, 7, 100, 2_000])
@pytest.mark.parametrize("newest_first", [False, True])
def test_jobs_of_several_queues_are_in_one_order_across_pages(
    client: Any, spread: list[tuple[str, str]], limit: int, newest_first: bool
) -> None:
    search = JobSearch(newest_first=newest_first)
    jobs = [job for page in pages(client, search, limit=limit) for job in page.jobs]
    assert places(jobs) == (spread[::-1] if newest_first else spread)


def test_an_iteration_has_the_same_order(client: Any, spread: list[tuple[str, str]]) -> None:
    assert places([job for page in client.iter_search(JobSearch()) for job in page.jobs]) == spread
    named = JobSearch(queues=["orders", "mail", "orders"])
    assert places([job for page in client.iter_search(named) for job in page.jobs]) == [
        place for place in spread if place[0] != "money"
    ]


@pytest.mark.parametrize("newest_first", [False, True])
def test_jobs_that_are_added_between_pages_keep_the_order(
    client: Any, spread: list[tuple[str, str]], newest_first: bool
) -> None:
    search = JobSearch(newest_first=newest_first)
    first = client.search(search, limit=60)
    added = {"early": START - 60_000, "late": START + 60_000}
    for id, ms in added.items():
        client.schedule("n", id=id, queue="new", at=at(ms))
    client.cancel(first.jobs[-1].id, queue=first.jobs[-1].queue)
    client.cancel(first.jobs[3].id, queue=first.jobs[3].queue)
    rest = []
    page = first
    while page.cursor:
        page = client.search(search, cursor=page.cursor, limit=9)
        rest += page.jobs
    order = spread[::-1] if newest_first else spread
    assert places(first.jobs) == order[:60]
    assert places(rest) == [*order[60:], ("new", "early" if newest_first else "late")]


@pytest.mark.parametrize("newest_first", [False, True])
@pytest.mark.parametrize("state", ["ready", "reserved"])
def test_ready_and_reserved_jobs_are_in_the_order_of_their_entries(
    client: Any, server: redis.Redis, state: JobState, newest_first: bool
) -> None:
    draw = random.Random(7)
    entries = sorted({(START + draw.randrange(9), draw.randrange(3), queue) for queue in QUEUES for _ in range(25)})
    for queue in QUEUES:
        key = f"test:{{{queue}}}:"
        last = f"{START + 50}-0" if state == "reserved" else "5-5"
        server.xgroup_create(f"{key}stream", "delayq", last, mkstream=True)
        server.sadd("test:queues", queue)
    for ms, seq, queue in entries:
        id = f"{ms}-{seq}"
        server.xadd(f"test:{{{queue}}}:stream", {"id": id, "job": "{}", "due": ms}, id=id)
        server.hset(f"test:{{{queue}}}:entries", id, id)
    search = JobSearch(state=state, newest_first=newest_first)
    for limit in (1, 4, 100):
        jobs = [job for page in pages(client, search, limit=limit) for job in page.jobs]
        assert [(job.entry, job.queue) for job in jobs] == [
            (f"{ms}-{seq}", queue) for ms, seq, queue in sorted(entries, reverse=newest_first)
        ]
    since, until = START + 3, START + 5
    timed = found(client, state=state, newest_first=newest_first, since=at(since), until=at(until))
    assert len(timed) == sum(since <= ms <= until for ms, _, _ in entries)


def test_a_page_looks_at_2000_jobs_and_its_cursor_continues(client: Any, server: redis.Redis) -> None:
    for number, queue in enumerate(QUEUES):
        put(server, queue, [f"job-{n}" for n in range(number, 5_000, 3)])
    rare = [f"job-{n}" for n in range(777, 5_000, 1_000)]
    for id in rare:
        queue = QUEUES[int(id.removeprefix("job-")) % 3]
        raw = str(server.hget(f"test:{{{queue}}}:jobs", id))
        server.hset(f"test:{{{queue}}}:jobs", id, raw.replace('"name":"n"', '"name":"rare"'))
    read = []
    got = []
    for page in pages(client, JobSearch(name="rar*")):
        read.append(page.looked)
        got += page.jobs
    assert (sum(read), len(got)) == (5_000, len(rare))
    assert len(read) <= 5
    assert sorted(job.id for job in got) == sorted(rare)
    assert sum(page.looked for page in client.iter_search(JobSearch(name="rar*"))) == 5_000


def test_a_page_does_not_read_more_than_2000_jobs(client: Any, server: redis.Redis) -> None:
    for queue in ("a", "b", "c", "d", "e"):
        put(server, queue, [f"job-{n}" for n in range(1_000)])
    server.config_resetstat()
    page = client.search(JobSearch(name="unknown"), limit=5)
    assert (page.jobs, bool(page.cursor)) == ([], True)
    envelopes = server.info("commandstats")["cmdstat_hget"]["calls"] - 5  # five numbers of shards
    assert 1_000 <= page.looked <= envelopes <= 2_000


def test_many_queues_are_searched(client: Any, server: redis.Redis) -> None:
    for number in range(1_200):
        put(server, f"q{number:04}", [f"job-{number}", f"other-{number}"], start=START + number % 100)
    ids = [job.id for page in client.iter_search(JobSearch()) for job in page.jobs]
    assert (len(ids), len(set(ids))) == (2_400, 2_400)
    assert len(set(found(client, limit=2_000))) == 2_400


@pytest.mark.parametrize(
    ("search", "ids"),
    [
        ({"name": "order.*"}, ["a", "b"]),
        ({"tag": "vip"}, ["b", "c"]),
        ({"name": "order.*", "tag": "vip"}, ["b"]),
        ({"since": at(START + 1)}, ["b", "c"]),
        ({"until": at(START + 1)}, ["a", "b"]),
        ({"since": at(START + 1), "until": at(START + 1)}, ["b"]),
        ({"since": at(START + 1), "newest_first": True}, ["c", "b"]),
        ({"until": at(START + 1), "newest_first": True}, ["b", "a"]),
        ({"queues": []}, []),
        ({"queues": ["mail"]}, ["c"]),
        ({"state": "retry"}, []),
        ({"state": "failed"}, []),
    ],
)
def test_filters_select_jobs(client: Any, search: dict[str, Any], ids: list[str]) -> None:
    client.schedule("order.close", id="a", queue="orders", at=at(START))
    client.schedule("order.pay", id="b", queue="orders", at=at(START + 1), tags=["vip"])
    client.schedule("mail", id="c", queue="mail", at=at(START + 2), tags=["web", "vip"])
    assert found(client, **search) == ids


def test_jobs_that_wait_for_code_are_found(client: Any) -> None:
    envelope = (
        b'{"v":1,"id":"%s","name":"n","queue":"orders","data":{},"attempts":%d,"created_ms":1,"headers":{"%s":"1"}}'
    )
    for id, attempts, state in ((b"a", 0, "scheduled"), (b"b", 2, "scheduled"), (b"c", 0, "failed")):
        client.push_raw(envelope % (id, attempts, UNKNOWN_SINCE.encode()), delay="1h")
        if state == "failed":
            client.archive(id.decode(), queue="orders")
    client.schedule("n", id="d", queue="orders", delay="1h", headers={"else": "1"})
    assert found(client, waiting_for_code=True) == ["a", "b"]
    assert found(client, waiting_for_code=True, state="retry") == ["b"]
    assert [job.id for page in pages(client, JobSearch()) for job in page.jobs if job.waits_for_code] == ["a", "b"]


@pytest.fixture
def failed(client: Any) -> Any:
    """A client with failed jobs: "close" and "pay" in the queue orders, and "mail" in between."""
    for queue, id, reason in (("orders", "close", "no order 41"), ("mail", "mail", "x"), ("orders", "pay", "no money")):
        client.schedule(id, id=id, queue=queue, delay="1h")
        client.archive(id, queue=queue, reason=reason)
        time.sleep(0.002)
    return client


def test_failed_jobs_come_latest_first_with_their_failures(failed: Any) -> None:
    page = failed.search(JobSearch(state="failed"))
    assert [(job.id, job.failure.message) for job in page.jobs] == [
        ("pay", "no money"),
        ("mail", "x"),
        ("close", "no order 41"),
    ]
    assert found(failed, state="failed", newest_first=False, limit=1) == ["close", "mail", "pay"]
    (group,) = [one for one in failed.failed_groups("orders").groups if one.name == "close"]
    assert found(failed, state="failed", signature=group.signature, limit=1) == ["close"]


def test_jobs_that_fail_during_an_iteration_are_left_out(failed: Any) -> None:
    search = JobSearch(state="failed", newest_first=False)
    first = failed.search(search, limit=1)
    assert [job.id for job in first.jobs] == ["close"]
    assert found(failed, state="failed", until="1h") == []


def test_a_page_ends_at_1_mb(client: Any) -> None:
    for number in range(5):
        client.schedule("n", {"text": "x" * 250_000}, id=f"job-{number}", delay=f"{number + 1}h")
    assert [len(page.jobs) for page in pages(client, JobSearch())] == [4, 1]


def test_ids_of_other_programs_do_not_stop_a_search(client: Any, server: redis.Redis) -> None:
    client.schedule("n", id="a", queue="a", at=at(START))
    client.schedule("n", id="b", queue="b", at=at(START))
    for queue in "ab":
        key = f"test:{{{queue}}}:scheduled"
        server.execute_command("ZADD", key, START, b"\xff", START, b"\x01", "inf", "inf", "-inf", "-inf")
    for newest_first in (False, True):
        ids = found(client, limit=1, newest_first=newest_first)
        assert sorted(ids) == sorted(["a", "b", *["\ufffd", "\x01", "inf", "-inf"] * 2])


@pytest.mark.parametrize(
    ("field", "search"),
    [
        ("state", {"state": "waiting"}),
        ("queue", {"queues": ["no queue"]}),
        ("since", {"since": "yesterday"}),
        ("since", {"since": "1h", "until": "2h"}),
        ("until", {"until": "2026-11-21T15:00"}),
        ("signature", {"state": "failed", "signature": "x"}),
        ("signature", {"signature": "0123456789abcdef"}),
        ("waiting_for_code", {"state": "failed", "waiting_for_code": True}),
    ],
)
def test_a_search_that_cannot_be_is_refused(client: Any, field: str, search: dict[str, Any]) -> None:
    with pytest.raises(InvalidInput) as refused:
        client.search(JobSearch(**search))
    assert refused.value.field == field


@pytest.mark.parametrize("cursor", ["x", "1800000000000 a", "é", "kwE=", 5, "lMt_8AAAAAAAAAChYcQA"])
def test_a_cursor_that_no_search_returned_is_refused(client: Any, cursor: Any) -> None:
    with pytest.raises(InvalidInput) as refused:
        client.search(JobSearch(state="ready"), cursor=cursor)
    assert refused.value.field == "cursor"


@pytest.mark.parametrize("limit", [0, 2_001])
def test_a_limit_is_1_to_2000(client: Any, limit: int) -> None:
    with pytest.raises(InvalidInput, match=r"Use a whole number from 1 to 2,?000\."):
        client.search(JobSearch(), limit=limit)


@pytest.mark.parametrize("role", ["failed", "errors"])
def test_a_queue_that_cannot_be_read_is_reported_and_the_others_are_searched(
    failed: Any, server: redis.Redis, role: str
) -> None:
    server.set(f"test:{{orders}}:{role}", "neither a set nor a hash")
    page = failed.search(JobSearch(state="failed"))
    assert [job.id for job in page.jobs] == ["mail"]
    assert isinstance(page.errors["orders"], CallRefused)
    assert page.cursor == ""
    with pytest.raises(CallRefused):
        list(failed.iter_failed("orders"))


@pytest.mark.parametrize("newest_first", [False, True])
def test_rows_that_were_read_ahead_are_kept_when_another_queue_fails(
    client: Any, server: redis.Redis, newest_first: bool
) -> None:
    put(server, "broken", [f"job-{n}" for n in range(2_000)], state="failed", start=1_000_000)
    put(server, "whole", ["first"], state="failed", start=5)
    server.zadd("test:{whole}:failed", {"last": 9_000_000})
    server.set("test:{broken}:errors", "no hash")
    page = client.search(JobSearch(state="failed", newest_first=newest_first))
    assert [job.id for job in page.jobs] == (["last", "first"] if newest_first else ["first", "last"])
    assert (page.cursor, list(page.errors)) == ("", ["broken"])


def test_a_failed_job_is_found_by_its_id(failed: Any) -> None:
    failed.schedule("n", id="waits", queue="orders", delay="1h")
    failed.schedule("n", id="mail", queue="orders", delay="1h")
    assert failed.find_failed("pay").queue == "orders"
    assert failed.find_failed("mail", queues=["orders", "mail"]).queue == "mail"
    with pytest.raises(JobNotFound, match="in the queue 'mail'"):
        failed.find_failed("pay", queues=["mail"])
    with pytest.raises(JobNotFailed, match="is scheduled, not failed"):
        failed.find_failed("waits")
    failed.archive("mail", queue="orders")
    with pytest.raises(InvalidInput, match="has failed in several queues: mail, orders"):
        failed.find_failed("mail")


class Trips:
    """Passes calls on, and counts round trips. The calls for the queues in `dead` fail as if their node were down."""

    def __init__(self, session: Session) -> None:
        self._executor = session.executor
        self.count = 0
        self.dead: set[str] = set()

    async def run_all(self, calls: Sequence[Call[Any]]) -> list[Any]:
        self.count += 1
        down: BackendError = NodeUnavailable("Redis at node-2 does not answer.", hint="Try again later.")
        outcomes = await self._executor.run_all(calls)
        return [
            down if any(f"{{{queue}}}" in (call.key or "") for queue in self.dead) else outcome
            for call, outcome in zip(calls, outcomes, strict=True)
        ]


@pytest.fixture
def session(url: str, server: redis.Redis) -> Session:
    session = RedisBackend(load_settings(url=url, prefix="test")).session(is_async=False, routes=NO_ROUTES)
    session.executor = Trips(session)  # type: ignore[assignment]
    return session


def page_of(session: Session, search: JobSearch, limit: int) -> FoundJobs:
    async def read() -> FoundJobs:
        return await (await open_search(session, search)).page(limit)

    return drive(read())


def test_a_node_that_does_not_answer_makes_the_search_incomplete(session: Session, server: redis.Redis) -> None:
    for queue in QUEUES:
        put(server, queue, [queue])
    session.executor.dead = {"money"}  # type: ignore[attr-defined]
    page = page_of(session, JobSearch(), 100)
    assert [job.id for job in page.jobs] == ["mail", "orders"]
    (error,) = page.errors.values()
    assert (type(error), error.exit_code, error.message) == (
        NodeUnavailable,
        5,
        "The search is incomplete, because the queue 'money' could not be read. Redis at node-2 does not answer.",
    )


def test_a_page_needs_one_round_trip_for_all_queues(session: Session, server: redis.Redis) -> None:
    """One more reads the list of queues and the clock."""
    for number in range(20):
        put(server, f"q{number}", [f"job-{n}" for n in range(50)], start=START + number)
    assert len(page_of(session, JobSearch(), 50).jobs) == 50
    assert session.executor.count == 2  # type: ignore[attr-defined]
