"""The handler of `delayq_program`: a worker imports its application."""

from __future__ import annotations

import os

import roles

from delayq import job

if os.environ.get("PEER_ASYNC"):

    @job("note", queue="bench")
    async def note_async(at: float, order_id: int, customer: str, note: str) -> None:
        """Note the start."""
        roles.record(at)

else:

    @job("note", queue="bench")
    def note_sync(at: float, order_id: int, customer: str, note: str) -> None:
        """Note the start."""
        roles.record(at)
