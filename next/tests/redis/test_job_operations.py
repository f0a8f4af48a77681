"""Operations on jobs, each test run with both clients. A worker is played by the calls of one."""

import threading
import time
from types import SimpleNamespace
from typing import Any, get_args

import pytest
import redis

from delayq import (
    Conflict,
    FoundElsewhere,
    InvalidInput,
    JobFinished,
    JobHasFailed,
    JobNotFailed,
    JobNotFound,
    JobRunning,
    JobSpec,
    OutcomeUnknown,
    PayloadLost,
)
from delayq.backends.values import Acked, Delivery, Failed
from delayq.core import envelope as envelopes
from delayq.core.errors import BackendFull, CallRefused
from delayq.core.states import ANSWERS, State
from delayq.core.views import JobState
from delayq.redis import session
from delayq.redis.calls import delivery, upkeep
from delayq.redis.connection.blocking import BlockingLeaf
from delayq.redis.connection.leaf import drive
from delayq.redis.connection.server import ServerExecutor
from delayq.redis.connection.url import Address
from delayq.redis.keys import Keys

FAILURE = b'{"type":"ValueError","message":"why"}'


class Worker:
    """What a worker does to the queue `orders`, by hand."""

    def __init__(self, url: str, keys: Keys) -> None:
        self._executor = ServerExecutor(BlockingLeaf(Address(url)))
        self._keys = keys

    def take(self) -> Delivery:
        drive(self._executor.run(upkeep.tidy(self._keys, "orders", lease_ms=30_000)))
        (taken,) = drive(self._executor.run(delivery.read_new(self._keys, "orders", "dq:a:1:x", 10)))
        return taken

    def finish(self, *, retention_ms: int = 0, result: bytes = b"null") -> None:
        job = self.take()
        done = Acked("orders", job.id, job.entry, retention_ms, result)
        assert drive(self._executor.run(delivery.ack(self._keys, "orders", [done]))) == [True]

    def fail(self) -> None:
        job = self.take()
        failed = Failed("orders", job.id, job.entry, job.envelope, FAILURE)
        assert drive(self._executor.run(delivery.fail(self._keys, "orders", [failed]))) == [True]


@pytest.fixture
def worker(url: str, keys: Keys) -> Worker:
    return Worker(url, keys)


def bring(client: Any, worker: Worker, state: State, id: str = "one") -> None:
    """Bring a job of the queue `orders` into a state."""
    if state == "absent":
        return
    client.schedule("n", {"old": True}, id=id, queue="orders", delay="1h" if state == "scheduled" else None)
    if state == "reserved":
        worker.take()
    elif state == "failed":
        worker.fail()
    elif state == "completed":
        worker.finish(retention_ms=60_000)


def answer(call: Any) -> str:
    """Return the word for what a call answered or raised."""
    errors: dict[type[Exception], str] = {
        JobRunning: "running",
        JobFinished: "finished",
        JobHasFailed: "failed",
        JobNotFailed: "refused",
        JobNotFound: "unknown",
        Conflict: "conflict",
    }
    try:
        value = call()
    except tuple(errors) as error:
        return errors[type(error)]
    return str(value[0] if isinstance(value, list) else getattr(value, "outcome", value))


@pytest.mark.parametrize("operation", ANSWERS)
def test_every_operation_answers_as_the_table_of_states_says(client: Any, worker: Worker, operation: str) -> None:
    verb, _, on_conflict = operation.partition(" ")
    calls: dict[str, Any] = {
        "schedule": lambda id: client.schedule("n", id=id, queue="orders", delay="2h", on_conflict=on_conflict),
        "reschedule": lambda id: client.reschedule(id, queue="orders", delay="2h"),
        "run_now": lambda id: client.run_now(id, queue="orders"),
        "cancel": lambda id: client.cancel(id, queue="orders"),
        "archive": lambda id: client.archive(id, queue="orders"),
        "retry": lambda id: client.retry(id, queue="orders"),
        "forget": lambda id: client.forget(id, queue="orders"),
    }
    states: list[State] = ["failed", "completed", "reserved", "ready", "scheduled", "absent"]
    for state in states:
        bring(client, worker, state, id=state)
    assert {state: answer(lambda id=state: calls[verb](id)) for state in states} == ANSWERS[operation]


@pytest.mark.parametrize(("on_conflict", "data"), [("replace", {"new": True}), ("postpone", {"old": True})])
def test_replace_takes_the_new_payload_and_postpone_keeps_the_old(
    client: Any, worker: Worker, on_conflict: str, data: Any
) -> None:
    first = client.schedule("n", {"old": True}, id="one", delay="1h")
    second = client.schedule("n", {"new": True}, id="one", delay="2h", on_conflict=on_conflict)
    job = client.get("one")
    assert (job.data, job.due_ms) == (data, second.due_ms)
    assert second.due_ms > first.due_ms


def test_a_word_that_is_no_rule_for_conflicts_changes_nothing(client: Any) -> None:
    due = client.schedule("n", id="one", delay="1h").due_ms
    with pytest.raises(InvalidInput, match=r"'ignore'\. Use keep, replace, postpone or error\.") as refused:
        client.schedule("n", id="one", delay="2h", on_conflict="ignore")
    assert refused.value.field == "on_conflict"
    assert client.get("one").due_ms == due


def test_the_first_of_two_jobs_with_one_id_is_made(client: Any) -> None:
    refs = client.schedule_many([JobSpec(name=name, id="one", delay="1h") for name in ("first", "second")])
    assert [ref.outcome for ref in refs] == ["created", "kept"]
    assert client.get("one").name == "first"
    assert client.schedule_many([]) == []


def test_many_large_jobs_travel_in_several_trips(client: Any, server: redis.Redis) -> None:
    specs = [JobSpec(name="n", data="x" * 200_000, id=f"job-{n}", delay="1h") for n in range(12)]
    refs = client.schedule_many(specs)
    assert [ref.id for ref in refs] == [spec.id for spec in specs]
    assert server.hlen("test:{default}:jobs") == 12


def test_an_envelope_that_is_made_already_is_stored_as_it_is(client: Any, server: redis.Redis) -> None:
    raw = b'{"v":1,"id":"raw","name":"n","queue":"orders","data":{"x":1e2},"attempts":0,"created_ms":5,"future":[1]}'
    ref = client.push_raw(raw, delay="1h")
    assert (ref.id, ref.queue, ref.outcome, ref.name) == ("raw", "orders", "created", "n")
    assert server.hget("test:{orders}:jobs", "raw") == raw.decode()
    assert client.push_raw(raw).outcome == "kept"
    with pytest.raises(InvalidInput):
        client.push_raw(b"{}")


def test_a_job_is_shown_with_everything_that_is_known(client: Any, worker: Worker) -> None:
    client.schedule("n", {"a": 1}, id="one", queue="orders", tags=["urgent"])
    held = worker.take()
    assert client.cancel("one", queue="orders", running=True) == "running"
    job = client.get("one", queue="orders")
    assert (job.state, job.name, job.data, job.envelope.tags) == ("reserved", "n", {"a": 1}, ["urgent"])
    assert (job.entry, job.consumer, job.recoveries) == (held.entry, "dq:a:1:x", 0)
    assert job.cancel_asked_ms and job.idle_ms is not None
    assert client.get("other", queue="orders") is None


def test_a_failed_job_shows_why_and_an_archived_one_its_reason(client: Any, worker: Worker) -> None:
    client.schedule("n", id="one", queue="orders")
    worker.fail()
    failure = client.get("one", queue="orders").failure
    assert (failure.type, failure.message) == ("ValueError", "why")
    client.schedule("n", id="two", queue="orders", delay="1h")
    assert client.archive("two", queue="orders", reason="dup\ud800licate") == "archived"
    failure = client.get("two", queue="orders").failure
    assert (failure.type, failure.message) == ("Archived", "dup\\ud800licate")


def test_a_reference_leads_back_to_its_job(client: Any, worker: Worker) -> None:
    ref = client.schedule("n", id="one", queue="orders", delay="1h")
    assert ref.refresh().state == "scheduled"
    assert ref.reschedule(delay="2h").due_ms > ref.due_ms
    assert ref.reschedule(at="2035-07-01 12:00", tz="Europe/Berlin").due_ms == 2_066_896_800_000
    assert ref.reschedule(at="2034-10-29 02:30", tz="Europe/Berlin", fold=1).due_ms == 2_045_698_200_000
    assert ref.run_now().state == "ready"
    assert ref.cancel() == "cancelled"
    assert ref.refresh() is None


def test_a_retried_job_has_all_its_tries_again_and_may_get_another_payload(client: Any, worker: Worker) -> None:
    client.schedule("n", {"old": True}, id="one", queue="orders", tags=["urgent"])
    worker.fail()
    ref = client.retry("one", queue="orders", data={"new": True})
    job = client.get("one", queue="orders")
    assert (ref.state, ref.name, job.state) == ("scheduled", "n", "scheduled")
    assert (job.data, job.attempts, job.envelope.tags) == ({"new": True}, 0, ["urgent"])
    with pytest.raises(JobNotFailed, match=r"The job 'one' is scheduled; only a failed job can be retried\."):
        client.retry("one", queue="orders")
    with pytest.raises(InvalidInput):
        client.retry("one", queue="orders", data=float("nan"))


def test_a_payload_that_changes_while_it_is_retried_is_read_again(
    client: Any, worker: Worker, server: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    client.schedule("n", {"version": 1}, id="one", queue="orders")
    worker.fail()
    refresh = envelopes.refresh

    def change_meanwhile(raw: bytes, *args: Any) -> bytes:
        server.hset("test:{orders}:jobs", "one", raw.replace(b'"version":1', b'"version":2'))
        return refresh(raw, *args)

    monkeypatch.setattr(envelopes, "refresh", change_meanwhile)
    client.retry("one", queue="orders")
    assert client.get("one", queue="orders").data == {"version": 2}


@pytest.mark.parametrize(
    ("stored", "why"),
    [("garbage", "The envelope of the job 'one' cannot be read"), (None, "The payload of the job 'one' is lost")],
)
def test_a_job_without_its_payload_is_not_retried(
    client: Any, worker: Worker, server: redis.Redis, stored: str | None, why: str
) -> None:
    client.schedule("n", id="one", queue="orders")
    worker.fail()
    if stored:
        server.hset("test:{orders}:jobs", "one", stored)
    else:
        server.hdel("test:{orders}:jobs", "one")
    with pytest.raises(PayloadLost) as refused:
        client.retry("one", queue="orders")
    assert str(refused.value) == (
        f"{why}, so the job cannot be retried. `delayq failed forget one --queue orders` deletes the job."
    )
    assert client.forget("one", queue="orders") == ["forgotten"]


def test_many_jobs_are_forgotten_in_several_calls(client: Any) -> None:
    ids = [f"job-{n}" for n in range(300)]
    client.schedule_many([JobSpec(name="n", id=job_id, delay="1h") for job_id in ids])
    for job_id in ids[:3]:
        client.archive(job_id)
    assert client.forget(iter(ids)) == ["forgotten"] * 3 + ["refused"] * 297
    assert client.forget([]) == []


def test_all_jobs_in_a_state_come_page_by_page_in_their_order(client: Any) -> None:
    ids = [f"job-{n:03}" for n in range(250)]
    client.schedule_many([JobSpec(name="n", id=job_id, delay=f"{n + 60}m") for n, job_id in enumerate(ids)])
    assert [job.id for job in client.iter_jobs("scheduled")] == ids
    page = client.list_jobs("scheduled", limit=2)
    assert [job.id for job in page.jobs] == ids[:2]
    assert [job.id for job in client.list_jobs("scheduled", limit=2, cursor=page.cursor).jobs] == ids[2:4]
    assert list(client.iter_jobs("failed")) == []


@pytest.mark.parametrize("state", get_args(JobState))
def test_a_job_is_listed_in_its_state_and_in_no_other(client: Any, worker: Worker, state: JobState) -> None:
    bring(client, worker, state)
    listed = {other: [job.id for job in client.iter_jobs(other, queue="orders")] for other in get_args(JobState)}
    assert listed == {other: ["one"] if other == state else [] for other in get_args(JobState)}
    (job,) = client.iter_jobs(state, queue="orders")
    full = client.get("one", queue="orders")
    assert (job.due_ms, job.failed_ms, job.forget_ms) == (full.due_ms, full.failed_ms, full.forget_ms)


@pytest.mark.parametrize(
    ("field", "options"), [("state", {"state": "waiting"}), ("limit", {"limit": 0}), ("limit", {"limit": -1})]
)
def test_a_page_that_cannot_be_is_refused(client: Any, field: str, options: dict[str, Any]) -> None:
    client.schedule("n", delay="1h")
    with pytest.raises(InvalidInput) as refused:
        client.list_jobs(**{"state": "scheduled", **options})
    assert refused.value.field == field


def test_foreign_bytes_in_a_set_do_not_spoil_the_list(client: Any, server: redis.Redis) -> None:
    client.schedule("n", id="one", delay="1h")
    server.zadd("test:{default}:scheduled", {b"\xff": 5})
    server.zadd("test:{default}:scheduled", {"inf": float("inf")})
    listed = [(job.id, job.due_ms) for job in client.iter_jobs("scheduled")]
    assert (listed[0], listed[-1]) == (("\ufffd", 5), ("inf", None))
    assert client.get("inf").due_ms is None


@pytest.mark.parametrize("verb", ["cancel", "archive", "get", "run_now", "reschedule", "retry", "forget"])
def test_a_job_of_another_queue_is_found_when_no_queue_is_named(client: Any, verb: str) -> None:
    client.schedule("n", id="one", queue="orders", delay="1h")
    client.schedule("n", id="other", queue="mail", delay="1h")
    options = {"delay": "2h"} if verb == "reschedule" else {}
    with pytest.raises(
        FoundElsewhere, match=r"but the queue 'orders' has a job with this id\. Name the queue: queue='orders'"
    ) as found:
        getattr(client, verb)("one", **options)
    assert (found.value.id, found.value.queues, found.value.field) == ("one", ("orders",), "queue")
    assert client.get("one", queue="orders").state == "scheduled"
    assert answer(lambda: getattr(client, verb)("gone", **options)) in ("unknown", "None")


def test_too_many_queues_are_not_searched(client: Any, server: redis.Redis) -> None:
    server.sadd("test:queues", *(f"q{n}" for n in range(200)))
    assert client.cancel("one") == "unknown"
    server.sadd("test:queues", "one-more")
    with pytest.raises(FoundElsewhere, match=r"The other 201 queues were not searched, because .*\. Name") as found:
        client.cancel("one")
    assert found.value.queues == ()


def test_a_user_who_may_not_read_the_list_of_queues_gets_the_plain_answer(client: Any, server: redis.Redis) -> None:
    client.schedule("n", id="one", queue="orders", delay="1h")
    server.execute_command("ACL", "SETUSER", "default", "-smembers")
    try:
        assert client.cancel("one") == "unknown"
    finally:
        server.execute_command("ACL", "SETUSER", "default", "+@all")


def test_a_full_server_takes_no_job_and_still_lets_one_go(client: Any, server: redis.Redis) -> None:
    client.schedule("n", id="one", delay="1h")
    server.config_set("maxmemory", 1)
    try:
        with pytest.raises(BackendFull, match=r"has reached its memory limit\. Nothing was written\."):
            client.schedule("n", id="two", delay="1h")
        assert client.get("two") is None
        assert client.cancel("one") == "cancelled"
    finally:
        server.config_set("maxmemory", 0)


def test_a_key_of_another_type_is_told_and_nothing_is_written(client: Any, server: redis.Redis) -> None:
    server.set("test:{default}:entries", "no hash")
    with pytest.raises(
        CallRefused, match=r"refused schedule in the queue .*: WRONGTYPE .* value. Another program overwrote"
    ):
        client.schedule("n", delay="1h")
    assert sorted(server.keys()) == ["test:queues", "test:{default}:entries"]


def test_a_user_without_a_right_is_told_where_to_give_it(client: Any, server: redis.Redis) -> None:
    server.execute_command("ACL", "SETUSER", "default", "-zadd")
    try:
        with pytest.raises(CallRefused, match="Allow it in the ACL of this user"):
            client.schedule("n", delay="1h")
    finally:
        server.execute_command("ACL", "SETUSER", "default", "+@all")


def test_a_wait_ends_with_the_job_and_brings_its_result(client: Any, worker: Worker) -> None:
    ref = client.schedule("n", id="one", queue="orders")
    with pytest.raises(TimeoutError, match="The job 'one' has not ended after 0s; it is ready"):
        ref.result()
    timer = threading.Timer(0.05, worker.finish, kwargs={"retention_ms": 60_000, "result": b'{"total":3}'})
    timer.start()
    assert ref.result(timeout="20s") == {"total": 3}
    timer.join()
    assert client.wait("one", queue="orders", timeout="0s").attempts == 1


def test_the_result_of_a_job_that_failed_or_is_not_kept_is_an_error(client: Any, worker: Worker) -> None:
    ref = client.schedule("n", id="one", queue="orders")
    worker.fail()
    with pytest.raises(JobHasFailed, match=r"The job 'one' has failed: ValueError: why\. `retry` runs it again\."):
        ref.result()
    client.forget("one", queue="orders")
    with pytest.raises(JobNotFound, match="give the job a retention, such as retention='1h'"):
        ref.result()
    assert ref.wait("0s") is None


@pytest.mark.parametrize(
    ("state", "cursor"),
    [
        ("scheduled", "soon"),
        ("scheduled", "1800000000000-0"),
        ("failed", "a b"),
        ("ready", "1800000000000 job"),
        ("ready", 5),
    ],
)
def test_a_cursor_that_no_page_returned_is_refused(client: Any, state: str, cursor: Any) -> None:
    with pytest.raises(
        InvalidInput, match=r"cursor is .*\. Use the cursor of the previous page, or '' for the first page\."
    ):
        client.list_jobs(state, cursor=cursor)


def test_a_page_has_500_jobs_at_most(client: Any) -> None:
    assert client.list_jobs("scheduled", limit=500).jobs == []
    with pytest.raises(InvalidInput, match=r"limit is 501\. Use a whole number from 1 to 500\.") as refused:
        client.list_jobs("scheduled", limit=501)
    assert refused.value.field == "limit"


def test_a_limit_is_counted_by_the_clock_of_the_server(
    client: Any, server: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    seconds, _ = server.time()
    slow = SimpleNamespace(time=lambda: seconds - 7_200.0, monotonic=time.monotonic)
    monkeypatch.setattr("delayq.redis.operations.scheduling.time", slow)
    client.schedule("n", id="one", delay="1h", deadline="10m")
    job = client.get("one")
    assert job.envelope.deadline_ms == pytest.approx(job.due_ms + 600_000, abs=60_000)


def test_a_reschedule_without_a_time_is_refused(client: Any) -> None:
    ref = client.schedule("n", id="n", delay="1h")
    with pytest.raises(InvalidInput, match="The new due time is missing"):
        client.reschedule("n")
    with pytest.raises(InvalidInput, match="The new due time is missing"):
        ref.reschedule(delay=None)


def test_a_queue_is_listed_again_after_the_server_lost_its_data(
    client: Any, server: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session, "LIST_EVERY", 0.05)
    client.schedule("n", queue="orders", delay="1h")
    server.flushall()
    time.sleep(0.06)
    client.schedule("n", queue="orders", delay="1h")
    assert client.queues() == ["orders"]


def test_a_job_that_creates_its_queue_again_lists_it_at_once(client: Any, server: redis.Redis) -> None:
    client.schedule("n", queue="orders", delay="1h")
    server.flushall()
    client.schedule("n", queue="orders", delay="1h")
    assert client.queues() == ["orders"]


def test_all_ids_of_a_lost_call_for_many_jobs_are_named(
    client: Any, server: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also those of earlier round trips, which are certainly stored."""
    write, calls = session.Session.write, iter(range(9))

    async def second_is_lost(*words: Any, **options: Any) -> Any:
        if next(calls) == 1:
            raise OutcomeUnknown("The reply was lost.")
        return await write(*words, **options)

    monkeypatch.setattr(session.Session, "write", second_is_lost)
    with pytest.raises(OutcomeUnknown) as lost:
        client.schedule_many([JobSpec(name="n", id=f"job-{n}", delay="1h") for n in range(600)])
    assert lost.value.ids == [f"job-{n}" for n in range(500)]
