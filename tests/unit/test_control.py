"""What holds for all workers, and whom a call to restart concerns."""

from __future__ import annotations

import pytest

from delayq.core.control import Control, RestartWatch, in_force, obey
from delayq.redis.calls.operate import read_control

NOW = 1_800_000_000_000


@pytest.mark.parametrize(
    ("until_ms", "holds"), [(None, False), (0, True), (NOW, False), (NOW + 1, True), (NOW - 1, False)]
)
def test_until(until_ms: int | None, holds: bool) -> None:
    assert in_force(until_ms, NOW) is holds
    assert obey(Control(NOW, paused_until_ms=until_ms)) is not holds


def test_force_overrides_maintenance_and_no_pause() -> None:
    both = Control(NOW, paused_until_ms=0, maintenance_until_ms=0)
    assert (both.held_by(), both.held_by(force=True)) == ("paused", "paused")
    only = Control(NOW, maintenance_until_ms=NOW + 1)
    assert (only.held_by(), only.held_by(force=True)) == ("maintenance", "")


@pytest.mark.parametrize(
    ("first", "now", "leaves"),
    [
        (None, None, False),
        (None, NOW + 5, True),
        (NOW - 5, NOW - 5, False),
        (NOW - 5, NOW + 5, True),
        (NOW + 5, NOW + 5, True),
        (NOW + 40, NOW + 40, True),
        (NOW + 60_000, NOW + 60_000, False),
        (NOW + 60_000, NOW + 60_001, True),
        (NOW - 5, None, False),
    ],
    ids=[
        "never called",
        "called now",
        "called before its start",
        "called before its start and again",
        "called while it loaded its code",
        "called while it loaded its code, seen by a clock that is late",
        "called before the clock went back",
        "called before and after the clock went back",
        "somebody deleted the key",
    ],
)
def test_a_call_to_restart(first: int | None, now: int | None, leaves: bool) -> None:
    watch = RestartWatch(first, seen_ms=NOW + 10, started_ms=NOW)
    assert watch.concerns(now) is leaves


def test_what_is_no_number_counts_as_absent() -> None:
    assert read_control([None] * 6, NOW) == Control(NOW)
    assert read_control([b"soon", b"-1", b"1.5", b"", b"\xff", b""], NOW) == Control(NOW, reason="\\xff")
    read = read_control([b"0", b"7", b"6", b"5", b"why", b"full"], NOW)
    assert read == Control(NOW, 0, 7, 6, 5, "why", paused_reason="full")
