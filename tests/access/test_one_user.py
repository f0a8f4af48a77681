"""The one user of docs/protocol.md who may do all of it: can, and is given nothing that nobody needs."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import redis
from redis.exceptions import NoPermissionError

from delayq.core.errors import ConfigError
from delayq.core.options import Options
from delayq.redis.client import Client
from delayq.redis.connect import Connector
from tests.cli.conftest import Inline
from tests.docs.access import USERS
from tests.support.flavours import Flavour, default_flavour
from tests.support.servers import LocalServer, OwnServer, connect
from tests.support.whole_life import live

[LINE] = [user.line.replace("PASSWORD", "secret") for user in USERS if user.name == "shop-all"]
# Sent with every other database than 0; the life is on 0.
ELSEWHERE = {"select"}


@pytest.fixture
def server(own_server: OwnServer, each_flavour: Flavour) -> LocalServer:
    server = own_server(flavour=each_flavour)
    with connect(server.url) as admin:
        admin.execute_command(*LINE.split())
        admin.config_resetstat()
    return server


@pytest.fixture
def url(server: LocalServer) -> str:
    return server.url.replace("unix://", "unix://shop-all:secret@")


@pytest.fixture
def inline(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., Any]:
    monkeypatch.setenv("DELAYQ_URL", url)
    monkeypatch.setenv("DELAYQ_DATA_DIR", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    run = Inline(capsys)

    def allowed(*words: str) -> Any:
        done = run(*words)
        assert done.code == 0 or words == ("doctor",), (words, done.err)
        assert "forbids" not in done.err, (words, done.err)
        return done

    return allowed


def test_the_whole_life_of_jobs_and_every_permission_is_used(
    server: LocalServer, url: str, inline: Callable[..., Any], each_flavour: Flavour
) -> None:
    """The server counts what was asked, inside scripts too: what is used and were taken away would be refused.

    All stories on the default flavour, and everywhere in the long tier; elsewhere those that touch the server most.
    """
    whole = each_flavour is default_flavour() or os.environ.get("DELAYQ_CHAOS") == "full"
    with connect(server.url) as admin:
        admin.ping()
        live(url, admin, inline, briefly=not whole)
        used = {name.removeprefix("cmdstat_") for name in admin.info("commandstats")}
    granted = {word.removeprefix("+") for word in LINE.partition(" -@all ")[2].split()}
    if whole and any("|" in name for name in used):  # Redis 6.2 counts no subcommands
        assert granted - used - ELSEWHERE == set()


@pytest.mark.parametrize("taken", ["-evalsha", "-zadd", "-sadd", "resetchannels", "resetkeys"])
def test_what_is_taken_away_is_said_in_one_sentence(own_server: OwnServer, taken: str) -> None:
    server = own_server()
    with connect(server.url) as admin:
        admin.execute_command(*LINE.split())
        admin.execute_command("ACL", "SETUSER", "shop-all", taken)
    connector = Connector(server.url.replace("unix://", "unix://shop-all:secret@"))
    with pytest.raises(ConfigError, match="forbids this user a command or a key"):
        Client(connector, Options()).schedule("n", delay="1h")
    connector.close()


def test_and_nothing_else(server: LocalServer, url: str) -> None:
    with connect(url) as plain:
        for words in (
            "FLUSHALL",
            "KEYS *",
            "CONFIG GET *",
            "GET other",
            "PUBLISH other x",
            "ACL LIST",
            "SAVE",
            "SCRIPT KILL",
            "DEBUG SLEEP 0",
        ):
            with pytest.raises(NoPermissionError):
                plain.execute_command(*words.split())


def test_it_may_be_on_another_database(server: LocalServer, url: str) -> None:
    with connect(server.url.replace("db=0", "db=3")) as there:
        assert isinstance(there, redis.Redis)
        connector = Connector(url.replace("db=0", "db=3"))
        Client(connector, Options()).schedule("n", id="j", delay="1h")
        connector.close()
        assert there.hexists("delayq:{default}:jobs", "j")
        there.flushdb()
