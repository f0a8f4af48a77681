"""`show` and `list` as people read them."""

import json

import pytest
import redis

from delayq import DelayQ
from delayq.core import failure
from delayq.core.errors import UnreadableEnvelope
from delayq.redis.keys import Keys
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
