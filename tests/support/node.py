"""Node and the packages of consumers/node_stream, installed once from its lock file into `build/`.

Where there is no Node (or no npm, or nowhere to install from) the tests that need it are skipped aloud; they fail when
DELAYQ_TEST_NODE=1 says that it was installed for them, as CI does.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NoReturn

from tests.support.flavours import missing

ROOT = Path(__file__).resolve().parents[2]
SOURCE = ROOT / "consumers" / "node_stream"
OLDEST = (18, 19)
INSTALL_S = 240.0
_INSTALL = ("ci", "--ignore-scripts", "--no-audit", "--no-fund", "--no-update-notifier", "--loglevel=error")
_PARTS = ("package.json", "package-lock.json", ".npmrc")


def node() -> str:
    """The program; ends the test where there is none that is new enough, or no npm."""
    found, npm = shutil.which("node"), shutil.which("npm")
    if found is None or npm is None:
        _without("no Node on this machine: apt-get install nodejs npm")
    said = subprocess.run([str(found), "--version"], capture_output=True, text=True, check=True, timeout=60).stdout
    version = tuple(int(part) for part in said.strip().lstrip("v").split(".")[:2])
    if version < OLDEST:
        _without(f"Node is {said.strip()}, and 18.19 is the oldest that the package `redis` runs on")
    return str(found)


@contextmanager
def node_folder(*sources: Path) -> Iterator[Path]:
    """A folder of its own with these files and those of consumers/node_stream, where `redis` can be imported."""
    node()
    home = _installed()
    folder = Path(tempfile.mkdtemp(prefix="run-", dir=home))
    try:
        for source in (*SOURCE.glob("*.mjs"), *sources):
            shutil.copy(source, folder)
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _installed() -> Path:
    """The packages of the lock file; by whichever test process comes first."""
    digest = hashlib.sha256((SOURCE / "package-lock.json").read_bytes()).hexdigest()[:12]
    home = ROOT / "build" / f"node-{digest}"
    home.mkdir(parents=True, exist_ok=True)
    with (home / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (home / "ready").exists():
            for name in _PARTS:
                shutil.copy(SOURCE / name, home)
            done = subprocess.run(
                ["npm", *_INSTALL], cwd=home, capture_output=True, text=True, check=False, timeout=INSTALL_S
            )
            if done.returncode:
                _without(f"npm could not install from the lock file: {done.stderr.strip()[-500:]}")
            (home / "ready").touch()
    return home


def _without(why: str) -> NoReturn:
    missing(why, allowed=os.environ.get("DELAYQ_TEST_NODE", "") != "1")
