"""Servers that answer and refuse writes, by their own doing."""

from __future__ import annotations

import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.support.servers import LocalServer, connect
from tests.support.waiting import wait_until


def cannot_snapshot(server: LocalServer) -> None:
    """Let the server's snapshots fail: a directory stands where the file should be. It then refuses every write."""
    with connect(server.url) as client:
        client.config_set("save", "3600 1")
        name = client.config_get("dbfilename")["dbfilename"]
        (server.folder / str(name) / "in the way").mkdir(parents=True)
        client.bgsave()
        wait_until(lambda: client.info("persistence")["rdb_last_bgsave_status"] == "err", what="a snapshot has failed")


def can_snapshot_again(server: LocalServer) -> None:
    """Undo `cannot_snapshot`."""
    with connect(server.url) as client:
        name = client.config_get("dbfilename")["dbfilename"]
        (server.folder / str(name) / "in the way").rmdir()
        (server.folder / str(name)).rmdir()
        client.bgsave()
        wait_until(lambda: client.info("persistence")["rdb_last_bgsave_status"] == "ok", what="a snapshot was written")


@contextmanager
def small_disk() -> Iterator[Path]:
    """A file system of two megabytes. Skips where this user may not mount one."""
    with tempfile.TemporaryDirectory(prefix="dq-disk-") as folder:
        made = subprocess.run(
            ["mount", "-t", "tmpfs", "-o", "size=2m,mode=777", "tmpfs", folder], capture_output=True, check=False
        )
        if made.returncode:
            pytest.skip("a small file system needs the right to mount one")
        try:
            yield Path(folder)
        finally:
            subprocess.run(["umount", "-l", folder], check=True)


def fill(server: LocalServer) -> None:
    """Set maxmemory to what is used now: a server that takes no new job."""
    with connect(server.url) as client:
        client.config_set("maxmemory", client.info("memory")["used_memory"] - 1)
