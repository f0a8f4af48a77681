"""The time of the server in a worker: a wall clock that is set while the worker runs changes nothing."""

import pytest
import redis

from delayq.core.options import Options
from delayq.redis.connection.factory import make_executor
from delayq.redis.connection.url import Address
from delayq.redis.server_clock import MAX_DRIFT, READ_EVERY, ServerClock
from delayq.redis.worker.consumer import RedisConsumer
from delayq.redis.worker.hints import Hints
from delayq.redis.worker.lease_keeper import RedisLeaseKeeper
from tests.support.fakes import FakeClock
from tests.support.queue import OURS, QueueOnServer

TWO_HOURS = 7_200.0


class Machine:
    """A monotonic clock and a wall clock, both set by hand."""

    def __init__(self) -> None:
        self.monotonic = FakeClock()
        self.wall = FakeClock()
        self.server_clock = ServerClock(clock=self.monotonic, wall_clock=self.wall)

    def wait(self, seconds: float) -> None:
        self.monotonic.now += seconds
        self.wall.now += seconds


@pytest.fixture
def machine() -> Machine:
    return Machine()


def test_before_the_first_answer_the_time_is_that_of_the_machine(machine: Machine) -> None:
    assert machine.server_clock.is_due()
    assert machine.server_clock.now_ms() == int(machine.wall.now * 1000)


@pytest.mark.parametrize("step", [TWO_HOURS, -TWO_HOURS])
def test_a_wall_clock_that_is_set_changes_nothing(machine: Machine, step: float) -> None:
    machine.server_clock.set(1_800_000_000_000)
    machine.wait(5)
    assert not machine.server_clock.is_due()
    machine.wall.now += step
    assert machine.server_clock.now_ms() == 1_800_000_005_000
    assert machine.server_clock.is_due()


def test_the_time_is_read_again_now_and_then_and_after_an_outage(machine: Machine) -> None:
    machine.server_clock.set(1_800_000_000_000)
    machine.wait(READ_EVERY - 1)
    assert not machine.server_clock.is_due()
    machine.wait(1)
    assert machine.server_clock.is_due()
    machine.server_clock.set(1_800_000_060_000)
    assert not machine.server_clock.is_due()
    machine.server_clock.expire()
    assert machine.server_clock.is_due()


def test_the_time_is_read_again_after_a_suspended_machine(machine: Machine) -> None:
    machine.server_clock.set(1_800_000_000_000)
    machine.wall.now += 2 * MAX_DRIFT  # the monotonic clock stops while a machine is suspended
    assert machine.server_clock.is_due()


def asked(server: redis.Redis) -> int:
    """Return how often clients called TIME since the last call of this function."""
    calls = int(server.info("commandstats").get("cmdstat_time", {"calls": 0})["calls"])
    server.config_resetstat()
    return calls


def test_a_consumer_reads_the_time_with_its_switches(queue: QueueOnServer, url: str, machine: Machine) -> None:
    consumer = RedisConsumer(make_executor(Address(url)), queue.keys, ["orders"], Options(), name=OURS)
    consumer._clock = machine.server_clock
    consumer.open()
    asked(queue.server)
    consumer.wait(0.01)
    consumer.complete(consumer.begin([], 1))
    assert asked(queue.server) == 0
    before = consumer.now_ms()
    machine.wall.now += TWO_HOURS
    assert consumer.now_ms() == before
    consumer.complete(consumer.begin([], 1))
    consumer.wait(0.01)
    assert asked(queue.server) == 1
    machine.wait(READ_EVERY)
    consumer.wait(0.01)
    assert asked(queue.server) == 1
    server_ms = int(queue.server.time()[0]) * 1000
    assert consumer.now_ms() == pytest.approx(server_ms, abs=60_000)


def test_a_lease_keeper_reads_the_time_with_a_renewal(queue: QueueOnServer, url: str, machine: Machine) -> None:
    address = Address(url)
    hints = Hints(address, queue.keys.cancel)
    keeper = RedisLeaseKeeper(make_executor(address), queue.keys, ["orders"], Options(), hints)
    keeper._clock = machine.server_clock
    keeper.open()
    asked(queue.server)
    keeper.renew(OURS, [])
    assert asked(queue.server) == 0
    machine.wait(READ_EVERY)
    keeper.renew(OURS, [])
    assert asked(queue.server) == 1
