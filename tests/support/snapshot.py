"""All keys of a database as plain values, so that "changes nothing" can be checked literally."""

from __future__ import annotations

from typing import Any

Value = Any


def snapshot(client: Any) -> dict[str, Value]:
    """Every key with everything it holds; idle times and times to live excepted."""
    names = sorted(client.scan_iter(count=1000))
    with client.pipeline(transaction=False) as pipe:
        for name in names:
            pipe.type(name)
        kinds = [kind.decode() for kind in pipe.execute()]
        for name, kind in zip(names, kinds, strict=True):
            _ask(pipe, name, kind)
        values = pipe.execute()
    rows = zip(names, kinds, values, strict=True)
    return {name.decode(): _value(client, name, kind, value) for name, kind, value in rows}


def changed(before: dict[str, Value], after: dict[str, Value]) -> set[str]:
    """The keys that are not what they were."""
    return {name for name in before.keys() | after.keys() if before.get(name) != after.get(name)}


def _ask(pipe: Any, name: bytes, kind: str) -> None:
    if kind == "hash":
        pipe.hgetall(name)
    elif kind == "zset":
        pipe.zrange(name, 0, -1, withscores=True)
    elif kind == "stream":
        pipe.xrange(name)
    else:
        pipe.dump(name)


def _value(client: Any, name: bytes, kind: str, value: Any) -> Value:
    if kind == "hash":
        return _words(value)
    if kind == "zset":
        return [(word(member), float(score)) for member, score in value]
    if kind == "stream":
        return _frame(client, name) | {"entries": [(word(entry), _words(fields)) for entry, fields in value]}
    return value


def _frame(client: Any, name: bytes) -> dict[str, Value]:
    """A stream without its entries."""
    about = client.xinfo_stream(name)
    groups = {}
    for group in client.xinfo_groups(name):
        rows = client.xpending_range(name, group["name"], "-", "+", 10_000)
        groups[word(group["name"])] = {
            "last": word(group["last-delivered-id"]),
            "pending": [(word(row["message_id"]), word(row["consumer"]), row["times_delivered"]) for row in rows],
            "consumers": sorted(word(row["name"]) for row in client.xinfo_consumers(name, group["name"])),
        }
    return {"last": word(about["last-generated-id"]), "groups": groups}


def word(value: Any) -> str:
    """Bytes as text that shows what is no text."""
    return value.decode("utf-8", "backslashreplace") if isinstance(value, bytes) else str(value)


def _words(rows: dict[Any, Any]) -> dict[str, str]:
    return {word(key): word(value) for key, value in rows.items()}
