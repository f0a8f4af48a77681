"""`delayq stats --busy-above`, and who hears of what commands do."""

from __future__ import annotations

import pytest

from delayq import DelayQ
from tests.support.cli import Cli

LISTENERS = """
from pathlib import Path

from delayq import JobRetryRequested, QueueBusy, QueuePaused, QueueResumed, listener

print("imported")

def note(event: object) -> None:
    print("heard")
    with Path("heard.txt").open("a") as file:
        file.write(f"{event}\\n")

for kind in (JobRetryRequested, QueueBusy, QueuePaused, QueueResumed):
    listener(kind)(note)
"""


@pytest.fixture
def watching(cli: Cli) -> Cli:
    """With an application that listens, named by the settings."""
    (cli.folder / "watching.py").write_text(LISTENERS)
    cli.env["DELAYQ_APP"] = "watching"
    return cli


def heard(cli: Cli) -> list[str]:
    file = cli.folder / "heard.txt"
    return file.read_text().splitlines() if file.exists() else []


def test_a_busy_queue_has_an_exit_code_and_is_told_of(watching: Cli, q: DelayQ) -> None:
    q.schedule_many([{"name": "order.close", "queue": "orders"}] * 3)
    q.schedule("order.close", queue="orders", delay="1h")
    q.schedule("order.close", queue="quiet")
    calm = watching("stats", "--busy-above", "4", "--json")
    assert (calm.code, calm.json["busy"], heard(watching)) == (0, [], [])
    busy = watching("stats", "--busy-above", "3", "--json")
    assert (busy.code, busy.json["busy"]) == (1, ["orders"])
    assert "Queue orders is busy: 3 jobs to do" in busy.err
    assert heard(watching) == ["QueueBusy(queue='orders', size=3, limit=3)"]


def test_one_queue_is_watched_over(cli: Cli, q: DelayQ) -> None:
    q.schedule("order.close", queue="orders")
    assert cli("stats", "--busy-above", "1", "--queue", "orders").code == 1
    assert cli("stats", "--busy-above", "1", "--queue", "quiet").code == 0
    assert cli("stats", "--busy-above", "0").code == 2


def test_the_application_hears_of_commands(watching: Cli, q: DelayQ) -> None:
    paused = watching.ok("pause", "orders", "--json")
    assert paused.json["queue"] == "orders"
    watching.ok("resume", "--all", "--json")
    assert heard(watching) == ["QueuePaused(queue='orders', until_ms=0)", "QueueResumed(queue='')"]


def test_an_application_that_is_broken_undoes_nothing(watching: Cli, q: DelayQ) -> None:
    (watching.folder / "watching.py").write_text("import nothing_of_that_name")
    done = watching.ok("pause", "orders")
    assert "no listener hears of it" in done.err
    assert q.stats("orders")[0].paused
