"""The producers in PHP, Node and Go: their answers, and what they store."""

from collections.abc import Callable

import pytest
import redis

from delayq import DelayQ
from tests.consumers.programs import Programs


@pytest.fixture(params=["php", "node", "go"])
def producer(request: pytest.FixtureRequest, producer_of: Callable[[str], list[str]]) -> list[str]:
    return producer_of(request.param)


def test_a_producer_schedules_and_cancels(producer: list[str], programs: Programs, q: DelayQ) -> None:
    def answer(*words: str) -> str:
        return programs.run(*producer, *words)

    answers = [answer("schedule", order) for order in ("42", "42", "43")]
    assert answers == ["created", "kept", "created"]
    assert q.queues() == ["orders"]
    by_python = q.schedule("order.close", {"order_id": 42}, id="python", delay="15m")
    written, other, _ = q.list_jobs("scheduled").jobs
    assert (written.id, other.id) == ("close-42", "close-43")
    assert written.due_ms is not None
    assert by_python.due_ms is not None
    assert abs(written.due_ms - by_python.due_ms) < 20_000
    assert (written.name, written.data, written.attempts) == ("order.close", {"order_id": 42}, 0)
    assert [answer("cancel", "42"), answer("cancel", "42")] == ["cancelled", "unknown"]
    assert [job.id for job in q.list_jobs("scheduled").jobs] == ["close-43", "python"]


def test_a_server_that_forgot_the_scripts_gets_them_again(
    producer: list[str], programs: Programs, q: DelayQ, raw: redis.Redis
) -> None:
    programs.run(*producer, "schedule", "42")
    q.run_now("close-42")
    raw.script_flush()
    assert programs.run(*producer, "cancel", "42") == "cancelled"
