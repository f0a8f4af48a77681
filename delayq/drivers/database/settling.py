"""Ends reservations: done, again, failed, given back, renewed. Nobody changes a job that is not his any more.

A claim is `<row>.<token>`: it holds while the row has that token and nobody has counted another attempt since, which
Laravel does when it takes a row.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final, NamedTuple

from msgspec import structs
from sqlalchemy import Connection, bindparam, delete, select, update

from delayq.core.errors import BadEnvelope
from delayq.drivers.base import Claim
from delayq.drivers.broker import Act, Again, Bury, Forget
from delayq.drivers.database import due, payload
from delayq.drivers.database.claiming import free, vanished
from delayq.drivers.database.clock import Clock, database_clock, now_of
from delayq.drivers.database.failing import Failing
from delayq.drivers.database.tables import MOST_ATTEMPTS, Tables
from delayq.drivers.failed_store import FailedJob

PAGE: Final = 500


class Hold(NamedTuple):
    """A claim as the table knows it."""

    number: int
    token: str


def hold_of(claim: Claim) -> Hold:
    """Reads an entry."""
    number, _, token = claim.entry.partition(".")
    return Hold(int(number), token)


class Settling:
    """The statements of one connection's tables. All of them belong into a transaction of somebody else."""

    def __init__(self, tables: Tables, *, lease_ms: int, laravel: str = "", clock: Clock = database_clock) -> None:
        jobs = self._jobs = tables.jobs
        self._failed = Failing(tables.failed, laravel)
        now = now_of(clock)
        numbered = jobs.c.id.in_(bindparam("numbers", expanding=True))
        one = jobs.c.id == bindparam("number")
        self._delete = delete(jobs).where(numbered)
        self._again = update(jobs).where(one)
        counted = free(jobs.c.attempts - 1)
        self._give_back = update(jobs).where(numbered).values(counted)
        self._vanished = update(jobs).where(numbered).ordered_values(*vanished(jobs, now).items())
        until = {"reserved_at": now // 1000, "delayq_until_ms": now + lease_ms}
        self._renew = update(jobs).where(numbered).values(until)

    def settle(self, connection: Connection, acts: Sequence[Act], now_ms: int) -> tuple[list[bool], list[Act]]:
        """Whether each was still its claim's, and those that were."""
        whole = any(not isinstance(act, Forget) for act in acts)
        held = self._held(connection, [hold_of(act.claim) for act in acts], whole=whole)
        over: list[int] = []
        done: list[Act] = []
        answers = []
        for act in acts:
            row = held.pop(hold_of(act.claim), None)
            answers.append(row is not None)
            if row is None:
                continue
            done.append(act)
            if isinstance(act, Again):
                self._try_again(connection, act, row, now_ms)
                continue
            if isinstance(act, Bury):
                self._failed.write(connection, _told(act, row.payload))
            over.append(row.id)
        for numbers in _pages(over):
            connection.execute(self._delete, {"numbers": numbers})
        return answers, done

    def give_back(self, connection: Connection, claims: Sequence[Claim], *, lost: bool) -> None:
        """Make available again; `lost`: who held it is gone, which is counted."""
        self._change(connection, claims, self._vanished if lost else self._give_back)

    def renew(self, connection: Connection, claims: Sequence[Claim]) -> list[bool]:
        """Start the leases anew."""
        ours = self._change(connection, claims, self._renew)
        return [hold_of(claim) in ours for claim in claims]

    def payload_of(self, connection: Connection, claim: Claim) -> Any | None:
        """The row of a claim that still holds."""
        return self._held(connection, [hold_of(claim)], locked=False).get(hold_of(claim))

    def holds(self, connection: Connection, claim: Claim) -> bool:
        """Whether a claim still holds; its row is locked until the transaction ends."""
        return bool(self._held(connection, [hold_of(claim)], whole=False))

    def _change(self, connection: Connection, claims: Sequence[Claim], change: Any) -> set[Hold]:
        ours = set(self._held(connection, [hold_of(claim) for claim in claims], whole=False))
        for numbers in _pages([hold.number for hold in ours]):
            connection.execute(change, {"numbers": numbers})
        return ours

    def _try_again(self, connection: Connection, act: Again, row: Any, now_ms: int) -> None:
        values = {**free(min(act.attempts, MOST_ATTEMPTS)), **due.columns_of(now_ms + act.delay_ms, now_ms)}
        if act.envelope:
            values["payload"] = payload.written(act.envelope)
        connection.execute(self._again.values(**values), {"number": row.id})

    def _held(
        self, connection: Connection, holds: Sequence[Hold], *, whole: bool = True, locked: bool = True
    ) -> dict[Hold, Any]:
        """The rows of claims that still hold, locked against everybody else. `whole`: with their payloads."""
        rows = self._jobs.c
        columns = list(rows) if whole else [rows.id, rows.delayq_token, rows.attempts]
        found: dict[Hold, Any] = {}
        wanted = set(holds)
        for page in _pages(sorted(wanted)):
            numbers, tokens = [hold.number for hold in page], sorted({hold.token for hold in page})
            asked = select(*columns).where(
                rows.id.in_(numbers), rows.delayq_token.in_(tokens), rows.delayq_held == rows.attempts
            )
            if locked:
                asked = asked.order_by(rows.id).with_for_update()
            for row in connection.execute(asked):
                hold = Hold(row.id, row.delayq_token)
                if hold in wanted:
                    found[hold] = row
        return found


def _told(act: Bury, held: str) -> FailedJob:
    """The failed job, with its payload as it is now; as its row had it, when nobody could read it."""
    try:
        raw = payload.written(act.envelope).encode()
    except BadEnvelope:
        raw = held.encode("utf-8", "surrogateescape")
    return structs.replace(act.failed, payload=raw)


def _pages(items: Iterable[Any]) -> Iterable[list[Any]]:
    every = list(items)
    return [every[start : start + PAGE] for start in range(0, len(every), PAGE)]
