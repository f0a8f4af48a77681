"""A MariaDB of the suite's own: a data folder in a temporary place, on a Unix socket in it, stopped by its pid.

As root it runs as another user. Where none is installed the tests that need one are skipped aloud; they fail when
DELAYQ_TEST_MARIADB=1 says that it was installed for them, as CI does.
"""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from delayq.core.errors import BackendUnavailable
from delayq.drivers.database.engine import Database
from tests.support.flavours import missing
from tests.support.waiting import wait_until

_SMALL = (
    "--skip-networking",
    "--innodb-buffer-pool-size=64M",
    "--innodb-log-file-size=32M",
    "--innodb-flush-log-at-trx-commit=2",
    "--skip-log-bin",
    "--performance-schema=OFF",
    "--character-set-server=utf8mb4",
)


def mariadb_there() -> bool:
    """Whether it is installed, where Debian puts it or on PATH."""
    return _program("mariadbd") is not None and _program("mariadb-install-db") is not None


def require_mariadb() -> tuple[str, str]:
    """The server and what makes its data folder; ends the test if there is none."""
    server, install = _program("mariadbd"), _program("mariadb-install-db")
    if server is None or install is None:
        wanted = os.environ.get("DELAYQ_TEST_MARIADB", "") == "1"
        missing("no MariaDB on this machine: apt-get install mariadb-server", allowed=not wanted)
    assert server is not None
    assert install is not None
    return server, install


@contextmanager
def mariadb() -> Iterator[str]:
    """A running server; the URL of an empty database."""
    server, install = require_mariadb()
    user = _user()
    with tempfile.TemporaryDirectory(prefix="dq-my-") as folder:
        if user is not None:
            shutil.chown(folder, user)
        data, socket = f"{folder}/data", f"{folder}/s.sock"
        made = [
            install,
            "--no-defaults",
            f"--datadir={data}",
            "--auth-root-authentication-method=normal",
            "--skip-test-db",
        ]
        subprocess.run(made, user=user, cwd=folder, check=True, capture_output=True)
        words = [
            server,
            "--no-defaults",
            f"--datadir={data}",
            f"--socket={socket}",
            f"--pid-file={folder}/pid",
            *_SMALL,
        ]
        with Path(folder, "log").open("wb") as log:
            process = subprocess.Popen(words, user=user, cwd=folder, stdout=log, stderr=log)
        try:
            wait_until(lambda: (Path(socket).exists() and _answers(socket)) or process.poll() is not None)
            assert process.poll() is None, Path(folder, "log").read_text()
            yield f"mariadb+pymysql://root@localhost/delayq?unix_socket={socket}&charset=utf8mb4"
        finally:
            process.terminate()
            process.wait()


def _answers(socket: str) -> bool:
    """Whether it takes connections; it then has the database."""
    made = "CREATE DATABASE IF NOT EXISTS delayq CHARACTER SET utf8mb4"
    with closing(Database(f"mariadb://root@localhost/?unix_socket={socket}")) as server:
        try:
            server.write(lambda connection: connection.exec_driver_sql(made))
        except BackendUnavailable:
            return False
    return True


def _program(name: str) -> str | None:
    return shutil.which(name) or shutil.which(name, path="/usr/sbin:/usr/bin:/usr/local/sbin")


def _user() -> str | None:
    """Who it runs as; None: as we do."""
    if os.geteuid() != 0:
        return None
    known = {entry.pw_name for entry in pwd.getpwall()}
    return next((name for name in ("mysql", "nobody") if name in known), None)
