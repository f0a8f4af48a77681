"""The mover, the janitor and the relay, with a keeper in memory and a clock that is set by hand."""

import pytest

from delayq.backends.values import Promoted, Reclaimed, Relayed, Repaired
from delayq.core.errors import (
    BackendError,
    BackendFull,
    BackendUnavailable,
    CallRefused,
    ConfigError,
    LoginRefused,
    NodeUnavailable,
    OutcomeUnknown,
)
from delayq.core.resting import REST, RestingQueues
from delayq.loops.janitor import Janitor
from delayq.loops.loop import Loop, run_loops
from delayq.loops.mover import Mover
from delayq.loops.relay import EVERY, Relay
from tests.support.fakes import FakeClock


class FakeQueues:
    """A QueueKeeper that answers each promotion of a queue with the next of its waits, and records who is served."""

    has_all_queues = True

    def __init__(self, **waits_us: list[int]) -> None:
        self._waits_us = waits_us
        self.promoted: list[str] = []
        self.reclaimed: list[str] = []
        self.repaired: list[str] = []
        self.followed: list[str] = []
        self.damaged: dict[str, Exception] = {}
        self.owed: dict[str, int] = {}
        self.again_in: float | None = None
        self.error: BackendError | None = None
        self.more = [0]
        self.lost = 0
        self.lease_ms = 30_000

    @property
    def served(self) -> list[str]:
        """The queues that were served, each once, in their order."""
        return list(dict.fromkeys(self.promoted + self.repaired + self.followed))

    def add(self, queue: str, wait_us: int) -> None:
        self._waits_us[queue] = [wait_us]

    def forget(self, queue: str) -> None:
        del self._waits_us[queue]

    def queues(self) -> list[str]:
        return sorted(self._waits_us)

    def promote(self, queue: str) -> Promoted:
        self._serve(queue, self.promoted)
        return Promoted(0, self.lost, self._waits_us[queue].pop(0), self.owed.get(queue, 0))

    def reclaim(self, queue: str) -> Reclaimed:
        self._serve(queue, self.reclaimed)
        return Reclaimed(1, 0, 0, self.lease_ms, more=self.more.pop(0) if self.more else 0)

    def repair(self, queue: str) -> Repaired:
        self._serve(queue, self.repaired)
        return Repaired()

    def follow_up(self, queue: str) -> Relayed:
        self._serve(queue, self.followed)
        return Relayed(1, self.again_in, self.error)

    def _serve(self, queue: str, served: list[str]) -> None:
        served.append(queue)
        if queue in self.damaged:
            raise self.damaged[queue]


class Stepping:
    """A loop that wants to be called again after some seconds, or raises."""

    def __init__(self, clock: FakeClock, answer: float | Exception) -> None:
        self._clock = clock
        self._answer = answer
        self.resting = RestingQueues(clock=clock)
        self.called_at: list[float] = []
        self.hints: list[set[str]] = []

    def has_work(self) -> bool:
        return False

    def step(self, hinted: set[str]) -> float:
        self.called_at.append(self._clock())
        self.hints.append(hinted)
        if isinstance(self._answer, Exception):
            raise self._answer
        return self._answer


class Failing(Stepping):
    """A loop that raises."""


def deaf() -> bool:
    """Say that no hints arrive."""
    return False


def test_the_mover_sleeps_until_the_next_job_is_due() -> None:
    keeper = FakeQueues(a=[300_000], b=[-1])
    assert Mover(keeper, deaf, clock=FakeClock()).step(set()) == pytest.approx(0.3)


def test_a_full_batch_is_followed_by_another_at_once() -> None:
    keeper = FakeQueues(a=[0, 0, 5_000_000])
    assert Mover(keeper, deaf, clock=FakeClock()).step(set()) == 1.0
    assert keeper.promoted == ["a", "a", "a"]


def test_lost_payloads_are_told_once_for_all_batches_of_a_turn(caplog: pytest.LogCaptureFixture) -> None:
    keeper = FakeQueues(a=[0, 0, -1])
    keeper.lost = 500
    Mover(keeper, deaf, clock=FakeClock()).step(set())
    assert caplog.messages == ["queue a: due jobs failed because Redis lost their payloads: 1500"]


def test_a_hint_makes_the_mover_look_at_one_queue() -> None:
    keeper = FakeQueues(a=[-1, 1_000], b=[-1])
    mover = Mover(keeper, deaf, clock=FakeClock())
    mover.step(set())
    mover.step({"a"})
    assert keeper.promoted == ["a", "b", "a"]


def test_one_damaged_queue_is_left_alone_for_a_second_and_stops_no_other() -> None:
    clock, keeper = FakeClock(), FakeQueues(bad=[], good=[1_000] * 51)
    keeper.damaged["bad"] = CallRefused("WRONGTYPE")
    mover = Mover(keeper, deaf, clock=clock)
    for _ in range(50):
        assert mover.step({"bad", "good"}) == pytest.approx(0.001)
    assert (keeper.promoted.count("bad"), keeper.promoted.count("good")) == (1, 50)
    clock.now += 1.1
    keeper.damaged.clear()
    keeper.add("bad", -1)
    mover.step(set())
    assert keeper.promoted.count("bad") == 2


def test_the_janitor_goes_on_after_a_damaged_queue() -> None:
    keeper = FakeQueues(bad=[], good=[])
    keeper.damaged["bad"] = CallRefused("WRONGTYPE")
    janitor = Janitor(keeper, reclaim_every=10, repair_every=60, clock=FakeClock())
    assert janitor.step(set()) == 10
    assert (keeper.repaired, janitor.reclaimed) == (["bad", "good"], 1)


def test_a_queue_that_is_no_longer_listed_is_left_alone() -> None:
    clock, keeper = FakeClock(), FakeQueues(a=[-1] * 9, b=[-1] * 9)
    mover = Mover(keeper, deaf, clock=clock)
    mover.step(set())
    keeper.forget("b")
    clock.now += 5.1
    mover.step(set())
    assert keeper.promoted == ["a", "b", "a"]


def test_a_queue_that_is_listed_later_is_served() -> None:
    clock, keeper = FakeClock(), FakeQueues(a=[-1] * 9)
    mover = Mover(keeper, deaf, clock=clock)
    mover.step(set())
    keeper.add("b", -1)
    assert mover.step(set()) == 1.0
    clock.now += 5.1
    mover.step(set())
    assert keeper.promoted == ["a", "a", "b"]


def test_the_mover_gives_other_queues_their_turn() -> None:
    keeper = FakeQueues(a=[0] * 99, b=[-1])
    assert Mover(keeper, deaf, clock=FakeClock()).step(set()) == 0.0
    assert keeper.promoted == ["a"] * 20 + ["b"]


def test_the_mover_looks_again_after_a_second_however_far_the_next_job_is() -> None:
    assert Mover(FakeQueues(a=[3_600_000_000]), deaf, clock=FakeClock()).step(set()) == 1.0
    assert Mover(FakeQueues(), deaf, clock=FakeClock()).step(set()) == 1.0


def test_the_mover_sleeps_longer_while_hints_arrive() -> None:
    for keeper in FakeQueues(a=[3_600_000_000]), FakeQueues(b=[-1]), FakeQueues():
        assert Mover(keeper, lambda: True, clock=FakeClock()).step(set()) == 5.0


def test_the_mover_looks_again_when_hints_have_ceased() -> None:
    clock, hears = FakeClock(), True
    keeper = FakeQueues(a=[-1, -1, -1])
    mover = Mover(keeper, lambda: hears, clock=clock)
    mover.step(set())
    hears = False
    assert mover.step(set()) == 1.0


def test_the_mover_tells_which_queues_owe() -> None:
    keeper = FakeQueues(a=[-1], b=[-1])
    keeper.owed = {"b": 3}
    mover = Mover(keeper, deaf, clock=FakeClock())
    mover.step(set())
    assert mover.outboxes == {"b"}


@pytest.mark.parametrize("error", [CallRefused("WRONGTYPE"), ValueError("an answer that makes no sense")])
@pytest.mark.parametrize("make", ["mover", "janitor", "relay"])
def test_whatever_is_wrong_with_one_queue_stops_no_other(make: str, error: Exception) -> None:
    clock, keeper = FakeClock(), FakeQueues(bad=[], good=[-1])
    keeper.damaged["bad"] = error
    loop: Loop = Mover(keeper, deaf, clock=clock)
    if make == "janitor":
        loop = Janitor(keeper, reclaim_every=10, repair_every=60, clock=clock)
    elif make == "relay":
        loop = Relay(keeper, {"bad", "good"}, clock=clock)
    loop.step(set())
    assert keeper.served == ["bad", "good"]


@pytest.mark.parametrize("error", [BackendUnavailable("away"), OutcomeUnknown("lost"), BackendFull("full")])
def test_trouble_of_the_whole_server_is_told_to_the_loop(error: Exception) -> None:
    keeper = FakeQueues(a=[], b=[])
    keeper.damaged["a"] = error
    with pytest.raises(type(error)):
        Janitor(keeper, reclaim_every=10, repair_every=60, clock=FakeClock()).step(set())
    with pytest.raises(type(error)):
        Relay(keeper, {"a"}, clock=FakeClock()).step(set())


def test_the_janitor_reclaims_often_and_repairs_now_and_then() -> None:
    clock, keeper = FakeClock(), FakeQueues(a=[])
    janitor = Janitor(keeper, reclaim_every=10, repair_every=25, clock=clock)
    assert janitor.step(set()) == 10
    for _ in range(3):
        clock.now += 10
        janitor.step({"a"})
    assert (len(keeper.reclaimed), len(keeper.repaired)) == (4, 2)
    assert janitor.step(set()) == 10
    assert len(keeper.reclaimed) == 4


def test_the_janitor_follows_the_shortest_lease_of_its_queues() -> None:
    clock, keeper = FakeClock(), FakeQueues(a=[])
    janitor = Janitor(keeper, reclaim_every=10, repair_every=60, clock=clock)
    keeper.lease_ms = 2_100
    assert janitor.step(set()) == pytest.approx(0.7)
    clock.now += 0.7
    keeper.lease_ms = 60_000
    assert janitor.step(set()) == pytest.approx(10)


def test_the_janitor_reclaims_until_nothing_is_left() -> None:
    keeper = FakeQueues(a=[])
    keeper.more = [1, 1, 0]
    janitor = Janitor(keeper, reclaim_every=10, repair_every=60, clock=FakeClock())
    janitor.step(set())
    assert (janitor.reclaimed, keeper.more) == (3, [])


def test_the_relay_follows_up_where_the_mover_says_and_everywhere_now_and_then() -> None:
    clock, keeper, outboxes = FakeClock(), FakeQueues(a=[], b=[]), {"b"}
    relay = Relay(keeper, outboxes, clock=clock)
    assert relay.step(set()) == EVERY
    assert (keeper.followed, outboxes) == (["b"], set())
    relay.step(set())
    clock.now += EVERY
    relay.step(set())
    assert (keeper.followed, relay.relayed) == (["b", "a", "b"], 3)


def test_the_relay_tries_jobs_that_wait_again() -> None:
    clock, keeper = FakeClock(), FakeQueues(a=[], b=[])
    keeper.again_in = 1.0
    relay = Relay(keeper, {"b"}, clock=clock)
    assert relay.step(set()) == 1.0
    relay.step(set())
    clock.now += 1.0
    keeper.again_in = None
    assert relay.step(set()) == EVERY - 1.0
    assert keeper.followed == ["b", "b"]


def test_the_relay_tries_a_queue_with_an_error_again() -> None:
    clock, keeper = FakeClock(), FakeQueues(a=[])
    keeper.damaged["a"] = CallRefused("WRONGTYPE")
    relay = Relay(keeper, {"a"}, clock=clock)
    assert relay.step(set()) == REST
    del keeper.damaged["a"]
    clock.now += REST
    assert relay.step(set()) == EVERY - REST
    assert keeper.followed == ["a", "a"]


@pytest.mark.parametrize("error", [None, CallRefused("WRONGTYPE"), NodeUnavailable("away")])
def test_an_error_has_ended_when_the_server_answers_a_call(
    error: Exception | None, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    clock, keeper = FakeClock(), FakeQueues(a=[-1] * 9)
    keeper.damaged["a"] = BackendUnavailable("away")

    def wait(seconds: float) -> set[str]:
        keeper.damaged.clear()
        if error is not None:
            keeper.damaged["a"] = error
        return clock.wait(seconds)

    run_loops([Mover(keeper, deaf, clock=clock)], wait, lambda: clock.now >= 103, clock=clock)
    has_ended = "this error has ended: Mover failed" in caplog.messages
    assert has_ended is not isinstance(error, NodeUnavailable)


def test_an_error_has_ended_when_the_server_has_no_queues(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    clock, keeper = FakeClock(), FakeQueues()
    listing = keeper.queues

    def refused() -> list[str]:
        raise LoginRefused("a wrong password")

    def wait(seconds: float) -> set[str]:
        keeper.queues = listing  # type: ignore[method-assign]
        return clock.wait(seconds)

    keeper.queues = refused  # type: ignore[method-assign]
    janitor = Janitor(keeper, reclaim_every=10, repair_every=60, clock=clock)
    run_loops([Mover(keeper, deaf, clock=clock), janitor], wait, lambda: clock.now >= 102, clock=clock)
    assert caplog.messages == ["a wrong password", "calls to Redis succeed again after a refused login"]


def test_an_error_has_not_ended_while_a_loop_makes_no_call(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    clock = FakeClock()
    loop = Failing(clock, LoginRefused("a wrong password"))

    def wait(seconds: float) -> set[str]:
        loop._answer = 0.5
        if clock.now >= 103:
            loop.resting.worked(["a"])
        return clock.wait(seconds)

    run_loops([loop], wait, lambda: clock.now >= 102.5, clock=clock)
    assert caplog.messages == ["a wrong password"]


@pytest.mark.parametrize("error", [BackendUnavailable("away"), LoginRefused("a wrong password")])
def test_an_error_has_not_ended_until_the_relay_has_called_the_server_again(
    error: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    clock, keeper = FakeClock(), FakeQueues(a=[])
    keeper.damaged["a"] = error
    relay = Relay(keeper, {"a"}, clock=clock)
    run_loops([relay], clock.wait, lambda: clock.now >= 104, clock=clock)
    assert len(caplog.messages) == 1
    assert keeper.followed == ["a"] * 4


def test_the_relay_goes_on_with_the_next_page_after_a_page_with_an_error(caplog: pytest.LogCaptureFixture) -> None:
    clock, keeper = FakeClock(), FakeQueues(a=[])
    keeper.again_in, keeper.error = 0.0, CallRefused("WRONGTYPE")
    relay = Relay(keeper, {"a"}, clock=clock)
    relay.step(set())
    assert (relay.relayed, relay.resting.have_refused()) == (1, True)
    relay.step(set())
    assert keeper.followed == ["a"]
    clock.now += REST
    keeper.error = None
    relay.step(set())
    assert (relay.relayed, relay.resting.have_refused()) == (2, False)


def test_a_single_run_of_the_relay_ends_also_when_records_must_wait(caplog: pytest.LogCaptureFixture) -> None:
    keeper = FakeQueues(a=[])
    answers = [Relayed(500, 0.0, CallRefused("WRONGTYPE")), Relayed(500, 0.0), Relayed(1, 0.001)]
    keeper.follow_up = lambda queue: answers.pop(0)  # type: ignore[method-assign]
    relay = Relay(keeper, {"a"}, clock=FakeClock())
    relay.run_once()
    assert (relay.relayed, relay.resting.failures) == (1001, 1)


def test_the_janitor_repairs_a_queue_with_an_error_again_at_the_next_reclaim(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    clock, keeper = FakeClock(), FakeQueues(a=[])
    keeper.damaged["a"] = CallRefused("WRONGTYPE")
    janitor = Janitor(keeper, reclaim_every=10, repair_every=60, clock=clock)
    for _ in range(3):
        janitor.step(set())
        clock.now += 10
    assert (keeper.repaired, keeper.reclaimed) == (["a"] * 3, [])
    del keeper.damaged["a"]
    janitor.step(set())
    assert (keeper.repaired, keeper.reclaimed) == (["a"] * 4, ["a"])
    assert [message for message in caplog.messages if "ended" in message] == ["this error has ended: queue a failed"]


def test_the_relay_runs_as_soon_as_the_mover_has_found_records() -> None:
    clock, keeper = FakeClock(), FakeQueues(a=[5_000_000, 5_000_000])
    mover = Mover(keeper, lambda: True, clock=clock)
    relay = Relay(keeper, mover.outboxes, clock=clock)
    waits: list[float] = []

    def wait(seconds: float) -> set[str]:
        waits.append(seconds)
        clock.now += seconds
        keeper.owed["a"] = 1  # a record arrives, and its notification gets lost
        return set()

    run_loops([mover, relay], wait, lambda: len(waits) == 2, clock=clock)
    assert (waits[0], keeper.followed) == (5.0, ["a"])


def test_a_loop_that_fails_is_called_again_after_a_second_and_stops_no_other(
    caplog: pytest.LogCaptureFixture,
) -> None:
    clock = FakeClock()
    bad, good = Failing(clock, ValueError("why")), Stepping(clock, 0.25)
    run_loops([bad, good], clock.wait, lambda: clock.now >= 103, clock=clock)
    assert bad.called_at == [100, 101, 102]
    assert len(good.called_at) == 12
    assert caplog.messages == ["Failing failed: why"]


def test_a_loop_that_can_never_work_ends_all(caplog: pytest.LogCaptureFixture) -> None:
    clock = FakeClock()
    with pytest.raises(ConfigError):
        run_loops([Stepping(clock, ConfigError("a wrong password"))], clock.wait, lambda: False, clock=clock)


def test_a_refused_login_is_logged_once_and_ends_all_after_a_minute(caplog: pytest.LogCaptureFixture) -> None:
    clock, refused = FakeClock(), LoginRefused("a wrong password")
    first, second = Failing(clock, refused), Failing(clock, refused)
    with pytest.raises(LoginRefused):
        run_loops([first, second], clock.wait, lambda: False, gives_up=True, clock=clock)
    assert clock.now == 160
    assert caplog.messages == ["a wrong password"]


def test_a_hint_wakes_all_loops_and_is_passed_on() -> None:
    clock = FakeClock()
    loop = Stepping(clock, 5.0)
    hints = iter([{"orders"}, set()])
    run_loops([loop], lambda seconds: next(hints, set()), lambda: len(loop.hints) == 2, clock=clock)
    assert loop.hints == [set(), {"orders"}]
    assert loop.called_at == [100, 100]
