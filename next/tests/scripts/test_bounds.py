"""No call moves more than 500 jobs or 1 MB, but one job at least: many jobs and large ones on their way.

Some scripts have a test of their bound beside their other tests.
"""

from collections.abc import Callable, Sequence

import pytest

from delayq.backends.values import DeliveryRef
from delayq.core.states import State
from tests.support.queue import HOUR, NOW, QueueOnServer, large_envelope, new_job

LARGE = 256 * 1024
AT_ONCE = 3
"""The payloads of 256 KiB that fit into 1 MB."""


def until_done(call: Callable[[], int]) -> list[int]:
    """Call until nothing is left, and return what each call moved."""
    moved = []
    while count := call():
        moved.append(count)
    return moved


def piecewise(call: Callable[[Sequence[DeliveryRef]], Sequence[object]], held: list[DeliveryRef]) -> list[int]:
    """Call again with the rest, as a shorter answer asks for, and return how many each call looked at."""
    looked = []
    while held:
        looked.append(len(call(held)))
        held = held[looked[-1] :]
    return looked


def pages(queue: QueueOnServer, state: State) -> list[int]:
    sizes, cursor = [], ""
    while True:
        page = queue.page(state, cursor)
        sizes.append(len(page.jobs))
        cursor = page.cursor
        if not cursor:
            return sizes


def schedule(queue: QueueOnServer, count: int, size: int) -> list[str]:
    ids = [f"job-{number:04}" for number in range(count)]
    for first in range(0, count, 250):
        queue.schedule_all(*(new_job(id, "+5000", envelope=large_envelope(size)) for id in ids[first : first + 250]))
    return ids


def held(queue: QueueOnServer) -> list[DeliveryRef]:
    return [DeliveryRef("orders", id, entry) for id, entry in queue.rows("entries").items()]


def reclaim(queue: QueueOnServer) -> list[int]:
    queue.trust_leases()
    queue.rest(*queue.rows("entries"), idle_ms=HOUR)
    return until_done(lambda: queue.reclaim().reclaimed)


@pytest.mark.parametrize(("count", "size", "most"), [(10, LARGE, AT_ONCE), (550, 100, 500)])
def test_no_call_moves_more_than_its_bound(queue: QueueOnServer, count: int, size: int, most: int) -> None:
    ids = schedule(queue, count, size)
    steps = {"list scheduled": pages(queue, "scheduled")}
    steps["promote"] = until_done(lambda: queue.promote(now=NOW + 5000).promoted)
    steps["list ready"] = pages(queue, "ready")
    assert [job.id for job in queue.read()] == ids
    steps["list reserved"] = pages(queue, "reserved")
    held = (
        [queue.held(id) for id in ids]
        if count < 100
        else [DeliveryRef("orders", *row) for row in queue.rows("entries").items()]
    )
    steps["hand_back"] = piecewise(lambda rest: queue.hand_back_all(*rest), held)
    queue.read()
    steps["recover"] = piecewise(
        lambda rest: queue.recover(*rest), [DeliveryRef("orders", *row) for row in queue.rows("entries").items()]
    )
    queue.read()
    steps["reclaim"] = reclaim(queue)
    steps["clear"] = until_done(queue.clear)
    for name, moved in steps.items():
        # list and clear go on while they are below the bound, so the last job may exceed it.
        assert max(moved) <= most + (name.startswith("list") or name == "clear"), name
        assert sum(moved) == count, name


def test_a_payload_above_the_bound_moves_alone(queue: QueueOnServer) -> None:
    queue.schedule("a", "+5", envelope=large_envelope(3_000_000))
    queue.schedule("b", "+5", envelope=large_envelope(3_000_000))
    queue.schedule("c", "+5")
    assert [queue.promote(now=NOW + 5).promoted for _ in range(3)] == [1, 1, 1]
    jobs = queue.read()
    assert [len(queue.hand_back_all(*jobs[n:])) for n in range(3)] == [1, 1, 1]
