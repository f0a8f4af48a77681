"""Why has this job not run? `why`, `show`, `doctor` and `healthcheck` give one answer, on real servers."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator

import pytest

from delayq import DelayQ
from delayq.redis import checkup
from tests.cli.conftest import Inline
from tests.support.cli import Cli
from tests.support.flavours import Flavour
from tests.support.orphans import children
from tests.support.refusing import can_snapshot_again, cannot_snapshot, fill, small_disk
from tests.support.servers import LocalServer, OwnServer, connect
from tests.support.waiting import wait_until

LEASE = "1s"


@pytest.fixture
def good(own_server: OwnServer) -> LocalServer:
    """A server with nothing wrong about it."""
    return own_server(persistent=True, flavour=Flavour.VALKEY)


@pytest.fixture
def here(cli: Cli, inline: Inline, good: LocalServer, monkeypatch: pytest.MonkeyPatch) -> Inline:
    """`delayq` on that server."""
    cli.env["DELAYQ_URL"] = good.url
    monkeypatch.setenv("DELAYQ_URL", good.url)
    monkeypatch.setenv("DELAYQ_LEASE", LEASE)
    return inline


@pytest.fixture
def q(good: LocalServer) -> Iterator[DelayQ]:
    with DelayQ(good.url) as q:
        yield q


def codes(inline: Inline) -> list[str]:
    return [found["code"] for found in inline("doctor", "--json").json["findings"]]


def reasons(inline: Inline, job_id: str, queue: str = "default") -> list[tuple[str, str]]:
    told = inline.ok("why", job_id, "--queue", queue, "--json").json
    assert (told["id"], told["queue"]) == (job_id, queue)
    return [(one["code"], one["weight"]) for one in told["reasons"]]


def kill_with_children(pid: int) -> None:
    """SIGKILL a worker with its children, which stand still by then: nothing is left to settle what they held."""
    for one in (pid, *children(pid)):
        os.kill(one, signal.SIGSTOP)
    for one in (*children(pid), pid):
        os.kill(one, signal.SIGKILL)


def test_a_job_that_a_dead_worker_holds(here: Inline, cli: Cli, q: DelayQ) -> None:
    q.schedule("slow", id="stuck")
    worker = cli.start("--lease", LEASE, "work", "--app", "shop")
    wait_until((cli.folder / "started").exists, what="it runs")
    [name] = [one.name for one in q.workers()]
    kill_with_children(worker.pid)
    worker.communicate(timeout=30)
    wait_until(lambda: "silent" in codes(here), what="doctor finds it")
    [found] = [one for one in here("doctor", "--json").json["findings"] if one["code"] == "silent"]
    assert found["where"] == "queue default"
    assert all(word in found["what"] for word in (name.split(":")[2], "'stuck'", "silent for"))
    assert "delayq move" in found["next"]
    assert reasons(here, "stuck") == [("silent", "problem")]
    shown = here.ok("show", "stuck").out
    assert "has been silent for" in shown
    assert "delayq move" in shown
    assert here("doctor").lines[-1] != "All is well."


def test_a_job_that_runs_is_well(here: Inline, cli: Cli, q: DelayQ) -> None:
    q.schedule("slow", id="runs")
    worker = cli.start("work", "--app", "shop")
    wait_until((cli.folder / "started").exists, what="it runs")
    assert reasons(here, "runs") == [("running", "fine")]
    assert "problem" not in here.ok("show", "runs").out
    (cli.folder / "go").touch()
    worker.terminate()
    worker.communicate(timeout=30)


def test_a_paused_queue(here: Inline, q: DelayQ) -> None:
    q.schedule("x", id="waits", delay="1ms")
    q.pause()
    assert ("paused", "problem") in reasons(here, "waits")
    shown = here.ok("show", "waits").out
    assert "It is paused; jobs waiting: " in shown
    assert "delayq resume default" in shown


def test_a_job_that_is_not_known(here: Inline) -> None:
    assert here("why", "nothing").code == 3


def test_a_job_that_is_not_due_is_well(here: Inline, q: DelayQ) -> None:
    q.schedule("x", id="later", delay="1h", queue="orders")
    assert ("not-due", "fine") in reasons(here, "later", "orders")
    assert "next: delayq work --queue orders" in here.ok("why", "later", "--queue", "orders").out


def refused(inline: Inline, words: str) -> None:
    """Each of the three says that writes are refused, and why; none of them blames worker or mover."""
    assert codes(inline) == ["writes-refused"]
    [found] = inline("doctor", "--json").json["findings"]
    assert words in found["what"]
    assert found["level"] == "problem"
    done = inline("healthcheck", "--role", "redis")
    assert done.code == 1
    assert words in done.out


def test_snapshots_that_fail(here: Inline, good: LocalServer, q: DelayQ) -> None:
    q.schedule("x", id="waits", delay="1h")
    assert codes(here) == ["no-mover", "no-worker"]
    cannot_snapshot(good)
    refused(here, "it cannot save its snapshot (RDB) to disk")
    assert ("writes-refused", "problem") in reasons(here, "waits")
    can_snapshot_again(good)
    assert codes(here) == ["no-mover", "no-worker"]


def test_a_full_disk(cli: Cli, inline: Inline, own_server: OwnServer, monkeypatch: pytest.MonkeyPatch) -> None:
    with small_disk() as disk:
        server = own_server(
            persistent=True, flavour=Flavour.VALKEY, options={"dir": str(disk), "appendfsync": "everysec"}
        )
        monkeypatch.setenv("DELAYQ_URL", server.url)
        assert codes(inline) == []
        (disk / "ballast").write_bytes(b"x" * 1_900_000)
        with connect(server.url) as client, DelayQ(server.url) as q:
            for n in range(100):
                try:
                    client.set("delayq:{x}:once:fill", "x" * 10_000, px=60_000)
                except Exception:  # noqa: BLE001 the server may refuse, or end the connection: both mean "full"
                    break
                assert n < 99
            refused(inline, "it cannot save its append-only file to disk")
            assert q.stats() == []
        (disk / "ballast").unlink()
        wait_until(lambda: inline("healthcheck", "--role", "redis").code == 0, what="it writes again")
        server.kill()


def test_a_server_at_its_memory_limit(here: Inline, good: LocalServer, q: DelayQ) -> None:
    q.schedule("x", id="waits", delay="1h")
    fill(good)
    refused(here, "Redis refuses new jobs: it uses ")
    assert ("writes-refused", "problem") in reasons(here, "waits")


def test_a_server_near_its_memory_limit(here: Inline, good: LocalServer) -> None:
    with connect(good.url) as client:
        client.setrange("delayq:{x}:once:large", 30_000_000, "x")
        client.pexpire("delayq:{x}:once:large", 60_000)
        client.config_set("maxmemory", int(client.info("memory")["used_memory"] * 1.06))
    [found] = here("doctor", "--json").json["findings"]
    assert (found["code"], found["level"]) == ("memory", "advice")
    assert "maxmemory" in found["what"]


def test_a_server_without_enough_replicas(here: Inline, good: LocalServer) -> None:
    with connect(good.url) as client:
        client.config_set("min-replicas-to-write", 1)
    refused(here, "too few replicas follow it")


def test_looking_changes_nothing(here: Inline, good: LocalServer, q: DelayQ) -> None:
    q.schedule("x", id="waits", delay="1h")
    with connect(good.url) as client:
        before = {key: client.dump(key) for key in client.scan_iter()}
        here("doctor")
        here("why", "waits")
        here("healthcheck", "--role", "redis")
        assert {key: client.dump(key) for key in client.scan_iter()} == before


def test_clocks_that_differ(here: Inline, q: DelayQ, monkeypatch: pytest.MonkeyPatch) -> None:
    q.schedule("x", id="waits", delay="1h")
    ahead = time.time

    class Shifted:
        """This machine's clock, seven seconds ahead."""

        def time(self) -> float:
            return ahead() + 7

    monkeypatch.setattr(checkup, "time", Shifted())
    [found] = [one for one in here("doctor", "--json").json["findings"] if one["code"] == "clock"]
    assert "This machine's clock is 7s" in found["what"] or "This machine's clock is 6.99" in found["what"]
    assert ("clock", "problem") in reasons(here, "waits")
