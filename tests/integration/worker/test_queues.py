"""Which queue, when: strict order, pauses, movers side by side, new queues, the high-water mark, the clock."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from contextlib import ExitStack
from functools import partial
from itertools import accumulate
from typing import Any

import pytest

from delayq.core.outcome import DONE
from delayq.core.states import State
from delayq.drivers.base import Delivery, Fetched, Settlement
from delayq.drivers.redis_streams import RedisStreams
from delayq.loops.loop import Loop
from delayq.loops.mover import Mover
from delayq.redis.connect import Connector
from delayq.worker import supply
from delayq.worker.holding import Holding
from delayq.worker.listeners import Listeners
from delayq.worker.slots import Slots, Word
from tests.support.machine import fair_clock, wait_fairly
from tests.support.station import QUEUE, Station
from tests.support.waiting import wait_until

NOW = 1_800_000_000_000


@pytest.mark.parametrize("score", ["+inf", "-inf", "1800000000000000000", "-5"])
def test_an_odd_score_in_one_queue_keeps_no_later_queue_from_running(station: Station, score: str) -> None:
    ran = station.tape()
    station.handles("note", lambda n: ran.append(n))  # noqa: PLW0108  (a handler takes its arguments by name)
    station.client.schedule("note", {"n": 0}, id="x", queue="a", delay="1h")
    commands: Any = station.connector.commands()
    commands.execute_command("ZADD", "delayq:{a}:scheduled", "XX", score, "x")
    station.client.schedule_many([{"name": "note", "data": {"n": n}, "queue": "z", "delay": "50ms"} for n in range(10)])
    with station.working(queues=("z",), mover=True):
        wait_until(lambda: len(ran) == 10, what="all jobs of the later queue have run")


# -- order -----------------------------------------------------------------------------------------------------------


def test_a_higher_queue_goes_before_a_lower_one(station: Station) -> None:
    """All of high is run before any of low, and what comes into high while low is worked on is next."""
    ran = station.tape()

    def note(tag: str) -> None:
        ran.append(tag)
        time.sleep(0.005)
        if ran.count("low") == 3 and "late" not in ran:
            station.client.schedule("note", {"tag": "late"}, queue="high")

    station.handles("note", note)
    for tag in ("low", "high"):
        station.client.schedule_many([{"name": "note", "data": {"tag": tag}, "queue": tag} for _ in range(40)])
    station.drain(queues=("high", "low"))
    assert ran[:40] == ["high"] * 40
    late = ran.index("late")
    assert 43 <= late <= 48, "at the latest after the batch that was read already"


def test_what_is_being_handed_back_to_a_higher_queue_goes_before_a_lower_one(
    station: Station, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A child whose job took long hands back the next one, and reads on before that has arrived."""
    monkeypatch.setattr(supply, "RETURN_S", 20.0)
    for queue, job_id in (("high", "first"), ("high", "second"), ("low", "third")):
        station.client.schedule("note", id=job_id, queue=queue)
    consumer = station.driver.consumer("dq:host:1:a1", ["high", "low"])
    under_way, hand_back = threading.Event(), consumer.hand_back

    def slowly(deliveries: Sequence[Delivery]) -> None:
        under_way.set()
        time.sleep(0.3)  # no synchronisation: a server that answers late
        hand_back(deliveries)

    monkeypatch.setattr(consumer, "hand_back", slowly)
    slots = Slots(("high", "low"), 4)
    slots.floats[Word.LEASE] = 30.0
    holding = Holding(slots, consumer.now_ms)
    child = supply.Supply(slots, holding, consumer, Listeners())
    assert child.read(2, 0.0) == 2
    running = holding.start()
    assert running is not None
    watchdog = threading.Thread(target=child.hand_back)
    watchdog.start()
    assert under_way.wait(20)
    holding.finish(running, DONE)
    child.read(1, 0.0)
    taken = holding.start()
    watchdog.join()
    assert taken is not None
    assert taken.delivery.id == "second"
    consumer.close()


def test_due_order_is_start_order(station: Station) -> None:
    """A child that stands still hands back what it has not started, to the tail: those alone may come later."""
    station.now_ms = NOW
    ran = station.tape()
    station.handles("note", lambda n: ran.append(n))  # noqa: PLW0108  (a handler takes its arguments by name)
    delays = [(n * 7_919) % 1_000 for n in range(1_000)]
    station.client.schedule_many([{"name": "note", "data": {"n": ms}, "delay": f"{ms}ms"} for ms in delays])
    station.now_ms += 1_000
    station.drain(mover=True)
    handed_back = int(station.connector.commands().hget(station.keys().meta, "handed_back_total") or 0)
    passed_by = [ms for ms, latest in zip(ran[:], accumulate(ran[:], max), strict=True) if ms < latest]
    assert sorted(ran[:]) == sorted(delays)
    assert len(passed_by) <= handed_back


def test_an_idle_worker_hears_of_every_queue_it_serves(station: Station) -> None:
    ran = station.tape()
    station.handles("note", lambda tag: ran.append(tag))  # noqa: PLW0108  (as above)

    def heard(tag: str) -> bool:
        return ran[-1:] == [tag]

    with station.working(queues=("high", "middle", "low"), sleep_ms=1_000):
        for tag in ("low", "middle", "high"):
            station.client.schedule("note", {"tag": tag}, queue=tag)
            wait_fairly(partial(heard, tag), within=2, what=f"{tag} is run")


# -- pauses ----------------------------------------------------------------------------------------------------------


def test_a_paused_queue_is_left_alone_until_it_is_resumed(station: Station) -> None:
    ran = station.tape()
    station.handles("note", lambda tag: ran.append(tag))  # noqa: PLW0108  (as above)
    station.client.pause("calm")
    with station.working(queues=("calm", QUEUE), mover=True):
        station.client.schedule("note", {"tag": "calm"}, queue="calm", id="c1")
        station.client.schedule("note", {"tag": "other"}, id="o1")
        station.until("o1", State.ABSENT)
        assert station.state("c1", "calm") is State.SCHEDULED
        station.client.resume("calm")
        wait_fairly(lambda: station.state("c1", "calm") is State.ABSENT, within=3, what="it is run")
    assert ran == ["other", "calm"]


@pytest.mark.timed
@pytest.mark.parametrize("lively", [False, True], ids=["after a rest", "while jobs come"])
def test_what_a_blocked_reader_still_gets_is_handed_back_uncounted(station: Station, lively: bool) -> None:
    """A pause does not reach a reader that is blocked; what another worker hands back arrives there."""
    reader = station.driver.consumer("dq:reader:1:a", [QUEUE])
    if lively:
        station.client.schedule("note")
        assert reader.settle([Settlement(one, DONE) for one in reader.wait(1.0).deliveries]).settled == [True]
    station.client.schedule("note", id="o1")
    other = station.driver.consumer("dq:other:1:a", [QUEUE])
    held = other.fetch([], 1).deliveries
    got: list[Fetched] = []
    thread = threading.Thread(target=lambda: got.append(reader.wait(1.0)))
    thread.start()
    clients = station.connector.commands().client_list
    wait_until(lambda: any("b" in row["flags"] and row["cmd"] == "xreadgroup" for row in clients()), what="it blocks")
    station.client.pause(QUEUE)
    other.hand_back(held)
    thread.join()
    assert [list(fetched.deliveries) for fetched in got] == [[]]
    after = station.job("o1")
    assert after.envelope is not None
    assert (after.state, after.envelope.attempts, after.recoveries) == (State.READY, 0, 0)
    assert station.client.stats(QUEUE)[0].counters["handed_back_total"] == 2
    for consumer in (other, reader):
        consumer.close()


def test_a_pause_that_ends_by_itself(station: Station) -> None:
    ran = station.tape()
    station.handles("note", lambda: ran.append("ran"))
    station.client.pause(QUEUE, length="400ms")
    started = time.monotonic()
    with station.working(mover=True):
        station.client.schedule("note", id="o1")
        station.until("o1", State.ABSENT)
    assert time.monotonic() - started >= 0.4


# -- movers ----------------------------------------------------------------------------------------------------------


def test_many_movers_side_by_side_move_each_job_once(station: Station, redis_url: str) -> None:
    runs = station.tally()
    station.handles("note", lambda n: runs.add(n))  # noqa: PLW0108  (as above)
    count = 3_000
    with ExitStack() as stack:
        for _ in range(6):
            connector = Connector(redis_url)
            stack.callback(connector.close)
            loop = Loop(Mover(RedisStreams(connector, station.options)))
            loop.start()
            stack.callback(loop.stop)
        stack.enter_context(station.working())
        specs = [{"name": "note", "data": {"n": n}, "delay": f"{300 + n % 700}ms", "id": f"j{n}"} for n in range(count)]
        station.client.schedule_many(specs)
        wait_until(lambda: len(runs) == count, timeout=40, what="all have run")
        station.until_gone([f"j{n}" for n in range(count)])
    assert set(runs.values()) == {1}
    assert station.client.stats(QUEUE)[0].counters["promoted_total"] == count


def deaf(seconds: float) -> frozenset[str]:
    """A wait that no hint ends."""
    time.sleep(seconds)
    return frozenset()


@pytest.mark.timed
@pytest.mark.parametrize("hint", [True, False], ids=["by its wake-up", "by polling"])
def test_a_new_queue_is_found(station: Station, hint: bool) -> None:
    mover = Mover(station.driver)
    if not hint:
        mover._wake_ups.wait = deaf  # type: ignore[method-assign]
    loop = Loop(mover)
    loop.start()
    try:
        wait_until(lambda: loop.last_success > 0, what="the mover runs")
        time.sleep(0.05)  # no synchronisation: only so that it sleeps already
        started = fair_clock()
        ref = station.client.schedule("note", delay="100ms", queue="brand-new")
        wait_until(lambda: station.state(ref.id, "brand-new") is State.READY, what="it is promoted")
        late = fair_clock() - started - 0.1
        assert late < (0.15 if hint else 1.3)
    finally:
        loop.stop()


@pytest.mark.timed
def test_a_nearer_job_does_not_wait_for_a_farther_one(station: Station) -> None:
    started, client = station.tape(), station.connector.commands()
    station.handles("note", lambda tag: started.append((tag, time.monotonic(), fair_clock())))
    asked: dict[str, tuple[float, float]] = {}

    def ask(tag: str, delay: str) -> None:
        asked[tag] = time.monotonic(), fair_clock()
        station.client.schedule("note", {"tag": tag}, delay=delay)

    with station.working(mover=True):
        wait_until(lambda: client.hget(station.keys().meta, "mover_tick"), what="the mover looks")
        seen = client.hget(station.keys().meta, "mover_tick")
        ask("far", "1h")
        wait_until(lambda: client.hget(station.keys().meta, "mover_tick") != seen, what="it knows of the farther one")
        ask("near", "200ms")
        ask("now", "0s")
        wait_until(lambda: len(started) == 2, what="the nearer ones have run")
    due = {"now": 0.0, "near": 0.2}
    assert [tag for tag, at, _ in started if at - asked[tag][0] < due[tag] - 0.001] == []
    assert [(tag, at) for tag, _, at in started if at - asked[tag][1] >= due[tag] + 0.15] == []


@pytest.mark.station(high_water=50)
def test_a_backlog_waits_in_the_sorted_set_and_loses_nothing(station: Station) -> None:
    runs = station.tally()
    most: list[int] = []
    go_on = station.flag()

    def note(n: int) -> None:
        assert go_on.wait(50)
        runs.add(n)

    station.handles("note", note)
    station.client.schedule_many([{"name": "note", "data": {"n": n}, "id": f"j{n}"} for n in range(400)])
    with station.working(mover=True):
        wait_until(lambda: station.client.stats(QUEUE)[0].reserved, what="it is under way")
        for _ in range(5):
            stats = station.client.stats(QUEUE)[0]
            most.append(stats.ready + stats.reserved)
        go_on.set()
        wait_until(lambda: len(runs) == 400, what="all have run")
        station.until_gone([f"j{n}" for n in range(400)])
    assert max(most) <= 50
    assert set(runs.values()) == {1}


def test_only_the_servers_clock_counts(station: Station, monkeypatch: pytest.MonkeyPatch) -> None:
    """A producer and a worker whose clocks are an hour off, in either direction."""
    ran = station.tape()
    station.handles("note", lambda: ran.append(1))
    real = time.time
    for skew in (-3_600.0, 3_600.0):
        monkeypatch.setattr(time, "time", lambda skew=skew: real() + skew)
        ref = station.client.schedule("note", delay="300ms")
        begun = time.monotonic()
        with station.working(mover=True):
            station.until(ref.id, State.ABSENT)  # waits for seconds, and not for an hour
        assert time.monotonic() - begun + 0.01 >= 0.3
    assert ran == [1, 1]
