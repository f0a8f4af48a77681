"""`delayq work` and `delayq move` as processes: limits, queues, signals, logs."""

from __future__ import annotations

import json
import re
import signal
import time

import pytest

from delayq import DelayQ
from tests.support.cli import Cli, end
from tests.support.waiting import wait_until

MEET = """
import time
from pathlib import Path

from delayq import JobContext, job

@job("meet", tries=1, timeout="15s")
def meet(others: int, context: JobContext) -> None:
    Path(f"met-{others}-{context.id}").touch()
    while len(list(Path().glob(f"met-{others}-*"))) < others:
        time.sleep(0.01)
"""

MUTE = """
from delayq import job

class Mute(Exception):
    def __str__(self):
        raise RuntimeError

@job("mute", tries=1)
def mute() -> None:
    raise Mute
"""


def orders(cli: Cli) -> list[str]:
    """What `order.close` has run, as `queue id`, in order."""
    file = cli.folder / "ran.txt"
    return file.read_text().splitlines() if file.exists() else []


def schedule(q: DelayQ, *places: str) -> None:
    """A job for each `queue id`, ready now."""
    for place in places:
        queue, job_id = place.split()
        q.schedule("order.close", {"order_id": 1}, id=job_id, queue=queue)


def test_without_a_queue_it_serves_default_and_those_of_its_jobs(cli: Cli, q: DelayQ) -> None:
    schedule(q, "orders b", "default a", "other c")
    done = cli.ok("work", "--app", "shop", "--stop-when-empty")
    assert orders(cli) == ["default a", "orders b"]
    assert done.out == ""
    assert "default, orders" in done.err


@pytest.mark.parametrize("words", [("--queue", "high,low"), ("--queue", "high", "--queue", "low")])
def test_queues_in_strict_order(cli: Cli, q: DelayQ, words: tuple[str, ...]) -> None:
    schedule(q, "low a", "low b", "high c", "high d")
    cli.ok("work", "--app", "shop", *words, "--stop-when-empty")
    assert orders(cli) == ["high c", "high d", "low a", "low b"]


@pytest.mark.parametrize(("flags", "ran"), [(("--once",), 1), (("--max-jobs", "2"), 2)], ids=["once", "max-jobs"])
def test_limits(cli: Cli, q: DelayQ, flags: tuple[str, ...], ran: int) -> None:
    schedule(q, "orders a", "orders b", "orders c")
    cli.ok("work", "--app", "shop", *flags)
    assert orders(cli) == ["orders a", "orders b", "orders c"][:ran]
    assert [(stats.ready + stats.scheduled, stats.reserved) for stats in q.stats("orders")] == [(3 - ran, 0)]


def test_processes_and_threads(cli: Cli, q: DelayQ) -> None:
    """Each runs as many jobs at once as it was told, and no job ends before all have begun."""
    (cli.folder / "meet.py").write_text(MEET)
    for words, at_once in ((("--processes", "2"), 2), (("--threads", "3"), 3)):
        ids = [q.schedule("meet", {"others": at_once}).id for _ in range(at_once)]
        done = cli.ok("work", "--app", "meet", "--stop-when-empty", *words)
        assert [q.get(job_id) for job_id in ids] == [None] * at_once
        assert ("its process" in done.err) == ("--threads" in words), "the weaker promise is said at start"


def test_a_timeout_from_the_command_line_and_from_the_environment(cli: Cli, q: DelayQ) -> None:
    for words, env in ((("--timeout", "200ms"), {}), ((), {"DELAYQ_TIMEOUT": "200ms"})):
        q.schedule("slow", id="s1", tries=1)
        assert cli("work", "--app", "shop", "--max-jobs", "1", *words, env=env).code == 0
        info = q.get("s1")
        assert info is not None
        assert info.failure is not None
        assert (info.state, info.failure.type) == ("failed", "JobTimedOut")
        q.forget(["s1"])


def test_the_old_word_for_backoff(cli: Cli, q: DelayQ) -> None:
    q.schedule("flaky", id="f1")
    cli.ok("work", "--app", "shop", "--once", "--delay", "1h")
    info = q.get("f1")
    assert info is not None
    assert info.due_ms is not None
    assert 3_500_000 < info.due_ms - q.stats("default")[0].now_ms <= 3_600_000


def test_stop_when_empty_for(cli: Cli) -> None:
    started = time.monotonic()
    done = cli.ok("work", "--app", "shop", "--stop-when-empty-for", "700ms")
    assert "empty_for" in done.err
    assert time.monotonic() - started >= 0.7


def test_max_time(cli: Cli) -> None:
    assert "max_time" in cli.ok("work", "--app", "shop", "--max-time", "100ms").err


def test_over_its_memory(cli: Cli) -> None:
    done = cli("work", "--app", "shop", "--memory", "1")
    assert done.code == 12
    assert "memory" in done.err


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_lets_the_running_job_finish(cli: Cli, q: DelayQ, number: signal.Signals) -> None:
    q.schedule("slow", id="s1", retention="1m")
    worker = cli.start("work", "--app", "shop")
    wait_until((cli.folder / "started").exists, what="the job runs")
    worker.send_signal(number)
    (cli.folder / "go").touch()
    assert end(worker).code == 0
    info = q.get("s1")
    assert info is not None
    assert info.state == "completed"
    assert cli.ok("show", "s1", "--json").json["attempts"] == 1, "the attempt that succeeded is one"
    assert q.workers() == []


def test_workers_lists_it_under_its_name(cli: Cli, q: DelayQ) -> None:
    worker = cli.start("work", "--app", "shop", "--name", "blue")
    wait_until(q.workers, what="it says that it is here")
    [said] = cli.ok("workers", "--json").documents
    assert said["name"].startswith("dq:blue:")
    assert said["queues"] == ["default", "orders"]
    assert said["jobs"] == ["bad", "flaky", "order.close", "slow"]
    assert "dq:blue:" in cli.ok("workers").lines[1]
    worker.terminate()
    assert end(worker).code == 0


def test_tries_and_backoff(cli: Cli, q: DelayQ) -> None:
    q.schedule("flaky", id="f1")
    cli.ok("work", "--app", "shop", "--stop-when-empty", "--tries", "2", "--backoff", "1h")
    info = q.get("f1")
    assert info is not None
    assert info.due_ms is not None
    assert info.state == "scheduled"
    assert 3_500_000 < info.due_ms - q.stats("default")[0].now_ms <= 3_600_000
    cli.ok("work", "--app", "shop", "--stop-when-empty", "--tries", "1", "--backoff", "1h")
    q.run_now("f1")
    cli.ok("work", "--app", "shop", "--stop-when-empty", "--tries", "1")
    info = q.get("f1")
    assert info is not None
    assert info.state == "failed"


def test_without_a_mover_nothing_falls_due(cli: Cli, q: DelayQ) -> None:
    q.schedule("order.close", {"order_id": 1}, id="a", queue="orders", delay="10ms")
    cli.ok("work", "--app", "shop", "--stop-when-empty", "--no-mover")
    assert orders(cli) == []
    assert cli.ok("move", "--once").out == "1\n"
    cli.ok("work", "--app", "shop", "--stop-when-empty", "--no-mover")
    assert orders(cli) == ["orders a"]


def test_move_runs_until_it_is_told(cli: Cli, q: DelayQ) -> None:
    mover = cli.start("move")
    q.schedule("order.close", {"order_id": 1}, id="a", queue="orders", delay="300ms")
    wait_until(lambda: [stats.ready for stats in q.stats("orders")] == [1], what="it is moved")
    mover.terminate()
    assert end(mover).code == 0


def test_log_lines_as_json(cli: Cli, q: DelayQ) -> None:
    schedule(q, "orders a")
    q.schedule("bad", {"text": "secret\x1b[31m"}, id="b1")
    done = cli.ok("--log-format", "json", "-q", "work", "--app", "shop", "--stop-when-empty")
    assert done.err.count("\n") == 1  # -q leaves warnings and errors only
    failed = json.loads(done.err)
    assert (failed["level"], failed["job_id"], failed["job"], failed["outcome"]) == ("error", "b1", "bad", "failed")
    assert "\x1b" not in done.err


def test_log_lines_for_people(cli: Cli, q: DelayQ) -> None:
    schedule(q, "orders a")
    done = cli.ok("work", "--app", "shop", "--stop-when-empty")
    assert "order.close a done in " in done.err
    assert "order_id" not in done.err
    assert "done" not in cli.ok("--log-level", "warning", "work", "--app", "shop", "--once").err


def test_the_application_may_come_from_the_environment(cli: Cli, q: DelayQ) -> None:
    schedule(q, "orders a")
    assert cli("work", "--once", env={"DELAYQ_APP": "shop"}).code == 0
    assert orders(cli) == ["orders a"]


def test_two_applications(cli: Cli) -> None:
    (cli.folder / "mail.py").write_text("from delayq import job\n@job('mail', queue='mails')\ndef mail(): ...\n")
    assert "default, orders, mails with 5 job names" in cli.ok("work", "--app", "shop", "--app", "mail", "--once").err


@pytest.mark.parametrize("log_format", ["console", "json"])
def test_a_huge_error_is_a_short_line_and_a_mute_one_is_told_by_its_type(cli: Cli, q: DelayQ, log_format: str) -> None:
    q.schedule("bad", {"text": "x" * 200_000}, id="b1")
    (cli.folder / "mute.py").write_text(MUTE)
    q.schedule("mute", id="m1")
    cli.env["DELAYQ_LOG_FORMAT"] = log_format
    done = cli.ok("work", "--app", "shop", "--app", "mute", "--stop-when-empty")
    [huge] = [line for line in done.err.splitlines() if "bad b1 failed" in line]
    [mute] = [line for line in done.err.splitlines() if "mute m1 failed" in line]
    assert "ValueError: xxx" in huge
    assert "(199,000 characters left out)" in huge
    assert len(huge) < 2_000
    assert "Mute: (its message could not be made: RuntimeError)" in mute


def test_a_timeout_names_the_limit_and_how_long_it_ran(cli: Cli, q: DelayQ) -> None:
    q.schedule("slow", id="s1", tries=1, timeout="1.5s")
    cli.ok("work", "--app", "shop", "--max-jobs", "1")
    info = q.get("s1")
    assert info is not None
    assert info.failure is not None
    assert re.fullmatch(
        r"It was still running after \S+; its timeout or deadline allowed it 1\.5s\.", info.failure.message
    )


def test_a_sleep_of_laravels_length_is_taken(cli: Cli, q: DelayQ) -> None:
    worker = cli.start("work", "--app", "shop", "--sleep", "3s")
    wait_until(q.workers, what="it says that it is here")
    schedule(q, "orders a")
    wait_until(lambda: orders(cli) == ["orders a"], what="the job has run")
    worker.terminate()
    assert end(worker).code == 0


def test_signals_again_and_again_do_not_change_how_move_ends(cli: Cli, q: DelayQ) -> None:
    """Also those that come while it leaves."""
    mover = cli.start("move")
    q.schedule("order.close", {"order_id": 1}, id="a", delay="50ms")
    wait_until(lambda: q.stats("default")[0].ready, what="it moves jobs")

    def told_and_ended() -> bool:
        mover.terminate()
        return mover.poll() is not None

    wait_until(told_and_ended, what="it has ended")
    assert end(mover).code == 0


@pytest.mark.parametrize("given", ["flag", "env", "file"])
def test_a_lease_setting_that_has_no_effect_is_said_once_for_each_queue(cli: Cli, q: DelayQ, given: str) -> None:
    """Both queues keep the 30s of their first schedule; both processes of the worker look at them."""
    schedule(q, "orders a", "default b")
    flags = ("--lease", "90s") if given == "flag" else ()
    if given == "env":
        cli.env["DELAYQ_LEASE"] = "90s"
    if given == "file":
        (cli.folder / "delayq.toml").write_text('lease = "90s"\n')
    said = cli.ok(*flags, "work", "--app", "shop", "--processes", "2", "--stop-when-empty").err
    warnings = [line for line in said.splitlines() if "has no effect" in line]
    assert len(warnings) == 2, said
    for queue in ("default", "orders"):
        [line] = [line for line in warnings if f"the queue {queue}:" in line]
        assert "lease setting 1m30s" in line
        assert "its own lease, 30s" in line
        assert f"delayq queue set {queue} --lease 1m30s" in line


def test_nothing_is_said_of_a_lease_that_nobody_set_or_that_is_in_force(cli: Cli, q: DelayQ) -> None:
    cli.ok("queue", "set", "orders", "--lease", "90s")
    unset = cli.ok("work", "--app", "shop", "--queue", "orders", "--stop-when-empty").err
    same = cli.ok("--lease", "90s", "work", "--app", "shop", "--queue", "orders", "--stop-when-empty").err
    fresh = cli.ok("--lease", "40s", "work", "--app", "shop", "--queue", "never-seen", "--stop-when-empty").err
    assert "has no effect" not in unset + same + fresh


def test_a_lease_that_is_changed_while_the_worker_runs_is_said(cli: Cli, q: DelayQ) -> None:
    worker = cli.start("--lease", "40s", "work", "--app", "shop", "--queue", "orders")
    wait_until(q.workers, what="the worker is there")
    cli.ok("queue", "set", "orders", "--lease", "50s")
    assert worker.stderr is not None
    line = next(line for line in worker.stderr if "has no effect" in line)
    assert "lease setting 40s" in line
    assert "its own lease, 50s" in line
    worker.send_signal(signal.SIGTERM)
    assert "has no effect" not in end(worker).err
