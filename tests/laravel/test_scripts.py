"""The scripts for Laravel's queues: their manuals, held against their bodies and their calls, on every server."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import redis

from delayq.redis.calls import laravel as calls
from delayq.redis.calls.call import Call
from delayq.redis.laravel_keys import ENDINGS, LaravelKeys, pattern, queue_of
from delayq.redis.scripts import Script, load
from tests.docs.manuals import SCRIPTS, Manual, read
from tests.lua.test_headers import body, globals_of

KEYS = LaravelKeys("app_", "orders")
KINDS = {"list": "list", "delayed": "zset", "reserved": "zset", "notify": "list", "held": "hash", "aside": "hash"}
FILES = sorted((SCRIPTS / "laravel").glob("*.lua"))
CALLS: dict[str, Call[Any]] = {
    call.script.name: call
    for call in (
        calls.push(KEYS, [calls.Pushed(0, b"{}")]),
        calls.reserve(KEYS, lease_ms=1, count=1, seed="s"),
        calls.forget(KEYS, ["t"]),
        calls.release(KEYS, [calls.Released("t", 0, 1, b"")]),
        calls.give_back(KEYS, ["t"], counted=True),
        calls.renew(KEYS, ["t"], lease_ms=1),
        calls.remove(KEYS, [calls.Shown("list", b"{}")]),
        calls.clear(KEYS),
        calls.set_aside(KEYS, "lot", [calls.Shown("list", b"{}")]),
        calls.put_back(KEYS, ["lot 1"]),
    )
}

each = pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)


def loaded(path: Path) -> tuple[Script, Manual]:
    return load(f"laravel/{path.stem}"), read(path)


def test_every_script_has_a_call_and_every_call_a_script() -> None:
    assert sorted(CALLS) == [f"laravel/{path.stem}" for path in FILES]


@each
def test_the_manual_is_what_is_there(path: Path) -> None:
    script, manual = loaded(path)
    code = body(script)
    assert [key.name for key in manual.keys] == list(script.keys)
    assert {key.name: key.type for key in manual.keys}.items() <= KINDS.items()
    assert {int(n) for n in re.findall(r"KEYS\[(\d+)\]", code)} == set(range(1, len(script.keys) + 1))
    assert {int(n) for n in re.findall(r"ARGV\[(\d+)\]", code)} == set(range(1, len(script.args) + 1))
    assert bool(script.variadic) == bool(re.search(r"ARGV\[[in]|#ARGV|ipairs\(ARGV\)", code))
    assert f"local {', '.join(script.keys)} = KEYS[1]" in code
    assert list(globals_of(code)) == []
    assert "cjson" not in code


@each
def test_the_call_fits_the_manual(path: Path) -> None:
    call = CALLS[f"laravel/{path.stem}"]
    assert call.keys == tuple(KEYS.of(role) for role in call.script.keys)
    assert len(call.args) >= len(call.script.args)
    assert "the queue orders" in call.place


@each
def test_every_server_takes_it(path: Path, each_redis_client: redis.Redis) -> None:
    script, _ = loaded(path)
    assert each_redis_client.script_load(script.text) == script.sha


def test_keys_lead_back_to_their_queue() -> None:
    assert {queue_of("app_", KEYS.of(role)) for role in ENDINGS} == {"orders"}
    assert pattern("a*[b]_") == "a\\*\\[b\\]_queues:*"
