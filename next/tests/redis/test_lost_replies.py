"""Every operation under a lost reply: it ends as it should or as OutcomeUnknown, and what it did was done once."""

import itertools
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
import redis

from delayq import DelayQ, JobRef, JobSpec, OutcomeUnknown
from tests.support.proxy import proxy_to

Operation = Callable[[DelayQ], Any]

SETUP = [
    JobSpec(name="n", id="later", queue="orders", delay="1h"),
    JobSpec(name="n", id="ready", queue="orders"),
    JobSpec(name="n", id="failed", queue="orders", delay="1h"),
]

OPERATIONS: dict[str, Operation] = {
    "schedule later": lambda client: client.schedule("n", queue="mail", delay="1h"),
    "schedule now": lambda client: client.schedule("n", queue="mail"),
    "schedule with an id": lambda client: client.schedule("n", id="new", queue="orders", delay="1s"),
    "schedule, or an error": lambda client: client.schedule("n", id="new", queue="orders", on_conflict="error"),
    "schedule with a deadline": lambda client: client.schedule("n", id="new", queue="mail", deadline="1h"),
    "replace": lambda client: client.schedule("n", 2, id="later", queue="orders", delay="2h", on_conflict="replace"),
    "postpone": lambda client: client.schedule("n", id="ready", queue="orders", delay="2h", on_conflict="postpone"),
    "schedule many": lambda client: client.schedule_many([JobSpec(name="n", queue=queue) for queue in "aba"]),
    "cancel": lambda client: client.cancel("ready", queue="orders"),
    "archive": lambda client: client.archive("later", queue="orders"),
    "reschedule": lambda client: client.reschedule("ready", queue="orders", at="2035-01-01T00:00Z"),
    "run now": lambda client: client.run_now("later", queue="orders"),
    "retry": lambda client: client.retry("failed", queue="orders"),
    "forget": lambda client: client.forget("failed", queue="orders"),
    "get": lambda client: client.get("later", queue="orders"),
    "list": lambda client: list(client.iter_jobs("failed", queue="orders")),
    "stats": lambda client: [stats.ready for stats in client.stats()],
    "pause": lambda client: client.pause("orders"),
    "pause all": lambda client: client.pause_all(reason="deploy").paused_reason,
    "clear": lambda client: client.clear("orders"),
    "set the lease": lambda client: client.queue_set("mail", lease="2m"),
    "remove": lambda client: client.queue_remove("empty"),
}

NOT_REPEATABLE = ["run now", "retry", "forget", "clear"]
UNKNOWN = "the outcome is unknown"


def prepare(url: str) -> None:
    with DelayQ(url, prefix="test") as client:
        client.queue_set("empty", lease="1m")
        client.schedule_many(SETUP)
        client.archive("failed", queue="orders")


def run(operation: Operation, url: str) -> str:
    """Return what an operation answers to a fresh client, without what differs from run to run."""
    with DelayQ(url, prefix="test") as client:
        try:
            value = operation(client)
        except OutcomeUnknown:
            return UNKNOWN
    refs = value if isinstance(value, list) else [value]
    if all(isinstance(ref, JobRef) for ref in refs):
        return repr([(ref.queue, ref.state, ref.outcome, ref.name) for ref in refs])
    return repr(value)


def picture(server: redis.Redis) -> dict[str, Any]:
    """Return what the keys hold, without ids that were made, times, and kept answers."""
    seen: dict[str, Any] = {}
    for key in map(str, server.scan_iter()):
        kind = str(server.type(key))
        if ":once:" in key:
            continue
        if key.endswith(":meta") or key == "test:control":
            fields: dict[Any, Any] = server.hgetall(key)
            seen[key] = {name: value for name, value in fields.items() if name.endswith(("_total", "until_ms"))}
        elif key.endswith(":jobs"):
            envelopes = [msgspec.json.decode(raw) for raw in server.hvals(key)]
            seen[key] = sorted((job["name"], str(job["data"]), job["attempts"]) for job in envelopes)
        elif kind == "set":
            seen[key] = server.smembers(key)
        else:
            seen[key] = {"zset": server.zcard, "hash": server.hlen, "stream": server.xlen}[kind](key)
    return seen


@pytest.mark.parametrize("name", OPERATIONS)
def test_a_lost_reply_does_nothing_twice(url: str, server: redis.Redis, name: str) -> None:
    operation = OPERATIONS[name]
    with proxy_to(url) as proxy:
        prepare(url)
        run(operation, url)  # the server knows the scripts from here on
        outcomes = []
        replies = 0
        for lost in itertools.count():
            server.flushall()
            prepare(url)
            proxy.lose(lost)
            before = proxy.replies
            outcomes.append(run(operation, proxy.url))
            if lost == 0:
                afterwards, replies = picture(server), proxy.replies - before
            if outcomes[-1] == outcomes[0] or lost == replies:
                assert picture(server) == afterwards
            if lost == replies:
                break
        assert set(outcomes) == {outcomes[0], UNKNOWN if name in NOT_REPEATABLE else outcomes[0]}


@pytest.mark.parametrize("many", [False, True])
@pytest.mark.parametrize("change", ["cancel", "run_now"])
def test_a_job_that_another_client_ends_before_the_second_call_is_not_stored_again(
    url: str, server: redis.Redis, change: str, many: bool
) -> None:
    with proxy_to(url) as proxy, DelayQ(url, prefix="test") as other, DelayQ(proxy.url, prefix="test") as client:
        client.schedule("n", queue="orders", delay="1h")  # the server knows the script, and the list has the queue
        ended: list[object] = []

        def end() -> None:
            ended.append(getattr(other, change)("new", queue="orders"))
            if change == "run_now":
                other.clear("orders")

        proxy.on_loss = end
        proxy.lose(1)
        spec = JobSpec(name="n", id="new", queue="orders", delay="1h")
        (ref,) = client.schedule_many([spec]) if many else [client.schedule("n", id="new", queue="orders", delay="1h")]
        assert len(ended) == 1
        assert ref.outcome == "created"
        assert other.get("new", queue="orders") is None
