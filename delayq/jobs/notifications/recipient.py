"""Who is notified, and where each channel finds them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol, TypeAlias, runtime_checkable


@dataclass(frozen=True, slots=True)
class Recipient:
    """Addresses by channel: `Recipient({"mail": "ann@example.org", "webhook": "https://example.org/hook"})`.

    It travels in the job, so an address that changes afterwards is not seen by what waits.
    """

    addresses: Mapping[str, str]
    name: str = ""

    def recipient(self) -> Recipient:
        """Itself."""
        return self


@runtime_checkable
class Notifiable(Protocol):
    """Something that knows how to reach somebody: a user of your own, say. Asked when the notification is sent."""

    def recipient(self) -> Recipient:
        """Where to."""


To: TypeAlias = Notifiable | Recipient
