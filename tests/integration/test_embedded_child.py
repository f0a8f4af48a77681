"""A server started for one command: it ends when the command does, however that ends."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.integration.conftest import MakeEmbedded
from tests.support.leftovers import command_of
from tests.support.servers import connect
from tests.support.waiting import wait_until

ROOT = Path(__file__).parents[2]
PARENT = """
import os, sys
from pathlib import Path
from delayq.redis.embedded import EmbeddedServer
child = EmbeddedServer(Path(sys.argv[1]), server=Path(sys.argv[2])).start_child()
print(child.running.pid, flush=True)
how = sys.stdin.readline().strip()
if how == "raise":
    raise RuntimeError("the command failed")
if how == "fork":
    if os.fork() == 0:
        sys.exit()
    os.wait()
    print("the forked child has ended", flush=True)
    sys.stdin.readline()
"""


@pytest.fixture
def parent(embedded: MakeEmbedded) -> subprocess.Popen[str]:
    server = embedded()
    return subprocess.Popen(
        [sys.executable, "-c", PARENT, str(server.data_dir), str(server.chosen.path)],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        start_new_session=True,
    )


def pid_of_its_server(parent: subprocess.Popen[str]) -> int:
    assert parent.stdout is not None
    return int(parent.stdout.readline())


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells a process that its parent was killed")
def test_it_dies_with_a_parent_that_is_killed(parent: subprocess.Popen[str]) -> None:
    with parent:
        pid = pid_of_its_server(parent)
        assert command_of(pid) != ""

        parent.kill()

        wait_until(lambda: command_of(pid) == "", what="the server ends")


@pytest.mark.parametrize("how", ["end", "raise"])
def test_it_ends_with_a_command_that_ends_or_fails(parent: subprocess.Popen[str], how: str) -> None:
    with parent:
        pid = pid_of_its_server(parent)

        parent.communicate(f"{how}\n", timeout=20)

    assert command_of(pid) == ""


def test_it_outlives_a_forked_child_of_its_parent(parent: subprocess.Popen[str]) -> None:
    with parent:
        pid = pid_of_its_server(parent)
        assert parent.stdin is not None
        assert parent.stdout is not None

        parent.stdin.write("fork\n")
        parent.stdin.flush()
        assert parent.stdout.readline() == "the forked child has ended\n"

        assert command_of(pid) != ""
        parent.communicate("\n", timeout=20)


def test_ctrl_c_in_the_terminal_does_not_reach_it(parent: subprocess.Popen[str]) -> None:
    with parent:
        pid = pid_of_its_server(parent)

        assert os.getpgid(pid) != os.getpgid(parent.pid)

        os.killpg(parent.pid, signal.SIGINT)
        parent.wait(timeout=20)
    # It ended all the same, but because its parent did.
    assert command_of(pid) == ""


def test_it_ends_with_the_block_and_its_data_stays(embedded: MakeEmbedded) -> None:
    server = embedded()

    with server.start_child() as child:
        assert child.is_own
        assert not child.has_ended()
        with connect(child.running.url) as client:
            client.set("order", "42")

    assert child.has_ended()
    assert server.running() is None
    with connect(server.ensure().url) as client:
        assert client.get("order") == b"42"


def test_a_server_that_ran_before_is_joined_and_left_running(embedded: MakeEmbedded) -> None:
    server = embedded()
    running = server.ensure()

    with server.start_child() as child:
        assert child.running == running
        assert not child.is_own

    assert server.running() == running


def test_other_commands_use_it_and_may_end_it(embedded: MakeEmbedded) -> None:
    with embedded().start_child() as child:
        assert embedded().ensure() == child.running
        assert not child.has_ended()

        assert embedded().stop() is True

        assert child.has_ended()


def test_one_that_stands_still_is_killed_when_its_time_is_over(embedded: MakeEmbedded) -> None:
    child = embedded().start_child()
    os.kill(child.running.pid, signal.SIGSTOP)

    child.stop(timeout_s=0.2)

    assert child.has_ended()
