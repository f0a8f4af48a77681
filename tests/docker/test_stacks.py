"""The compose files, started: everything turns healthy, jobs run, and a restart or a failover keeps what was taken.

    docker build -f docker/Dockerfile -t delayq .
    DELAYQ_TEST_IMAGE=delayq DELAYQ_CHAOS=full .venv/bin/python -m pytest -n 0 tests/docker

Where images cannot be pulled, `tests/docker/stand_ins.sh` makes them. Each stack takes a minute or two.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import urllib.request
import uuid
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any
from urllib.error import HTTPError, URLError

import pytest

from tests.docker.test_engine import IMAGE, docker
from tests.docker.test_files import OVERLAYS, compose
from tests.support.replicas import free_port
from tests.support.waiting import wait_until

ROOT = Path(__file__).resolve().parents[2]
FULL = os.environ.get("DELAYQ_CHAOS", "") == "full"
pytestmark = [
    pytest.mark.timeout(600),
    pytest.mark.skipif(not IMAGE, reason="DELAYQ_TEST_IMAGE names no image: the compose files are read, and not run"),
    pytest.mark.skipif(not FULL, reason="DELAYQ_CHAOS=full: the stacks take minutes"),
]
OURS = ("serve", "mover", "worker", "worker")
REPLICA = "172.30.8.12"
ORDER = {"name": "order.close", "queue": "orders"}


class Stack:
    """One project of compose, of copies of the files with ports that are free here; gone with the test."""

    def __init__(self, folder: Path, overlay: str) -> None:
        shutil.copytree(ROOT / "docker", folder / "docker", ignore=shutil.ignore_patterns("secrets"))
        shutil.copytree(ROOT / "consumers", folder / "consumers", ignore=shutil.ignore_patterns("node_modules"))
        self.folder, self.key = folder / "docker", ""
        self.api, self.prometheus = free_port(), free_port()
        file = self.folder / "compose.yaml"
        text = file.read_text().replace("127.0.0.1:8080:", f"127.0.0.1:{self.api}:")
        text = text.replace("127.0.0.1:9090:", f"127.0.0.1:{self.prometheus}:")
        file.write_text(text.replace("image: delayq:local", f"image: {IMAGE}"))
        self.project = f"delayq{uuid.uuid4().hex[:8]}"
        files = [word for name in ("compose.yaml", overlay) if name for word in ("-f", str(self.folder / name))]
        self._compose = [*compose(), "-p", self.project, *files]

    def __call__(self, *words: str) -> subprocess.CompletedProcess[str]:
        done = subprocess.run([*self._compose, *words], capture_output=True, text=True, timeout=300, check=False)
        assert done.returncode == 0, f"{words}: {done.stdout}{done.stderr}"
        return done

    def make_key(self, scope: str) -> str:
        """As the head of compose.yaml says."""
        secrets = self.folder / "secrets"
        secrets.mkdir(exist_ok=True)
        (self.folder / "prometheus/secrets").mkdir(exist_ok=True)
        words = ["run", "-T", "--rm", "--no-deps", "-u", str(os.getuid()), "-v", f"{secrets}:/keys", "mover"]
        done = self(*words, "--api-keys-file", "/keys/api-keys.json", "api-key", "create", "--scope", scope)
        (secrets / "api-keys.json").chmod(0o644)
        return done.stdout.strip()

    def up(self) -> None:
        self("up", "-d", "--no-build", *(name for name in ("serve", "mover", "worker")))
        self.wait_healthy()

    def containers(self) -> list[tuple[str, str]]:
        """Service and status of each that runs."""
        label = f"label=com.docker.compose.project={self.project}"
        form = '{{.Label "com.docker.compose.service"}}\t{{.Status}}'
        lines = docker("ps", "--filter", label, "--format", form).splitlines()
        return sorted((name, status) for name, _, status in (line.partition("\t") for line in lines))

    def wait_healthy(self) -> None:
        def are() -> bool:
            found = self.containers()
            ours = sorted(name for name, _ in found if name in OURS)
            return ours == sorted(OURS) and all("(healthy)" in status for _, status in found)

        wait_until(are, timeout=180.0, what=f"all are healthy; they are {self.containers()}")

    def ask(self, path: str, body: Mapping[str, Any] | None = None) -> tuple[int, Any]:
        """A call of the HTTP API, over the port that is published: its status and what it said."""
        heads = {"Authorization": f"Bearer {self.key}", "Content-Type": "application/json"}
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(f"http://127.0.0.1:{self.api}{path}", data, heads)
        try:
            with urllib.request.urlopen(request, timeout=30) as answer:
                return answer.status, json.load(answer)
        except HTTPError as error:
            return error.code, json.load(error)
        except (URLError, OSError) as error:
            return 0, str(error)

    def schedule(self, order: int, delay: str = "1s") -> str:
        """Over HTTP; its id. Patient: after a restart the API may be away for a moment, or have nobody to write to."""
        job_id = f"order-{order}"

        def created() -> bool:
            status, said = self.ask("/v1/jobs", {**ORDER, "id": job_id, "delay": delay, "data": {"order_id": order}})
            return status in (200, 201) or said

        wait_until(lambda: created() is True, timeout=120.0, what=f"order {order} is taken")
        return job_id

    def is_there(self, job_id: str) -> bool:
        return self.ask(f"/v1/jobs/{job_id}?queue=orders")[0] == 200

    def wait_ran(self, order: int) -> None:
        wait_until(lambda: f"order {order}:" in self("logs", "worker").stdout, timeout=120.0, what=f"{order} has run")
        wait_until(lambda: not self.is_there(f"order-{order}"), what=f"{order} is forgotten")


@pytest.fixture
def overlay() -> str:
    return ""


@pytest.fixture
def stack(tmp_path: Path, overlay: str) -> Iterator[Stack]:
    stack = Stack(tmp_path, overlay)
    try:
        stack.key = stack.make_key("admin")
        yield stack
    finally:
        stack("--profile", "observability", "down", "-v", "-t", "35")


@pytest.mark.parametrize("overlay", OVERLAYS, ids=lambda name: name or "alone")
def test_jobs_run_and_a_restart_of_everything_keeps_them(stack: Stack) -> None:
    stack.up()
    stack.schedule(1)
    stack.wait_ran(1)
    stack("exec", "-T", "serve", "delayq", "schedule", "order.close", "--id", "order-2", "--in", "1s",
          "--queue", "orders", "--data", '{"order_id": 2}')  # fmt: skip
    stack.wait_ran(2)
    waits = stack.schedule(3, "1h")
    stack("down", "-t", "35")
    stack.up()
    assert stack.is_there(waits)
    stack.schedule(4)
    stack.wait_ran(4)


@pytest.mark.parametrize("overlay", ["compose.sentinel.yaml"])
def test_a_failover_keeps_what_was_taken_and_the_old_primary_follows(stack: Stack) -> None:
    stack.up()
    waits = stack.schedule(1, "1h")
    stack("kill", "valkey")
    leading = ["exec", "-T", "sentinel-1", "valkey-cli", "-p", "26379", "sentinel", "get-master-addr-by-name", "delayq"]
    wait_until(lambda: REPLICA in stack(*leading).stdout, timeout=90.0, what="the replica leads")
    stack("start", "valkey")
    also = stack.schedule(2, "1h")
    following = ["exec", "-T", "valkey", "valkey-cli", "role"]
    wait_until(lambda: stack(*following).stdout.startswith("slave"), timeout=60.0, what="the old primary follows")
    stack("down", "-t", "35")
    stack.up()
    assert stack.is_there(waits)
    assert stack.is_there(also)
    assert stack(*following).stdout.startswith("slave"), "who leads is remembered"
    stack.schedule(3)
    stack.wait_ran(3)


def test_prometheus_finds_every_process(stack: Stack) -> None:
    (stack.folder / "prometheus/secrets/api-key").write_text(stack.make_key("read"))
    stack.up()
    stack("--profile", "observability", "up", "-d", "--no-build", "prometheus")

    def targets() -> list[tuple[str, str]]:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{stack.prometheus}/api/v1/targets", timeout=30) as answer:
                found = json.load(answer)["data"]["activeTargets"]
        except (URLError, OSError):
            return []
        return sorted((one["labels"]["job"], one["health"]) for one in found)

    every = [("delayq-processes", "up")] * 3 + [("delayq-state", "up")]
    wait_until(lambda: targets() == every, timeout=90.0, what="two workers, the mover and the server are scraped")
