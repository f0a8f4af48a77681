"""A child with four places: jobs whose worker vanished more than once, and places that are taken for long."""

from delayq.backends.values import Acked
from delayq.core.control_flow import JobInterrupted
from delayq.worker.child import Child
from delayq.worker.in_flight import InFlight, JobInFlight
from delayq.worker.runners.job_runner import JobRunner
from delayq.worker.shared_memory import SlotTable
from delayq.worker.watchdog import Watchdog
from tests.support.fakes import FakeClock, FakeConsumer, delivery

LEASE = 30.0


class ManualRunner(JobRunner):
    """A JobRunner whose jobs run until the test ends them. A wait lasts a tenth of a second."""

    def __init__(self, clock: FakeClock) -> None:
        self.running: dict[str, JobInFlight] = {}
        self.waits = 0
        self._clock = clock

    def execute(self, job: JobInFlight) -> None:
        self.running[job.delivery.id] = job

    def interrupt(self, job: JobInFlight, error: JobInterrupted) -> None:
        pass

    def wait(self, timeout: float) -> None:
        self.waits += 1
        self._clock.now += 0.1

    def close(self) -> None:
        pass


class ThreadedChild:
    """A child with four places, where a long job runs already."""

    def __init__(self) -> None:
        self.clock = FakeClock()
        self.consumer = FakeConsumer()
        self.in_flight = InFlight(SlotTable(["q"]), threads=4, clock=self.clock)
        self.runner = ManualRunner(self.clock)
        self.child = Child(
            self.consumer, self.in_flight.slots, self.in_flight, self.runner, lease=LEASE, clock=self.clock
        )
        self.watchdog = Watchdog(
            self.in_flight,
            settle_and_hand_back=self.child.settle_and_hand_back,
            interrupt=self.runner.interrupt,
            store_progress=self.consumer.store_progress,
            lease=LEASE,
            clock=self.clock,
        )
        self.take(0)

    def take(self, *numbers: int, recoveries: int = 0) -> None:
        """Let the child find jobs in the queue."""
        self.consumer.ready += [delivery(number, recoveries=recoveries) for number in numbers]
        self.steps(1)

    def steps(self, number: int) -> None:
        for _ in range(number):
            self.child.step()
            self.watchdog.look()

    def start(self, *numbers: int) -> None:
        """Let jobs run that take until the test ends them."""
        self.in_flight.add([delivery(number) for number in numbers], read_at=self.clock())
        self.child.step()

    def run_quick_jobs(self) -> None:
        """Let the child learn that jobs take no time."""
        self.steps(1)
        for number in range(1_000, 1_100):
            self.in_flight.add([delivery(number)], read_at=self.clock())
            job = self.in_flight.next_job()
            assert job is not None
            assert self.in_flight.start(job, now=self.clock())
            self.in_flight.finish(job, Acked("q", job.delivery.id, job.delivery.entry))
        self.child.settle()

    def end(self, id: str) -> None:
        job = self.runner.running.pop(id)
        self.in_flight.finish(job, Acked("q", job.delivery.id, job.delivery.entry))

    @property
    def running(self) -> list[str]:
        return sorted(self.runner.running)


def test_a_first_recovery_runs_like_any_job() -> None:
    child = ThreadedChild()
    child.take(1, recoveries=1)
    child.steps(1)
    assert child.running == ["job-0", "job-1"]


def test_a_suspect_waits_until_nothing_runs_and_nothing_is_read_or_handed_back_meanwhile() -> None:
    child = ThreadedChild()
    child.take(1, recoveries=2)
    child.consumer.ready = [delivery(number) for number in range(2, 9)]
    trips, waits = child.consumer.trips, child.runner.waits
    child.steps(10)
    assert child.running == ["job-0"]
    assert (child.consumer.trips, child.consumer.handed_back) == (trips, [])
    assert child.runner.waits == waits + 10
    child.end("job-0")
    child.steps(2)
    assert child.running == ["job-1"]
    assert len(child.consumer.ready) == 7
    child.end("job-1")
    child.steps(2)
    assert len(child.running) == 4


def test_a_suspect_waits_for_one_lease_at_most() -> None:
    child = ThreadedChild()
    child.take(1, recoveries=2)
    child.consumer.ready = [delivery(2)]
    child.steps(3)
    assert child.running == ["job-0"]
    child.clock.now += LEASE
    child.consumer.lost = [delivery(0), delivery(1, recoveries=2)]
    child.steps(3)
    assert child.running == ["job-0", "job-1", "job-2"]
    assert child.consumer.handed_back == []


def test_a_suspect_without_a_free_place_is_handed_back_like_any_job() -> None:
    child = ThreadedChild()
    child.take(1, 2, 3)
    child.steps(1)
    assert len(child.running) == 4
    child.in_flight.add([delivery(9, recoveries=2)], read_at=child.clock())
    child.clock.now += 1
    child.watchdog.look()
    assert [held.id for held in child.consumer.handed_back] == ["job-9"]


def test_a_child_with_free_places_looks_for_jobs_without_spinning() -> None:
    child = ThreadedChild()
    child.steps(1)
    waits = child.runner.waits
    child.steps(5)
    assert child.runner.waits == waits + 5


def test_a_child_whose_places_are_taken_for_long_reads_and_hands_back_nothing() -> None:
    child = ThreadedChild()
    child.run_quick_jobs()
    child.start(1, 2, 3)
    child.steps(5)
    trips = child.consumer.trips
    child.consumer.ready = [delivery(number) for number in range(4, 60)]
    child.steps(50)
    assert (child.consumer.trips, child.consumer.handed_back) == (trips, [])
    child.end("job-1")
    child.child.step()
    child.child.step()
    assert len(child.running) == 4


def test_only_what_has_waited_is_handed_back_beside_a_long_job() -> None:
    child = ThreadedChild()
    child.start(1, 2, 3)
    child.clock.now += 1
    child.in_flight.add([delivery(4), delivery(5)], read_at=child.clock())
    child.watchdog.look()
    assert child.consumer.handed_back == []
    child.clock.now += 0.1
    child.watchdog.look()
    assert [held.id for held in child.consumer.handed_back] == ["job-4", "job-5"]


def test_a_free_place_beside_long_jobs_is_used_for_what_it_can_run_soon() -> None:
    child = ThreadedChild()
    child.run_quick_jobs()
    child.start(1, 2)
    child.steps(5)
    assert 4 <= child.in_flight.room() <= 250
    child.consumer.ready = [delivery(number) for number in range(4, 60)]
    child.child.step()
    child.child.step()
    assert child.consumer.ready == []
    assert len(child.running) == 4


def test_no_more_jobs_start_than_the_child_may_run() -> None:
    """One read of several queues can bring a job of each queue."""
    child = ThreadedChild()
    child.child._jobs_left = 2
    child.take(1, 2, 3)
    child.steps(3)
    assert child.running == ["job-0", "job-1"]
