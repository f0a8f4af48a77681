"""A Docker engine. It already runs on this machine, or the tests start it and stop it."""

import os
import platform
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import pytest

from tests.support.waiting import wait_until

NEXT: Final = Path(__file__).parents[2]
PYTHON_IMAGE: Final = "python:3.13-slim-trixie"
VALKEY_IMAGE: Final = "valkey/valkey:9.1-alpine"
_CACHE: Final = NEXT / "build" / "docker"
_PACKAGES: Final = "python3,python3-venv,python-is-python3,valkey-server,valkey-tools,valkey-sentinel"
_ENTRYPOINT: Final = """#!/bin/sh
[ "$1" = valkey-server ] && set -- "$@" --protected-mode no
exec "$@"
"""


class Engine:
    """Runs the docker client. `is_private`: the tests own the engine, so they may name images as they like."""

    def __init__(self, host: str | None, *, is_private: bool) -> None:
        self.is_private = is_private
        self._environment = {**os.environ, **({"DOCKER_HOST": host} if host else {})}

    def try_(self, *words: str, seconds: float = 120) -> subprocess.CompletedProcess[str]:
        """Run a client command, which may fail. Errors are part of the output."""
        return subprocess.run(
            words,
            env=self._environment,
            cwd=NEXT,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=seconds,
            check=False,
        )

    def run(self, *words: str, seconds: float = 120) -> str:
        """Run a client command and return its output without outer blanks."""
        done = self.try_(*words, seconds=seconds)
        assert done.returncode == 0, f"{' '.join(words)}: {done.stdout}"
        return done.stdout.strip()

    def answers(self) -> bool:
        return self.try_("docker", "info").returncode == 0

    def compose(self) -> Sequence[str]:
        """Return the words of the compose client. Without one, skip the test."""
        for words in (("docker", "compose"), ("docker-compose",)):
            if shutil.which(words[0]) and self.try_(*words, "version").returncode == 0:
                return words
        pytest.skip("docker compose is not installed")

    def has(self, image: str) -> bool:
        return self.try_("docker", "image", "inspect", image).returncode == 0

    def need(self, image: str, *changes: str) -> None:
        """Pull an image. If no registry can be reached, a private engine gets a Debian under this name instead."""
        if self.has(image) or self.try_("docker", "pull", image, seconds=300).returncode == 0:
            return
        if not self.is_private or os.geteuid() != 0 or not shutil.which("debootstrap"):
            pytest.skip(f"{image} cannot be pulled")
        words = [word for change in changes for word in ("--change", change)]
        with _debian() as files, subprocess.Popen(["tar", "-C", files, "-c", "."], stdout=subprocess.PIPE) as tar:
            command = ["docker", "import", *words, "-", image]
            subprocess.run(command, env=self._environment, stdin=tar.stdout, stdout=subprocess.DEVNULL, check=True)


@contextmanager
def engine() -> Iterator[Engine]:
    """Use a running engine, or start dockerd for the block. If neither is possible, skip the test."""
    if not shutil.which("docker"):
        pytest.skip("docker is not installed")
    own = Engine(None, is_private=False)
    if own.answers():
        yield own
        return
    if os.geteuid() != 0 or not shutil.which("dockerd"):
        pytest.skip("no Docker engine answers, and none can be started here")
    with tempfile.TemporaryDirectory(prefix="delayq-docker-") as folder:
        host = f"unix://{folder}/docker.sock"
        words = ["dockerd", "--host", host, "--pidfile", f"{folder}/pid", "--exec-root", f"{folder}/exec"]
        words += ["--data-root", str(_CACHE / "data")]
        words += ["--bridge", "none", "--iptables=false"]  # leave the network of the machine as it is
        with (Path(folder) / "log").open("w") as log:
            daemon = subprocess.Popen(words, stdout=log, stderr=log)
        started = Engine(host, is_private=True)
        try:
            wait_until(lambda: daemon.poll() is not None or started.answers(), "dockerd answers")
            if daemon.poll() is not None:
                pytest.skip("dockerd cannot run here: " + (Path(folder) / "log").read_text()[-300:])
            yield started
        finally:
            daemon.terminate()
            daemon.wait()


@contextmanager
def _debian() -> Iterator[str]:
    """Make the files of a Debian with Python and Valkey."""
    with tempfile.TemporaryDirectory(prefix="delayq-debian-") as folder:
        words = ["debootstrap", "--variant=minbase", f"--include={_PACKAGES}", "trixie", folder]
        subprocess.run(words, stdout=subprocess.DEVNULL, check=True)
        entrypoint = Path(folder) / "usr/local/bin/docker-entrypoint.sh"
        entrypoint.write_text(_ENTRYPOINT)
        entrypoint.chmod(0o755)
        yield folder


def build_image(engine: Engine, context: Path) -> None:
    """Build the image `delayq` from wheels only, because containers may have no way to PyPI."""
    engine.need(PYTHON_IMAGE)
    version = engine.run(
        "docker", "run", "--rm", PYTHON_IMAGE, "python", "-c", "import sys; print(*sys.version_info[:2])"
    )
    wheels = context / "dist"
    _python("build", "--wheel", "--no-isolation", "--outdir", str(wheels))
    platforms = [f"--platform={name}_{platform.machine()}" for name in ("manylinux_2_28", "manylinux2014")]
    target = ["--python-version", version, "--implementation", "cp", *platforms]
    (delayq,) = wheels.glob("delayq-*.whl")
    _python("pip", "download", "-q", "--dest", str(wheels), "--only-binary=:all:", *target, str(delayq))
    file = ["-f", str(NEXT / "docker" / "Dockerfile")]
    engine.run("docker", "build", *file, "--build-arg", "PIP_NO_INDEX=1", "-t", "delayq", str(context), seconds=500)


def _python(*words: str) -> None:
    done = subprocess.run([sys.executable, "-m", *words], cwd=NEXT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


class Stack:
    """The services of some compose files."""

    def __init__(self, engine: Engine, project: str, files: Sequence[str]) -> None:
        self._engine = engine
        named = [word for file in files for word in ("-f", f"docker/{file}")]
        self._words = [*engine.compose(), "-p", project, *named]

    def run(self, *words: str) -> str:
        return self._engine.run(*self._words, *words)

    def inside(self, service: str, *words: str) -> subprocess.CompletedProcess[str]:
        """Run a command in a container of a service."""
        return self._engine.try_(*self._words, "exec", "-T", service, *words)

    def containers(self, *services: str) -> list[str]:
        return self.run("ps", "-q", *services).split()


def wait_for(engine: Engine, container: str, is_so: Callable[[str], bool], template: str) -> None:
    """Wait until a value that `docker inspect` prints is as wanted."""
    wait_until(lambda: is_so(engine.run("docker", "inspect", "-f", template, container)), template, patience=90)
