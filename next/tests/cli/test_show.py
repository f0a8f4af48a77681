"""`show` and `list` as people read them."""

import json
import re
import time

import pytest
import redis

from delayq import DelayQ, JobSpec
from delayq.cli import progress
from delayq.core import failure
from delayq.core.errors import InvalidInput, UnreadableEnvelope
from delayq.redis.connection.blocking import BlockingLeaf
from delayq.redis.connection.server import ServerExecutor
from delayq.redis.connection.url import Address
from delayq.redis.keys import Keys
from delayq.redis.worker.worker_registry import RedisWorkerRegistry
from tests.cli.conftest import Run, Tell
from tests.support.queue import QueueOnServer


@pytest.fixture
def client(url: str) -> DelayQ:
    return DelayQ(url)


@pytest.fixture
def orders(url: str, server: redis.Redis) -> QueueOnServer:
    """The queue orders, as a worker sees it."""
    return QueueOnServer(url, server, Keys("delayq"))


def rows_of(text: str) -> dict[str, str]:
    return {line[:13].strip(): line[13:].strip() for line in text.splitlines() if line[:1].isalpha()}


def test_a_job_is_shown_with_all_its_limits_and_without_what_says_nothing(run: Run) -> None:
    options = ("--tries", "3", "--retention", "1d", "--timeout", "30s", "--deadline", "2035-01-01T00:00:00Z")
    run("schedule", "order.close", "--id", "order-42", "--in", "1h", "--data", "[]", *options)
    rows = rows_of(run("show", "order-42").stdout)
    assert {name: rows[name] for name in ("tries", "retention", "timeout", "deadline", "data")} == {
        "tries": "3",
        "retention": "1d",
        "timeout": "30s",
        "deadline": "2035-01-01T00:00:00.000Z",
        "data": "[]",
    }
    assert not {"encrypted", "recoveries", "tags", "headers", "error"} & rows.keys()


def test_an_error_is_shown_in_words(run: Run) -> None:
    run("schedule", "order.close", "--id", "order-42", "--in", "1h")
    run("archive", "order-42", "--reason", "gone")
    assert rows_of(run("show", "order-42").stdout)["error"] == "Archived: gone"


def test_a_traceback_keeps_its_lines(run: Run, orders: QueueOnServer) -> None:
    try:
        raise ValueError("no such order")
    except ValueError as error:
        broken = failure.describe(error, attempt=1)
    (job,) = orders.reserve("order-42")
    orders.fail(job, failure=failure.encode(broken))
    lines = run("show", "order-42", "--queue", "orders").stdout.splitlines()
    assert "error         ValueError: no such order" in lines
    assert lines[-1] == "  ValueError: no such order"
    assert any(line.lstrip().startswith('File "') for line in lines)


def test_an_empty_list_tells_where_it_has_looked(tell: Tell, run: Run) -> None:
    run("schedule", "order.close", "--queue", "orders", "--in", "1h")
    assert tell("list") == (
        0,
        "delayq: The queue default has no matching job in the state scheduled. "
        "Choose another queue or state with --queue and --state.\n",
    )
    assert tell("list", "--queue", "orders")[1] == ""
    assert run("list", "--json").stdout == ""


def test_jobs_are_listed_by_tag(run: Run, client: DelayQ) -> None:
    client.schedule("order.close", id="a", delay="1h", tags=["vip", "web"])
    client.schedule("order.close", id="b", delay="1h", tags=["web"])
    client.schedule("order.close", id="c", delay="1h")
    listed = [line.split()[0] for line in run("list", "--tag", "web").stdout.splitlines()[1:]]
    assert listed == ["a", "b"]
    assert [line.split()[0] for line in run("list", "--tag", "vip").stdout.splitlines()[1:]] == ["a"]


def test_jobs_are_listed_by_time(run: Run, client: DelayQ) -> None:
    for job_id, at in (("late", "2031-01-03T00:00:00Z"), ("early", "2031-01-01T00:00:00Z")):
        client.schedule("order.close", id=job_id, at=at)
    assert ids(run, "--since", "2031-01-02T00:00:00Z") == ["late"]
    assert ids(run, "--until", "2031-01-01T00:00:00Z") == ["early"]
    assert ids(run, "--until", "2h") == []
    assert ids(run, "--since", "2h", "--until", "2031-01-02T00:00:00Z") == ["early"]
    refused = run("list", "--since", "garbage").exception
    assert isinstance(refused, InvalidInput)


@pytest.mark.parametrize("payload", ["1e400", "9" * 5000], ids=["too large a float", "too many digits"])
def test_a_payload_that_python_cannot_read_is_listed_as_text_beside_the_others(
    run: Run, client: DelayQ, server: redis.Redis, payload: str
) -> None:
    for job_id, data in (("good", "[]"), ("damaged", '"HERE"')):
        run("schedule", "order.close", "--id", job_id, "--in", "1h", "--data", data)
    jobs = Keys("delayq").of_queue("default", "jobs")
    server.hset(jobs, "damaged", str(server.hget(jobs, "damaged")).replace('"HERE"', payload))
    rows = [json.loads(line) for line in run("list", "--json").stdout.splitlines()]
    assert {row["id"]: row["data"] for row in rows} == {"good": [], "damaged": payload}
    assert rows_of(run("show", "damaged").stdout)["data"].strip('"') == payload
    info = client.get("damaged")
    assert info is not None
    with pytest.raises(UnreadableEnvelope, match="The payload of job 'damaged' cannot be read"):
        info.data  # noqa: B018 — the property raises


def test_a_counter_that_is_no_number_is_shown_as_none(run: Run, server: redis.Redis) -> None:
    run("schedule", "order.close", "--id", "order-42", "--in", "1h")
    server.hset(Keys("delayq").of_queue("default", "recoveries"), "order-42", "many")
    assert json.loads(run("show", "order-42", "--json").stdout)["recoveries"] == 0


def wait_for_code(client: DelayQ, id: str, queue: str, *, name: str = "order.new") -> None:
    """Schedule a job as a worker leaves it that does not know its name. The number in the id delays the job."""
    client.push_raw(
        b'{"v":1,"id":"%s","name":"%s","queue":"%s","data":{},"attempts":0,"created_ms":1,'
        b'"headers":{"delayq-unknown-since":"1"}}' % (id.encode(), name.encode(), queue.encode()),
        delay=f"1{id[-1]}m",
    )


@pytest.fixture
def waiting(client: DelayQ) -> DelayQ:
    """Three jobs in two queues wait for code; two other jobs wait for their due time."""
    wait_for_code(client, "new-1", "orders")
    wait_for_code(client, "new-2", "mail", name="mail.new")
    wait_for_code(client, "new-3", "orders")
    client.schedule("order.close", id="later", queue="orders", delay="1m")
    client.schedule("order.close", id="close", delay="1m")
    return client


def ids(run: Run, *words: str) -> list[str]:
    return [json.loads(line)["id"] for line in run("list", *words, "--json").stdout.splitlines()]


def test_several_queues_are_listed_in_one_order(run: Run, waiting: DelayQ) -> None:
    assert ids(run) == ["close"]
    assert ids(run, "--queue", "orders,mail") == ["later", "new-1", "new-2", "new-3"]
    assert ids(run, "--queue", "orders", "--queue", "mail", "--limit", "3") == ["later", "new-1", "new-2"]
    table = run("list", "--queue", "orders,mail").stdout.splitlines()
    assert table[0].split() == ["ID", "NAME", "QUEUE", "DUE", "ATTEMPTS"]
    assert table[3].split()[:3] == ["new-2", "mail.new", "mail"]
    assert run("list", "--queue", "orders,mail", "--name", "x").stderr == (
        "delayq: The queues orders, mail have no matching job in the state scheduled. "
        "Choose another queue or state with --queue and --state.\n"
    )


@pytest.mark.parametrize(
    ("state", "head"),
    [
        *[("scheduled", "DUE"), ("retry", "DUE"), ("ready", "DUE"), ("reserved", "DUE")],
        *[("failed", "FAILED"), ("completed", "KEPT UNTIL")],
    ],
)
def test_the_head_of_the_list_names_the_time_of_its_jobs(run: Run, url: str, state: str, head: str) -> None:
    (line,) = run("list", "--state", state).stdout.splitlines()
    assert re.split("  +", line) == ["ID", "NAME", head, "ATTEMPTS"]


def test_failed_jobs_are_listed_latest_first(run: Run, client: DelayQ) -> None:
    for id in ("a", "b", "c"):
        client.schedule("n", id=id, delay="1h")
        client.archive(id)
        time.sleep(0.002)
    assert ids(run, "--state", "failed") == ["c", "b", "a"]


def test_jobs_that_wait_for_code_are_listed(run: Run, tell: Tell, waiting: DelayQ) -> None:
    assert ids(run, "--waiting-for-code") == ["new-1", "new-2", "new-3"]
    assert ids(run, "--waiting-for-code", "--queue", "orders") == ["new-1", "new-3"]
    assert ids(run, "--waiting-for-code", "--name", "mail.*") == ["new-2"]
    assert tell("list", "--waiting-for-code", "--state", "failed") == (
        2,
        "delayq: --waiting-for-code selects scheduled jobs, but state is 'failed'. Select the state scheduled, or "
        "leave out --waiting-for-code.\n",
    )
    waiting.clear("orders")
    waiting.clear("mail")
    assert tell("list", "--waiting-for-code")[1] == "delayq: No queue has a matching job in the state scheduled.\n"


def test_run_now_runs_all_jobs_that_wait_for_code(run: Run, waiting: DelayQ, server: redis.Redis) -> None:
    server.zadd("delayq:{orders}:scheduled", {"no id": 1})
    server.hset("delayq:{orders}:jobs", "no id", server.hget("delayq:{orders}:jobs", "new-1") or "")
    end = run("run-now", "--waiting-for-code")
    assert (end.exit_code, end.stderr.count("\n")) == (2, 2)
    assert end.stderr.startswith("delayq: The id 'no id' is not valid.")
    assert end.stderr.endswith("delayq: 3 jobs made due: 1 in mail, 2 in orders.\n")
    assert [line.split()[0] for line in end.stdout.splitlines()] == ["new-1", "new-2", "new-3"]
    due_soon = {job.id for job in waiting.iter_jobs("scheduled", queue="orders") if job.id != "no id"}
    assert due_soon <= {"later", "new-1", "new-3"}
    now_ms = time.time() * 1000
    for id, queue in (("new-1", "orders"), ("new-2", "mail"), ("new-3", "orders")):
        job = waiting.get(id, queue=queue)
        assert job is not None and job.due_ms is not None and job.due_ms <= now_ms + 1000
    later = waiting.get("later", queue="orders")
    assert later is not None and later.due_ms is not None and later.due_ms > now_ms


def test_run_now_runs_waiting_jobs_of_one_queue_and_skips_taken_ones(run: Run, waiting: DelayQ) -> None:
    one = run("run-now", "--waiting-for-code", "--queue", "mail", "--json")
    assert (one.exit_code, one.stderr) == (0, "delayq: 1 job made due: 1 in mail.\n")
    assert json.loads(one.stdout)["id"] == "new-2"
    waiting.pause("orders")
    paused = run("run-now", "--waiting-for-code")
    assert (paused.exit_code, [line.split()[0] for line in paused.stdout.splitlines()]) == (0, ["new-1", "new-3"])
    for queue in ("orders", "mail"):
        waiting.clear(queue)
    assert run("run-now", "--waiting-for-code").stderr == "delayq: No job waits for a newer release.\n"


@pytest.mark.parametrize(
    ("words", "code", "told"),
    [
        (("run-now",), 2, "The id of the job is missing. Give an id, or --waiting-for-code for all jobs that wait"),
        (("run-now", "x", "--waiting-for-code"), 2, "An id and --waiting-for-code are both given."),
        (("run-now", "--waiting-for-code", "--queue", "ordres"), 3, "No queue 'ordres' is known."),
        (("list", "--queue", "ordres,mail"), 3, "No queue 'ordres' is known."),
    ],
)
def test_a_refused_search_is_one_sentence(tell: Tell, words: list[str], code: int, told: str) -> None:
    ended, message = tell(*words)
    assert (ended, message.count("\n"), told in message) == (code, 1, True), message


def test_a_long_search_continues_by_itself_and_prints_its_progress(
    run: Run, client: DelayQ, monkeypatch: pytest.MonkeyPatch
) -> None:
    jobs = [JobSpec(name="n", id=f"job-{n}", delay="1h") for n in range(4_999)]
    client.schedule_many([*jobs, JobSpec(name="rare", id="last", delay="2h")])
    monkeypatch.setattr(progress, "PROGRESS_EVERY", 0.0)
    end = run("list", "--name", "rare", "--json")
    assert json.loads(end.stdout)["id"] == "last"
    assert end.stderr.splitlines() == [
        "delayq: 2,000 jobs searched …",
        "delayq: 4,000 jobs searched …",
        "delayq: 5,000 jobs searched …",
    ]


def test_a_queue_that_cannot_be_read_does_not_hide_the_others(run: Run, waiting: DelayQ, server: redis.Redis) -> None:
    server.set("delayq:{mail}:scheduled", "no sorted set")
    for queues in ((), ("--queue", "mail,orders")):
        end = run("list", "--waiting-for-code", *queues, "--json")
        assert (end.exit_code, end.stderr.count("WRONGTYPE")) == (1, 1)
        assert [json.loads(line)["id"] for line in end.stdout.splitlines()] == ["new-1", "new-3"]


def test_why_names_a_suspect_and_the_jobs_that_wait_for_it(run: Run, url: str, orders: QueueOnServer) -> None:
    for number, id in enumerate(("suspect", "innocent", "old", "waits")):
        orders.schedule(id, now="")
        if number < 3:
            orders.read()
            orders.server.hset(orders.key("recoveries"), id, 0 if id == "innocent" else 2)
    now_ms = time.time_ns() // 1_000_000
    running = [
        {"id": id, "name": "n", "queue": "orders", "started_ms": now_ms} for id in ("suspect", "innocent", "gone")
    ]
    running.append({"id": "old", "name": "n", "queue": "orders", "started_ms": 1})
    about = {"queues": ["orders"], "state": "working", "running": [*running, {"id": "of another release"}], "runs": 5}
    RedisWorkerRegistry(ServerExecutor(BlockingLeaf(Address(url))), Keys()).announce({"dq:a:1:x": about}, now_ms)
    told = run("why", "waits", "--queue", "orders").stdout
    assert "takes no other jobs for up to 30s, because it runs the job suspect of the queue orders" in told
    assert told.count("takes no other jobs") == 1
    assert "and the job may be the cause" in run("why", "suspect", "--queue", "orders").stdout
    assert "and the job may be the cause" not in run("why", "innocent", "--queue", "orders").stdout


def test_a_cancel_of_a_running_job_tells_that_it_was_asked_to_stop(run: Run, orders: QueueOnServer) -> None:
    orders.schedule("order-42", now="")
    orders.read()
    end = run("cancel", "order-42", "--queue", "orders", "--running")
    told = "delayq: The job is running, and was asked to stop.\n"
    assert (end.exit_code, end.stdout, end.stderr) == (0, "order-42  running\n", told)
    assert run("--quiet", "cancel", "order-42", "--queue", "orders", "--running").stderr == ""
