"""The same servers in containers: `DELAYQ_TEST_REDIS=container`, where a Docker engine answers."""

from __future__ import annotations

import functools
import importlib
import os
from typing import Any

from tests.support.flavours import Flavour, missing

IMAGES = {
    Flavour.VALKEY: "valkey/valkey:9.1",
    Flavour.REDIS7: "redis:7.4",
    Flavour.REDIS62: "redis:6.2",
}
REDIS_PORT = 6379


def containers_wanted() -> bool:
    """Whether this run is told to use containers. Another value than `container` would silently mean something else."""
    named = os.environ.get("DELAYQ_TEST_REDIS", "")
    assert named in {"", "container"}, f"DELAYQ_TEST_REDIS is '{named}'; the only value is 'container'"
    return named == "container"


@functools.cache
def engine_problem() -> str | None:
    """Why no container can be started; None if a Docker engine answers. Asked once: a client alone proves nothing."""
    try:
        docker = importlib.import_module("docker")
        docker.from_env(timeout=2).ping()
    except ImportError:
        return "the package docker is not installed"
    except Exception as error:  # noqa: BLE001  (whatever the engine's client raises means the same to us)
        return f"no Docker engine answers ({type(error).__name__}: {error})"
    return None


def require_engine() -> None:
    """End the test if containers cannot be had."""
    problem = engine_problem()
    if problem is not None:
        missing(f"DELAYQ_TEST_REDIS=container, but {problem}", allowed=False)


class ContainerServer:
    """One server in a container, started at once."""

    def __init__(self, flavour: Flavour) -> None:
        self._container = _container_class()(IMAGES[flavour])
        self._container.start()
        host, port = self._container.get_container_host_ip(), self._container.get_exposed_port(REDIS_PORT)
        self.url = f"redis://{host}:{port}/0"

    def is_alive(self) -> bool:
        wrapped = self._container.get_wrapped_container()
        wrapped.reload()
        return bool(wrapped.status == "running")

    def close(self) -> None:
        self._container.stop()


def _container_class() -> Any:
    """It moved to `testcontainers.community.redis`; the old name warns, and warnings are errors here."""
    try:
        module = importlib.import_module("testcontainers.community.redis")
    except ModuleNotFoundError:
        module = importlib.import_module("testcontainers.redis")
    return module.RedisContainer
