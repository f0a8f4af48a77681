"""What the supervisor does for its children, living and dead, with a keeper in memory and a clock set by hand."""

import signal
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

import pytest

from delayq.backends.values import Delivery, Failed, Released, Settlement, Stopped
from delayq.core.backoff import Fixed
from delayq.core.control_flow import JobCancelled, JobTimedOut
from delayq.core.errors import LoginRefused
from delayq.core.exit_codes import ExitCode
from delayq.core.outcome import Policy
from delayq.jobs.function import job
from delayq.jobs.registry import Registry
from delayq.worker import children as children_module
from delayq.worker import timeouts as timeouts_module
from delayq.worker.attempt import Attempts
from delayq.worker.children import ChildProcess, Ending
from delayq.worker.crash_recovery import CrashRecovery
from delayq.worker.heartbeat import Heartbeat
from delayq.worker.lease_renewal import LeaseRenewal
from delayq.worker.options import WorkerOptions
from delayq.worker.shared_memory import Part, SlotState, SlotTable, Stop
from delayq.worker.stopping import Stopping
from delayq.worker.timeouts import Timeouts
from tests.support.fakes import FakeClock, FakeKeeper, delivery

PID = 4_000_000
"""No process has this number: a signal to it would be an error."""


class ChildUnderTest:
    """A child process that is none: what is sent to it is recorded."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.clock = FakeClock()
        self.slots = SlotTable(["q", "other"], clock=self.clock)
        self.process = ChildProcess(self.slots, consumer="dq:a:1:x", process_id=PID)
        self.sent: list[signal.Signals] = []
        self.is_stopped = False

        def send(process_id: int, number: signal.Signals) -> None:
            self.sent.append(number)

        monkeypatch.setattr(children_module, "send", send)
        monkeypatch.setattr(timeouts_module, "is_stopped", lambda process_id: self.is_stopped)

    def hold(self, *states: SlotState, limit: float = 0.0) -> list[Delivery]:
        """Put a delivery into a slot for each state; those that run must have ended by `limit`."""
        held = [delivery(number) for number in range(1, len(states) + 1)]
        for slot, (one, state) in enumerate(zip(held, states, strict=True)):
            self.slots.write(slot, one)
            if state is SlotState.RUNNING and limit:
                self.slots.begin(slot, limit=limit, name="ok")
            self.slots.mark(slot, state)
        return held

    def die(self, ending: Ending | None = None, *blamed: Delivery) -> None:
        self.process.process_id = None
        self.process.is_settled = False
        self.process.ending = ending
        self.process.killed_for = {one.key for one in blamed}


@pytest.fixture
def child(monkeypatch: pytest.MonkeyPatch) -> ChildUnderTest:
    return ChildUnderTest(monkeypatch)


def attempts() -> Attempts:
    registry = Registry()

    @job("ok", tries=2, registry=registry)
    def ok() -> None:
        pass

    return Attempts(registry, now_ms=lambda: 1_800_000_000_000)


def recover(child: ChildUnderTest, held: Sequence[Delivery]) -> FakeKeeper:
    keeper = FakeKeeper(*held)
    CrashRecovery(keeper, attempts().end_of_killed).step([child.process], child.clock())
    assert child.process.is_settled
    return keeper


# -- leases ------------------------------------------------------------------------------------------------------------


def test_everything_in_the_slots_is_renewed_every_third_of_a_lease(child: ChildUnderTest) -> None:
    held = child.hold(SlotState.WAITING, SlotState.RUNNING)
    keeper = FakeKeeper(*held)
    renewal = LeaseRenewal(keeper, lease=30, give_up=print, clock=child.clock)
    for _ in range(21):
        renewal.step([child.process], child.clock())
        child.clock.now += 1
    assert keeper.renewed == [one.ref for one in held] * 2
    assert not child.slots.take_replay()


def test_a_renewal_for_no_child_asked_nothing_and_ends_no_outage() -> None:
    clock = FakeClock()
    renewal = LeaseRenewal(FakeKeeper(), lease=30, give_up=print, clock=clock)
    assert renewal.step([], clock() + 10) is False


def test_renewals_follow_a_lease_that_is_changed(child: ChildUnderTest) -> None:
    keeper = FakeKeeper(*child.hold(SlotState.RUNNING))
    renewal = LeaseRenewal(keeper, lease=30, give_up=print, clock=child.clock)
    keeper.lease_ms = 3_000
    for _ in range(14):
        renewal.step([child.process], child.clock())
        child.clock.now += 1
    assert len(keeper.renewed) == 4


def test_a_minute_of_refused_logins_stops_the_worker_with_exit_code_2(child: ChildUnderTest) -> None:
    keeper, stopping = FakeKeeper(*child.hold(SlotState.RUNNING)), Stopping(WorkerOptions(), clock=child.clock)
    renewal = LeaseRenewal(keeper, lease=30, give_up=stopping.give_up, clock=child.clock)
    child.clock.now += 10
    for keeper.refuses_login in (True, False, True):
        for _ in range(58):
            assert not stopping.is_stopping
            with suppress(LoginRefused):
                renewal.step([child.process], child.clock())
            child.clock.now += 1
    for _ in range(5):
        with suppress(LoginRefused):
            renewal.step([child.process], child.clock())
        child.clock.now += 1
    assert (stopping.is_stopping, stopping.code) == (True, ExitCode.WRONG_USE)


def test_a_child_replays_when_the_backend_holds_more_for_it(child: ChildUnderTest) -> None:
    renewal = LeaseRenewal(FakeKeeper(delivery(1)), lease=30, give_up=print, clock=child.clock)
    child.clock.now += 10
    renewal.step([child.process], child.clock())
    assert child.slots.take_replay()
    assert not child.slots.take_replay()


def test_a_wish_to_stop_reaches_the_job_by_a_hint_or_a_renewal(child: ChildUnderTest) -> None:
    held = child.hold(SlotState.RUNNING, SlotState.RUNNING, SlotState.RUNNING)
    keeper = FakeKeeper(*held)
    renewal = LeaseRenewal(keeper, lease=30, give_up=print, clock=child.clock)
    keeper.wishes, keeper.cancelled = [("q", "job-2"), ("other", "job-1")], [("q", "job-2")]
    renewal.step([child.process], child.clock())
    assert [child.slots.is_cancelled(slot) for slot in range(3)] == [False, True, False]
    keeper.cancelled = [("q", "job-3")]
    child.clock.now += 10
    renewal.step([child.process], child.clock())
    assert [child.slots.is_cancelled(slot) for slot in range(3)] == [False, True, True]


def test_a_hint_alone_stops_no_job(child: ChildUnderTest) -> None:
    """It may be that of another database, whose channels are the same, or of a job that had the id before."""
    keeper = FakeKeeper(*child.hold(SlotState.RUNNING))
    keeper.wishes = [("q", "job-1")]
    LeaseRenewal(keeper, lease=30, give_up=print, clock=child.clock).step([child.process], child.clock())
    assert not child.slots.is_cancelled(0)
    assert [job.id for job in keeper.renewed] == ["job-1"]


def test_an_order_to_stop_is_not_heeded_by_the_next_job_of_the_slot(
    child: ChildUnderTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    (ended,) = child.hold(SlotState.RUNNING)
    as_seen = child.slots.read()
    child.slots.free([0])
    child.slots.write(0, delivery(2))
    monkeypatch.setattr(child.slots, "read", lambda: as_seen)
    child.slots.cancel(ended.key)
    assert not child.slots.is_cancelled(0)


# -- timeouts ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("grace", [0, 2, 60])
def test_a_job_alone_in_its_child_is_killed_after_the_grace(child: ChildUnderTest, grace: float) -> None:
    limit = child.clock() + 10
    (job_1,) = child.hold(SlotState.RUNNING, limit=limit)
    role = Timeouts(is_single=True, grace=grace)
    while child.process.ending is None:
        child.clock.now += 0.5
        role.step([child.process], child.clock())
    assert (child.sent, child.clock()) == ([signal.SIGKILL], limit + grace)
    assert (child.process.ending, child.process.killed_for) == (Ending.TIMEOUT, {job_1.key})


def test_a_child_with_other_jobs_is_killed_when_these_have_ended_or_had_their_time(child: ChildUnderTest) -> None:
    child.hold(SlotState.RUNNING, SlotState.RUNNING)
    child.slots.begin(0, limit=child.clock() + 1, name="ok")
    role = Timeouts(is_single=False, grace=2)
    child.clock.now += 4
    role.step([child.process], child.clock())
    assert (child.slots.stop_order(), child.process.ending) == (Stop.DRAIN, None)
    child.clock.now += 4
    role.step([child.process], child.clock())
    assert child.process.ending is None
    child.slots.mark(1, SlotState.DONE)
    role.step([child.process], child.clock())
    assert child.process.ending is Ending.TIMEOUT


def test_a_cancelled_job_that_goes_on_is_killed_for_that(child: ChildUnderTest) -> None:
    (job_1,) = child.hold(SlotState.RUNNING)
    child.slots.cancel(job_1.key)
    role = Timeouts(is_single=True, grace=2)
    for _ in range(6):
        role.step([child.process], child.clock())
        child.clock.now += 0.5
    assert (child.process.ending, child.process.killed_for) == (Ending.CANCEL, {job_1.key})


def test_a_frozen_child_is_no_timeout(child: ChildUnderTest) -> None:
    child.hold(SlotState.RUNNING, limit=child.clock() + 1)
    child.is_stopped = True
    child.clock.now += 4
    Timeouts(is_single=True, grace=2).step([child.process], child.clock())
    assert child.process.ending is Ending.FROZEN


def test_a_standstill_of_the_worker_moves_all_deadlines(child: ChildUnderTest) -> None:
    child.hold(SlotState.RUNNING, limit=child.clock() + 10)
    child.clock.now += 100
    child.slots.extend_deadlines(95)
    Timeouts(is_single=True, grace=2).step([child.process], child.clock())
    assert child.process.ending is None


# -- after a death -----------------------------------------------------------------------------------------------------


def test_only_what_was_running_is_charged_for_a_death(child: ChildUnderTest) -> None:
    held = child.hold(SlotState.DONE, SlotState.WAITING, SlotState.RUNNING)
    child.die()
    keeper = recover(child, [*held, delivery(4)])
    assert keeper.settled == {
        "done": ["job-1"],
        "handed back": ["job-2", "job-4"],
        "vanished": ["job-3"],
        "decided": [],
    }


@pytest.mark.parametrize(
    ("ending", "kind", "error"), [(Ending.TIMEOUT, Released, JobTimedOut), (Ending.CANCEL, Stopped, JobCancelled)]
)
def test_the_job_for_which_a_child_was_killed_pays_and_its_neighbours_do_not(
    child: ChildUnderTest, ending: Ending, kind: type[Settlement], error: type[BaseException]
) -> None:
    held = child.hold(SlotState.RUNNING, SlotState.RUNNING)
    child.die(ending, held[0])
    keeper = recover(child, held)
    assert (keeper.settled["decided"], keeper.settled["handed back"]) == (["job-1"], ["job-2"])
    (settled,) = keeper.decided
    assert isinstance(settled, kind)
    if isinstance(settled, Released | Failed):
        assert error.__name__ in settled.failure.decode()


@pytest.mark.parametrize("ends", ["hangs", "exits"])
def test_the_supervisor_calls_no_backoff_function(child: ChildUnderTest, ends: str) -> None:
    registry = Registry()
    called: list[int] = []

    def backoff(attempt: int, error: Exception) -> str:
        called.append(attempt)
        raise SystemExit if ends == "exits" else AssertionError("a function that hangs would stop the worker")

    @job("ok", backoff=backoff, registry=registry)
    def ok() -> None:
        pass

    standard = Policy(backoff=Fixed("7s"))
    recovery = Attempts(registry, now_ms=lambda: 1_800_000_000_000, standard=standard)
    held = child.hold(SlotState.RUNNING)
    child.die(Ending.TIMEOUT, held[0])
    keeper = FakeKeeper(*held)
    CrashRecovery(keeper, recovery.end_of_killed).step([child.process], child.clock())
    (settled,) = keeper.decided
    assert isinstance(settled, Released)
    assert (settled.delay_ms, called) == (7_000, [])


def end_of_killed(child: ChildUnderTest, registry: Registry, part: Part) -> Released:
    """Let a job exceed its timeout in this part of its code. Return the settlement after its child was killed."""
    held = child.hold(SlotState.RUNNING)
    child.slots.mark_part(0, part)
    child.die(Ending.TIMEOUT, held[0])
    keeper = FakeKeeper(*held)
    recovery = Attempts(registry, now_ms=lambda: 1_800_000_000_000)
    CrashRecovery(keeper, recovery.end_of_killed).step([child.process], child.clock())
    (settled,) = keeper.decided
    assert isinstance(settled, Released)
    return settled


class Proxy:
    """Runs code for each attribute, as lazy objects of applications do."""

    is_declared = False

    def __call__(self, attempt: int, error: Exception) -> str:
        raise AssertionError

    def __getattr__(self, name: str) -> Any:
        assert not self.is_declared, "code of the application ran in the supervisor"
        raise AttributeError(name)


def test_the_supervisor_reads_no_attribute_of_a_backoff_object(child: ChildUnderTest) -> None:
    registry = Registry()

    @job("ok", backoff=Proxy(), registry=registry)
    def ok() -> None:
        pass

    Proxy.is_declared = True
    settled = end_of_killed(child, registry, Part.BACKOFF)
    assert b"The backoff function Proxy of the job did not return" in settled.failure


@pytest.mark.parametrize(
    ("part", "named"),
    [
        (Part.HANDLER, "The job did not stop"),
        (Part.BACKOFF, "The backoff function wait_for_warehouse of the job did not return"),
        (Part.HOOK, "The hook `failed` of the job did not return"),
    ],
)
def test_a_timeout_names_the_code_that_hung_after_the_handler(
    child: ChildUnderTest, monkeypatch: pytest.MonkeyPatch, part: Part, named: str
) -> None:
    registry = Registry()

    def wait_for_warehouse(attempt: int, error: Exception) -> str:
        raise AssertionError

    wait_for_warehouse.__qualname__ = "wait_for_warehouse"

    @job("ok", backoff=wait_for_warehouse, registry=registry)
    def ok() -> None:
        pass

    monkeypatch.setattr(registry.get("ok"), "has_failed_hook", True)
    settled = end_of_killed(child, registry, part)
    assert named in settled.failure.decode()


def test_a_job_that_fails_because_its_processes_vanished_is_told(
    child: ChildUnderTest, caplog: pytest.LogCaptureFixture
) -> None:
    held = child.hold(SlotState.RUNNING)
    child.die()
    keeper = FakeKeeper(*held)
    keeper.fails_with_recovery = True
    CrashRecovery(keeper, attempts().end_of_killed).step([child.process], child.clock())
    assert caplog.messages[-1] == "job job-1 (queue q) failed: its workers vanished too often"


@pytest.mark.parametrize(("running", "said"), [(2, "2 (job-1, job-2)"), (12, "12 (job-1, {}, job-10, …)")])
def test_the_jobs_that_may_have_killed_their_process_are_named(
    child: ChildUnderTest, caplog: pytest.LogCaptureFixture, running: int, said: str
) -> None:
    held = child.hold(*[SlotState.RUNNING] * running)
    child.die()
    recover(child, held)
    between = ", ".join(f"job-{number}" for number in range(2, 10))
    assert f"counts a recovery for {said.format(between)}, and settles 0" in caplog.messages[-1]


def test_of_several_late_jobs_each_costs_a_recovery(child: ChildUnderTest) -> None:
    held = child.hold(SlotState.RUNNING, SlotState.RUNNING)
    child.die(Ending.TIMEOUT, *held)
    assert recover(child, held).settled["vanished"] == ["job-1", "job-2"]


def test_a_shutdown_charges_nothing(child: ChildUnderTest) -> None:
    held = child.hold(SlotState.RUNNING, SlotState.WAITING)
    child.die(Ending.SHUTDOWN)
    assert recover(child, held).settled["handed back"] == ["job-1", "job-2"]


def test_a_frozen_child_costs_a_recovery(child: ChildUnderTest) -> None:
    held = child.hold(SlotState.RUNNING, SlotState.RUNNING)
    child.die(Ending.FROZEN, held[0])
    settled = recover(child, held).settled
    assert (settled["vanished"], settled["handed back"]) == (["job-1"], ["job-2"])


@pytest.fixture
def twins(child: ChildUnderTest) -> list[Delivery]:
    """Two running jobs of two queues, with the same id and the same entry id."""
    jobs = [delivery(1), delivery(1, queue="other")]
    for slot, one in enumerate(jobs):
        child.slots.write(slot, one)
        child.slots.mark(slot, SlotState.RUNNING)
    return jobs


def test_only_the_twin_of_its_queue_is_asked_to_stop(child: ChildUnderTest, twins: list[Delivery]) -> None:
    keeper = FakeKeeper(*twins)
    keeper.cancelled = [("other", "job-1")]
    renewal = LeaseRenewal(keeper, lease=30, give_up=print, clock=child.clock)
    child.clock.now += 10
    renewal.step([child.process], child.clock())
    assert [child.slots.is_cancelled(slot) for slot in range(2)] == [False, True]


def test_only_the_twin_of_its_queue_pays_for_a_kill(child: ChildUnderTest, twins: list[Delivery]) -> None:
    child.die(Ending.TIMEOUT, twins[1])
    keeper = recover(child, twins)
    assert [settled.queue for settled in keeper.decided] == ["other"]
    assert keeper.settled["handed back"] == ["job-1"]


def test_only_the_twin_that_was_running_is_charged(child: ChildUnderTest, twins: list[Delivery]) -> None:
    child.slots.mark(0, SlotState.WAITING)
    child.die()
    settled = recover(child, twins).settled
    assert (settled["vanished"], settled["handed back"]) == (["job-1"], ["job-1"])


# -- stopping ----------------------------------------------------------------------------------------------------------


def test_a_stop_drains_then_interrupts_then_kills(child: ChildUnderTest) -> None:
    stopping = Stopping(WorkerOptions(grace=20), clock=child.clock)
    stopping.on_signal(signal.SIGTERM, [child.process])
    orders = []
    for _ in range(22):
        stopping.step([child.process], child.clock())
        orders.append((child.slots.stop_order(), child.process.ending))
        child.clock.now += 1
    assert orders.index((Stop.INTERRUPT, None)) == 17
    assert orders.index((Stop.INTERRUPT, Ending.SHUTDOWN)) == 20
    assert orders[0] == (Stop.DRAIN, None)


@pytest.mark.parametrize(
    ("states", "said"),
    [
        ((SlotState.RUNNING,), "running jobs have 20 s to finish"),
        ((SlotState.WAITING,), "no job is running"),
        ((SlotState.DONE,), "no job is running, and 1 finished job must be reported in 20 s"),
        ((), "no job is running"),
    ],
)
def test_the_grace_period_is_told_only_if_a_job_runs(
    child: ChildUnderTest, caplog: pytest.LogCaptureFixture, states: tuple[SlotState, ...], said: str
) -> None:
    caplog.set_level("INFO")
    child.hold(*states)
    Stopping(WorkerOptions(grace=20), clock=child.clock).on_signal(signal.SIGTERM, [child.process])
    assert caplog.messages == [f"the worker is shutting down: SIGTERM; {said}"]


@pytest.mark.parametrize(
    ("second", "after", "code"),
    [
        (signal.SIGTERM, 3, ExitCode.INTERRUPTED),
        (signal.SIGTERM, 1, ExitCode.OK),
        (signal.SIGINT, 3, ExitCode.OK),
    ],
)
def test_only_the_same_signal_again_means_leave_now(
    child: ChildUnderTest, second: signal.Signals, after: float, code: ExitCode
) -> None:
    stopping = Stopping(WorkerOptions(grace=20), clock=child.clock)
    stopping.on_signal(signal.SIGTERM, [child.process])
    child.clock.now += after
    stopping.on_signal(second, [child.process])
    stopping.step([child.process], child.clock())
    assert stopping.code is code
    assert (child.process.ending is Ending.SHUTDOWN) is (code is ExitCode.INTERRUPTED)


def test_limits_of_the_worker_stop_it(child: ChildUnderTest) -> None:
    def reason(options: WorkerOptions) -> bool:
        stopping = Stopping(options, clock=child.clock)
        child.clock.now += 10
        stopping.step([child.process], child.clock())
        return stopping.is_stopping

    assert not reason(WorkerOptions())
    assert reason(WorkerOptions(max_time=5))
    assert not reason(WorkerOptions(stop_when_empty_for=5))
    child.slots.set_idle(since=child.clock())
    assert reason(WorkerOptions(stop_when_empty_for=5))
    child.process.process_id, child.process.jobs_left = None, 0
    assert reason(WorkerOptions(max_jobs=3))


def test_a_call_to_restart_counts_from_the_start_of_the_worker(child: ChildUnderTest) -> None:
    stopping = Stopping(WorkerOptions(), last_restart_ms=7, clock=child.clock)
    child.slots.set_restart(7)
    stopping.step([child.process], child.clock())
    assert not stopping.is_stopping
    child.slots.set_restart(8)
    stopping.step([child.process], child.clock())
    assert stopping.is_stopping


def test_a_pause_by_signal_is_taken_back_by_another(child: ChildUnderTest) -> None:
    stopping = Stopping(WorkerOptions(), clock=child.clock)
    stopping.on_signal(signal.SIGUSR2, [child.process])
    assert child.slots.is_paused()
    stopping.on_signal(signal.SIGCONT, [child.process])
    assert not child.slots.is_paused()


class FakeRegistry:
    """Records the announced states of workers."""

    def __init__(self) -> None:
        self.announced: list[str] = []
        self.documents: dict[str, Mapping[str, Any]] = {}

    def announce(self, documents: Mapping[str, Mapping[str, Any]], now_ms: int) -> None:
        self.announced += [about["state"] for about in documents.values()]
        self.documents = dict(documents)

    def leave(self, names: Sequence[str], now_ms: int) -> None:
        for name in names:
            self.documents.pop(name)


def test_a_pause_is_announced_at_once_and_all_else_every_ten_seconds(child: ChildUnderTest) -> None:
    registry = FakeRegistry()
    announcing = Heartbeat(registry, ["q"], now_ms=lambda: 1_800_000_000_000, clock=child.clock)
    for seconds in (0, 1, 1, 9):
        child.clock.now += seconds
        announcing.step([child.process], child.clock())
    child.slots.set_paused(True)
    announcing.step([child.process], child.clock())
    assert registry.announced == ["idle", "idle", "paused"]


def test_a_crashed_child_stays_on_the_list_until_its_replacement_starts(child: ChildUnderTest) -> None:
    registry, crashed = FakeRegistry(), [child.process]
    announcing = Heartbeat(registry, ["q"], now_ms=lambda: NOW_MS, crashed=lambda: crashed, clock=child.clock)
    child.hold(SlotState.RUNNING)
    child.die()
    announcing.step([], child.clock())
    ((name, about),) = registry.documents.items()
    assert (name, about["state"], about["pid"], about["held"], about["running"]) == (
        child.process.consumer,
        "crashed",
        None,
        0,
        [],
    )
    crashed.clear()
    announcing.step([], child.clock())
    assert registry.documents == {}


NOW_MS = 1_800_000_000_000


def test_the_longest_running_jobs_are_announced_first(child: ChildUnderTest) -> None:
    registry = FakeRegistry()
    child.clock.now += 100
    now = child.clock()
    for slot, since in enumerate((now - 2.5, now - 90.0, now - 0.25)):
        child.slots.write(slot, delivery(slot + 1))
        child.slots.mark_running(slot, since=since)
        child.slots.begin(slot, limit=0.0, name=f"order.n{slot + 1}")
    child.slots.extend_deadlines(30)  # a suspension moves time limits, and not the start of a job
    Heartbeat(registry, ["q"], now_ms=lambda: NOW_MS, clock=child.clock).step([child.process], child.clock())
    (about,) = registry.documents.values()
    assert (about["state"], about["runs"]) == ("working", 3)
    assert about["running"] == [
        {"id": "job-2", "name": "order.n2", "queue": "q", "started_ms": NOW_MS - 90_000},
        {"id": "job-1", "name": "order.n1", "queue": "q", "started_ms": NOW_MS - 2_500},
        {"id": "job-3", "name": "order.n3", "queue": "q", "started_ms": NOW_MS - 250},
    ]


def test_at_most_ten_running_jobs_are_announced(child: ChildUnderTest) -> None:
    registry = FakeRegistry()
    child.hold(*[SlotState.RUNNING] * 12)
    Heartbeat(registry, ["q"], now_ms=lambda: NOW_MS, clock=child.clock).step([child.process], child.clock())
    (about,) = registry.documents.values()
    assert (len(about["running"]), about["runs"]) == (10, 12)


def test_a_job_that_starts_or_ends_is_announced_within_a_second(child: ChildUnderTest) -> None:
    registry = FakeRegistry()
    announcing = Heartbeat(registry, ["q"], now_ms=lambda: NOW_MS, clock=child.clock)

    def step(seconds: float) -> int:
        child.clock.now += seconds
        announcing.step([child.process], child.clock())
        return len(registry.announced)

    assert (step(0), step(0.5)) == (1, 1)
    child.hold(SlotState.RUNNING)
    assert (step(0.3), step(0.3), step(1), step(1)) == (1, 2, 2, 2)
    child.slots.free([0])
    assert (step(1), step(1)) == (3, 3)
    assert registry.announced == ["idle", "working", "idle"]


def test_a_slot_forgets_the_name_of_its_last_job_and_cuts_a_long_one(child: ChildUnderTest) -> None:
    child.slots.write(0, delivery(1))
    child.slots.begin(0, limit=0.0, name="é" * 100)
    assert [view.name for view in child.slots.read()] == ["é" * 64]
    child.slots.free([0])
    child.slots.write(0, delivery(2))
    assert [(view.name, view.since) for view in child.slots.read()] == [("", 0.0)]
