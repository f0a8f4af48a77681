"""What carries notifications; mail and webhooks are here, others are written against this."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol


@dataclass(frozen=True, slots=True)
class Letter:
    """One message on its way over one channel.

    `id` is the same in every attempt and on every channel of the notification: a receiver that has seen it already may
    drop it. `message` is what the notification's `to_<channel>` answered.
    """

    id: str
    name: str
    channel: str
    address: str
    recipient: str
    message: Any


class Channel(Protocol):
    """A way to somebody: SMS, a chat, a push service."""

    def deliver(self, letter: Letter) -> None:
        """Send it, or raise: `Fail` when that will never work, anything else to be tried again as the job says."""
