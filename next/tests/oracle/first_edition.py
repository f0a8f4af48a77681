"""The calls of the first edition's scripts that do what one call of ours does."""

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, Final

import msgspec

FOLDER: Final = Path(__file__).parents[3] / "scripts" / "lua"
SWITCH: Final = "delayq:switch"
"""A channel of the first edition to which nothing subscribes; ours has none."""

_KEY: Final = re.compile(r"^-- KEYS\[\d+\] +(\w+)", re.MULTILINE)


@dataclass
class Step:
    """One call of our script: its arguments by name, and its rows."""

    script: str
    arguments: dict[str, Any]
    rows: list[tuple[Any, ...]] = field(default_factory=list)
    token: str = "t"
    choice: int = 0
    """Of several scripts of the first edition that serve, which one."""

    @property
    def flat(self) -> list[Any]:
        """Return the values of the rows, one behind the other."""
        return [value for row in self.rows for value in row]


Run = Callable[[str, list[Any]], Any]
"""Runs a script of the first edition by its name."""


@cache
def text(name: str) -> str:
    """Return the text of a script of the first edition."""
    return (FOLDER / f"{name}.lua").read_text(encoding="utf-8")


@cache
def roles(name: str) -> list[str]:
    """Return the keys that a script of the first edition declares."""
    return _KEY.findall(text(name))


def answer(step: Step, run: Run) -> Any:
    """Carry a step out as the first edition does, and return the answer in the form of ours."""
    translate = _TRANSLATIONS.get(step.script)
    if translate is not None:
        return translate(step, run)
    return run(step.script, [*step.arguments.values(), *step.flat])


def _schedule(step: Step, run: Run) -> Any:
    said = step.arguments
    is_plain = step.choice and said["once_ms"] == 0 and len(step.rows) == 1 and step.rows[0][3] == ""
    if is_plain:
        id, envelope, when, _ = step.rows[0]
        now = run("later", [said["now"], said["queue"], said["wake"], said["shards"], id, envelope, when])
        if now is not None:
            return ["0", "created", "scheduled", due(when, now), id]
    return run("schedule", [*said.values(), *step.flat])


def due(when: str, now: str) -> str:
    """Return a due time as epoch ms."""
    return str(int(now) + int(when[1:])) if when.startswith("+") else when


def _cancel(step: Step, run: Run) -> Any:
    said = step.arguments
    if said["failure"]:
        words = [said["now"], said["id"], said["failure"], said["once_ms"], said["queue"], said["wake"]]
        return run("archive", words)
    return run("cancel", [said[name] for name in said if name != "failure"])


def _ack(step: Step, run: Run) -> Any:
    now, alone = step.arguments["now"], step.arguments["alone"]
    if step.choice == 1 and not any(row[2] for row in step.rows):
        fenced = run("done", [_packed(step.rows), alone])
        return [0 if n in fenced else 1 for n in range(1, len(step.rows) + 1)]
    if step.choice == 2 and alone:
        rows = [
            value
            for id, entry, retention_ms, report, result in step.rows
            for value in (id, entry, "done", retention_ms, report if retention_ms else "", result, "", 0)
        ]
        return run("finish", [now, "q", "delayq:wake", *rows])
    rows = [
        value
        for id, entry, retention_ms, report, result in step.rows
        for value in (id, entry, f"{retention_ms} {report}" if report else retention_ms, result)
    ]
    return run("ack", [now, *rows, *["alone"] * alone])


def _packed(rows: list[tuple[Any, ...]]) -> bytes:
    return msgspec.msgpack.encode([[row[0] for row in rows], [row[1] for row in rows]])


def _fail(step: Step, run: Run) -> Any:
    now, alone = step.arguments["now"], step.arguments["alone"]
    if step.choice == 2 and alone:
        rows = [
            value
            for id, entry, envelope, failure in step.rows
            for value in (id, entry, "failed", 0, envelope, failure, "", 0)
        ]
        return run("finish", [now, "q", "delayq:wake", *rows])
    return run("fail", [now, *step.flat, *["alone"] * alone])


def _hand_back(step: Step, run: Run) -> Any:
    return run("hand_back", [step.arguments["now"], *step.flat, *["unheld"] * step.arguments["unheld"]])


def _reclaim(step: Step, run: Run) -> Any:
    said = step.arguments
    if step.rows:
        words = [said["now"], said["max_recoveries"], said["vanished"], said["queue"], said["wake"]]
        return run("recover", [*words, *step.flat])
    return run("reclaim", list(said.values()))


def _prune(step: Step, run: Run) -> Any:
    pruned = run("prune", list(step.arguments.values()))
    return [*pruned, run("sweep", [step.arguments["now"], *step.flat])]


def _outbox_read(step: Step, run: Run) -> Any:
    reply = run("owed", list(step.arguments.values()))
    return [*reply[:2], *[reply[n] for n in range(2, len(reply)) if (n - 2) % 3 != 1]]


def _queue_configure(step: Step, run: Run) -> Any:
    said = step.arguments
    lease = run("configure", [said["lease_ms"], said["default_lease_ms"], "", "q", SWITCH])
    return lease if lease == "error" else int(lease)


_TRANSLATIONS: Final[dict[str, Callable[[Step, Run], Any]]] = {
    "schedule": _schedule,
    "cancel": _cancel,
    "retry": lambda step, run: run("retry", [*step.arguments.values(), ""]),
    "ack": _ack,
    "fail": _fail,
    "hand_back": _hand_back,
    "reclaim": _reclaim,
    "prune": _prune,
    "tidy": lambda step, run: _without(run("tidy", list(step.arguments.values())), 11),
    "outside_acks": lambda step, run: run("unsettled", list(step.arguments.values())),
    "consumer_remove": lambda step, run: run("retire", list(step.arguments.values())),
    "outbox_read": _outbox_read,
    "outbox_ack": lambda step, run: run("carried", step.flat),
    "activity_record": lambda step, run: run("tally", [step.arguments["now"], ""]),
    "queue_remove": lambda step, run: _without(run("remove", list(step.arguments.values())), 6),
    "queue_configure": _queue_configure,
    "pause": lambda step, run: run("pause", [*step.arguments.values(), SWITCH]),
    "control": lambda step, run: run("control", [*step.arguments.values(), SWITCH]),
}


def _without(reply: Any, place: int) -> Any:
    return reply if reply == "error" else [part for n, part in enumerate(reply) if n != place]
