"""A server in a mood: busy, loading, unable to save, full, restarted. Each passes, and work goes on by itself."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import redis

from tests.chaos.engine import Lot, Tally
from tests.chaos.world import ALWAYS, client_of, crew, rig, server, told, verdict
from tests.support.chaos_rig import Size
from tests.support.servers import LocalServer, connect
from tests.support.waiting import wait_until

MOOD_S = 1.0
PROMISED_MS = 2_000
LOOP = "local n = 0 while n < 1e11 do n = n + 1 end"
"""Only reads, so SCRIPT KILL can end it."""
FILLED = 64_000
BALLAST = "ballast:"


def moods(lot: Lot) -> Tally:
    """Jobs fall due while the server is in one; they start within two seconds after it takes writes again.

    Nothing is scheduled meanwhile: nobody wakes the mover up.
    """
    rand, tally, after_ms = lot.rand, Tally(), list[float]()
    options = {**ALWAYS, "busy-reply-threshold": "100", "enable-protected-configs": "yes"}
    with server(persistent=True, options=options) as one, crew(lot, one.url) as members, client_of(members) as client:
        worker = members.hire()
        for n in range(lot.units):
            name, mood = rand.choice(list(MOODS.items()))
            ids = [f"m{n}-{k}" for k in range(5)]
            client.schedule_many([{"name": "note", "id": job_id, "delay": "300ms"} for job_id in ids])
            mood(one)
            wait_until(partial(takes_writes, one), timeout=60, what="the server takes writes again")
            over_ms = time.time() * 1000
            wait_until(partial(members.ledger.has_all, "end", ids), timeout=60, what=f"work goes on after {name}")
            lines = [line for line in members.ledger.lines("start") if line.job in ids]
            after_ms += [max(0.0, line.at_ms - over_ms) for line in lines]
            assert {line.attempt for line in lines} == {1}, f"{name} cost an attempt"
            tally.add(**{name: 1})
        assert worker.is_alive()
    late = [ms for ms in after_ms if ms > PROMISED_MS]
    assert not late, f"later than {PROMISED_MS} ms: {late}"
    return tally.add(late=len(late)).time("started_after_the_server_was_well", *after_ms)


def takes_writes(one: LocalServer) -> bool:
    """Whether it does now."""
    with contextlib.suppress(redis.RedisError), connect(one.url) as plain:
        return bool(plain.set("probe", "x") and plain.delete("probe"))
    return False


def busy(one: LocalServer) -> None:
    """A script of somebody else runs for a second."""

    def loop() -> None:
        with contextlib.suppress(redis.RedisError), connect(one.url) as plain:
            plain.eval(LOOP, 0)

    thread = threading.Thread(target=loop)
    thread.start()
    time.sleep(MOOD_S)
    with connect(one.url) as plain:
        wait_until(partial(_script_killed, plain), what="the script is ended")
    thread.join()


def _script_killed(plain: redis.Redis) -> bool:
    try:
        plain.script_kill()
    except redis.ResponseError as error:
        return "NOTBUSY" in str(error)
    return False


def restarted(one: LocalServer) -> None:
    """Killed, and away for a second."""
    one.kill()
    time.sleep(MOOD_S)
    one.start()


def loading(one: LocalServer) -> None:
    """It reads its data again, slowly."""
    with connect(one.url) as plain:
        plain.config_set("key-load-delay", 30_000)
        for n in range(30):
            plain.set(f"{BALLAST}{n}", "x" * FILLED)
        with contextlib.suppress(redis.RedisError):
            plain.execute_command("DEBUG", "RELOAD")
    wait_until(partial(_unload, one), timeout=30, what="it has loaded")


def _unload(one: LocalServer) -> bool:
    with contextlib.suppress(redis.RedisError), connect(one.url) as plain:
        plain.config_set("key-load-delay", 0)
        return bool(plain.delete(*(f"{BALLAST}{n}" for n in range(30))))
    return False


def cannot_save(one: LocalServer) -> None:
    """MISCONF: a snapshot failed, so it refuses writes; a second later saving is switched off."""
    with connect(one.url) as plain:
        good = plain.config_get("dbfilename")["dbfilename"]
        hindrance = Path(one.folder, "hindrance")
        hindrance.mkdir(exist_ok=True)
        plain.config_set("dbfilename", "hindrance")
        plain.config_set("save", "3600 1")
        plain.bgsave()
        wait_until(lambda: plain.info("persistence")["rdb_last_bgsave_status"] == "err", what="saving fails")
        time.sleep(MOOD_S)
        plain.config_set("save", "")
        plain.config_set("dbfilename", good)


def without_room(one: LocalServer) -> None:
    """OOM: not one byte is left for a second."""
    with connect(one.url) as plain:
        plain.config_set("maxmemory", 1)
        time.sleep(MOOD_S)
        plain.config_set("maxmemory", 0)


def connections_killed(one: LocalServer) -> None:
    """Every connection, and every script."""
    with connect(one.url) as plain:
        plain.script_flush()
        for kind in ("normal", "pubsub"):
            plain.client_kill_filter(_type=kind, skipme=True)


MOODS: dict[str, Callable[[LocalServer], None]] = {
    "busy": busy,
    "loading": loading,
    "unable_to_save": cannot_save,
    "without_room": without_room,
    "restarted": restarted,
    "connections_killed": connections_killed,
}


def full(lot: Lot) -> Tally:
    """At maxmemory, again and again under load: what was taken runs, what was refused does not."""
    size = Size(jobs=60 * lot.units, seconds=2.0 * lot.units, longest_ms=5, workers=2, movers=1)
    with server() as one, rig(lot, one, size) as run:
        for _ in range(lot.units):
            run.client.config_set("maxmemory", 1)
            time.sleep(0.8)
            run.client.config_set("maxmemory", 0)
            time.sleep(0.8)
        run.finish(timeout=120)
        found = verdict(run)
        assert found.run_twice == 0
        return told(found).add(times_full=lot.units, refused=len(run.log.refused()))
