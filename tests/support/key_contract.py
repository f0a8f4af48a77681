"""The keys that delayq may leave behind, as the wire contract lists them.

Written out here a second time on purpose: a key that the code spells wrongly must not count as right because the same
code says so.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from fnmatch import fnmatchcase

import redis

OF_A_QUEUE = {
    "scheduled": "zset",
    "jobs": "hash",
    "stream": "stream",
    "entries": "hash",
    "recoveries": "hash",
    "failed": "zset",
    "errors": "hash",
    "completed": "zset",
    "results": "hash",
    "unique": "hash",
    "locks": "hash",
    "cancel": "hash",
    "progress": "hash",
    "outbox": "stream",
    "stamps": "hash",
    "aside": "hash",
    "activity": "hash",
    "history": "hash",
    "types_by_hour": "hash",
    "types_by_day": "hash",
    "meta": "hash",
}
OF_A_LIMIT = {
    "places": "zset",
    "rates": "hash",
    "rates_until": "zset",
    "turns": "zset",
    "passed": "zset",
    "breakers": "hash",
    "breakers_until": "zset",
    "counters": "hash",
}
OF_A_LIMITS_KEY = {"holders": "zset", "waiting": "zset"}
LIMIT_TAG = r"\{limit:[A-Za-z0-9][A-Za-z0-9._:@/%-]{0,127}\}"
OF_A_BATCH = {"plan": "hash", "pending": "hash", "succeeded": "set", "broken": "hash", "skipped": "hash"}
RESERVED_OF_A_QUEUE = r"limit:.+|keys:.+"
QUEUE_TAG = r"\{[A-Za-z0-9][A-Za-z0-9._:-]{0,127}(?:#\d+)?\}"
FOR_EVER = -1


@dataclass(frozen=True, slots=True)
class Key:
    """One key as a server shows it. `ttl_ms` is -1 if it never expires."""

    name: str
    type: str
    ttl_ms: int


def read_keys(client: redis.Redis) -> list[Key]:
    """All keys of the client's database."""
    names = sorted(client.scan_iter(count=1000))
    with client.pipeline(transaction=False) as pipe:
        for name in names:
            pipe.type(name)
            pipe.pttl(name)
        replies = pipe.execute()
    pairs = zip(names, replies[::2], replies[1::2], strict=True)
    # -2: it expired between SCAN and PTTL.
    return [Key(name.decode("utf-8", "replace"), kind.decode(), ttl) for name, kind, ttl in pairs if ttl != -2]


def wrong_keys(
    keys: Iterable[Key], *, prefixes: tuple[str, ...] = ("delayq",), foreign: tuple[str, ...] = ()
) -> list[str]:
    """What is wrong with each key that the contract does not allow. Names that match a glob in `foreign` pass."""
    ours = [key for key in keys if not any(fnmatchcase(key.name, glob) for glob in foreign)]
    return [f"{key.name} ({key.type}): {wrong}" for key in ours if (wrong := _wrong(key, prefixes))]


def _wrong(key: Key, prefixes: tuple[str, ...]) -> str:
    for prefix in prefixes:
        if key.name.startswith(f"{prefix}:"):
            return _wrong_in_prefix(key, key.name[len(prefix) + 1 :])
    return f"is outside of the prefix {' and '.join(prefixes)}"


def _wrong_in_prefix(key: Key, rest: str) -> str:  # noqa: C901  one branch for each kind of key
    if rest in ("queues", "limits"):
        return _must(key, kind="set", expires=False)
    if rest == "control":
        return _must(key, kind="hash", expires=False)
    if rest in ("batches", "logouts"):
        return _must(key, kind="zset", expires=False)
    if failed := re.fullmatch(r"\{failed-jobs\}:(at|rows)", rest):
        return _must(key, kind={"at": "zset", "rows": "hash"}[failed[1]], expires=False)
    if rest == "secret":
        return _must(key, kind="string", expires=False)
    if rest == "audit":
        return _must(key, kind="stream", expires=False)
    if rest == "workers" or re.fullmatch(r"\{cron\}:.+", rest):
        return ""
    if of_batch := re.fullmatch(r"\{batch:[^}]+\}:(.+)", rest):
        kind = OF_A_BATCH.get(of_batch[1])
        return "is no key of a batch" if kind is None else _must(key, kind=kind, expires=key.ttl_ms != FOR_EVER)
    if re.fullmatch(r"new-queues:.+", rest):
        return _must(key, kind="hash", expires=False)
    if re.fullmatch(r"order:.+", rest):
        return _must(key, kind="string", expires=True)
    if re.fullmatch(r"worker:.+", rest):
        return _must(key, kind=None, expires=True)
    of_limit = re.fullmatch(rf"{LIMIT_TAG}:(?:(\w+)|(\w+):.*)", rest, re.DOTALL)
    if of_limit and (kind := OF_A_LIMIT.get(of_limit[1]) or OF_A_LIMITS_KEY.get(of_limit[2])):
        return _must(key, kind=kind, expires=False)
    of_queue = re.fullmatch(rf"{QUEUE_TAG}:(.+)", rest)
    if of_queue is None:
        return "is no key of the contract"
    role = of_queue[1]
    if re.fullmatch(r"once:.+", role):
        return _must(key, kind="string", expires=True)
    if re.fullmatch(RESERVED_OF_A_QUEUE, role):
        return ""
    if role in ("activity", "history", "types_by_hour", "types_by_day"):
        return _must(key, kind="hash", expires=True)
    if role not in OF_A_QUEUE:
        return "is no key of a queue"
    return _must(key, kind=OF_A_QUEUE[role], expires=False)


def _must(key: Key, *, kind: str | None, expires: bool) -> str:
    if kind is not None and key.type != kind:
        return f"should be a {kind}"
    if expires and key.ttl_ms == FOR_EVER:
        return "should expire, but never will"
    if not expires and key.ttl_ms != FOR_EVER:
        return f"should stay, but expires in {key.ttl_ms} ms"
    return ""
