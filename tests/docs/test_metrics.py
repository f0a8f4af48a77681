"""docs/metrics.md names what is shown, and nothing else; and for each metric of asynq's what stands in its place."""

from __future__ import annotations

import re

import pytest

from delayq.core.activity import Spread, part_of
from delayq.core.facts import ServerState
from delayq.core.observed import Observed, QueueObserved
from delayq.core.views import QueueStats
from delayq.loops.vitals import LOOPS, Vitals
from delayq.metrics.exposition import exposition
from delayq.metrics.process_exposition import process_exposition
from delayq.worker.meter import OUTCOMES, Meter
from tests.docs.pages import names, page, rows, section
from tests.support.metrics import complaints, promtool
from tests.support.metrics import names as shown

PAGE = page("docs/metrics.md")
ASYNQ = {
    "asynq_tasks_enqueued_total", "asynq_queue_size", "asynq_queue_latency_seconds",
    "asynq_queue_memory_usage_approx_bytes", "asynq_tasks_processed_total", "asynq_tasks_failed_total",
    "asynq_queue_paused_total",
}  # fmt: skip


def state() -> str:
    """A page of `delayq serve` with something of everything."""
    stats = QueueStats("orders", 1, 2, 3, 4, 5, None, 6, 7, 8, 9, {})
    late = Spread(tuple(int(n == part_of(3.0)) for n in range(19)), 3.0)
    server = ServerState(writable=True, memory_bytes=1, memory_limit_bytes=2)
    queues = (QueueObserved(stats, 1, 2, late, late),)
    seen = Observed(queues, {"orders": 1}, ("damaged",), servers=(server,), skew_ms=3)
    return exposition(seen, "1.2.3")[0].decode()


def process() -> str:
    """A page of a worker that has seen everything."""
    meter, vitals = Meter(["orders"], ["close"]), Vitals()
    place = meter.began("orders", "close", 1.0, 0)
    for outcome in OUTCOMES:
        meter.ended(place, outcome, 1.0)
    for loop in LOOPS:
        vitals.beat(loop)
    return process_exposition([meter], vitals)[0].decode()


def documented(title: str) -> dict[str, str]:
    """The metrics of a section, with the type of each; a histogram as the three names it has in queries."""
    found = {}
    for cells in rows(section(PAGE, title), "metric"):
        name, kind = re.sub(r"\{.*\}", "", names(cells[0])[0]), cells[1]
        for end in ("_bucket", "_sum", "_count") if kind == "histogram" else ("",):
            found[name + end] = kind
    return found


@pytest.mark.parametrize(
    ("title", "text"),
    [("From `delayq serve`", state()), ("From a worker or a mover", process())],
    ids=["state", "process"],
)
def test_the_tables_are_what_is_shown(title: str, text: str) -> None:
    told = documented(title)
    assert set(told) == shown(text)
    for name, kind in told.items():
        family = re.sub(r"_(bucket|sum|count)$", "", name)
        assert f"# TYPE {family} {kind}" in text, name


@pytest.mark.parametrize("text", [state(), process()], ids=["state", "process"])
def test_the_pages_keep_the_rules(text: str) -> None:
    assert complaints(text) == []
    assert promtool("metrics", text) == ""


def test_no_metric_is_in_both_sources() -> None:
    assert not shown(state()) & shown(process())


def test_each_of_asynqs_metrics_has_a_counterpart_that_exists() -> None:
    cells = rows(section(PAGE, "For those who come from asynq"), "asynq")
    table = {re.sub(r"\{.*\}", "", names(cell[0])[0]): cell[1] for cell in cells}
    assert set(table) == ASYNQ
    ours = shown(state()) | shown(process())
    for cell in table.values():
        named = set(re.findall(r"delayq_\w+", cell))
        assert named
        assert named <= ours


def test_the_bounds_are_said() -> None:
    assert "0.5, 1, 2, 5, 10, 20, 50, 100, 200, 500 ms, 1, 2, 5, 10, 30 s, 1 min, 5 min, 1 h" in PAGE
    bounds = re.findall(r'delayq_queue_lateness_seconds_bucket\{le="([^"]+)"', state())
    assert [float(bound) for bound in bounds] == [
        0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30, 60, 300, 3600, float("inf"),
    ]  # fmt: skip
