"""maintenance, restart, pause --all, workers: what concerns all workers at once."""

from __future__ import annotations

import signal
from contextlib import closing

import pytest

from delayq import DelayQ
from delayq.core.progress import Told
from delayq.drivers.redis_streams import RedisStreams
from tests.cli.conftest import Inline
from tests.support.cli import Cli, end
from tests.support.waiting import wait_until

USAGE = 2
CONFLICT = 4


def test_maintenance_on_and_off(inline: Inline, q: DelayQ) -> None:
    done = inline.ok("maintenance", "on", "--for", "10m", "--reason", "new schema")
    assert done.out == "on\n"
    assert done.err == ("Maintenance for 10m (new schema): workers fetch nothing unless started with --force.\n")
    assert q.control().maintenance
    shown = inline.ok("maintenance", "show", "--json").json
    assert (shown["maintenance"], shown["reason"], shown["paused"]) == (True, "new schema", False)
    assert shown["maintenance_until_ms"] - shown["maintenance_since_ms"] == 600_000
    assert shown["maintenance_since"].endswith("Z")
    assert inline.ok("maintenance", "off").out == "off\n"
    assert not q.control().maintenance
    assert inline.ok("maintenance", "show").lines == ["maintenance  no", "all paused   no"]


def test_without_an_end_it_says_so(inline: Inline) -> None:
    assert "Maintenance until it is ended: " in inline.ok("maintenance", "on").err
    assert inline.ok("maintenance", "show").lines[0] == "maintenance  until it is ended"
    assert inline.ok("maintenance", "off", "--json").json["maintenance"] is False


def test_stats_workers_and_doctor_say_why_nothing_runs(inline: Inline, q: DelayQ) -> None:
    q.schedule("x")
    assert "control" not in inline.ok("stats", "--json").json
    q.start_maintenance(reason="new schema")
    q.pause_all(length="1h")
    assert inline.ok("stats", "--json").json["control"]["maintenance"] is True
    assert "Workers fetch nothing now (paused)" in inline.ok("stats").err
    said = inline.ok("workers").err
    assert "Maintenance until it is ended (new schema): " in said
    assert "Everything is paused for 59m" in said or "Everything is paused for 1h" in said
    found = inline("doctor", "--json")
    codes = [one["code"] for one in found.json["findings"]]
    assert found.code == 1
    assert {"all-paused", "maintenance"} <= set(codes)


def test_pause_all_and_resume_all(inline: Inline, q: DelayQ) -> None:
    q.pause("mails")
    done = inline.ok("pause", "--all", "--reason", "the bank is away")
    assert done.out == "paused\n"
    assert "Everything is paused until it is ended (the bank is away)." in done.err
    assert (q.control().paused, q.control().paused_reason) == (True, "the bank is away")
    assert "Everything is still paused: delayq resume --all." in inline.ok("resume", "orders").err
    done = inline.ok("resume", "--all")
    assert (done.out, done.err) == ("resumed\n", "Paused by name, and still so: mails.\n")
    assert not q.control().paused
    assert inline.ok("pause", "--all", "--for", "5m", "--json").json["paused_until_ms"] > 0
    assert inline.ok("resume", "--all", "--json").json["paused_until_ms"] is None


@pytest.mark.parametrize(
    "words", [("pause",), ("pause", "orders", "--all"), ("resume",), ("resume", "orders", "--all")]
)
def test_one_queue_or_all_but_not_neither_nor_both(inline: Inline, words: tuple[str, ...]) -> None:
    done = inline(*words)
    assert (done.code, done.out) == (USAGE, "")
    assert done.err.startswith("Error: Name one queue, or say --all.")


def test_restart_tells_how_many_it_concerns(inline: Inline, q: DelayQ) -> None:
    done = inline.ok("restart")
    assert (done.out, done.err) == ("restart\n", "0 workers will leave after the job that runs.\n")
    said = inline.ok("restart", "--json").json
    assert (said["workers"], said["restart_ms"]) == (0, q.control().restart_ms)


def test_show_tells_of_progress(inline: Inline, q: DelayQ) -> None:
    q.schedule("x", id="a")
    assert inline.ok("show", "a", "--json").json["progress"] is None


def test_a_forced_worker_works_during_maintenance_and_leaves_at_a_restart(cli: Cli, q: DelayQ) -> None:
    q.start_maintenance()
    worker = cli.start("work", "--app", "shop", "--queue", "orders", "--force")
    q.schedule("order.close", {"order_id": 1}, queue="orders", id="o1")
    wait_until(lambda: q.get("o1", queue="orders") is None, what="it runs")
    said = cli.ok("restart", "--json").json
    assert said["workers"] == 1
    assert end(worker).code == 0


def test_one_worker_is_made_quiet_resumed_and_stopped(cli: Cli, q: DelayQ) -> None:
    worker = cli.start("work", "--app", "shop", "--queue", "orders")
    wait_until(q.workers, what="it is there")
    [one] = q.workers()
    done = cli.ok("workers", "quiet", one.name)
    assert done.out == "quiet\n"
    assert f"takes no new ones. To undo it: delayq workers resume {one.name}." in done.err
    wait_until(lambda: q.workers()[0].about["state"] == "quiet", what="it is quiet")
    q.schedule("order.close", {"order_id": 1}, queue="orders", id="o1")
    assert "quiet" in cli.ok("workers").lines[1]
    assert cli.ok("workers", "resume", one.name).out == "resume\n"
    wait_until(lambda: q.get("o1", queue="orders") is None, what="it runs")
    said = cli.ok("workers", "stop", one.name, "--reason", "it runs hot", "--json").json
    assert said == {"worker": one.worker, "order": "stop", "processes": [one.name]}
    assert end(worker).code == 0
    entries = [(entry.what, entry.target, entry.detail, entry.reason, entry.outcome) for entry in q.audit_log.last()]
    assert entries == [
        ("worker stop", one.name, "", "it runs hot", "done"),
        ("worker resume", one.name, "", "", "done"),
        ("worker quiet", one.name, "", "", "done"),
    ]


@pytest.mark.parametrize(
    ("command", "deed"),
    [
        (("pause", "orders", "--for", "5m", "--reason", "the bank is away"), ("pause", "orders", "5m")),
        (("pause", "--all", "--for", "5m", "--reason", "the bank is away"), ("pause all", "", "5m")),
        (("maintenance", "on", "--for", "5m", "--reason", "the bank is away"), ("maintenance on", "", "5m")),
        (("drain", "--queue", "orders", "--reason", "the bank is away"), ("drain", "orders", "")),
        (("archive", "o1", "--queue", "orders", "--reason", "the bank is away"), ("archive", "orders o1", "")),
    ],
)
def test_a_reason_stands_in_the_reason_of_its_audit_entry(
    inline: Inline, q: DelayQ, command: tuple[str, ...], deed: tuple[str, str, str]
) -> None:
    q.schedule("order.close", delay="1h", queue="orders", id="o1")
    inline.ok(*command)
    [entry] = q.audit_log.last()
    assert ((entry.what, entry.target, entry.detail), entry.reason) == (deed, "the bank is away")


def test_an_order_to_an_unknown_worker_is_refused(inline: Inline, q: DelayQ) -> None:
    done = inline("workers", "stop", "dq:none:1:a")
    assert (done.code, done.out) == (3, "")
    assert done.err.startswith("Error: No live worker is called 'dq:none:1:a'.")
    assert [entry.outcome for entry in q.audit_log.last()] == ["refused"]


@pytest.mark.timed
def test_a_running_job_is_cancelled_and_not_failed(cli: Cli, q: DelayQ) -> None:
    q.queue_set("default", lease="1s")
    worker = cli.start("work", "--app", "shop", "--queue", "default")
    q.schedule("slow", id="s1")
    wait_until((cli.folder / "started").exists, what="it runs")
    done = cli("cancel", "s1", "--running")
    assert (done.code, done.out) == (0, "running\n")
    wait_until(lambda: q.get("s1") is None, what="it is gone")
    [stats] = q.stats("default")
    assert (stats.failed, stats.counters["failed_total"], stats.counters["released_total"]) == (0, 0, 0)
    worker.send_signal(signal.SIGTERM)
    assert end(worker).code == 0


def test_show_tells_how_far_a_job_is(inline: Inline, q: DelayQ) -> None:
    with closing(RedisStreams(q.connector, q.options).consumer("dq:host:1:a1", ["default"])) as consumer:
        q.schedule("x", id="a")
        (held,) = consumer.fetch([], 1).deliveries
        consumer.tell([(held, Told(done=3, total=10, note="rows \x1b", partial=b'{"sum":7}'))])
        lines = {line.split("  ")[0]: line.split("  ")[-1].strip() for line in inline.ok("show", "a").lines}
        assert (lines["progress"], lines["note"]) == ("3 of 10 (30%)", "rows \\x1b")
        assert lines["partial result"] == '{"sum":7}'
        told = inline.ok("show", "a", "--json").json["progress"]
        assert (told["done"], told["total"], told["partial"]) == (3, 10, {"sum": 7})
        consumer.hand_back([held])
