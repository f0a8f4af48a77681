"""How long a lease may be: the same for the setting, the command and the clients."""

from __future__ import annotations

from typing import Final

from delayq.core.durations import duration_ms, format_duration
from delayq.core.errors import InvalidInput

SHORTEST_MS: Final = 100
"""Below it a worker could not renew in time, and its jobs would be run twice."""
LONGEST_MS: Final = 86_400_000
"""Above it a job whose worker vanished would lie there for more than a day."""


def check_lease(lease: str) -> int:
    """A lease in ms. Raises `InvalidDuration`, and `InvalidInput` unless it is 100ms to 1d."""
    ms = duration_ms(lease)
    if not SHORTEST_MS <= ms <= LONGEST_MS:
        raise InvalidInput(
            f"The lease {lease!r} is out of range.",
            hint=f"Use {format_duration(SHORTEST_MS)} to {format_duration(LONGEST_MS)}, such as 30s.",
        )
    return ms
