"""top: what happens, as it happens."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Final

from delayq.cli.board import Board, board
from delayq.cli.pulse import Rates, look, rates, shape
from delayq.cli.session import Session
from delayq.core.durations import duration_ms
from delayq.core.errors import AWAY, InvalidInput
from delayq.redis.client import Client

SHORTEST_MS: Final = 100
LONGEST_MS: Final = 3_600_000


def top(session: Session, queue: str | None, every: str, *, once: bool, as_json: bool) -> None:
    """Show everything again and again; with `once` or JSON, or without a terminal, one time."""
    every_s = _every_ms(every) / 1000
    with session.client() as client:
        if once or as_json or not session.out.is_live:
            _one(session, client, queue, every_s, as_json=as_json)
        else:
            session.out.live(_boards(client, queue, every_s))


def _every_ms(text: str) -> int:
    every_ms = duration_ms(text)
    if not SHORTEST_MS <= every_ms <= LONGEST_MS:
        raise InvalidInput(f"--every {text} is out of range.", hint="Use 100ms to 1h, such as --every 2s.")
    return every_ms


def _one(session: Session, client: Client, queue: str | None, every_s: float, *, as_json: bool) -> None:
    """Two looks, since rates need two; the second one is shown."""
    before = look(client, queue, None)
    time.sleep(every_s)
    after = look(client, queue, before)
    speed = rates(before, after)
    if as_json:
        session.out.json(shape(after, speed))
    else:
        session.out.board(board(after, speed))


def _boards(client: Client, queue: str | None, every_s: float) -> Iterator[Board]:
    """A board a look. While Redis is away the last one stays, with a word on top."""
    before, speed = look(client, queue, None), Rates()
    yield board(before, speed)
    while True:
        time.sleep(every_s)
        try:
            after = look(client, queue, before)
        except AWAY as error:
            yield board(before, speed, error.message)
            continue
        before, speed = after, rates(before, after)
        yield board(before, speed)
