"""All keys of a server as plain values, so that "nothing was written" can be checked."""

from typing import Any

import redis


def dump(server: redis.Redis) -> dict[str, Any]:
    """Return the value of every key, without the answers kept for tokens, times to live and idle times."""
    names = sorted(name for name in server.scan_iter(count=1000) if ":once:" not in name)
    with server.pipeline(transaction=False) as asked:
        for name in names:
            asked.type(name)
        kinds = asked.execute()
        for name, kind in zip(names, kinds, strict=True):
            _READ[kind](asked, name)
        values = asked.execute()
    found = dict(zip(names, values, strict=True))
    for name, kind in zip(names, kinds, strict=True):
        if kind == "stream":
            found[name] = (found[name], _read_groups(server, name))
    return found


_READ: dict[str, Any] = {
    "hash": lambda pipe, name: pipe.hgetall(name),
    "list": lambda pipe, name: pipe.lrange(name, 0, -1),
    "set": lambda pipe, name: pipe.smembers(name),
    "stream": lambda pipe, name: pipe.xrange(name),
    "string": lambda pipe, name: pipe.get(name),
    "zset": lambda pipe, name: pipe.zrange(name, 0, -1, withscores=True),
}


def _read_groups(server: redis.Redis, stream: str) -> list[Any]:
    """Read a stream without its entries: its last id, its groups, their consumers and what these hold."""
    about: Any = server.xinfo_stream(stream)
    found = [about["last-generated-id"]]
    groups: Any = server.xinfo_groups(stream)
    for group in groups:
        pending: Any = server.xpending_range(stream, group["name"], "-", "+", 10_000)
        consumers: Any = server.xinfo_consumers(stream, group["name"])
        found += [
            (group["name"], group["last-delivered-id"]),
            [(row["message_id"], row["consumer"], row["times_delivered"]) for row in pending],
            sorted(row["name"] for row in consumers),
        ]
    return found
