"""Who may send what: the users of docs/protocol.md, worked out from the scripts and from what clients send besides."""

from __future__ import annotations

import re
import textwrap
from dataclasses import dataclass

from tests.docs.manuals import SCRIPTS

# What the clients send besides scripts, as an ACL names it.
SENT = ("select", "client|setname", "evalsha", "eval", "sadd")
SENT_BY_WORKERS = (*SENT, "info", "smembers", "scan", "time", "get", "set", "del", "exists", "subscribe", "hget",
                   "hmget", "hscan", "zadd", "zrem", "zscan", "zremrangebyscore", "xreadgroup",
                   "xinfo|consumers")  # fmt: skip
SENT_BY_ALL = (*SENT_BY_WORKERS, "hgetall", "type", "xrevrange", "zrevrange", "zcard", "zrange", "zscore", "xadd",
               "zcount", "zrank", "zrevrank")  # fmt: skip
SENT_BY_READERS = ("select", "xreadgroup", "xack", "xclaim", "hget")

BATCHES = ("batch_open", "batch_note", "batch_told")
ALL_SCRIPTS = tuple(sorted(path.stem for path in SCRIPTS.glob("*.lua")))


@dataclass(frozen=True, slots=True)
class User:
    """One user of the page: who, what it may reach, which scripts it calls, what it sends besides."""

    name: str
    said: str
    reach: str
    scripts: tuple[str, ...]
    sent: tuple[str, ...]

    @property
    def line(self) -> str:
        """The whole ACL line."""
        granted = " ".join(f"+{command}" for command in sorted({*used_by(*self.scripts), *self.sent}))
        return f"ACL SETUSER {self.name} on >PASSWORD {self.reach} -@all {granted}"


USERS = (
    User(
        "shop-producer",
        "A producer (schedule, cancel, reschedule, run now, get; chains and batches):",
        "~delayq:* resetchannels &delayq:cancel &delayq:wake",
        ("schedule", "later", "replace", "debounce", "cancel", "reschedule", "run_now", "get", *BATCHES),
        (*SENT, "hscan"),
    ),
    User(
        "shop-worker",
        "A worker with mover and janitor in it, or `delayq move`:",
        "~delayq:* resetchannels &delayq:cancel &delayq:switch &delayq:wake",
        ("promote", "ack", "done", "release", "fail", "reclaim", "recover", "renew", "hand_back", "tidy",
         "unsettled", "mend", "bury", "prune", "retire", "remove", "get", "progress", "run_now", "acquire", "vacate",
         "line_up", "kept", "admit", "probe", "report", "unlock", "sweep", "tally", "finish", "owed", "carried",
         "schedule", "replace", "cancel", "retry", *BATCHES),
        SENT_BY_WORKERS,
    ),
    User(
        "shop-all",
        "One for all of it: producers, workers, the command line, `doctor`, `delayq serve`:",
        "~delayq:* resetchannels &delayq:cancel &delayq:switch &delayq:wake",
        ALL_SCRIPTS,
        SENT_BY_ALL,
    ),
    User(
        "shop-reader",
        "A plain consumer that uses `XACK` alone:",
        "~delayq:{orders}:stream ~delayq:{orders}:meta resetchannels",
        (),
        SENT_BY_READERS,
    ),
    User(
        "shop-acker",
        "A plain consumer that uses `ack.lua`:",
        "~delayq:{orders}:* resetchannels &delayq:wake",
        ("ack",),
        (*SENT_BY_READERS, "evalsha", "script|load"),
    ),
)  # fmt: skip


def used_by(*scripts: str) -> set[str]:
    """The commands that these scripts contain, as an ACL names them; several may stand on one line.

    `call` alone is a script's short name for `redis.call`.
    """
    found = set()
    for name in scripts:
        text = (SCRIPTS / f"{name}.lua").read_text(encoding="utf-8")
        for command, rest in re.findall(r"\bp?call\('(\w+)'(?=([^\n]*))", text):
            if command in ("XGROUP", "XINFO", "MEMORY"):
                words = re.findall(r"'([A-Z]+)'", rest.partition("stream")[0])
                found |= {f"{command.lower()}|{word.lower()}" for word in words}
            else:
                found.add(command.lower())
    return found


def section() -> str:
    """The users as the page shows them, each line wrapped."""
    return "\n\n".join(f"{user.said}\n\n```acl\n{_wrapped(user.line)}\n```" for user in USERS)


def _wrapped(line: str) -> str:
    head, mark, granted = line.partition(" -@all ")
    rest = textwrap.fill(
        granted, 112, initial_indent="    ", subsequent_indent="    ", break_on_hyphens=False, break_long_words=False
    )
    return f"{head}{mark.rstrip()}\n{rest}"
