"""The compose files in a Docker engine: an order is closed, also after the first server has stopped."""

import uuid
from collections.abc import Iterator

import pytest

from tests.docker.engine import VALKEY_IMAGE, Engine, Stack
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.docker, pytest.mark.timeout(900)]

OVERLAYS: dict[str, tuple[str, ...]] = {
    "server": (),
    "sentinel": ("compose.sentinel.yaml",),
    "cluster": ("compose.cluster.yaml",),
}


@pytest.fixture(params=OVERLAYS)
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def stack(docker: Engine, image: str, name: str) -> Iterator[Stack]:
    docker.need(VALKEY_IMAGE, 'ENTRYPOINT ["docker-entrypoint.sh"]', "WORKDIR /data", "VOLUME /data")
    stack = Stack(docker, f"delayq-test-{uuid.uuid4().hex[:8]}", ("compose.yaml", *OVERLAYS[name]))
    try:
        stack.run("up", "-d", "--no-build")
        yield stack
    finally:
        stack.run("down", "-v")


def close_order(stack: Stack, number: int) -> None:
    """Place an order, skip its waiting time, and wait until a worker has closed it."""

    def succeeds(*words: str) -> bool:
        return stack.inside("worker", *words).returncode == 0

    wait_until(lambda: succeeds("python", "/app/shop.py", "place", str(number)), "the order is placed", patience=90)
    wait_until(lambda: succeeds("delayq", "run-now", f"close-{number}", "--queue", "orders"), "run-now", patience=90)

    def state() -> str:
        return stack.inside("worker", "python", "/app/shop.py", "show", str(number)).stdout.strip()

    wait_until(lambda: state() == "closed", "the order is closed", patience=90)


def sentinel_knows_all(stack: Stack, sentinel: str) -> bool:
    """Return True if a sentinel knows both replicas and the other sentinels, so that it can replace the primary."""
    words = stack.inside(sentinel, "valkey-cli", "-p", "26379", "sentinel", "master", "delayq").stdout.split()
    about = dict(zip(words[::2], words[1::2], strict=False))
    return (about.get("num-slaves"), about.get("num-other-sentinels")) == ("2", "2")


def test_an_order_is_closed(docker: Engine, stack: Stack, name: str) -> None:
    close_order(stack, 1)
    if name == "server":
        stack.run("restart", "valkey")
    elif name == "sentinel":
        for sentinel in ("sentinel-1", "sentinel-2", "sentinel-3"):
            wait_until(lambda sentinel=sentinel: sentinel_knows_all(stack, sentinel), sentinel)  # type: ignore[misc]
        stack.run("stop", "valkey")
    else:
        stack.run("stop", "valkey")
    close_order(stack, 2)
    containers = stack.containers("mover", "worker")
    stack.run("stop")
    assert len(containers) == 3
    codes = {docker.run("docker", "inspect", "-f", "{{.State.ExitCode}}", one) for one in containers}
    assert codes == {"0"}, "TERM has ended every process in good order"
