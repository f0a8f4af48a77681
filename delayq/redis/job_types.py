"""The verb that tells how the jobs of each name ran, on one queue or on all; for the two shells."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from delayq.core.activity import DAY_MS
from delayq.core.errors import InvalidInput
from delayq.core.job_types import DAYS, HOUR_MS, HOURS, JobTypes, joined, read_row
from delayq.core.names import check_queue
from delayq.redis.calls import activity as calls
from delayq.redis.calls.call import pages
from delayq.redis.finding import ask_every
from delayq.redis.verbs import Flow, Verbs

AT_ONCE: Final = 500
"""Queues asked in one round trip."""


def job_types(
    verbs: Verbs, queue: str | None, hours: int | None, days: int | None, queues: Sequence[str] | None = None
) -> Flow[JobTypes]:
    """Return the job types of `queue`, of `queues`, or of all queues."""
    if hours is not None and days is not None:
        raise InvalidInput("`hours` was given with `days`.", hint="Leave one of them out.")
    key, unit_ms, count = ("types_by_hour", HOUR_MS, HOURS if hours is None else hours)
    if days is not None:
        key, unit_ms, count = "types_by_day", DAY_MS, days
    most, word = (HOURS, "hours") if days is None else (DAYS, "days")
    if not 1 <= count <= most:
        raise InvalidInput(f"{count} {word} are not between 1 and {most}.", hint=f"No more {word} are kept.")
    if queue is not None:
        names: Sequence[str] = [check_queue(queue)]
    else:
        names = (yield from verbs.queues()) if queues is None else queues
    found: list[tuple[str, str, bytes]] = []
    for some in pages(names, AT_ONCE):
        answers = yield from ask_every([verbs.shard(name) for name in some], lambda scope: calls.job_types(scope, key))
        for name, rows in zip(some, answers, strict=True):
            found += ((name, job, raw) for job, raw in rows)
    now_ms = yield from verbs.server_ms()
    first = now_ms // unit_ms - count
    return JobTypes(queue or "", first * unit_ms, now_ms, joined(_since(found, first)))


def _since(found: Sequence[tuple[str, str, bytes]], first: int) -> Iterator[tuple[str, str, Mapping[str, Any]]]:
    for queue, job, raw in found:
        row = read_row(raw)
        if type(at := row.get("at")) is int and at >= first:
            yield queue, job, row
