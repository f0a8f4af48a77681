"""The steps of a child, with a backend in memory and a clock that is set by hand."""

import logging

import pytest
from msgspec.structs import replace

from delayq.backends.values import MAX_ENTRY_BYTES, Acked, Delivery, Failed, Released, SettleAnswer, Stopped
from delayq.core.errors import BackendUnavailable
from delayq.jobs.function import job
from delayq.jobs.registry import Registry
from delayq.worker import watchdog
from delayq.worker.attempt import Attempts
from delayq.worker.child import Child
from delayq.worker.in_flight import InFlight
from delayq.worker.runners.job_runner import JobRunner
from delayq.worker.shared_memory import SlotState, SlotTable, Stop
from delayq.worker.watchdog import Watchdog
from tests.support.fakes import FakeClock, FakeConsumer, delivery


class ChildUnderTest:
    """A child whose handlers move the clock."""

    def __init__(self, consumer: FakeConsumer, *, awaits_follow_ups: bool = False) -> None:
        self.consumer = consumer
        self.clock = FakeClock()
        self.slots = SlotTable(["q", "other"])
        self.in_flight = InFlight(self.slots, threads=1, clock=self.clock)
        self.started: list[str] = []
        registry = Registry()

        @job("ok", registry=registry)
        def ok() -> None:
            self.started.append("ok")
            self.clock.now += 0.001

        @job("raises", tries=2, backoff="7ms", registry=registry)
        def raises() -> None:
            raise ValueError("no")

        @job("slow", registry=registry)
        def slow() -> None:
            self.started.append("slow")
            self.clock.now += 1
            self.watchdog.look()

        attempts = Attempts(registry, now_ms=consumer.now_ms)
        executor = JobRunner(self.in_flight, attempts, registry, threads=1)
        self.child = Child(
            consumer,
            self.slots,
            self.in_flight,
            executor,
            lease=30,
            awaits_follow_ups=awaits_follow_ups,
            clock=self.clock,
        )
        self.watchdog = Watchdog(
            self.in_flight,
            settle_and_hand_back=self.child.settle_and_hand_back,
            interrupt=executor.interrupt,
            store_progress=consumer.store_progress,
            lease=30,
            clock=self.clock,
        )


def lose_connection(*_: object) -> None:
    raise BackendUnavailable("away")


def test_one_trip_settles_what_is_finished_and_takes_what_is_new() -> None:
    consumer = FakeConsumer(delivery(1), delivery(2))
    child = ChildUnderTest(consumer).child
    for _ in range(3):
        child.step()
    assert [type(settled) for settled in consumer.settled] == [Acked]
    assert consumer.trips == 2


def test_a_child_that_always_has_jobs_reads_a_restart_request() -> None:
    under_test = ChildUnderTest(FakeConsumer(*map(delivery, range(1, 10))))
    under_test.child.step()
    under_test.consumer.restart_ms = 5
    under_test.child.step()
    under_test.child.step()
    assert (under_test.slots.restart_ms(), under_test.slots.idle_for()) == (5, None)


@pytest.mark.parametrize("awaits", [False, True])
def test_a_child_is_not_idle_while_follow_up_jobs_are_about_to_be_sent(awaits: bool) -> None:
    under_test = ChildUnderTest(FakeConsumer(), awaits_follow_ups=awaits)
    under_test.consumer.owes = True
    under_test.child.step()
    assert (under_test.slots.idle_for() is None) == awaits
    under_test.consumer.owes = False
    under_test.child.step()
    assert under_test.slots.idle_for() is not None


def test_jobs_of_two_queues_that_have_the_same_entry_id_both_run() -> None:
    """Streams give entry ids by the millisecond, so those of two queues may be equal."""
    under_test = ChildUnderTest(FakeConsumer())
    under_test.in_flight.add([delivery(1), delivery(1, queue="other")], read_at=under_test.clock())
    for _ in range(5):
        under_test.child.step()
    assert [settled.queue for settled in under_test.consumer.settled] == ["q", "other"]


def test_quick_jobs_are_fetched_many_at_a_time() -> None:
    under_test = ChildUnderTest(FakeConsumer(*[delivery(n) for n in range(200)]))
    for _ in range(60):
        under_test.child.step()
    assert 7 <= under_test.in_flight.room() <= 10


@pytest.mark.parametrize(("attempts", "kind"), [(0, Released), (1, Failed)])
def test_an_exception_is_retried_until_the_tries_are_used_up(attempts: int, kind: type) -> None:
    job = delivery(1, name="raises")
    counted = job.envelope.replace(b'"attempts":0', b'"attempts":%d,"unknown":[]' % attempts)
    consumer = FakeConsumer(type(job)("q", job.id, job.entry, counted, 0))
    child = ChildUnderTest(consumer).child
    child.step()
    child.step()
    child.settle()
    (settled,) = consumer.settled
    assert isinstance(settled, kind)
    assert isinstance(settled, Released | Failed)
    assert b'"attempts":%d,"unknown":[]' % (attempts + 1) in settled.envelope


def test_while_a_handler_is_slow_the_rest_is_handed_back() -> None:
    under_test = ChildUnderTest(FakeConsumer())
    under_test.in_flight.add([delivery(1), delivery(2, name="slow"), delivery(3)], read_at=under_test.clock())
    under_test.child.step()
    assert under_test.started == ["ok", "slow"]
    assert [held.id for held in under_test.consumer.handed_back] == ["job-3"]
    assert [settled.id for settled in under_test.consumer.settled] == ["job-1"]


@pytest.mark.parametrize(("still_ours", "started"), [(True, ["ok"]), (False, [])])
def test_a_job_that_waited_too_long_is_read_again_before_it_starts(still_ours: bool, started: list[str]) -> None:
    under_test = ChildUnderTest(FakeConsumer())
    under_test.in_flight.add([delivery(1)], read_at=under_test.clock())
    under_test.clock.now += 21
    under_test.consumer.lost = [delivery(1)] if still_ours else []
    under_test.child._start_jobs()
    assert under_test.started == started
    assert [view.state for view in under_test.slots.read()] == [SlotState.DONE] * still_ours


def test_what_a_queue_refuses_to_settle_is_settled_a_second_later() -> None:
    under_test = ChildUnderTest(FakeConsumer(delivery(1)))
    under_test.consumer.refuses = True
    for _ in range(20):
        under_test.child.step()
    assert len(under_test.consumer.settled) == 1
    under_test.consumer.refuses = False
    under_test.clock.now += 1.1
    under_test.child.step()
    assert [settled.id for settled in under_test.consumer.settled] == ["job-1", "job-1"]
    assert under_test.slots.read() == []


def test_a_job_that_was_asked_to_stop_is_settled_again_as_stopped(caplog: pytest.LogCaptureFixture) -> None:
    consumer = FakeConsumer(delivery(1, name="raises"))
    consumer.answer = SettleAnswer.STOP_ASKED
    under_test = ChildUnderTest(consumer)
    for _ in range(2):
        under_test.child.step()
    with caplog.at_level("INFO"):
        under_test.child.settle()
    assert caplog.messages[-1] == "job job-1 of q does not run again, because the job or its batch was cancelled"
    assert [view.state for view in under_test.slots.read()] == [SlotState.RUNNING]
    consumer.answer = SettleAnswer.SETTLED
    under_test.child.drain()
    assert [type(settled) for settled in consumer.settled] == [Released, Stopped]
    assert under_test.slots.read() == []


def test_a_delivery_that_was_asked_to_stop_is_settled_without_a_start() -> None:
    asked = replace(delivery(1), is_stopping=True)
    under_test = ChildUnderTest(FakeConsumer(asked))
    for _ in range(2):
        under_test.child.step()
    assert [view.state for view in under_test.slots.read()] == [SlotState.RUNNING]
    under_test.child.settle()
    assert (under_test.started, under_test.consumer.settled) == ([], [Stopped("q", "job-1", "1-0")])


def test_an_envelope_that_cannot_be_read_may_be_followed() -> None:
    under_test = ChildUnderTest(FakeConsumer(replace(delivery(1), envelope=b'{"chain":')))
    for _ in range(2):
        under_test.child.step()
    under_test.child.drain()
    (settled,) = under_test.consumer.settled
    assert isinstance(settled, Failed)
    assert settled.is_followed


def test_what_could_not_be_settled_is_settled_later(monkeypatch: pytest.MonkeyPatch) -> None:
    under_test = ChildUnderTest(FakeConsumer(delivery(1)))
    under_test.child.step()
    under_test.child.step()
    monkeypatch.setattr(under_test.consumer, "begin", lose_connection)
    with pytest.raises(BackendUnavailable):
        under_test.child.settle()
    monkeypatch.undo()
    under_test.child.settle()
    assert [settled.id for settled in under_test.consumer.settled] == ["job-1"]


def test_what_could_not_be_handed_back_is_read_again(monkeypatch: pytest.MonkeyPatch) -> None:
    under_test = ChildUnderTest(FakeConsumer(delivery(1)))
    under_test.child.step()
    under_test.clock.now += 1
    monkeypatch.setattr(under_test.consumer, "hand_back", lose_connection)
    with pytest.raises(BackendUnavailable):
        under_test.child.settle_and_hand_back()
    monkeypatch.undo()
    under_test.consumer.lost = [delivery(1)]
    under_test.child.step()
    assert under_test.started == ["ok"]


def test_only_the_job_that_was_checked_is_started() -> None:
    in_flight = ChildUnderTest(FakeConsumer()).in_flight
    in_flight.add([delivery(1)], read_at=100)
    checked = in_flight.next_job()
    assert checked is not None
    in_flight.take_waiting()
    in_flight.add([delivery(2)], read_at=0)
    assert not in_flight.start(checked, now=0.0)


def test_the_slots_say_how_far_each_job_is() -> None:
    under_test = ChildUnderTest(FakeConsumer())
    under_test.in_flight.add([delivery(1), delivery(2), delivery(3)], read_at=under_test.clock())
    for _ in range(2):
        job = under_test.in_flight.next_job()
        assert job is not None
        assert under_test.in_flight.start(job, now=0.0)
        if job.delivery.id == "job-1":
            under_test.in_flight.finish(job, Acked("q", "job-1", "1-0"))
    assert [view.state for view in sorted(under_test.slots.read(), key=lambda view: view.ref.entry)] == [
        SlotState.DONE,
        SlotState.RUNNING,
        SlotState.WAITING,
    ]


def test_the_error_of_a_timeout_names_the_limit_also_after_a_standstill() -> None:
    clock = FakeClock()
    in_flight = InFlight(SlotTable(["q"], clock=clock), threads=1, clock=clock)
    in_flight.slots.extend_deadlines(90)
    in_flight.add([delivery(1)], read_at=clock())
    job = in_flight.next_job()
    assert job is not None
    in_flight.start(job, now=0.0)
    in_flight.arm(job, 60, name="ok")
    clock.now += 61
    ((_, error),) = in_flight.take_interruptions()
    assert str(error) == "The job ran longer than 60 s."


def overdue_child() -> ChildUnderTest:
    """A child with a running job whose timeout passed while all processes were suspended."""
    under_test = ChildUnderTest(FakeConsumer())
    under_test.slots._clock = under_test.clock
    under_test.in_flight.add([delivery(1)], read_at=under_test.clock())
    job = under_test.in_flight.next_job()
    assert job is not None
    under_test.in_flight.start(job, now=under_test.clock())
    under_test.in_flight.arm(job, 60, name="ok")
    under_test.watchdog.look()
    under_test.clock.now += 90
    return under_test


def test_a_late_watchdog_waits_until_its_supervisor_extends_the_deadlines(monkeypatch: pytest.MonkeyPatch) -> None:
    under_test = overdue_child()
    interrupted: list[str] = []
    monkeypatch.setattr(under_test.watchdog, "_interrupt", lambda job, error: interrupted.append(str(error)))
    monkeypatch.setattr(under_test.watchdog, "_settle_and_hand_back", lambda: None)
    under_test.watchdog.look()
    under_test.clock.now += 0.5
    under_test.watchdog.look()
    assert interrupted == []
    under_test.slots.extend_deadlines(90)
    under_test.slots.count_turn()
    under_test.watchdog.look()
    assert interrupted == []
    for _ in range(61):
        under_test.clock.now += 1
        under_test.watchdog.look()
    assert interrupted == ["The job ran longer than 60 s."]


def test_a_late_watchdog_without_a_turn_of_its_supervisor_waits_two_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    under_test = overdue_child()
    interrupted: list[str] = []
    monkeypatch.setattr(under_test.watchdog, "_interrupt", lambda job, error: interrupted.append(str(error)))
    monkeypatch.setattr(under_test.watchdog, "_settle_and_hand_back", lambda: None)
    under_test.watchdog.look()
    for _ in range(3):
        under_test.clock.now += 0.6
        under_test.watchdog.look()
    assert interrupted == []
    under_test.clock.now += 0.6
    under_test.watchdog.look()
    assert interrupted == ["The job ran longer than 60 s."]


def test_a_process_that_is_too_large_is_told_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    under_test = ChildUnderTest(FakeConsumer())
    monkeypatch.setattr(watchdog, "resident_bytes", lambda: 200_000_000)
    monkeypatch.setattr(under_test.watchdog, "_memory", 150_000_000)
    for _ in range(5):
        under_test.clock.now += 1
        under_test.watchdog.look()
    assert under_test.in_flight.must_leave
    told = [record.message for record in caplog.records]
    assert told == ["the child process is larger than 150 MB; it will be replaced"]


def test_a_replay_skips_what_is_finished_and_not_yet_settled() -> None:
    under_test = ChildUnderTest(FakeConsumer(delivery(1)))
    under_test.child.step()
    under_test.child.step()
    under_test.consumer.lost = [delivery(1), delivery(2)]
    under_test.slots.ask_replay()
    for _ in range(3):
        under_test.child.step()
    assert sorted(settled.id for settled in under_test.consumer.settled) == ["job-1", "job-2"]


def test_an_entry_id_that_does_not_fit_into_a_slot_is_an_error() -> None:
    slots = SlotTable(["q"])
    longest = replace(delivery(1), entry="9" * MAX_ENTRY_BYTES)
    slots.write(0, longest)
    slots.mark(0, SlotState.RUNNING)
    assert [view.ref for view in slots.read()] == [longest.ref]
    with pytest.raises(ValueError, match="has 42 bytes; at most 41 fit"):
        slots.write(1, replace(delivery(1), entry="9" * (MAX_ENTRY_BYTES + 1)))


@pytest.mark.parametrize("job_id", ["i" * 256, "ü" * 128, "i" + "ü" * 200])
def test_a_job_whose_id_has_too_many_bytes_fails_alone(job_id: str) -> None:
    """A foreign script can store such an id. The other slots stay readable, so their leases are renewed."""
    consumer = FakeConsumer(replace(delivery(1), id=job_id), delivery(2))
    under_test = ChildUnderTest(consumer)
    under_test.in_flight.add(consumer.ready, read_at=under_test.clock())
    consumer.ready = []
    assert delivery(2).ref in [view.ref for view in under_test.slots.read()]
    for _ in range(3):
        under_test.child.step()
    under_test.child.drain()
    failed, done = under_test.consumer.settled
    assert isinstance(failed, Failed)
    assert (failed.id, failed.entry, done.id) == (job_id, "1-0", "job-2")
    assert b"The job id has more than 255 bytes." in failed.failure


def test_a_child_that_ends_during_an_outage_does_not_log_its_end(caplog: pytest.LogCaptureFixture) -> None:
    under_test = ChildUnderTest(FakeConsumer())
    under_test.consumer.begin = lose_connection  # type: ignore[method-assign, assignment]
    under_test.child._sleep = lambda seconds: under_test.slots.order_stop(Stop.DRAIN)
    with caplog.at_level(logging.INFO):
        under_test.child.run()
    assert caplog.messages == ["the backend cannot be reached: away"]


def test_an_outage_has_not_ended_until_a_call_has_succeeded(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A paused child with no finished job has nothing to send."""
    caplog.set_level(logging.INFO)
    under_test = ChildUnderTest(FakeConsumer())
    child, slots, calls = under_test.child, under_test.slots, iter(range(5))

    def pending() -> list[Delivery]:
        if next(calls) < 3:
            lose_connection()
        child.stopping = True
        return []

    monkeypatch.setattr(under_test.consumer, "begin", lose_connection)
    monkeypatch.setattr(under_test.consumer, "pending", pending)
    monkeypatch.setattr(child, "_sleep", lambda _: slots.set_paused(True))
    child.run()
    assert next(calls) == 4
    assert caplog.messages == [
        "the backend cannot be reached: away",
        "this error has ended: the backend cannot be reached",
    ]
