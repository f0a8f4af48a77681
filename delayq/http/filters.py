"""Filters of lists and of bulk actions: what a caller writes, checked member by member."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

from fastapi import Query

from delayq.core.errors import DelayqError
from delayq.core.failure_groups import check_signature
from delayq.core.names import check_queue
from delayq.core.states import State
from delayq.core.when import instant_ms
from delayq.http.access import Caller
from delayq.http.bodies import invalid
from delayq.http.listing import STATES, Wanted
from delayq.http.places import AnyQueue, StateWord
from delayq.http.problems import Refused
from delayq.http.service import Service

States = Annotated[list[StateWord] | None, Query(description="May be repeated; without it, all states.")]
Name = Annotated[
    str | None, Query(min_length=1, max_length=255, description="A job's name, or a pattern.", examples=["order.*"])
]
Tag = Annotated[str | None, Query(min_length=1, max_length=255, description="One of its tags.")]
Moment = Annotated[
    str | None,
    Query(
        max_length=64,
        description="RFC 3339. Of a failed job it is when it failed, of a completed one when it is forgotten.",
        examples=["2026-11-21T15:00:00Z"],
    ),
]

Signature = Annotated[
    str | None,
    Query(
        description="Of one group of `GET /v1/failed/groups`.",
        pattern=r"^[0-9a-f]{16}$",
        examples=["3f2a91c04be7d815"],
    ),
]


@dataclass(frozen=True, slots=True)
class Said:
    """A filter as it was written."""

    queue: str | None = None
    states: Sequence[str] | None = None
    name: str | None = None
    tag: str | None = None
    due_from: str | None = None
    due_to: str | None = None
    names: tuple[str, str] = ("due_from", "due_to")
    """What the two times are called."""
    signature: str | None = None

    async def wanted(self, service: Service, caller: Caller, before: str) -> Wanted:
        """What it means for that caller; `before` stands in front of a member's name in problems: '?', '#/filter/'."""
        states = STATES if self.states is None else tuple(state for state in STATES if state in set(self.states))
        return Wanted(
            queues=await self._queues(service, caller, before),
            states=tuple(map(State, states)),
            name=self.name,
            tag=self.tag,
            from_ms=await _moment(service, f"{before}{self.names[0]}", self.due_from),
            to_ms=await _moment(service, f"{before}{self.names[1]}", self.due_to),
            signature=_signature(f"{before}signature", self.signature),
        )

    async def _queues(self, service: Service, caller: Caller, before: str) -> tuple[str, ...]:
        if self.queue is None:
            return tuple(name for name in await service.client.queues() if caller.sees(name))
        try:
            return (caller.enter(check_queue(self.queue)),)
        except DelayqError as error:
            raise Refused(invalid(f"{before}queue", error.message, error.hint, "invalid-name")) from error


def _signature(where: str, text: str | None) -> str | None:
    if text is None:
        return None
    try:
        return check_signature(text)
    except DelayqError as error:
        raise Refused(invalid(where, error.message, error.hint)) from error


async def _moment(service: Service, where: str, text: str | None) -> int | None:
    if text is None:
        return None
    try:
        return instant_ms(text, now_ms=await service.client.run(service.client.verbs.server_ms()))
    except DelayqError as error:
        raise Refused(invalid(where, error.message, error.hint, "invalid-time")) from error


async def of_query(
    queue: AnyQueue = None,
    state: States = None,
    name: Name = None,
    tag: Tag = None,
    due_from: Moment = None,
    due_to: Moment = None,
) -> Said:
    """A dependency: the filter that a query holds."""
    return Said(queue, state, name, tag, due_from, due_to)


async def of_failed(
    queue: AnyQueue = None,
    name: Name = None,
    tag: Tag = None,
    since: Moment = None,
    until: Moment = None,
    signature: Signature = None,
) -> Said:
    """A dependency: the filter of a query about failed jobs."""
    return Said(queue, [State.FAILED], name, tag, since, until, names=("since", "until"), signature=signature)
