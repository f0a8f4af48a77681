"""How much to read, when to stop, and how a stop is asked for."""

from __future__ import annotations

import os
import signal
import threading
import time

import pytest

from delayq.core.errors import BackendUnavailable, ConfigError, OutcomeUnknown
from delayq.core.events import WorkerStopping
from delayq.worker.listeners import Listeners
from delayq.worker.memory import MemoryLimit, resident_mb
from delayq.worker.names import consumer_name
from delayq.worker.options import StopReason
from delayq.worker.patience import wait_for_backend
from delayq.worker.prefetch import MOST, Prefetch
from delayq.worker.signals import STOPS, Signals
from tests.support.fakes import Clock

# -- prefetch --------------------------------------------------------------------------------------------------------


def settled_at(job_s: float, size: int = 100) -> int:
    prefetch = Prefetch()
    for _ in range(60):
        count = prefetch.count()
        prefetch.observe(count, count * job_s, count * size)
    return prefetch.count()


def test_the_first_read_asks_for_one() -> None:
    assert Prefetch().count() == 1


@pytest.mark.parametrize(
    ("job_s", "least", "most"), [(0.000_001, MOST, MOST), (0.001, 18, 20), (0.005, 3, 4), (0.020, 1, 1), (60.0, 1, 1)]
)
def test_it_holds_about_twenty_milliseconds_of_work(job_s: float, least: int, most: int) -> None:
    assert least <= settled_at(job_s) <= most


def test_large_payloads_are_read_few_at_a_time() -> None:
    assert settled_at(0.000_001, size=250_000) <= 16
    assert settled_at(0.000_001, size=60_000_000) == 1


def test_one_large_payload_counts_at_once() -> None:
    prefetch = Prefetch()
    for _ in range(60):
        prefetch.observe(10, 0.000_01, 1_000)
    assert prefetch.count() == MOST
    prefetch.observe(1, 0.000_001, 4_000_000)
    assert prefetch.count() == 1


def test_nothing_done_teaches_nothing() -> None:
    prefetch = Prefetch()
    prefetch.observe(0, 5.0, 0)
    assert prefetch.count() == 1


# -- when to stop ----------------------------------------------------------------------------------------------------


def test_memory_in_use() -> None:
    assert MemoryLimit(1).exceeded()
    assert not MemoryLimit(1_000_000).exceeded()
    assert not MemoryLimit(0).exceeded(), "0 = no limit"
    assert 5 < resident_mb() < 5_000


def test_memory_is_looked_at_once_a_second(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, looks = Clock(), iter(range(5, 8))
    monkeypatch.setattr("delayq.worker.memory.resident_mb", lambda: next(looks))
    limit = MemoryLimit(5, clock)
    assert [limit.exceeded() for _ in range(3)] == [True] * 3
    assert next(looks) == 6, "the three cost one look"


def test_exit_codes() -> None:
    codes = {reason: reason.exit_code for reason in StopReason}
    assert codes.pop(StopReason.MEMORY) == 12
    assert codes.pop(StopReason.ABORTED) == 130
    assert set(codes.values()) == {0}


# -- signals ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("number", STOPS)
def test_signals_are_counted_said_at_once_and_end_a_wait(number: signal.Signals) -> None:
    before, heard = signal.getsignal(number), []
    with Signals(lambda: heard.append(number)) as signals:
        assert signals.stopped_at == float("inf")
        os.kill(os.getpid(), number)
        assert (signals.stops, len(heard)) == (1, 1)
        first_at = signals.stopped_at
        assert first_at <= time.monotonic()
        os.kill(os.getpid(), number)
        assert signals.stopped_at == first_at
        started = time.monotonic()
        signals.wait(10)
        assert time.monotonic() - started < 5
        assert signals.stops == 2
    assert signal.getsignal(number) is before


@pytest.mark.parametrize("number", STOPS)
def test_the_last_ones_leave_a_process_deaf_once_it_was_told(number: signal.Signals) -> None:
    before = {stop: signal.getsignal(stop) for stop in STOPS}
    try:
        with Signals(last=True):
            pass
        assert {stop: signal.getsignal(stop) for stop in STOPS} == before
        with Signals(last=True):
            os.kill(os.getpid(), number)
        assert [signal.getsignal(stop) for stop in STOPS] == [signal.SIG_IGN] * len(STOPS)
    finally:
        for stop, handler in before.items():
            signal.signal(stop, handler)


def test_pause_go_on_and_dump() -> None:
    with Signals() as signals:
        os.kill(os.getpid(), signal.SIGUSR2)
        assert signals.paused
        os.kill(os.getpid(), signal.SIGCONT)
        os.kill(os.getpid(), signal.SIGTTIN)
        assert (signals.paused, signals.dump_wanted, signals.stops) == (False, True, 0)


def test_a_program_that_ignores_hangups_goes_on_ignoring_them() -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with Signals() as signals:
            os.kill(os.getpid(), signal.SIGHUP)
            assert signals.stops == 0
    finally:
        signal.signal(signal.SIGHUP, before)


def test_outside_the_main_thread_nothing_would_be_heard() -> None:
    raised: list[BaseException] = []

    def work() -> None:
        try:
            Signals().__enter__()
        except RuntimeError as error:
            raised.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert "main thread" in str(raised[0])


# -- waiting for a backend -------------------------------------------------------------------------------------------


def test_a_backend_that_is_away_is_waited_for_and_that_is_said(caplog: pytest.LogCaptureFixture) -> None:
    errors = [BackendUnavailable("not up"), OutcomeUnknown("hangs"), BackendUnavailable("not up")]

    def connect() -> str:
        if errors:
            raise errors.pop(0)
        return "here"

    assert wait_for_backend(connect, lambda: False, lambda seconds: None) == "here"
    assert "waiting to start: not up" in caplog.text


def test_waiting_ends_when_a_stop_is_asked_for() -> None:
    slept: list[float] = []

    def connect() -> str:
        raise BackendUnavailable("not up")

    assert wait_for_backend(connect, lambda: len(slept) == 3, slept.append) is None
    assert slept == sorted(slept), "longer each time"


def test_what_no_time_will_mend_is_raised() -> None:
    def connect() -> str:
        raise ConfigError("wrong password")

    with pytest.raises(ConfigError):
        wait_for_backend(connect, lambda: False, lambda seconds: None)


# -- listeners and names ---------------------------------------------------------------------------------------------


def test_a_listener_that_raises_is_said_and_keeps_no_other_from_hearing(caplog: pytest.LogCaptureFixture) -> None:
    heard: list[object] = []

    def broken(event: object) -> None:
        raise KeyError("no such metric")

    event = WorkerStopping("w", "empty", 3)
    Listeners([broken, heard.append]).tell(event)
    assert heard == [event]
    assert "WorkerStopping" in caplog.text
    assert "no such metric" in caplog.text


def test_without_listeners_events_need_not_be_made() -> None:
    assert not Listeners()
    assert Listeners([print])


def test_consumer_names_have_delayqs_form_and_no_two_are_alike(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("socket.gethostname", lambda: "höst:a b.local")
    one, two = consumer_name(), consumer_name()
    assert one != two
    head, host, pid, rest = one.split(":")
    assert (head, host, pid) == ("dq", "h_st_a_b.local", str(os.getpid()))
    assert rest.isalnum()
    assert consumer_name("shop-1").split(":")[1] == "shop-1"
