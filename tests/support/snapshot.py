"""All keys of a database as plain values, so that "changes nothing" can be checked literally."""

from __future__ import annotations

from typing import Any

Value = Any


def snapshot(client: Any) -> dict[str, Value]:
    """Every key with everything it holds; idle times and times to live excepted."""
    names = sorted(name.decode() for name in client.scan_iter(count=1000))
    return {name: _value(client, name) for name in names}


def changed(before: dict[str, Value], after: dict[str, Value]) -> set[str]:
    """The keys that are not what they were."""
    return {name for name in before.keys() | after.keys() if before.get(name) != after.get(name)}


def _value(client: Any, name: str) -> Value:
    kind = client.type(name).decode()
    if kind == "hash":
        return dict(sorted(_words(client.hgetall(name)).items()))
    if kind == "zset":
        return [(word(member), float(score)) for member, score in client.zrange(name, 0, -1, withscores=True)]
    if kind == "stream":
        return _stream(client, name)
    return client.get(name) if kind == "string" else client.dump(name)


def _stream(client: Any, name: str) -> Value:
    about = client.xinfo_stream(name)
    groups = {}
    for group in client.xinfo_groups(name):
        rows = client.xpending_range(name, group["name"], "-", "+", 10_000)
        groups[word(group["name"])] = {
            "last": word(group["last-delivered-id"]),
            "pending": [(word(row["message_id"]), word(row["consumer"]), row["times_delivered"]) for row in rows],
            "consumers": sorted(word(row["name"]) for row in client.xinfo_consumers(name, group["name"])),
        }
    entries = [(word(entry), _words(fields)) for entry, fields in client.xrange(name)]
    return {"last": word(about["last-generated-id"]), "groups": groups, "entries": entries}


def word(value: Any) -> str:
    """Bytes as text that shows what is no text."""
    return value.decode("utf-8", "backslashreplace") if isinstance(value, bytes) else str(value)


def _words(rows: dict[Any, Any]) -> dict[str, str]:
    return {word(key): word(value) for key, value in rows.items()}
