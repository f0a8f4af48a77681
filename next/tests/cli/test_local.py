"""Commands in a project without a url: the embedded server starts by itself, `up` and `down`."""

import json
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from delayq.cli import main as cli
from delayq.core.errors import BackendUnavailable, ConfigError, InvalidInput, JobRunning
from delayq.redis.connection.blocking import BlockingLeaf
from delayq.redis.connection.server import ServerExecutor
from delayq.redis.connection.url import Address
from delayq.redis.embedded.server import EmbeddedServer
from delayq.redis.keys import Keys
from delayq.redis.worker.worker_registry import RedisWorkerRegistry
from delayq.settings.model import load_settings
from tests.support.embedded import is_held, kill
from tests.support.waiting import wait_until

APP = """
from delayq import job

@job("order.close")
def close(order_id: int) -> None:
    print("closed", order_id, flush=True)
"""

Start = Callable[..., "subprocess.Popen[str]"]


def run(*words: str) -> Result:
    return CliRunner().invoke(cli.app, words)


def server_here() -> EmbeddedServer:
    return EmbeddedServer.of_project(load_settings())


@pytest.fixture
def start(project: Path) -> Iterator[Start]:
    """Start commands that run for long, in the project."""
    (project / "shop.py").write_text(APP)
    with ExitStack() as stack:

        def start(*words: str) -> "subprocess.Popen[str]":
            process = subprocess.Popen(
                [sys.executable, "-m", "delayq", *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
            )
            stack.enter_context(process)
            stack.callback(process.kill)
            return process

        yield start


def test_each_command_names_the_server(project: Path) -> None:
    first = run("schedule", "order.close", "--in", "1h", "--id", "order-42", "--json")
    assert json.loads(first.stdout)["outcome"] == "created"
    assert first.stderr == f"delayq: started the embedded server, data in {server_here().data_dir}\n"
    second = run("show", "order-42", "--json")
    assert json.loads(second.stdout)["id"] == "order-42"
    assert second.stderr == f"delayq: using the embedded server, data in {server_here().data_dir}\n"
    assert run("-q", "show", "order-42").stderr == ""


@pytest.mark.parametrize("words", ["stats", "cancel order-42", "list", "failed list", "pause", "workers"])
def test_a_command_in_a_wrong_directory_creates_no_server(project: Path, words: str) -> None:
    refused = run(*words.split()).exception
    assert isinstance(refused, BackendUnavailable)
    assert f"this project has no data: {server_here().data_dir} does not exist." in str(refused)
    assert not server_here().data_dir.exists()


def test_down_stops_the_server_and_keeps_its_data(project: Path) -> None:
    data = server_here().data_dir
    assert run("down").stdout == f"no embedded server runs for this project, data in {data}\n"
    assert not data.exists()
    run("schedule", "order.close", "--in", "1h", "--id", "order-42")
    down = run("--url", "redis://elsewhere", "down")
    assert (down.exit_code, down.stdout) == (0, f"stopped the embedded server, data in {data}\n")
    assert not is_held(data)
    assert run("show", "order-42").exit_code == 0


def test_down_looks_for_running_jobs_under_the_prefix_of_the_session(project: Path) -> None:
    run("--prefix", "shop", "schedule", "order.close", "--in", "1h")
    about = {"queues": ["orders"], "host": "shop-1", "pid": 42, "state": "working", "runs": 2}
    registry = RedisWorkerRegistry(ServerExecutor(BlockingLeaf(Address(server_here().url))), Keys("shop"))
    registry.announce({"dq:shop-1:42:x": about}, time.time_ns() // 1_000_000)
    refused = run("--prefix", "shop", "down").exception
    assert isinstance(refused, JobRunning)
    assert "Jobs are running on the embedded server: 2." in str(refused)
    assert run("--prefix", "shop", "down", "--now").exit_code == 0


def test_never_starts_nothing(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DELAYQ_EMBEDDED", "never")
    for words in (("stats",), ("move",), ("up", "--app", "shop"), ("work", "--app", "json")):
        error = run(*words).exception
        assert isinstance(error, ConfigError), words
        assert (error.exit_code, "DELAYQ_URL" in str(error)) == (2, True)
    assert not server_here().data_dir.exists()


def test_one_turn_of_the_mover_names_the_server(project: Path) -> None:
    run("schedule", "order.close", "--in", "1h")
    once = run("move", "--once")
    assert (once.stdout, once.stderr) == (
        "0 jobs moved\n",
        f"delayq: using the embedded server, data in {server_here().data_dir}\n",
    )
    (line,) = run("move", "--once", "--json").stderr.splitlines()
    assert json.loads(line)["message"] == f"using the embedded server, data in {server_here().data_dir}"


def test_a_time_that_is_refused_starts_no_server(project: Path) -> None:
    for words in (("--in", "5"), ("--at", "tomorrow"), ("--tz", "Europe/Berlin")):
        assert isinstance(run("schedule", "n", *words).exception, InvalidInput)
    assert not server_here().data_dir.exists()


def test_up_refuses_a_url(project: Path) -> None:
    error = run("--url", "redis://:s3cret@host", "up", "--app", "shop").exception
    assert str(error) == (
        "`up` needs the embedded server, but a url is set. Run `delayq work`, which uses the server of the url. If no "
        "url is set, set DELAYQ_URL first."
    )


def test_a_command_with_a_url_does_without_the_embedded_room(project: Path, url: str) -> None:
    program = (
        "import sys; from delayq.cli.main import app; app(standalone_mode=False);"
        "print([name for name in sys.modules if 'embedded' in name], file=sys.stderr)"
    )
    words = [sys.executable, "-c", program, "--url", url, "--prefix", "test", "-q", "stats"]
    assert subprocess.run(words, capture_output=True, text=True, check=True).stderr == "[]\n"


@pytest.mark.processes
def test_up_works_and_leaves_the_server_at_ctrl_c(start: Start) -> None:
    run("schedule", "order.close", "--id", "order-42", "--data", '{"order_id": 42}')
    up = start("up", "--app", "shop")
    assert up.stdout is not None
    assert up.stdout.readline() == "closed 42\n"
    up.send_signal(signal.SIGINT)
    _, told = up.communicate(timeout=60)
    server = server_here()
    where = re.escape(f"Redis at {server.url}, embedded server, data in {server.data_dir}")
    assert re.match(f"delayq: working on default, one job at a time; {where}\n", told)
    assert (up.returncode, is_held(server.data_dir)) == (0, True)


@pytest.mark.processes
def test_a_mover_names_the_embedded_server_and_outlives_its_death(start: Start) -> None:
    run("schedule", "order.close", "--in", "1h", "--id", "order-41")
    move = start("move")
    assert move.stderr is not None
    server = server_here()
    where = f"Redis at {server.url}, embedded server, data in {server.data_dir}"
    assert move.stderr.readline() == f"delayq: moving due jobs in all queues; {where}\n"
    kill(server)
    run("schedule", "order.close", "--in", "100ms", "--id", "order-42")
    wait_until(lambda: json.loads(run("show", "order-42", "--json").stdout)["state"] == "ready")
    move.send_signal(signal.SIGTERM)
    assert move.wait(timeout=60) == 0


@pytest.mark.processes
def test_ctrl_c_ends_a_mover_in_good_order(start: Start) -> None:
    move = start("move")
    assert move.stderr is not None
    assert "moving due jobs" in move.stderr.readline()
    move.send_signal(signal.SIGINT)
    assert (move.wait(timeout=60), move.stderr.read()) == (0, "")
