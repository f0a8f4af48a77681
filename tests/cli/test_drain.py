"""drain: running jobs end, no others start, and the command says what still runs."""

from __future__ import annotations

import signal
import subprocess

import pytest

from delayq import DelayQ
from tests.cli.conftest import Inline
from tests.support.cli import Cli, end
from tests.support.waiting import wait_until

UNKNOWN = 3


def working_on(cli: Cli, q: DelayQ, job_id: str) -> subprocess.Popen[str]:
    """A worker that runs the job `slow`, which ends when there is a file `go`."""
    worker = cli.start("work", "--app", "shop", "--queue", "default,orders")
    q.schedule("slow", id=job_id)
    wait_until((cli.folder / "started").exists, what="it runs")
    return worker


@pytest.mark.timed
def test_it_waits_for_the_running_job_and_starts_no_other(cli: Cli, q: DelayQ) -> None:
    worker = working_on(cli, q, "s1")
    drain = cli.start("drain", "--wait", "--timeout", "20s", "--reason", "new server", "--json")
    wait_until(lambda: q.control().paused, what="everything is paused")
    q.schedule("order.close", {"order_id": 1}, queue="orders", id="o1")
    assert drain.poll() is None, "a job runs, so it waits"
    (cli.folder / "go").touch()
    done = end(drain)
    assert done.code == 0, done.err
    assert done.json == {"drained": True, "reserved": {}, "running": [], "undo": ["delayq resume --all"]}
    assert "To undo it: delayq resume --all" in done.err
    assert q.get("s1") is None
    info = q.get("o1", queue="orders")
    assert info is not None
    assert info.state == "ready"
    assert not (cli.folder / "ran.txt").exists()
    [deed] = [one for one in q.audit_log.last() if one.what == "drain"]
    assert (deed.target, deed.detail, deed.reason, deed.door) == ("", "", "new server", "cli")
    cli.ok("resume", "--all")
    wait_until(lambda: q.get("o1", queue="orders") is None, what="it runs after the resume")
    worker.send_signal(signal.SIGTERM)
    assert end(worker).code == 0


@pytest.mark.timed
def test_at_the_timeout_it_names_what_runs(cli: Cli, q: DelayQ) -> None:
    working_on(cli, q, "s1")
    q.schedule("order.close", delay="1h", queue="orders")
    done = cli("drain", "--wait", "--timeout", "200ms", "--queue", "default, orders")
    assert (done.code, done.lines) == (1, ["draining", "default/s1"])
    assert "To undo it: delayq resume default && delayq resume orders" in done.err
    assert "1 job still runs (default 1) after 200ms. The pause holds" in done.err
    assert [one.queue for one in q.stats() if one.paused] == ["default", "orders"]
    assert not q.control().paused
    without = cli.ok("drain", "--json").json
    assert without["drained"] is False
    assert (without["reserved"], without["running"]) == ({"default": 1}, [{"queue": "default", "id": "s1"}])
    (cli.folder / "go").touch()


def test_without_a_running_job_it_is_done_after_the_workers_have_heard(inline: Inline, q: DelayQ) -> None:
    q.schedule("x", queue="orders")
    assert inline.ok("drain", "--queue", "orders", "--wait").out == "drained\n"
    [stats] = q.stats("orders")
    assert (stats.paused, stats.ready) == (True, 1)


def test_a_misspelt_queue_pauses_nothing(inline: Inline, q: DelayQ) -> None:
    q.schedule("x", queue="orders")
    done = inline("drain", "--queue", "orders,odrers", "--wait")
    assert (done.code, done.out) == (UNKNOWN, "")
    assert "No queue is called odrers; nothing was paused." in done.err
    [stats] = q.stats("orders")
    assert not stats.paused
