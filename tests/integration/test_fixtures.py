"""The suite's own servers and its leak check, which every other test leans on."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import redis

from tests.support.flavours import Flavour
from tests.support.leftovers import command_of
from tests.support.servers import OwnServer, connect

ROOT = Path(__file__).parents[2]
MAJOR_VERSIONS = {Flavour.VALKEY: "9.", Flavour.REDIS7: "7.", Flavour.REDIS62: "6.2."}


def test_each_flavour_is_the_server_it_says(each_flavour: Flavour, each_redis_client: redis.Redis) -> None:
    info = each_redis_client.info("server")

    assert str(info.get("valkey_version", info["redis_version"])).startswith(MAJOR_VERSIONS[each_flavour])
    assert ("valkey_version" in info) == (each_flavour is Flavour.VALKEY)


@pytest.mark.parametrize("turn", [1, 2])
def test_the_server_is_empty_at_the_start_of_a_test(redis_client: redis.Redis, turn: int) -> None:
    assert redis_client.dbsize() == 0

    redis_client.sadd("delayq:queues", f"turn-{turn}")


def test_an_own_server_keeps_what_is_settled_over_a_restart(own_server: OwnServer, each_flavour: Flavour) -> None:
    server = own_server(flavour=each_flavour, persistent=True)
    first_pid = server.pid
    with connect(server.url) as client:
        client.sadd("delayq:queues", "orders")
    server.settle()

    server.kill()
    assert not server.is_alive()
    assert command_of(first_pid) == ""
    server.restart()

    assert server.pid != first_pid
    with connect(server.url) as client:
        assert client.smembers("delayq:queues") == {b"orders"}


def test_an_own_server_that_is_stopped_answers_when_it_goes_on(own_server: OwnServer) -> None:
    server = own_server()

    server.stop()
    assert server.is_alive()
    assert not server.is_ready()
    server.cont()

    assert server.is_ready()


LEAVES_NOTHING = "def test_nothing(redis_client): redis_client.sadd('delayq:queues', 'orders')\n"
# What they leave lives much longer than the grace of the check, which is short here, and ends with the session.
LEAVES_THINGS = """
import atexit, subprocess, threading

def test_key(redis_client): redis_client.set('delayq:{orders}:jbos', 'x')
def test_own_key(own_server):
    from tests.support.servers import OwnServer, connect
    with connect(own_server().url) as client: client.set('stray', 'x')
def test_setting(redis_client): redis_client.config_set('maxmemory', '100mb')
def test_process():
    test_process.child = subprocess.Popen(['sleep', '60'])
    atexit.register(test_process.child.kill)
def test_thread():
    timer = threading.Timer(60, print)
    timer.daemon = True
    timer.start()
"""


def test_what_a_test_leaves_behind_fails_that_test_and_no_other(tmp_path: Path) -> None:
    run = _run_pytest(tmp_path, LEAVES_THINGS + LEAVES_NOTHING, DELAYQ_TEST_GRACE_S="0.3")

    assert "6 passed, 5 errors" in run.stdout, run.stdout
    assert "ERROR test_it.py::test_nothing" not in run.stdout
    for complaint in (
        "delayq:{orders}:jbos (string): is no key of a queue",
        "stray (string): is outside of the prefix delayq",
        "setting changed: maxmemory was '0', is '104857600'",
        ": sleep 60",
        "still there: thread Thread-",
    ):
        assert complaint in run.stdout


MEASURES_TIME = """
import pytest
from tests.support import machine

machine.STILL_S, machine.CROWDED = {limits}
runs = []

@pytest.mark.timed
def test_the_third_time(): runs.append(1); assert len(runs) == 3, "too slow"
@pytest.mark.timed
def test_never(): assert not "true"
"""


def test_what_measures_time_is_run_again_on_a_machine_that_has_none(tmp_path: Path) -> None:
    run = _run_pytest(tmp_path, MEASURES_TIME.format(limits="-1.0, -1.0"))

    assert "1 failed, 1 passed" in run.stdout, run.stdout
    assert run.stdout.count("test_the_third_time: it stood still for") == 2
    assert run.stdout.count("test_never: it stood still for") == 2
    assert "AssertionError: too slow" in run.stdout


def test_what_measures_time_fails_at_once_on_a_machine_that_has_it(tmp_path: Path) -> None:
    run = _run_pytest(tmp_path, MEASURES_TIME.format(limits="1000.0, 2.0"))

    assert "2 failed" in run.stdout, run.stdout
    assert "run again" not in run.stdout


@pytest.mark.parametrize(("ci", "outcome"), [("", "1 skipped"), ("true", "1 error")])
def test_containers_without_an_engine_are_never_passed_over_in_silence(tmp_path: Path, ci: str, outcome: str) -> None:
    run = _run_pytest(
        tmp_path, LEAVES_NOTHING, DELAYQ_TEST_REDIS="container", DOCKER_HOST="unix:///nowhere/docker.sock", CI=ci
    )

    assert outcome in run.stdout
    assert "DELAYQ_TEST_REDIS=container, but no Docker engine answers" in run.stdout


@pytest.mark.parametrize(("ci", "outcome"), [("", "1 skipped"), ("true", "1 error")])
def test_a_flavour_that_is_not_there_is_named_and_fails_in_ci(tmp_path: Path, ci: str, outcome: str) -> None:
    hide = "from tests.support.flavours import *\nEXPECTED[Flavour.VALKEY] = Expected('Valkey', (99,), 'build one')\n"

    run = _run_pytest(tmp_path, hide + LEAVES_NOTHING, DELAYQ_TEST_FLAVOURS="valkey", CI=ci)

    assert outcome in run.stdout
    assert "valkey   MISSING, no valkey server on this machine: build one" in run.stdout


def _run_pytest(folder: Path, source: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """A session of its own on one small file, with the suite's fixtures."""
    (folder / "test_it.py").write_text(source)
    return subprocess.run(
        [
            sys.executable,
            "-m",
            "pytest",
            "-p",
            "tests.conftest",
            "-c",
            os.devnull,
            "-rs",
            "test_it.py",
        ],
        cwd=folder,
        env=os.environ | {"PYTHONPATH": str(ROOT), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"} | environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=50,
    )
