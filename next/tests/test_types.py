"""What type checkers see. mypy --strict reads this file, and an unused `type: ignore` is an error in it."""

from collections.abc import Iterator
from typing import assert_type

from delayq import Answer, AsyncDelayQ, AsyncJobRef, DelayQ, JobInfo, JobRef


def check_blocking(client: DelayQ) -> None:
    ref = client.schedule("order.close", {"order_id": 42}, delay="15m")
    assert_type(ref, JobRef)
    assert_type(ref.cancel(), Answer)
    assert_type(client.cancel("order-42"), Answer)
    assert_type(client.schedule_many([]), list[JobRef])
    assert_type(client.iter_jobs("failed"), Iterator[JobInfo])
    client.schedule("order.close", dealy="15m")  # type: ignore[call-arg]
    client.schedule("order.close", on_conflict="ignore")  # type: ignore[arg-type]


async def check_asyncio(client: AsyncDelayQ) -> None:
    ref = await client.schedule("order.close", delay="15m")
    assert_type(ref, AsyncJobRef)
    assert_type(await ref.cancel(), Answer)
    async for job in client.iter_jobs("failed"):
        assert_type(job, JobInfo)


def test_the_docstring_stays_with_the_method() -> None:
    assert (DelayQ.schedule.__doc__ or "").startswith("Schedule a job and return a reference to it.")
