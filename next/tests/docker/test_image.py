"""The image in a Docker engine: its rights, TERM, and wrong settings."""

import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from delayq import DelayQ
from tests.docker.engine import Engine, wait_for
from tests.docker.test_files import block
from tests.support.servers import private_server
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.docker, pytest.mark.timeout(900)]

APPLICATION = """
import time
from delayq import job

@job("slow", queue="q")
def slow() -> None:
    print("started", flush=True)
    time.sleep(3)
    print("finished", flush=True)
"""
SAFE = ["--network", "none", "--read-only", "--tmpfs", "/tmp", "--cap-drop", "ALL"]
SAFE += ["--security-opt", "no-new-privileges:true"]

Start = Callable[..., str]


@pytest.fixture
def server_url() -> Iterator[str]:
    """The address of a server whose socket the user of the containers may open."""
    with private_server(["--unixsocketperm", "777"]) as url:
        Path(url.removeprefix("unix://")).parent.chmod(0o755)
        yield url


@pytest.fixture
def start(docker: Engine, image: str, server_url: str, tmp_path: Path) -> Iterator[Start]:
    """Start a container with the application. Its name is returned."""
    (tmp_path / "app.py").write_text(APPLICATION)
    tmp_path.chmod(0o755)
    names: list[str] = []

    def start(*words: str) -> str:
        names.append(f"delayq-test-{uuid.uuid4().hex[:8]}")
        mounts = ["-v", f"{Path(server_url.removeprefix('unix://')).parent}:/redis", "-v", f"{tmp_path}:/app:ro"]
        url = ["-e", "DELAYQ_URL=unix:///redis/redis.sock"]
        docker.run("docker", "run", "-d", "--name", names[-1], *SAFE, *mounts, *url, image, *words)
        return names[-1]

    yield start
    for name in names:
        docker.try_("docker", "rm", "-f", name)


def exit_code(docker: Engine, name: str) -> str:
    return docker.run("docker", "inspect", "-f", "{{.State.ExitCode}}", name)


def test_a_running_job_is_finished_after_term(docker: Engine, start: Start, server_url: str) -> None:
    name = start("work", "--app", "app")
    with DelayQ(server_url) as client:
        job_id = client.schedule("slow", queue="q").id
        wait_until(lambda: "started" in docker.run("docker", "logs", name))
        docker.run("docker", "stop", "-t", "30", name)
        assert "finished" in docker.run("docker", "logs", name)
        assert exit_code(docker, name) == "0"
        assert client.get(job_id, queue="q") is None


def test_a_mover_is_healthy_and_ends_at_once(docker: Engine, start: Start) -> None:
    name = start("move")
    wait_for(docker, name, "healthy".__eq__, "{{.State.Health.Status}}")
    docker.run("docker", "stop", "-t", "30", name)
    assert exit_code(docker, name) == "0"


def test_nothing_can_be_written_and_nobody_is_root(docker: Engine, start: Start) -> None:
    name = start("move")
    assert docker.run("docker", "exec", name, "id", "-u") == "10001"
    for place in ("/app", "/opt/delayq", "/etc", "/data"):
        assert docker.try_("docker", "exec", name, "touch", f"{place}/file").returncode != 0, place
    docker.run("docker", "exec", name, "touch", "/tmp/file")


@pytest.mark.parametrize(
    ("options", "code", "told"),
    [((), 2, "DELAYQ_URL"), (("-e", "DELAYQ_URL=redis://127.0.0.1:1"), 5, "cannot be reached")],
)
def test_no_server_is_started_in_a_container(
    docker: Engine, image: str, options: tuple[str, ...], code: int, told: str
) -> None:
    ended = docker.try_("docker", "run", "--rm", *options, image, "-q", "stats")
    assert ended.returncode == code
    assert told in ended.stdout


def test_an_application_is_added_as_the_page_shows(docker: Engine, image: str, tmp_path: Path) -> None:
    (tmp_path / "Dockerfile").write_text(block("dockerfile"))
    (tmp_path / "shop.py").write_text(APPLICATION)
    built = docker.run("docker", "build", "-q", str(tmp_path)).splitlines()[-1]
    try:
        ended = docker.try_(
            "docker", "run", "--rm", "-e", "DELAYQ_URL=redis://127.0.0.1:1", built, "work", "--app", "shop", "--once"
        )
        assert (ended.returncode, "cannot be reached" in ended.stdout) == (5, True)
    finally:
        docker.run("docker", "rmi", built)
