"""How much to read, when to stop, and how a stop is asked for."""

from __future__ import annotations

import os
import signal
import threading
import time

import pytest

from delayq.core.backoff import Fixed
from delayq.core.errors import BackendUnavailable, ConfigError, OutcomeUnknown
from delayq.core.events import WorkerStopping
from delayq.core.outcome import Policy
from delayq.worker.limits import Limits, resident_mb
from delayq.worker.listeners import Listeners
from delayq.worker.names import consumer_name
from delayq.worker.options import StopReason, WorkerOptions
from delayq.worker.patience import wait_for_backend
from delayq.worker.prefetch import MOST, Prefetch
from delayq.worker.stop import StopNow, StopSignals


def limits(**options: int | bool) -> Limits:
    policy = Policy(tries=1, backoff=Fixed(1))
    return Limits(WorkerOptions(queues=("q",), fallback=policy, **options))  # type: ignore[arg-type]  # one call for all


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


def test_without_limits_only_an_interruption_stops() -> None:
    free = limits()
    free.jobs = 10**9
    assert free.reason(interrupted=False) is None
    assert free.reason(interrupted=True) is StopReason.INTERRUPTED


def test_max_jobs_and_once_count_what_was_started() -> None:
    three, once = limits(max_jobs=3), limits(once=True)
    assert (three.jobs_left(), once.jobs_left()) == (3, 1)
    three.jobs, once.jobs = 2, 0
    assert (three.reason(interrupted=False), once.reason(interrupted=False)) == (None, None)
    three.jobs, once.jobs = 3, 1
    assert three.reason(interrupted=False) is StopReason.MAX_JOBS
    assert once.reason(interrupted=False) is StopReason.ONCE
    assert (three.jobs_left(), once.jobs_left()) == (0, 0)


def test_max_time() -> None:
    short = limits(max_time_ms=20)
    assert short.reason(interrupted=False) is None
    time.sleep(0.03)
    assert short.reason(interrupted=False) is StopReason.MAX_TIME


def test_memory_in_use() -> None:
    assert limits(memory_mb=1).reason(interrupted=False) is StopReason.MEMORY
    assert limits(memory_mb=1_000_000).reason(interrupted=False) is None
    assert 5 < resident_mb() < 5_000


def test_an_interruption_goes_before_everything() -> None:
    assert limits(memory_mb=1, max_time_ms=1).reason(interrupted=True) is StopReason.INTERRUPTED


def test_exit_codes() -> None:
    codes = {reason: reason.exit_code for reason in StopReason}
    assert codes.pop(StopReason.MEMORY) == 12
    assert codes.pop(StopReason.ABORTED) == 130
    assert set(codes.values()) == {0}


# -- signals ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGQUIT])
def test_the_first_signal_asks_and_the_second_breaks_a_handler(number: signal.Signals) -> None:
    before = signal.getsignal(number)
    with StopSignals() as signals:
        signals.breakable = True
        os.kill(os.getpid(), number)
        assert signals.asked.is_set()
        with pytest.raises(StopNow):
            os.kill(os.getpid(), number)
        os.kill(os.getpid(), number)  # the third: it is on its way out already
    assert signal.getsignal(number) is before


def test_no_signal_breaks_what_must_not_be_broken() -> None:
    with StopSignals() as signals:
        for _ in range(3):
            os.kill(os.getpid(), signal.SIGTERM)
        assert signals.asked.is_set()


def test_in_another_thread_signals_are_left_alone() -> None:
    before = signal.getsignal(signal.SIGTERM)
    seen = []

    def work() -> None:
        with StopSignals() as signals:
            seen.append(signal.getsignal(signal.SIGTERM))
            signals.ask()
            seen.append(signals.asked.is_set())

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert seen == [before, True]


# -- waiting for a backend -------------------------------------------------------------------------------------------


def test_a_backend_that_is_away_is_waited_for_and_that_is_said(caplog: pytest.LogCaptureFixture) -> None:
    errors = [BackendUnavailable("not up"), OutcomeUnknown("hangs"), BackendUnavailable("not up")]

    def connect() -> str:
        if errors:
            raise errors.pop(0)
        return "here"

    assert wait_for_backend(connect, threading.Event()) == "here"
    assert "waiting to start: not up" in caplog.text


def test_waiting_ends_when_a_stop_is_asked_for() -> None:
    stop = threading.Event()

    def connect() -> str:
        stop.set()
        raise BackendUnavailable("not up")

    assert wait_for_backend(connect, stop) is None


def test_what_no_time_will_mend_is_raised() -> None:
    def connect() -> str:
        raise ConfigError("wrong password")

    with pytest.raises(ConfigError):
        wait_for_backend(connect, threading.Event())


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
