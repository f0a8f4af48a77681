"""probe and report: failures open a circuit, one at a time tries whether it works again."""

from __future__ import annotations

from delayq.core.limit_views import read_circuit
from delayq.core.limiting import Circuit, Probe, Report, Verdict, Who
from delayq.redis.calls import limit
from delayq.redis.calls.limit import Asked
from delayq.redis.keys import LimitKeys
from tests.support.engine import Engine
from tests.support.snapshot import word

KEYS = LimitKeys("delayq", "bank")
MOST, DECAY = 3, 60_000
CLOSED = Asked(Circuit.CLOSED, 0, "")


def who(job_id: str) -> Who:
    return Who("orders", job_id, "1-1")


def ask(engine: Engine, job_id: str, *stale: str) -> Asked:
    return engine.run(limit.probe(engine.scope, Probe(who(job_id), "bank", "k"), stale))


def tell(engine: Engine, job_id: str, verdict: Verdict = Verdict.FAILED) -> bool:
    return engine.run(limit.report(engine.scope, Report(who(job_id), "bank", "k", verdict, MOST, DECAY)))


def fail(engine: Engine, *jobs: str) -> None:
    for job in jobs:
        tell(engine, job)


def test_so_many_failures_open_it_until_the_window_ends(each_engine: Engine) -> None:
    engine = each_engine
    assert ask(engine, "a") == CLOSED
    assert not tell(engine, "a")
    engine.now += 10_000
    assert not tell(engine, "b")
    assert ask(engine, "c") == Asked(Circuit.CLOSED, 2, "")
    assert tell(engine, "c")
    assert ask(engine, "d") == Asked(Circuit.OPEN, DECAY - 10_000, "")
    engine.now += DECAY - 10_000 - 1
    assert ask(engine, "d") == Asked(Circuit.OPEN, 1, "")


def test_failures_that_are_far_apart_do_not(engine: Engine) -> None:
    for job in ("a", "b", "c", "d", "e"):
        assert not tell(engine, job)
        engine.now += DECAY // 2 + 1


def test_a_success_forgets_failures(engine: Engine) -> None:
    fail(engine, "a", "b")
    tell(engine, "c", Verdict.PASSED)
    assert ask(engine, "d") == CLOSED
    assert engine.key_names() == set()


def test_when_the_time_is_over_one_tries_and_the_others_wait(each_engine: Engine) -> None:
    engine = each_engine
    fail(engine, "a", "b", "c")
    engine.now += DECAY
    assert ask(engine, "p") == Asked(Circuit.PROBE, 3, "")
    assert ask(engine, "p") == Asked(Circuit.PROBE, 3, ""), "a resent call is the same one"
    assert ask(engine, "q") == Asked(Circuit.PROBING, 0, "orders p 1-1")
    tell(engine, "p", Verdict.PASSED)
    assert ask(engine, "q") == CLOSED


def test_when_the_try_fails_it_is_open_for_the_whole_time_again(engine: Engine) -> None:
    fail(engine, "a", "b", "c")
    engine.now += DECAY + 5_000
    ask(engine, "p")
    assert tell(engine, "p")
    assert ask(engine, "q") == Asked(Circuit.OPEN, DECAY, "")
    engine.now += DECAY
    assert ask(engine, "q").circuit is Circuit.PROBE


def test_a_try_that_ends_without_a_verdict_lets_the_next_one_try(engine: Engine) -> None:
    fail(engine, "a", "b", "c")
    engine.now += DECAY
    ask(engine, "p")
    tell(engine, "p", Verdict.NEITHER)
    assert ask(engine, "q").circuit is Circuit.PROBE


def test_a_try_whose_worker_vanished_is_somebody_elses(engine: Engine) -> None:
    fail(engine, "a", "b", "c")
    engine.now += DECAY
    ask(engine, "p")
    assert ask(engine, "q", "orders x 1-1").circuit is Circuit.PROBING
    assert ask(engine, "q", "orders p 1-1").circuit is Circuit.PROBE
    tell(engine, "p")
    assert ask(engine, "r") == Asked(Circuit.PROBING, 0, "orders q 1-1"), "the late one does not open it again"


def test_who_began_before_it_opened_does_not_close_it(engine: Engine) -> None:
    fail(engine, "a", "b", "c")
    tell(engine, "slow", Verdict.PASSED)
    assert ask(engine, "d").circuit is Circuit.OPEN


def test_the_same_report_twice_counts_once(engine: Engine) -> None:
    fail(engine, "a", "a", "a", "b", "b")
    assert ask(engine, "c") == Asked(Circuit.CLOSED, 2, "")


def test_it_is_forgotten_when_nobody_came_for_another_such_time(engine: Engine) -> None:
    fail(engine, "a", "b", "c")
    engine.now += 3 * DECAY
    assert ask(engine, "d") == CLOSED
    assert engine.key_names() == {"delayq:{limit:bank}:counters"}


def test_a_clock_that_steps_back_keeps_nobody_out_for_longer(engine: Engine) -> None:
    fail(engine, "a", "b", "c")
    engine.now -= 3_600_000
    assert ask(engine, "d") == Asked(Circuit.OPEN, DECAY, "")


def test_people_are_shown_how_it_stands(engine: Engine) -> None:
    def shown() -> tuple[str, int, str]:
        view = read_circuit("k", word(engine.client.hget(KEYS.of("breakers"), "k")), engine.now)
        assert view is not None
        return view.state, view.failures, view.prober

    fail(engine, "a")
    assert shown() == ("closed", 1, "")
    fail(engine, "b", "c")
    assert shown() == ("open", 3, "")
    engine.now += DECAY
    assert shown() == ("half-open", 3, "")
    ask(engine, "p")
    assert shown() == ("half-open", 3, "orders p")
