"""What health checks answer."""

from __future__ import annotations

from msgspec import Struct


class Alive(Struct, frozen=True, kw_only=True):
    """The process answers."""

    alive: bool


class Ready(Struct, frozen=True, kw_only=True):
    """Whether the server can serve, and the sentences that say why not."""

    ready: bool
    why: list[str]
