"""Durability `fsync`: on the disk, or refused by who cannot tell, or does not tell the truth."""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import nullcontext

import pytest
from redis.exceptions import NoPermissionError

from delayq.core.durability import Durability
from delayq.core.errors import ConfigError, NotConfirmed
from delayq.core.options import Options
from delayq.redis.aio import AsyncClient
from delayq.redis.confirm import Confirm, Wait, talk
from delayq.redis.connect import Connector
from tests.support.durable import SHORT, Open, has, opened
from tests.support.flavours import Flavour
from tests.support.servers import LocalServer, OwnServer

__all__ = ["opened"]

AT_ONCE, LATER = [1, 0], [0, 0]


@pytest.fixture
def on_disk(own_server: OwnServer) -> Callable[[str], LocalServer]:
    return lambda sync: own_server(flavour=Flavour.VALKEY, persistent=True, options={"appendfsync": sync})


def test_fsync(on_disk: Callable[[str], LocalServer], opened: Open) -> None:
    server = on_disk("always")
    q = opened(server.url)
    q.schedule("close", id="j1", delay="1h", durability="fsync")
    q.schedule_many([{"name": "close", "id": f"m{n}", "delay": "1h"} for n in range(300)], durability="fsync")
    assert q.cancel("m0", durability="fsync") == "cancelled"
    server.restart()
    assert (has(server, "j1"), has(server, "m0"), has(server, "m299")) == (True, False, True)


def test_a_disk_that_is_never_synced(on_disk: Callable[[str], LocalServer], opened: Open) -> None:
    server = on_disk("no")
    with pytest.raises(NotConfirmed, match="it was not on the server's disk within 200ms"):
        opened(server.url, SHORT).schedule("close", id="j1", delay="1h", durability="fsync")
    assert has(server, "j1")


def test_a_server_that_says_on_disk_before_it_is(on_disk: Callable[[str], LocalServer], opened: Open) -> None:
    """Valkey 9.1 does with `everysec`; one that is mended says so when a second has passed, and is believed."""
    server, said = on_disk("everysec"), ""
    try:
        opened(server.url).schedule("close", id="j", delay="1h", durability="fsync")
    except ConfigError as error:
        said = str(error)
    assert has(server, "j") == (not said)
    assert not said or ("before it is" in said and "CONFIG SET appendfsync always" in said)


@pytest.mark.parametrize(
    ("second", "policy", "refused"),
    [
        (LATER, None, ""),
        (AT_ONCE, [b"appendfsync", b"always"], ""),
        (AT_ONCE, {b"appendfsync": b"always"}, ""),
        (AT_ONCE, [b"appendfsync", b"everysec"], "before it is, with its appendfsync"),
        (AT_ONCE, NoPermissionError("no permissions to run the 'config|get' command"), "forbids this user"),
    ],
)
def test_whom_the_probe_believes(second: object, policy: object, refused: str) -> None:
    """The talk by itself, with a server's lines: those of a mended, a strict, a lying and a silent one."""
    going = talk(Confirm((), Durability(fsync=True), "delayq:{default}:once:x", bool), "here", Wait(1_500, math.inf))
    assert next(going) == [("WAITAOF", 1, 0, 1)]
    assert len(going.send([[1, 0]])) == 4
    with pytest.raises(ConfigError, match=refused) if refused else nullcontext():
        said = going.send([b"OK", [1, 0], b"OK", second])
        if policy is not None:
            assert said == [("CONFIG", "GET", "appendfsync")]
            said = going.send([policy])
        assert said == [], "the calls come next"


@pytest.mark.parametrize(("flavour", "why"), [(Flavour.REDIS7, "has no WAITAOF"), (Flavour.VALKEY, "append-only file")])
async def test_who_cannot_tell_says_so_before_anything_is_written(
    own_server: OwnServer, opened: Open, flavour: Flavour, why: str
) -> None:
    server = own_server(flavour=flavour)
    with pytest.raises(ConfigError, match=why) as caught:
        opened(server.url).schedule("close", id="j", durability="fsync")
    assert caught.value.exit_code == 2
    q = AsyncClient(Connector(server.url), Options())
    with pytest.raises(ConfigError, match=why):
        await q.schedule("close", id="j", durability="fsync")
    await q.close()
    assert not has(server, "j")
