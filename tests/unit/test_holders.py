"""Who holds a place and is gone: by its entry, or because nobody renewed it for two leases."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from delayq.core.options import Options
from delayq.redis.calls.limit import Kept
from delayq.redis.holders import MOST_KEPT, Holders
from delayq.redis.verbs import Verbs

LEASE_MS = 1_000
HOLDER = "orders a 1-1"


class Watch:
    """Holders that are asked about, and the replies of their queues."""

    def __init__(self) -> None:
        self.now = 100.0
        self._holders = Holders(Verbs(Options()), lambda: self.now)

    def gone(self, idle: Mapping[str, int | None]) -> list[str]:
        """Ask about these holders, in one queue; their idle times in ms."""
        flow = self._holders.gone(list(idle))
        answer: Any = next(flow)
        assert len(answer.args) == 1 + 2 * len(idle)
        with pytest.raises(StopIteration) as ended:
            flow.send(Kept(LEASE_MS, tuple(idle.values())))
        found: list[str] = ended.value.value
        return found


@pytest.fixture
def watch() -> Watch:
    return Watch()


def test_one_whose_job_has_another_entry_is_gone_at_once(watch: Watch) -> None:
    assert watch.gone({HOLDER: None, "orders b 1-2": 5}) == [HOLDER]


def test_one_that_nobody_renews_is_gone_a_lease_after_that_was_seen(watch: Watch) -> None:
    assert watch.gone({HOLDER: 60_000}) == [], "idle times may lie: a stall, a failover"
    watch.now += 0.9
    assert watch.gone({HOLDER: 60_900}) == []
    watch.now += 0.2
    assert watch.gone({HOLDER: 61_100}) == [HOLDER]


def test_one_that_is_renewed_meanwhile_is_kept_and_doubted_anew(watch: Watch) -> None:
    assert watch.gone({HOLDER: 5_000}) == []
    watch.now += 3.0
    assert watch.gone({HOLDER: 1_500}) == [], "it was renewed 1.5 s ago"
    watch.now += 0.5
    assert watch.gone({HOLDER: 2_000}) == []
    watch.now += 0.6
    assert watch.gone({HOLDER: 2_600}) == [HOLDER]


def test_one_that_is_well_again_is_forgotten(watch: Watch) -> None:
    watch.gone({HOLDER: 5_000})
    watch.now += 5.0
    assert watch.gone({HOLDER: 10}) == []
    watch.now += 5.0
    assert watch.gone({HOLDER: 5_010}) == [], "the doubt begins with this look"


def test_what_is_no_delivery_is_gone_and_nobody_is_asked() -> None:
    strangers = ["words of somebody else", "alone", "orders a 1-1 more", "no{queue a 1-1", "orders  1-1", ""]
    with pytest.raises(StopIteration) as ended:
        next(Holders(Verbs(Options())).gone(strangers))
    assert ended.value.value == strangers


def test_it_remembers_so_many_and_then_begins_anew(watch: Watch) -> None:
    first = {f"orders {n} 1-{n}": 5_000 for n in range(MOST_KEPT)}
    assert watch.gone(first) == []
    assert watch.gone({HOLDER: 5_000}) == [], "one more than there is room for"
    watch.now += 2.0
    assert watch.gone({"orders 1 1-1": 7_000, HOLDER: 7_000}) == [HOLDER]
