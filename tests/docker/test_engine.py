"""The image in a real engine: no root, nothing written, a job runs in it, and TERM ends every role well.

    docker build -f docker/Dockerfile -t delayq . && DELAYQ_TEST_IMAGE=delayq make test ARGS=tests/docker

Only where DELAYQ_TEST_IMAGE names the image: few machines have an engine, and fewer a base image to build it from.
"""

from __future__ import annotations

import json
import os
import subprocess
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from delayq import DelayQ
from tests.support.servers import OwnServer
from tests.support.waiting import wait_until

ROOT = Path(__file__).resolve().parents[2]
IMAGE = os.environ.get("DELAYQ_TEST_IMAGE", "")
pytestmark = [
    pytest.mark.timeout(300),
    pytest.mark.skipif(not IMAGE, reason="DELAYQ_TEST_IMAGE names no image: docker/ is read, and not run"),
]
SAFE = ["--network", "none", "--init", "--read-only", "--tmpfs", "/tmp", "--cap-drop", "ALL",
        "--security-opt", "no-new-privileges:true"]  # fmt: skip


def docker(*words: str) -> str:
    done = subprocess.run(["docker", *words], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, f"docker {words}: {done.stdout}{done.stderr}"
    return done.stdout.strip()


class Fleet:
    """Containers on one server, which they reach by its socket; gone with the test."""

    def __init__(self, url: str) -> None:
        self._socket = url.removeprefix("unix://").partition("?")[0]
        self._names: list[str] = []

    def start(self, role: str, *command: str) -> str:
        """One more; its name."""
        name = f"delayq-test-{role}-{uuid.uuid4().hex[:8]}"
        mounts = ["-v", f"{Path(self._socket).parent}:/redis", "-v", f"{ROOT / 'consumers'}:/app/consumers:ro"]
        told = ["-e", f"DELAYQ_URL=unix:///redis/{Path(self._socket).name}", "-e", f"ROLE={role}"]
        told += ["-e", "ORDERS_DB=/tmp/orders.sqlite3"]
        self._names.append(name)
        docker("run", "-d", "--name", name, *SAFE, *mounts, *told, IMAGE, *command)
        return name

    def close(self) -> None:
        for name in self._names:
            subprocess.run(["docker", "rm", "-f", name], capture_output=True, timeout=60, check=False)


@pytest.fixture
def server_url(own_server: OwnServer) -> str:
    """Of a server that the user of the containers may speak to."""
    server = own_server(options={"unixsocketperm": "777"})
    folder = Path(server.url.removeprefix("unix://").partition("?")[0]).parent
    folder.chmod(0o755)
    return server.url


@pytest.fixture
def fleet(server_url: str) -> Iterator[Fleet]:
    fleet = Fleet(server_url)
    yield fleet
    fleet.close()


def test_a_job_runs_in_it_and_every_role_ends_well(fleet: Fleet, server_url: str) -> None:
    mover = fleet.start("mover", "move")
    work = ["work", "--app", "consumers.order_timeout.jobs", "--queue", "orders", "--no-mover"]
    worker = fleet.start("worker", *work)
    assert docker("exec", worker, "id", "-u") == "10001"
    words = ["schedule", "order.close", "--in", "1s", "--queue", "orders", "--data", '{"order_id": 1}', "--json"]
    said = json.loads(docker("exec", worker, "delayq", *words))
    assert said["outcome"] == "created"
    with DelayQ(server_url) as q:
        wait_until(lambda: q.get(said["id"], queue="orders") is None, timeout=60.0, what="the job has run")
    assert "order 1:" in docker("logs", worker)
    for name in (worker, mover):
        wait_until(lambda name=name: _health(name) == "healthy", timeout=90.0, what=f"{name} is healthy")  # type: ignore[misc]
    began = time.monotonic()
    for name in (worker, mover):
        docker("stop", "-t", "35", name)
        assert docker("inspect", "-f", "{{.State.ExitCode}}", name) == "0"
    assert time.monotonic() - began < 35, "neither was killed at the end of its time"


def test_nothing_of_it_can_be_written_to(fleet: Fleet) -> None:
    name = fleet.start("mover", "move")
    for place in ("/app/x", "/opt/delayq/x", "/data/x", "/etc/x"):
        done = subprocess.run(["docker", "exec", name, "touch", place], capture_output=True, timeout=60, check=False)
        assert done.returncode != 0, place
    docker("exec", name, "touch", "/tmp/x")


def _health(name: str) -> str:
    return docker("inspect", "-f", "{{.State.Health.Status}}", name)
