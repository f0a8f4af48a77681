"""What `top` makes of two looks."""

from __future__ import annotations

from dataclasses import replace

from delayq.cli.board import board, progress
from delayq.cli.pulse import Pulse, Running, rates, runs
from delayq.core.control import Control
from delayq.core.progress import Progress
from delayq.core.views import QueueStats, WorkerInfo

NOW = 1_800_000_000_000
STATS = QueueStats(
    queue="orders", scheduled=4, ready=1, reserved=2, failed=0, completed=0, paused_until_ms=None, overdue_oldest_ms=0,
    lease_ms=30_000, mover_tick_ms=NOW - 500, now_ms=NOW, counters={"acked_total": 100, "scheduled_total": 7},
)  # fmt: skip
BEFORE = Pulse(NOW, (STATS,), (), (), (), Control(NOW))


def later(ms: int, **counters: int) -> Pulse:
    return replace(BEFORE, at_ms=NOW + ms, queues=(replace(STATS, now_ms=NOW + ms, counters=counters),))


def test_rates_are_by_the_servers_clock() -> None:
    assert rates(BEFORE, later(2_000, acked_total=150, scheduled_total=8))["orders"] == {
        "scheduled": 0.5,
        "done": 25.0,
        "released": 0.0,
        "failed": 0.0,
    }


def test_a_queue_that_is_new_and_a_counter_that_is_gone_give_no_rate() -> None:
    fresh = replace(BEFORE, queues=(replace(STATS, queue="new"),))
    assert set(rates(BEFORE, fresh)["new"].values()) == {0.0}
    assert rates(BEFORE, later(1_000))["orders"]["done"] == 0.0


def test_what_somebody_else_wrote_is_no_running_job() -> None:
    odd = [
        7,
        {},
        {"id": 1, "queue": "q"},
        {"id": "", "queue": "q"},
        {"id": "a"},
        {"id": "a", "queue": "q", "for_ms": "x"},
    ]
    assert list(runs(WorkerInfo("w", ("q",), {"running": odd}), NOW)) == [Running("a", "q", "w", 0)]
    assert list(runs(WorkerInfo("w", ("q",), {"running": 7}), NOW)) == []


def test_how_far_a_job_is() -> None:
    job = Running("a", "q", "w", 0)
    assert progress(job) == ""
    assert progress(replace(job, progress=Progress(1, 3, 10, "rows"))) == "3 of 10 (30%) rows"
    assert progress(replace(job, progress=Progress(1, 1_000))) == "1,000"
    assert progress(replace(job, progress=Progress(1, note="soon"))) == "soon"


def test_the_board_says_first_what_keeps_workers_from_fetching() -> None:
    held = replace(BEFORE, control=Control(NOW, paused_until_ms=0, maintenance_until_ms=0, reason="why"))
    assert board(held, {}, "Redis is away.").warnings == ["Redis is away.", "Everything is paused.", "Maintenance. why"]
    shown = board(BEFORE, {"orders": {"done": 1.25}})
    assert shown.warnings == []
    assert shown.sections[0].rows[0][:4] == ("orders", "4", "1", "2")
    assert "1.2" in shown.sections[0].rows[0]


def test_how_long_a_job_has_run_is_told_for_now_and_not_for_the_last_report() -> None:
    said = [{"id": "a", "queue": "q", "since_ms": NOW - 10_000, "for_ms": 35}]
    assert [one.for_ms for one in runs(WorkerInfo("w", ("q",), {"running": said}), NOW)] == [10_000]
