"""Commands with --app, each in a process of its own: what a debugger, a terminal and other programs meet."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import redis

from delayq import DelayQ
from delayq.core.views import JobInfo

SHOP = """
import os, sys, threading
import delayq
from delayq import Discard, Fail, Job, JobContext, Retry, Snooze, job

assert os.environ.get("MAY_IMPORT", "1") == "1"


@job("order.close", queue="orders", delay="1h", tags=["shop"])
def close(order_id: int, context: JobContext) -> None:
    is_main = threading.current_thread() is threading.main_thread()
    print("closing", order_id, f"attempt {context.attempt} of {context.tries}", os.getpid(), is_main, flush=True)
    others = os.environ.get("OTHERS", "")
    with delayq.DelayQ() as client:
        if others in ("retry", "retry and archive"):
            client.retry(context.id, queue="orders")
        if others == "retry and archive":
            client.archive(context.id, queue="orders")
        if others == "forget":
            client.forget(context.id, queue="orders")


@job("order.ask")
def ask() -> None:
    print("asked:", sys.stdin.readline(), end="", flush=True)


@job("order.raise", queue="orders")
def fail(error: str) -> None:
    raise {
        "ValueError": ValueError("no such order"), "Retry": Retry("1m", reason="busy"), "Snooze": Snooze("1m"),
        "Fail": Fail("sold out"), "Discard": Discard(), "InvalidInput": delayq.InvalidInput("not this"),
        "EOFError": EOFError("the file ends"), "SystemExit": SystemExit(0),
    }[error]


class Report(Job, name="report.build", connection="reports"):
    day: str

    def handle(self) -> None:
        print("built", self.day, flush=True)
"""

Command = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def shop(tmp_path: Path, url: str, server: redis.Redis, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project with an application and a second connection."""
    monkeypatch.setenv("DELAYQ_URL", url)
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[2]))
    (tmp_path / "shop.py").write_text(SHOP)
    (tmp_path / "delayq.toml").write_text('[connections.reports]\nprefix = "reports"\nqueue = "slow"\n')
    return tmp_path


@pytest.fixture
def command(shop: Path) -> Command:
    """Run a command in the project."""

    def run(*words: str, typed: str = "", by: tuple[str, ...] = (), **variables: str) -> Any:
        command = [sys.executable, *by, "-m", "delayq", *words]
        environment = {**os.environ, **variables}
        return subprocess.run(
            command, cwd=shop, env=environment, input=typed, capture_output=True, text=True, timeout=60, check=False
        )

    return run


@pytest.fixture
def client(url: str) -> DelayQ:
    return DelayQ(url)


HERE = ("failed", "retry", "--here", "--app", "shop")


def failed(client: DelayQ, name: str, data: Any, *, queue: str = "orders", id: str = "order-42") -> JobInfo:
    client.schedule(name, data, id=id, queue=queue, delay="1h")
    client.archive(id, queue=queue, reason="the first time")
    job = client.get(id, queue=queue)
    assert job is not None
    return job


def test_a_failed_job_runs_here_once_and_is_dropped(command: Command, client: DelayQ) -> None:
    failed(client, "order.close", {"order_id": 42})
    ran = command(*HERE, "order-42", "--json")
    printed, answer = ran.stdout.splitlines()
    assert printed.split()[:6] == ["closing", "42", "attempt", "1", "of", "1"]
    assert printed.endswith("True")
    assert json.loads(answer) == {"id": "order-42", "queue": "orders", "outcome": "done"}
    assert (ran.returncode, ran.stderr) == (0, "")
    assert client.get("order-42", queue="orders") is None


def test_it_may_run_with_another_payload_and_read_the_terminal(command: Command, client: DelayQ) -> None:
    failed(client, "order.close", {"order_id": 42})
    ran = command(*HERE, "order-42", "--queue", "orders", "--data", '{"order_id": 7}')
    assert "closing 7 " in ran.stdout
    failed(client, "order.ask", None)
    ran = command("failed", "retry", "order-42", "--here", typed="yes\n", DELAYQ_APP="shop")
    assert ran.stdout == "asked: yes\norder-42  done in queue orders\n"


@pytest.mark.parametrize(
    ("error", "told"),
    [
        ("ValueError", "ValueError: no such order\n"),
        ("InvalidInput", "RuntimeError: The handler raised the error above.\n"),
        ("EOFError", "RuntimeError: The handler raised the error above.\n"),
        ("SystemExit", "RuntimeError: The handler ended the program: sys.exit(0).\n"),
    ],
)
def test_what_the_handler_raises_ends_the_process_and_changes_nothing(
    command: Command, client: DelayQ, error: str, told: str
) -> None:
    before = failed(client, "order.raise", {"error": error})
    ran = command(*HERE, "order-42")
    assert (ran.returncode, ran.stdout) == (1, "")
    assert ran.stderr.endswith(told)
    assert 'shop.py", line' in ran.stderr
    assert f"{error}" in ran.stderr
    assert client.get("order-42", queue="orders") == before


@pytest.mark.parametrize(("signal", "reason"), [("Retry", "busy"), ("Snooze", ""), ("Fail", "sold out")])
def test_a_signal_leaves_the_job_failed(command: Command, client: DelayQ, signal: str, reason: str) -> None:
    before = failed(client, "order.raise", {"error": signal})
    ran = command(*HERE, "order-42")
    assert (ran.returncode, ran.stdout, ran.stderr.count("\n")) == (1, "", 1)
    assert ran.stderr.startswith("delayq: The job 'order-42' ")
    assert reason in ran.stderr
    assert ran.stderr.endswith(", and stays among the failed jobs.\n")
    assert client.get("order-42", queue="orders") == before


def test_a_discard_is_done(command: Command, client: DelayQ) -> None:
    failed(client, "order.raise", {"error": "Discard"})
    assert command(*HERE, "order-42").stdout == "order-42  done in queue orders\n"
    assert client.get("order-42", queue="orders") is None


@pytest.mark.parametrize(
    ("others", "code", "state", "told"),
    [
        ("retry", 4, "scheduled", "is done here, but another program has retried it, so the job was not deleted."),
        (
            "retry and archive",
            4,
            "failed",
            "is done here, but another program has retried it, so the job was not deleted.",
        ),
        ("forget", 0, None, "The job 'order-42' is done here. Another program has already deleted the failed job."),
    ],
)
def test_what_others_did_meanwhile_is_told(  # noqa: PLR0917
    command: Command, client: DelayQ, others: str, code: int, state: str | None, told: str
) -> None:
    failed(client, "order.close", {"order_id": 42})
    ran = command(*HERE, "order-42", OTHERS=others)
    assert (ran.returncode, told in ran.stderr) == (code, True), ran.stderr
    job = client.get("order-42", queue="orders")
    assert (job and job.state) == state


def test_a_debugger_stops_where_the_handler_raised(command: Command, client: DelayQ) -> None:
    failed(client, "order.raise", {"error": "ValueError"})
    ran = command(*HERE, "order-42", by=("-m", "pdb"), typed="continue\np 'here: ' + error\nquit\n")
    assert "'here: ValueError'" in ran.stdout


@pytest.mark.parametrize(
    ("words", "code", "told"),
    [
        (("waits",), 4, "The job 'waits' in the queue 'orders' is scheduled, not failed."),
        (("stranger",), 2, "The application shop declares no job 'order.clos'. Did you mean order.close?"),
        (("close", "--data", '{"order": 1}'), 2, "unknown field `order`"),
        (("lost", "--queue", "orders"), 4, "The payload of the job 'lost' is lost, so the job cannot run."),
    ],
)
def test_a_refusal_is_one_sentence_and_nothing_runs(  # noqa: PLR0917
    command: Command, client: DelayQ, server: redis.Redis, words: list[str], code: int, told: str
) -> None:
    client.schedule("order.close", id="waits", queue="orders", delay="1h")
    failed(client, "order.clos", {}, id="stranger")
    failed(client, "order.close", {"order_id": 1}, id="close")
    failed(client, "order.close", {}, id="lost")
    server.hdel("delayq:{orders}:jobs", "lost")
    ran = command(*HERE, *words)
    assert (ran.returncode, ran.stdout, ran.stderr.count("\n")) == (code, "", 1), ran.stderr
    assert told in ran.stderr


def test_the_application_is_loaded_before_anything_is_read(command: Command) -> None:
    ran = command("--url", "redis://127.0.0.1:1", *HERE, "a", MAY_IMPORT="0")
    assert (ran.returncode, "The module 'shop' cannot be imported: AssertionError" in ran.stderr) == (2, True)


SCHEDULE = ("schedule", "order.close", "--data", '{"order_id": 42}', "--id", "order-42", "--json")


def test_it_goes_to_the_connection_of_the_job(command: Command, url: str) -> None:
    ran = command("schedule", "report.build", "--data", '{"day": "today"}', "--in", "1h", "--app", "shop", "--json")
    sent = json.loads(ran.stdout)
    assert sent["queue"] == "slow"
    with DelayQ(url, prefix="reports") as client:
        assert client.get(sent["id"], queue="slow") is not None


def test_the_setting_app_alone_loads_nothing(command: Command) -> None:
    ran = command(*SCHEDULE, DELAYQ_APP="shop", MAY_IMPORT="0")
    assert json.loads(ran.stdout)["queue"] == "default"
    program = (
        "import sys; from delayq.cli.main import app; app(sys.argv[1:], standalone_mode=False);"
        "sys.exit('delayq.jobs' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", program, *SCHEDULE], check=False, capture_output=True).returncode == 0


@pytest.mark.processes
def test_a_worker_leaves_the_jobs_of_other_connections_and_says_so(command: Command) -> None:
    own = command("work", "--app", "shop", "--stop-when-empty")
    assert "delayq: working on default, orders, one job at a time" in own.stderr
    told = "delayq: Jobs of the connection reports need a worker of their own: `delayq --connection reports work …`.\n"
    assert told in own.stderr
    command("schedule", "report.build", "--data", '{"day": "today"}', "--app", "shop")
    reports = command("--connection", "reports", "work", "--app", "shop", "--stop-when-empty")
    assert "delayq: working on orders, slow, one job at a time" in reports.stderr
    assert reports.stdout == "built today\n"
    assert "of their own" not in command("work", "--quiet", "--app", "shop", "--stop-when-empty").stderr
