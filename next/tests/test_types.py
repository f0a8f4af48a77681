"""What type checkers see. mypy --strict reads this file, and an unused `type: ignore` is an error in it."""

from typing import assert_type

from delayq import AsyncDelayQ, DelayQ
from delayq.core.views import CancelAnswer, JobRef


def check_blocking(client: DelayQ) -> None:
    assert_type(client.schedule("order.close", {"order_id": 42}, delay="15m"), JobRef)
    assert_type(client.cancel("order-42"), CancelAnswer)
    client.schedule("order.close", dealy="15m")  # type: ignore[call-arg]
    client.schedule("order.close", on_conflict="replace")  # type: ignore[arg-type]


async def check_asyncio(client: AsyncDelayQ) -> None:
    assert_type(await client.schedule("order.close", delay="15m"), JobRef)


def test_the_docstring_stays_with_the_method() -> None:
    assert (DelayQ.schedule.__doc__ or "").startswith("Schedule a job and say where it is.")
