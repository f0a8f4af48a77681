"""What pages are made of, without a server: words, pictures, timelines, what is covered, why a job has not run."""

from __future__ import annotations

import msgspec
import pytest

from delayq.core import failure as failures
from delayq.core import ran as ran_records
from delayq.core.activity import DAY_MS, Activity, Span, Spread
from delayq.core.diagnosis import Finding, Level
from delayq.core.envelope import Envelope, encode
from delayq.core.failure import Failure, Ran
from delayq.core.limit_views import HeldUp, Obstacle
from delayq.core.redaction import REDACTED
from delayq.core.states import State
from delayq.core.views import JobInfo, QueueStats, Upcoming, WorkerInfo
from delayq.core.why import Around, Weight, explain
from delayq.http.dashboard import charts, flow, wording
from delayq.http.dashboard.charts import Series
from delayq.http.dashboard.login import inside
from delayq.http.dashboard.payload import COVER, Redaction, without
from delayq.http.dashboard.timeline import steps
from delayq.http.dashboard.tracebacks import brief
from delayq.http.seal import Seal
from tests.support.cli import ROOT

NOW = 1_800_000_000_000
MINUTE = 60_000
DOT = "dq:host:7:a1"


def envelope(data: bytes = b"{}", **members: object) -> Envelope:
    given = {"v": 1, "id": "a", "name": "order.close", "queue": "orders", "attempts": 0, "created_ms": NOW - MINUTE}
    return msgspec.convert({**given, **members, "data": msgspec.Raw(data)}, Envelope)


def job(state: State, made: Envelope | None = None, **members: object) -> JobInfo:
    made = made or envelope()
    return JobInfo("a", "orders", state, encode(made), made, **members)  # type: ignore[arg-type]  # as each test says


def stats(**members: int | None) -> QueueStats:
    given = {"scheduled": 1, "ready": 0, "reserved": 0, "failed": 0, "completed": 0, "paused_until_ms": None}
    given |= {"overdue_oldest_ms": 0, "lease_ms": 30_000, "mover_tick_ms": NOW, "now_ms": NOW, **members}
    return QueueStats(queue="orders", counters={}, **given)  # type: ignore[arg-type]  # numbers all


@pytest.mark.parametrize(
    ("number", "said"),
    [(0, "0"), (0.25, "0.2"), (9_999, "9,999"), (12_345, "12.3k"), (123_456, "123k"), (1_000_000, "1.0M")],
)
def test_counts_are_short(number: float, said: str) -> None:
    assert wording.compact(number) == said


def test_lengths_of_time() -> None:
    assert wording.exact(899_995) == "14m 59.995s"
    assert wording.exact(-5) == "-5ms"
    assert wording.span(899_995) == "15m"
    assert wording.span(250) == "250ms"
    assert [wording.distance(NOW + ms, NOW) for ms in (0, 61_000, -3_000)] == ["now", "in 1m 1s", "3s ago"]
    assert wording.moment(NOW, NOW).utc == "15 Jan 08:00:00 UTC"


@pytest.mark.parametrize(("most", "top"), [(0, 1), (1, 1), (3, 3), (10, 10), (11, 20), (99, 100), (501, 600)])
def test_a_scale_ends_at_a_round_number(most: float, top: float) -> None:
    assert charts.ceiling(most) == top


def test_bars_stand_on_each_other_and_none_is_too_small_to_see() -> None:
    series = (Series("done", "completed", (999, 0)), Series("failed", "failed", (1, 0)))
    drawn, top = charts.bars(series, ["08:00", "08:01"])
    assert top == 1000
    assert [(bar.kind, bar.label) for bar in drawn] == [
        ("completed", "08:00: 999 done"),
        ("failed", "08:00: 1 failed"),
    ]
    assert drawn[1].height >= 1
    assert drawn[0].y + drawn[0].height == pytest.approx(100)
    assert drawn[1].y + drawn[1].height == pytest.approx(drawn[0].y, abs=1.3)


def test_lines_break_where_nothing_is_known() -> None:
    [drawn], top = charts.lines((Series("half", "ready", (10.0, None, 10.0, 5.0)),))
    assert top == 10
    assert drawn.path.count("M") == 2
    assert drawn.path.startswith("M0.0 1.0")
    [steep], top = charts.lines((Series("half", "ready", (0.1, 10.0, 1000.0)),), 0.1)
    heights = [float(word) for word in steep.path.split()[1::2]]
    assert heights == pytest.approx([100, 50.5, 1])  # each step a hundred times more, each the same way up


def activity() -> Activity:
    late = Spread((90, *[0] * 8, 10, *[0] * 9), 5_000.0)
    quiet = [Span(NOW - n * MINUTE) for n in range(9, 0, -1)]
    last = Span(NOW, scheduled=150, started=100, done=90, failed=5, cancelled=5, late=late)
    return Activity("orders", NOW + MINUTE, MINUTE, (*quiet, last))


def test_the_backlog_is_worked_out_backwards() -> None:
    drawn = flow.backlog(activity(), [stats(scheduled=60, ready=10)])
    assert drawn.rows[-1][1] == "70"
    assert drawn.rows[-2][1] == "20"  # 150 came, 100 went
    assert drawn.rows[0][1] == "20"


def test_the_history_is_drawn_day_by_day() -> None:
    spans = (Span(NOW), Span(NOW + DAY_MS, done=7, failed=2), Span(NOW + 2 * DAY_MS, done=1))
    drawn = flow.history(Activity("orders", NOW + 2 * DAY_MS, DAY_MS, spans))
    assert drawn.rows == ((wording.day(NOW + DAY_MS), "7", "2"), (wording.day(NOW + 2 * DAY_MS), "1", "0"))
    assert drawn.summary == "8 jobs done and 2 failed in 3 days."


def test_rates_are_those_of_the_last_minutes() -> None:
    pulse = flow.pulse(activity())
    assert pulse.started == pytest.approx(100 / 360)
    assert pulse.failed == 5
    assert pulse.late_half_ms is not None
    assert pulse.late_half_ms < 0.5
    assert pulse.late_most_ms is not None
    assert pulse.late_most_ms > 200


def test_what_falls_due() -> None:
    histogram = Upcoming("orders", NOW, MINUTE, 3, (1, 0, 2), 7)
    drawn = flow.falling_due([histogram, histogram], NOW)
    assert drawn.summary == "6 jobs in the next hour, 6 overdue, 14 later."
    assert [row[1] for row in drawn.rows] == ["2", "4"]
    assert flow.falling_due([], NOW).rows == ()


def test_pictures_of_pages_are_small() -> None:
    shown = sorted((ROOT / "docs" / "images").glob("dashboard-*.png"))
    assert len(shown) == 2
    assert all(path.stat().st_size < 150_000 for path in shown)


# -- one job -----------------------------------------------------------------------------------------------------------


def test_a_timeline_says_the_milliseconds_between() -> None:
    running = {"id": "a", "queue": "orders", "since_ms": NOW + 1_207}
    workers = (WorkerInfo("w", ("orders",), {"running": [running]}),)
    info = job(State.RESERVED, due_ms=NOW, entry=f"{NOW + 3}-0", consumer=DOT)
    found = steps(info, NOW + 2_000, workers)
    assert [(step.name, step.after_ms, step.late) for step in found] == [
        ("created", None, False),
        ("due", MINUTE, False),
        ("promoted", 3, False),
        ("started", 1_204, True),
    ]


def test_a_timeline_tells_attempts_and_what_lies_ahead() -> None:
    failure = Failure("E", "second", at_ms=NOW - 5_000, attempt=2, history=[Failure("E", "first", at_ms=NOW - 9_000)])
    found = steps(job(State.SCHEDULED, due_ms=NOW + 1_000, failure=failure), NOW)
    names = [(step.name, step.kind) for step in found]
    assert names == [("created", "past"), ("an attempt failed", "past"), ("attempt 2 failed", "past"), ("due", "ahead")]
    done = steps(job(State.COMPLETED, envelope(retention_ms=MINUTE), forget_ms=NOW), NOW)
    assert [(step.name, step.at_ms) for step in done][1:] == [("completed", NOW - MINUTE), ("forgotten", NOW)]


def test_the_timeline_of_what_has_ended() -> None:
    way = Ran(NOW - 5_000, NOW - 4_998, NOW - 4_000)
    first = Failure("E", "first", at_ms=NOW - 9_000, attempt=1, ran=Ran(started_ms=NOW - 9_250))
    failed = job(State.FAILED, failed_ms=NOW, failure=Failure("E", "x", attempt=2, ran=way, history=[first]))
    ended = ran_records.decode(ran_records.encode(way, MINUTE)[:-1] + b',"before":' + failures.encode(first) + b"}")
    done = job(State.COMPLETED, forget_ms=NOW + MINUTE, ended=ended)
    way_there = [("attempt 1 failed", NOW - 9_000), ("due", NOW - 5_000), ("promoted", NOW - 4_998)]
    way_there += [("started", NOW - 4_000)]
    for info, end in ((failed, ["failed"]), (done, ["completed", "forgotten"])):
        found = steps(info, NOW + 1)
        assert [(step.name, step.at_ms) for step in found][1:5] == way_there
        assert [step.name for step in found][5:] == end
        assert (found[5].at_ms, found[5].after_ms) == (NOW, 4_000)
        assert [step.after_ms for step in found][3:5] == [2, 998]
        assert found[1].note == "E after 250ms"
    never = steps(job(State.FAILED, failed_ms=NOW, failure=Failure("UnknownJob", "x", ran=Ran(NOW, NOW))), NOW)
    assert [(step.name, step.kind) for step in never][-2:] == [("started", "unknown"), ("failed", "past")]


def codes(info: JobInfo, *findings: Finding, **members: int) -> list[tuple[str, Weight]]:
    return [(one.code, one.weight) for one in explain(info, stats(**members), findings, high_water=100)]


def test_why_a_job_has_not_run() -> None:
    waits = job(State.SCHEDULED, due_ms=NOW + MINUTE)
    due = job(State.SCHEDULED, due_ms=NOW - 1)
    assert codes(waits) == [("not-due", Weight.FINE)]
    assert codes(due) == [("due", Weight.WAIT)]
    assert codes(due, ready=100) == [("high-water", Weight.PROBLEM), ("due", Weight.HELD)]
    assert codes(job(State.READY)) == [("ready", Weight.WAIT)]
    assert codes(job(State.RESERVED, consumer=DOT, idle_ms=1)) == [("running", Weight.FINE)]
    assert codes(job(State.RESERVED, consumer=DOT, idle_ms=30_001)) == [("silent", Weight.PROBLEM)]
    assert codes(job(State.RESERVED)) == [("acknowledged", Weight.WAIT)]


def test_what_its_limits_workers_and_batch_do_is_told() -> None:
    def told(state: State, around: Around, consumer: str = "") -> list[tuple[str, Weight]]:
        info = job(state, due_ms=NOW + MINUTE, consumer=consumer)
        found = explain(info, stats(), (), high_water=100, around=around)
        return [(one.code, one.weight) for one in found if one.code not in ("not-due", "ready")]

    waits = (
        HeldUp(Obstacle.PLACE, "api", "acme", NOW - 5_000, 7, 7, ("orders b",)),
        HeldUp(Obstacle.TURN, "sms", at_ms=NOW + 1),
        HeldUp(Obstacle.CIRCUIT, "throttle:pay", "bank", NOW + 1, 3),
        HeldUp(Obstacle.CIRCUIT, "throttle:pay", "bank", NOW - 1, 3, owners=("orders b",)),
    )
    codes = ["no-place", "no-turn", "circuit-open", "circuit-tried"]
    assert told(State.SCHEDULED, Around(waits)) == [(code, Weight.WAIT) for code in codes]
    assert told(State.RESERVED, Around(waits), consumer=DOT) == [("running", Weight.FINE)]
    still = [WorkerInfo(name, ("orders",), {"state": name}) for name in ("paused", "leaving")]
    busy = WorkerInfo("w", ("orders",), {"state": "working", "runs": 3})
    other = WorkerInfo("o", ("mail",), {"state": "working"})
    assert told(State.READY, Around(workers=(*still, other))) == [("quiet", Weight.PROBLEM)]
    assert told(State.READY, Around(workers=(*still, busy))) == [("served", Weight.WAIT)]
    assert told(State.SCHEDULED, Around(workers=(busy,))) == []
    assert told(State.SCHEDULED, Around(called_off=True)) == [("called-off", Weight.FINE)]
    keyed = explain(job(State.SCHEDULED, envelope(unique="a.start"), due_ms=NOW + 1), stats(), (), high_water=100)
    assert {one.code for one in keyed} == {"not-due", "keyed"}


def test_only_what_concerns_the_job_is_told() -> None:
    def found(code: str, where: str = "queue orders", what: str = "") -> Finding:
        return Finding(code, where, what, "next")

    mover, worker, maintenance = found("no-mover"), found("no-worker"), found("maintenance", "all queues")
    other, advice = found("no-worker", "queue mail"), Finding("x", "queue orders", "", "", Level.ADVICE)
    mine, theirs = (found("unregistered", what=f"No handler for {name!r}") for name in ("order.close", "mail.send"))
    everything = (mover, worker, maintenance, other, advice, mine, theirs)

    def problems(info: JobInfo) -> list[str]:
        return [code for code, weight in codes(info, *everything) if weight is Weight.PROBLEM]

    assert problems(job(State.SCHEDULED, due_ms=NOW)) == ["no-mover", "no-worker", "maintenance", "unregistered"]
    assert problems(job(State.READY)) == ["no-worker", "maintenance", "unregistered"]
    assert problems(job(State.RESERVED, consumer=DOT)) == []
    assert problems(job(State.FAILED)) == ["failed"]
    paused = found("paused")
    for info, step in ((job(State.SCHEDULED, due_ms=NOW - 1), "due"), (job(State.READY), "ready")):
        assert codes(info, paused) == [("paused", Weight.PROBLEM), (step, Weight.HELD)]


TRACE = (
    "Traceback (most recent call last):\n"
    '  File "/srv/.venv/lib/python3.12/site-packages/delayq/worker/thread.py", line 7, in _one\n'
    "    result = call()\n"
    "             ^^^^^^\n"
    '  File "/srv/.venv/lib/python3.12/site-packages/delayq/app/registry.py", line 99, in handle\n'
    "    return function(**data)\n"
    '  File "/srv/shop/delayq_jobs.py", line 12, in pay_order\n'
    "    bank.pay(card)\n"
    "ConnectionError: the bank is away\n"
)


def test_a_traceback_shows_the_frames_of_the_user_first() -> None:
    found = brief(TRACE)
    assert found.hidden == 2
    assert found.text.splitlines() == [
        "Traceback (most recent call last):",
        '  File "/srv/shop/delayq_jobs.py", line 12, in pay_order',
        "    bank.pay(card)",
        "ConnectionError: the bank is away",
    ]
    caused = f"{TRACE}\nThe above exception was the direct cause of the following exception:\n\n{TRACE}"
    assert brief(caused).hidden == 4
    assert "direct cause" in brief(caused).text
    alone = TRACE.replace("/srv/shop/delayq_jobs.py", "/srv/lib/delayq/jobs/function.py")
    assert brief(alone) == (alone, 0)
    assert brief("no traceback") == ("no traceback", 0)


# -- what is covered ---------------------------------------------------------------------------------------------------


def test_values_are_covered_by_the_names_of_their_fields() -> None:
    raw = b'{"Password":"hunter22","list":[{"api_key":12345}],"user":{"token":{"a":["deep-secret"]}},"name":"Ada"}'
    shown, covered = Redaction(REDACTED).payload(job(State.SCHEDULED, envelope(raw)))
    assert shown.covered == 3
    assert shown.text.count(COVER) == 3
    assert '"name": "Ada"' in shown.text
    for secret in ("hunter22", "12345", "deep-secret"):
        assert secret not in shown.text
    assert without("hunter22 is deep-secret, 12345", covered) == f"{COVER} is {COVER}, {COVER}"


def test_nothing_is_covered_that_is_not_named() -> None:
    shown, covered = Redaction(()).payload(job(State.SCHEDULED, envelope(b'{"password":"x"}')))
    assert (shown.covered, covered, '"x"' in shown.text) == (0, [], True)


def test_what_is_no_json_or_far_too_long_is_shown_as_such() -> None:
    broken = JobInfo("a", "orders", State.FAILED, b"\xff\x00<b>", None)
    assert Redaction(REDACTED).payload(broken)[0].text == "\\xff\x00<b>"
    shown = Redaction(REDACTED).json(b'"' + b"x" * 100_000 + b'"')[0]
    assert (shown.cut, shown.length, len(shown.text)) == (True, 100_002, 64 * 1024)


# -- what browsers keep ------------------------------------------------------------------------------------------------


def test_what_is_signed_is_read_for_its_purpose_and_unchanged_alone() -> None:
    seal = Seal()
    signed = seal.sign("session", "key 1 ü")
    assert seal.read("session", signed) == "key 1 ü"
    assert seal.read("said", signed) is None
    assert Seal().read("session", signed) is None
    for wrong in ("", ".", "x", signed[1:], signed[:-1], signed + "x", f"!{signed}", "ü.ü"):
        assert seal.read("session", wrong) is None


@pytest.mark.parametrize(
    ("path", "goes"),
    [("/jobs?state=failed", "/jobs?state=failed"), ("//evil", "/"), ("/\\evil", "/"), ("https://x", "/"), ("", "/")],
)
def test_nobody_is_led_elsewhere(path: str, goes: str) -> None:
    assert inside(path) == goes
