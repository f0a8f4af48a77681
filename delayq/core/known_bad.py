"""Server versions with faults that matter to delayq's users."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

Version = tuple[int, int, int]


@dataclass(frozen=True, slots=True)
class KnownBad:
    """A fault in `product`, from `first` up to but not including `fixed`."""

    product: str
    first: Version
    fixed: Version
    what: str
    touches_delayq: bool
    """False: a hole that only somebody with a login of the server can use, and that distributors often close
    without a new version number."""

    @property
    def advice(self) -> str:
        """The next step."""
        fixed = ".".join(map(str, self.fixed))
        return f"Upgrade to {fixed} or newer{'' if self.touches_delayq else ', unless your distributor mended it'}."


_STREAMS: Final = "memory corruption by stream commands (CVE-2022-31144, CVE-2022-35951)"
_XACKDEL: Final = "memory corruption by XACKDEL (CVE-2025-62507)"
_LUA: Final = "a script can break out of the Lua sandbox (CVE-2025-49844)"
_WOKEN: Final = "memory corruption when a blocked client is woken while maxmemory-clients evicts it (CVE-2026-23479)"

# 7.0 got no release of its own with the Lua fix, 8.0 none that is known with that of waking: the next line is named.
_FAULTS: Final = (
    KnownBad("Redis", (7, 0, 0), (7, 0, 5), _STREAMS, touches_delayq=True),
    KnownBad("Redis", (8, 2, 0), (8, 2, 3), _XACKDEL, touches_delayq=True),
    KnownBad("Redis", (6, 2, 0), (6, 2, 20), _LUA, touches_delayq=False),
    KnownBad("Redis", (7, 0, 0), (7, 2, 11), _LUA, touches_delayq=False),
    KnownBad("Redis", (7, 4, 0), (7, 4, 6), _LUA, touches_delayq=False),
    KnownBad("Redis", (8, 0, 0), (8, 0, 4), _LUA, touches_delayq=False),
    KnownBad("Redis", (8, 2, 0), (8, 2, 2), _LUA, touches_delayq=False),
    KnownBad("Valkey", (7, 2, 0), (7, 2, 11), _LUA, touches_delayq=False),
    KnownBad("Valkey", (8, 0, 0), (8, 0, 6), _LUA, touches_delayq=False),
    KnownBad("Valkey", (8, 1, 0), (8, 1, 4), _LUA, touches_delayq=False),
    KnownBad("Redis", (7, 2, 0), (7, 2, 14), _WOKEN, touches_delayq=False),
    KnownBad("Redis", (7, 4, 0), (7, 4, 9), _WOKEN, touches_delayq=False),
    KnownBad("Redis", (8, 0, 0), (8, 2, 6), _WOKEN, touches_delayq=False),
    KnownBad("Redis", (8, 4, 0), (8, 4, 3), _WOKEN, touches_delayq=False),
    KnownBad("Redis", (8, 6, 0), (8, 6, 3), _WOKEN, touches_delayq=False),
    KnownBad("Valkey", (7, 2, 0), (7, 2, 13), _WOKEN, touches_delayq=False),
    KnownBad("Valkey", (8, 0, 0), (8, 0, 8), _WOKEN, touches_delayq=False),
    KnownBad("Valkey", (8, 1, 0), (8, 1, 7), _WOKEN, touches_delayq=False),
    KnownBad("Valkey", (9, 0, 0), (9, 0, 4), _WOKEN, touches_delayq=False),
)


# redis/redis#13793. No release of Valkey is known that has the mend.
_SYNCED_TOO_EARLY: Final = (("Redis", (7, 4, 0), (8, 0, 0)), ("Valkey", (7, 2, 0), (1_000, 0, 0)))


def syncs_too_early(product: str, version: Version) -> bool:
    """Whether its WAITAOF may say "on disk" before that is so, with `appendfsync everysec`; 8.0.1 and 9.1.2 do."""
    return any(product == of and first <= version < fixed for of, first, fixed in _SYNCED_TOO_EARLY)


def known_bad(product: str, version: Version) -> Iterator[KnownBad]:
    """The faults of this version."""
    return (fault for fault in _FAULTS if fault.product == product and fault.first <= version < fault.fixed)
