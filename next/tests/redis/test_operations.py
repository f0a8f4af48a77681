"""Operations, each test run with both clients."""

from datetime import UTC, datetime
from typing import Any

import pytest
import redis

from delayq import JobSpec
from delayq.core.errors import Conflict, InvalidInput


def test_schedule_and_cancel(client: Any) -> None:
    ref = client.schedule("order.close", {"order_id": 42}, delay="15m", id="order-42", queue="orders")
    assert (ref.id, ref.state, ref.outcome) == ("order-42", "scheduled", "created")
    assert client.stats("orders")[0].scheduled == 1
    assert client.queues() == ["orders"]
    assert client.cancel("order-42", queue="orders") == "cancelled"
    assert client.cancel("order-42", queue="orders") == "unknown"


def test_many_jobs_of_many_queues_come_back_in_order(client: Any) -> None:
    specs = [JobSpec(name="n", id=f"job-{n}", queue=f"q{n % 2}", delay="1h") for n in range(501)]
    refs = client.schedule_many(specs)
    assert [ref.id for ref in refs] == [spec.id for spec in specs]
    assert client.stats("q0")[0].scheduled == 251


def test_a_taken_id_is_kept_or_a_conflict(client: Any) -> None:
    client.schedule("n", id="one", delay="1h")
    assert client.schedule("n", id="one").outcome == "kept"
    with pytest.raises(Conflict, match="The id 'one' is taken by a job that is scheduled"):
        client.schedule("n", id="one", on_conflict="error")


@pytest.mark.parametrize("on_conflict", ["error", "replace"])
def test_a_conflict_among_many_tells_which_jobs_are_stored(client: Any, queue: Any, on_conflict: Any) -> None:
    taken = "taken"
    queue.schedule(taken)
    queue.read()  # it runs, so it is not replaced either
    specs = [JobSpec(name="n", id=f"job-{n}", queue="orders" if n < 3 else "mail", delay="1h") for n in range(4)]
    specs.insert(1, JobSpec(name="n", id=taken, queue="orders"))
    first = [JobSpec(name="n", id=f"first-{n}", queue="first", delay="1h") for n in range(300)]
    with pytest.raises(Conflict) as refused:
        client.schedule_many([*first, *specs], on_conflict=on_conflict)
    stored = [(ref.queue, ref.id, ref.outcome) for ref in refused.value.stored]
    assert stored == [("first", spec.id, "created") for spec in first] + [
        ("orders", f"job-{n}", "created") for n in range(3)
    ]
    assert client.get("job-3", queue="mail") is None


@pytest.mark.parametrize(
    ("field", "options"),
    [
        ("delay", {"delay": "soon"}),
        ("at", {"at": datetime(2030, 1, 1)}),
        ("at", {"at": datetime(2030, 1, 1, tzinfo=UTC), "delay": "1s"}),
        ("queue", {"queue": "{q}"}),
        ("id", {"id": "two words"}),
        ("data", {"data": {"a": object()}}),
    ],
)
def test_what_breaks_a_rule_is_refused_by_name(client: Any, field: str, options: dict[str, Any]) -> None:
    with pytest.raises(InvalidInput) as refused:
        client.schedule("n", **options)
    assert refused.value.field == field


def test_a_queue_is_listed_before_its_first_job_in_the_same_trip(client: Any, server: redis.Redis) -> None:
    client.schedule("n", delay="1h", queue="warm-up")  # the server knows the script from here on
    with server.monitor() as monitor:
        client.schedule("n", delay="1h", queue="orders")
        client.schedule("n", delay="1h", queue="orders")
        server.echo("end")
        seen: list[Any] = []
        while not seen or seen[-1]["command"].split()[0] != "ECHO":
            seen.append(monitor.next_command())
    sent = [command["command"].split()[0] for command in seen if command["client_type"] != "lua"]
    commands = [word for word in sent if word != "CLIENT"]  # the connection of `echo` gives its name
    assert commands == ["SADD", "EVALSHA", "EVALSHA", "ECHO"]


def test_a_queue_is_listed_when_the_answer_to_its_first_schedule_was_lost(client: Any, server: redis.Redis) -> None:
    server.hset("test:{orders}:meta", "schema", 1)
    client.schedule("n", delay="1h", queue="orders")
    assert client.queues() == ["orders"]


@pytest.mark.parametrize(
    ("specs", "sentence"),
    [
        ([{"name": "n"}], r"specs[0] is a value of type dict, not a JobSpec. Use JobSpec('order.close', …)."),
        ([JobSpec(name="n", delay="1h"), "order.close"], "specs[1] is 'order.close', not a JobSpec. Use JobSpec("),
    ],
)
def test_what_is_no_spec_is_refused_before_anything_is_sent(client: Any, specs: Any, sentence: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        client.schedule_many(specs)
    assert str(refused.value).startswith(sentence)
    assert refused.value.field == "specs"
    assert client.queues() == []


def test_a_spec_that_breaks_a_rule_is_named_by_its_position(client: Any) -> None:
    with pytest.raises(InvalidInput, match=r"^specs\[1\]: delay 'soon' is not a duration\. Write 500ms") as refused:
        client.schedule_many([JobSpec(name="n"), JobSpec(name="n", delay="soon")])
    assert refused.value.field == "delay"
    with pytest.raises(InvalidInput, match=r"^delay 'soon' is not a duration\."):
        client.schedule_many([JobSpec("n", delay="soon")])
    assert client.queues() == []
