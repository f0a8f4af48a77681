"""Processes for queues whose workers are not delayq's: a worker that knows redis-py and the Lua files, and the loops.

The worker settles by ack.lua, done.lua or XACK, as it happens, and by fail.lua what is to fail (`{"fails": true}`). It
keeps its name over a restart and writes the ledger.
"""

from __future__ import annotations

import json
import logging
import os
import random
import re
import time
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from delayq.drivers.redis_streams import RedisStreams
from delayq.loops.janitor import Janitor
from delayq.loops.loop import Loop
from delayq.loops.mover import Mover
from delayq.loops.relay import Relay
from delayq.redis.connect import Connector
from delayq.worker.signals import Signals
from tests.support.crew import END_S, Duty
from tests.support.ledger import Ledger
from tests.support.servers import connect

GROUP, COUNT, BLOCK_MS = "delayq", 4, 200
KEY = "delayq:{orders}:"
LUA = Path(__file__).resolve().parents[2] / "scripts" / "lua"
WHY = '{"type":"Declined","message":"it was to fail"}'


class Delivery(NamedTuple):
    """What the ledger writes of one attempt."""

    id: str
    token: str
    attempt: int = 1


class _Script:
    """A Lua file, called as its manual says."""

    def __init__(self, client: Any, name: str) -> None:
        text = (LUA / f"{name}.lua").read_text()
        self._keys = [KEY + role for role in re.findall(r"^-- KEYS\[\d+\] +(\w+)", text, re.MULTILINE)]
        self._script = client.register_script(text)

    def __call__(self, *args: object) -> None:
        self._script(self._keys, args)


def settle_as_a_stranger(duty: Duty) -> None:
    """The life of such a worker, without an end; `duty.more["name"]` is its name."""
    ledger, client, name = Ledger(duty.ledger), connect(duty.url), duty.more["name"]
    ack, done, fail = (_Script(client, script) for script in ("ack", "done", "fail"))
    ways = (
        lambda job, entry: ack("", job, entry, 0, ""),
        lambda job, entry: done(msgspec.msgpack.encode([[job], [entry]])),
        lambda job, entry: client.xack(f"{KEY}stream", GROUP, entry),
    )
    after = "0"
    while True:
        read: Any = client.xreadgroup(GROUP, name, {f"{KEY}stream": after}, COUNT, BLOCK_MS)
        streams = list(read.values()) if isinstance(read, dict) else [rows for _, rows in read or []]
        rows = [row for found in streams for row in (found[0] if found and isinstance(found[0], list) else found)]
        for raw_entry, fields in rows:
            entry = raw_entry.decode()
            if not fields:
                client.xack(f"{KEY}stream", GROUP, entry)
                continue
            job = json.loads(fields[b"job"])
            one = Delivery(job["id"], entry)
            ledger.write("start", one)
            time.sleep(random.uniform(0, 0.03))
            fails = bool(job["data"].get("fails"))
            ledger.write("fail" if fails else "end", one)
            if fails:
                fail("", job["id"], entry, "", WHY)
            else:
                random.choice(ways)(job["id"], entry)
        after = ">" if after == ">" or not rows else rows[-1][0].decode()


def carry(duty: Duty) -> None:
    """The life of `delayq move`: mover, relay and janitor, until a signal."""
    logging.basicConfig(filename=duty.log(os.getpid()), level=logging.INFO)
    driver = RedisStreams(Connector(duty.url), duty.options())
    relay = Relay(driver)
    janitor = Janitor(driver, tidy_every_s=duty.tidy_every_ms / 1000)
    loops = [Loop(one) for one in (Mover(driver, owing=relay.hint), relay, janitor)]
    with Signals() as signals:
        for loop in loops:
            loop.start()
        while not signals.stops:
            signals.wait(END_S)
        for loop in loops:
            loop.stop()
