"""What the embedded server survives: its own death, lost files, damaged data."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from pathlib import Path

import pytest

from delayq.core.errors import BackendUnavailable, ConfigError
from delayq.redis.embedded import EmbeddedServer, Running
from delayq.redis.server_probe import ask
from tests.integration.conftest import MakeEmbedded
from tests.support.flavours import Flavour, require
from tests.support.leftovers import command_of, pids_that_show
from tests.support.servers import connect, is_written
from tests.support.waiting import wait_until


def write(running: Running, **pairs: str) -> None:
    """Set keys and wait until they are in the file."""
    with connect(running.url) as client:
        for name, value in pairs.items():
            client.set(name, value)
        wait_until(lambda: is_written(client), what="the append-only file is written")


def read(running: Running, name: str) -> bytes | None:
    with connect(running.url) as client:
        value = client.get(name)
    assert value is None or isinstance(value, bytes)
    return value


def kill(running: Running) -> None:
    os.kill(running.pid, signal.SIGKILL)
    wait_until(lambda: command_of(running.pid) == "", what="the killed server ends")


def newest_log_file(server: EmbeddedServer) -> Path:
    """The append-only file that takes the changes; where it is depends on the server's age."""
    found = [*server.data_dir.glob("appendonlydir/*.incr.aof"), *server.data_dir.glob("appendonly.aof")]
    (path,) = found
    return path


def test_data_survives_a_kill_and_the_socket_left_behind_is_no_hindrance(
    embedded: MakeEmbedded, each_flavour: Flavour
) -> None:
    server = embedded(server=require(each_flavour).path)
    first = server.ensure()
    write(first, order="42")

    kill(first)
    assert first.socket.exists()
    assert server.running() is None
    second = server.ensure()

    assert second.pid != first.pid
    assert second.url == first.url
    assert read(second, "order") == b"42"


def test_data_survives_stop_and_start(embedded: MakeEmbedded) -> None:
    server = embedded()
    with connect(server.ensure().url) as client:
        client.set("order", "42")

    server.stop()

    assert read(server.ensure(), "order") == b"42"


def test_a_server_that_lost_its_socket_is_replaced_with_its_data(embedded: MakeEmbedded) -> None:
    server = embedded()
    first = server.ensure()
    with connect(first.url) as client:
        client.set("order", "42")
    first.socket.unlink()

    second = server.ensure()

    assert command_of(first.pid) == ""
    assert read(second, "order") == b"42"


def test_a_server_that_lost_its_pid_file_is_still_the_one(embedded: MakeEmbedded) -> None:
    server = embedded()
    running = server.ensure()
    (server.data_dir / "server.pid").unlink()

    assert server.ensure() == running
    assert server.stop() is True
    assert command_of(running.pid) == ""


def test_a_directory_that_was_removed_and_made_again_begins_anew(embedded: MakeEmbedded, runtime_dir: Path) -> None:
    server = embedded()
    first = server.ensure()
    with connect(first.url) as client:
        client.set("order", "42")
    shutil.rmtree(server.data_dir)

    second = server.ensure()

    assert pids_that_show(str(runtime_dir)) == [second.pid]
    assert read(second, "order") is None
    write(second, order="43")
    kill(second)
    assert read(server.ensure(), "order") == b"43"


def test_a_copy_of_a_directory_in_use_has_a_server_of_its_own(embedded: MakeEmbedded, tmp_path: Path) -> None:
    original = embedded(tmp_path / "data").ensure()
    write(original, order="42")
    shutil.copytree(tmp_path / "data", tmp_path / "copy")
    copy = embedded(tmp_path / "copy")

    assert copy.running() is None
    assert copy.stop() is False
    running = copy.ensure()

    assert running.pid != original.pid
    assert read(running, "order") == b"42"
    assert copy.stop() is True
    assert embedded(tmp_path / "data").running() == original


def test_a_directory_that_was_moved_under_its_server_keeps_it(embedded: MakeEmbedded, tmp_path: Path) -> None:
    running = embedded(tmp_path / "data").ensure()
    (tmp_path / "data").rename(tmp_path / "moved")

    assert embedded(tmp_path / "moved").ensure() == running


def test_a_stranger_on_our_socket_is_not_taken_for_our_server(embedded: MakeEmbedded, tmp_path: Path) -> None:
    server = embedded()
    running = server.ensure()
    kill(running)
    options = ("--port", "0", "--unixsocket", str(running.socket), "--dir", str(tmp_path))

    with subprocess.Popen([server.chosen.path, *options], stdout=subprocess.DEVNULL) as stranger:
        try:
            wait_until(lambda: ask(running.socket) is not None, what="the stranger answers")

            assert server.running() is None
            assert server.ensure().pid != stranger.pid

            assert stranger.wait(timeout=10) == 0
        finally:
            stranger.kill()


def test_a_torn_end_of_the_file_loses_only_what_was_torn(embedded: MakeEmbedded, each_flavour: Flavour) -> None:
    server = embedded(server=require(each_flavour).path)
    first = server.ensure()
    write(first, whole="1", torn="2")
    kill(first)
    path = newest_log_file(server)
    path.write_bytes(path.read_bytes()[:-5])

    second = server.ensure()

    assert read(second, "whole") == b"1"
    assert read(second, "torn") is None


def test_a_damaged_file_is_reported_in_the_servers_words_and_left_as_it_is(
    embedded: MakeEmbedded, each_flavour: Flavour, runtime_dir: Path
) -> None:
    server = embedded(server=require(each_flavour).path)
    first = server.ensure()
    write(first, one="1", two="2", three="3")
    kill(first)
    path = newest_log_file(server)
    damaged = path.read_bytes().replace(b"$3\r\ntwo", b"#3\r\ntwo")
    path.write_bytes(damaged)

    with pytest.raises(BackendUnavailable, match=r"(?s)ended while it started.*Bad file format.*server\.log"):
        server.ensure()

    assert path.read_bytes() == damaged
    assert server.running() is None
    assert pids_that_show(str(runtime_dir)) == []


def test_an_older_server_is_refused_data_it_would_not_see(embedded: MakeEmbedded) -> None:
    old = require(Flavour.REDIS62)
    server = embedded()
    server.ensure()
    server.stop()

    with pytest.raises(ConfigError, match=r"written by a newer server than Redis 6\.2\.\d+"):
        embedded(server=old.path).ensure()


def test_a_program_that_ends_at_once_is_reported_at_once(embedded: MakeEmbedded, tmp_path: Path) -> None:
    program = tmp_path / "redis-server"
    program.write_text(
        '#!/bin/sh\nif [ "$1" = --version ]; then echo "Redis server v=7.2.0"; else echo "no luck today"; exit 1; fi\n'
    )
    program.chmod(0o755)

    with pytest.raises(BackendUnavailable, match="no luck today"):
        embedded(server=program).ensure(timeout_s=600.0)
