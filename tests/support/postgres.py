"""A PostgreSQL of the suite's own: a cluster in a temporary folder, on a Unix socket in it, stopped at the end.

It refuses to run as root, so there it runs as another user. Where no PostgreSQL is installed the tests that need one
are skipped aloud; they fail when DELAYQ_TEST_POSTGRES=1 says that it was installed for them, as CI does.
"""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.support.flavours import missing

PATIENCE_S = "60"
_SILENT: Any = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}


def postgres_programs() -> Path | None:
    """Where `initdb` and `postgres` are: on PATH, else where Debian puts them; the newest."""
    found = shutil.which("initdb")
    if found is not None and Path(found).with_name("postgres").exists():
        return Path(found).parent
    places = [place for place in Path("/usr/lib/postgresql").glob("*/bin") if (place / "initdb").exists()]
    return max(places, key=lambda place: float(place.parent.name), default=None)


def require_postgres() -> Path:
    """As `postgres_programs`; ends the test if there is none."""
    programs = postgres_programs()
    if programs is None:
        wanted = os.environ.get("DELAYQ_TEST_POSTGRES", "") == "1"
        missing("no PostgreSQL on this machine: apt-get install postgresql", allowed=not wanted)
    return programs


@contextmanager
def postgres(*, durable: bool = False) -> Iterator[str]:
    """A running cluster; the URL of its database. `durable`: commits are on the disk, which tests need not wait for."""
    programs = require_postgres()
    user = _user()
    with tempfile.TemporaryDirectory(prefix="dq-pg-") as folder:
        if user is not None:
            shutil.chown(folder, user)
        data = f"{folder}/data"
        made: list[str | Path] = [
            programs / "initdb",
            "-D",
            data,
            "-U",
            "delayq",
            "-A",
            "trust",
            "-E",
            "UTF8",
            "--locale=C",
            "--no-sync",
        ]
        subprocess.run(made, user=user, cwd=folder, check=True, capture_output=True)
        options = {"listen_addresses": "''", "unix_socket_directories": folder, "fsync": "off", "max_connections": "40"}
        options |= {"fsync": "on"} if durable else {}
        words = " ".join(f"-c {name}={value}" for name, value in options.items())
        control: list[str | Path] = [programs / "pg_ctl", "-D", data, "-w", "-t", PATIENCE_S]
        subprocess.run(
            [*control, "-l", f"{folder}/log", "-o", words, "start"], user=user, cwd=folder, check=True, **_SILENT
        )
        try:
            yield f"postgresql+psycopg://delayq@/postgres?host={folder}"
        finally:
            subprocess.run([*control, "-m", "fast", "stop"], user=user, cwd=folder, check=True, **_SILENT)


def _user() -> str | None:
    """Who it runs as; None: as we do."""
    if os.geteuid() != 0:
        return None
    known = {entry.pw_name for entry in pwd.getpwall()}
    return next((name for name in ("postgres", "nobody") if name in known), None)
