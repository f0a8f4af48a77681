"""Draws calls: few ids, few consumers, times that step on and sometimes back, and now and then damage."""

import hashlib
import random
from collections.abc import Callable
from typing import Final

from tests.oracle.first_edition import Step

IDS: Final = [f"job-{n}" for n in range(6)]
CONSUMERS: Final = ["dq:host:1:aa", "dq:host:2:bb", "plain"]
DIGESTS: Final = ["digest-a", "digest-b"]
LEASE: Final = 30_000

FAILURES: Final = [
    '{"type":"E","message":"no"}',
    '{"type":"E","message":"no","history":[]}',
    '{"history":[],"type":"E"}',
    '{"type":"E","history":[{"type":"Own"}]}',
    "no object",
]
ONCE_MS: Final = 86_400_000
"""Longer than a run: what the clock of a server forgets, the two servers would forget one after the other."""

STATES: Final = ["scheduled", "ready", "reserved", "failed", "completed"]


class Drawing:
    """Draws steps from a seed. What the queue holds now, the caller tells."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.time_us = 1_800_000_000_000_000
        self.entries: dict[str, str] = {}
        self.old_entries: list[tuple[str, str]] = []
        self.envelopes: dict[str, str] = {}
        self.outbox: list[str] = []
        self.cursor = ""
        self.has_shards = False
        self.tokens = 0

    def tick(self) -> None:
        """Let time go on; now and then by a lease, now and then back."""
        step_ms = self.random.choice([0, 0, 1, 3, 40, 900, 5_000, 9_000, 14_000, LEASE, 70_000, -3_000, -40_000])
        self.time_us += step_ms * 1000 + self.random.randrange(1000)

    def step(self, script: str) -> Step:
        """Draw one call of a script."""
        return _DRAWN[script](self)

    def id(self) -> str:
        return self.random.choice(IDS)

    def now(self) -> str:
        """Return '' for the clock of the server, or the time."""
        return self.random.choice(["", "", str(self.time_us // 1000)])

    def when(self) -> str:
        now = self.time_us // 1000
        return self.random.choice(["+0", "+0", "+1", "+700", "+20000", str(now - 500), str(now + 9_000), "-5", "soon"])

    def envelope(self, id: str) -> str:
        tail = self.random.choice(["", "", "", ',"chain":[1]', ',"batch":"b1"', ',"data":"' + "x" * 3000 + '"'])
        return f'{{"v":1,"id":"{id}","n":{self.random.randrange(1000)}{tail}}}'

    def failure(self) -> str:
        return self.random.choice(FAILURES)

    def held(self) -> list[tuple[str, str]]:
        """Return deliveries: mostly of jobs that are in the stream, sometimes of those that were."""
        known = list(self.entries.items())
        pool = known * 3 + self.old_entries[-6:] + [("job-0", "1-1")]
        return list(dict.fromkeys(self.random.sample(pool, min(len(pool), self.random.randrange(1, 5)))))

    def digest(self) -> str:
        return self.random.choice(["", "", *DIGESTS])

    def once_ms(self) -> int:
        return self.random.choice([0, 0, ONCE_MS])

    def token(self) -> str:
        """Return a token: mostly a new one, or one of a call not long ago."""
        self.tokens += 1
        return f"t{self.tokens - self.random.choice([0, 0, 1, 5, 20])}"


def _schedule(draw: Drawing) -> Step:
    rows = []
    for _ in range(draw.random.choice([1, 1, 1, 2, 4])):
        id = draw.id()
        lock = draw.digest()
        if lock and draw.random.random() < 0.3:
            lock += f".{draw.random.choice([100, 50_000])}"
        rows.append((id, draw.envelope(id), draw.when(), lock))
    said = {
        "now": draw.now(),
        "taken": draw.random.choice(["kept", "conflict"]),
        "queue": "q",
        "wake": "delayq:wake",
        "high_water": draw.random.choice([100_000, 100_000, 2]),
        "lease_ms": LEASE,
        "once_ms": draw.once_ms(),
        "shards": 1,
    }
    return Step("schedule", said, rows, token=draw.token(), choice=int(draw.has_shards))


def _replace(draw: Drawing) -> Step:
    rows = []
    for _ in range(draw.random.choice([1, 1, 3])):
        id = draw.id()
        rows.append((id, draw.envelope(id), draw.when(), draw.digest()))
    said = {
        "now": draw.now(),
        "word": draw.random.choice(["replaced", "postponed"]),
        "queue": "q",
        "wake": "delayq:wake",
        "lease_ms": LEASE,
        "once_ms": draw.once_ms(),
        "shards": 1,
    }
    return Step("replace", said, rows, token=draw.token())


def _cancel(draw: Drawing) -> Step:
    archives = draw.random.random() < 0.4
    said = {
        "now": draw.now(),
        "id": draw.id(),
        "running": 0 if archives else draw.random.randrange(2),
        "once_ms": ONCE_MS if archives else draw.once_ms(),
        "queue": "q",
        "hint": "delayq:cancel",
        "only": "" if archives else draw.random.choice(["", "", '"batch":"b1"']),
        "wake": "delayq:wake",
        "failure": '{"type":"Archived"' if archives else "",
    }
    # Before a once token is looked up, both editions do the same; archive always looks, and has tokens of its own.
    return Step("cancel", said, token=("a" if archives else "") + draw.token())


def _retry(draw: Drawing) -> Step:
    id = draw.id()
    read = draw.envelopes.get(id, "") if draw.random.random() < 0.9 else "other"
    said = {
        "now": draw.now(),
        "queue": "q",
        "wake": "delayq:wake",
        "id": id,
        "fingerprint": hashlib.sha1(read.encode()).hexdigest(),
        "envelope": draw.envelope(id),
        "digest": draw.digest(),
    }
    return Step("retry", said)


def _ack(draw: Drawing) -> Step:
    rows = []
    for id, entry in draw.held():
        retention_ms = draw.random.choice([0, 0, 0, 8_000])
        report = draw.random.choice(["", '{"ran":1}']) if retention_ms else ""
        rows.append((id, entry, retention_ms, report, draw.random.choice(["", "7", "null"])))
    said = {"now": draw.now(), "alone": draw.random.randrange(2)}
    return Step("ack", said, rows, choice=draw.random.randrange(3))


def _fail(draw: Drawing) -> Step:
    rows = [
        (id, entry, draw.random.choice(["", draw.envelope(id)]), draw.random.choice(["", draw.failure()]))
        for id, entry in draw.held()
    ]
    said = {"now": draw.now(), "alone": draw.random.randrange(2)}
    return Step("fail", said, rows, choice=draw.random.randrange(3))


def _release(draw: Drawing) -> Step:
    rows = [
        (
            id,
            entry,
            draw.random.choice([0, 5, 4_000, "soon"] if draw.random.random() < 0.1 else [0, 5, 4_000]),
            draw.random.choice(["", draw.envelope(id)]),
            draw.random.choice(["", draw.failure()]),
        )
        for id, entry in draw.held()
    ]
    return Step("release", {"now": draw.now(), "queue": "q", "wake": "delayq:wake"}, rows)


def _reclaim(draw: Drawing) -> Step:
    said = {
        "now": draw.now(),
        "limit": draw.random.choice([1, 100]),
        "max_recoveries": 1,
        "vanished": '{"type":"WorkerVanished"',
        "queue": "q",
        "wake": "delayq:wake",
    }
    return Step("reclaim", said, [*draw.held()] if draw.random.random() < 0.4 else [])


def _list(draw: Drawing) -> Step:
    state = draw.random.choice(STATES)
    after = draw.random.choice(["", draw.cursor, "1800000000000 job-3", "1800000000000-0"])
    if state in ("ready", "reserved") and not after.replace("-", "").isdigit():
        after = ""
    return Step("list", {"state": state, "after": after, "limit": draw.random.choice([1, 2, 100])})


def _bury(draw: Drawing) -> Step:
    rows = [(entry, '{"type":"Garbage"}') for _, entry in draw.held()]
    return Step("bury", {"now": draw.now()}, rows)


def _control(draw: Drawing) -> Step:
    said = {
        "now": draw.now(),
        "what": draw.random.choice(["", "pause", "maintenance", "restart"]),
        "for_ms": draw.random.choice([-1, 0, 9_000]),
        "reason": draw.random.choice(["", "deploy"]),
    }
    return Step("control", said)


def _pause(draw: Drawing) -> Step:
    length = draw.random.choice([-1, -1, -1, 0, 4_000])
    said = {"now": draw.now(), "queue": "q", "wake": "delayq:wake", "for_ms": length, "lease_ms": LEASE}
    return Step("pause", said)


def _queue_configure(draw: Drawing) -> Step:
    said = {"lease_ms": draw.random.choice(["", "30000", "0"]), "default_lease_ms": LEASE, "shards": ""}
    return Step("queue_configure", said)


def _run_now(draw: Drawing) -> Step:
    high_water = draw.random.choice([100_000, 1])
    said = {"now": draw.now(), "queue": "q", "wake": "delayq:wake", "high_water": high_water, "id": draw.id()}
    return Step("run_now", said)


def _promote(draw: Drawing) -> Step:
    high_water = draw.random.choice([100_000, 100_000, 2])
    said = {"now": draw.now(), "limit": draw.random.choice([1, 500]), "high_water": high_water, "queue": "q"}
    return Step("promote", {**said, "lost": '{"type":"PayloadLost"'})


def _outside_acks(draw: Drawing) -> Step:
    said = {"after": "-", "limit": draw.random.choice([2, 500]), "seen": ""}
    return Step("outside_acks", {**said, "scope": draw.random.choice(["delivered", "all"])})


def _outbox_read(draw: Drawing) -> Step:
    after = draw.random.choice(["-", *draw.outbox])
    said = {"now": draw.now(), "relay": draw.random.choice(["r1", "r2"]), "hold_ms": 5_000, "after": after}
    return Step("outbox_read", {**said, "limit": draw.random.choice([1, 100])})


def _prune(draw: Drawing) -> Step:
    windows = [(f"{digest}.{length}",) for digest in DIGESTS for length in (100, 50_000)]
    said = {"now": draw.now(), "keep_ms": draw.random.choice([1_000, 10**9]), "limit": draw.random.choice([1, 100])}
    return Step("prune", said, draw.random.sample(windows, draw.random.randrange(3)))


def _unlock(draw: Drawing) -> Step:
    id, entry = draw.random.choice(draw.held())
    return Step("unlock", {"id": id, "entry": draw.random.choice([entry, ""]), "digest": draw.random.choice(DIGESTS)})


_DRAWN: Final[dict[str, Callable[[Drawing], Step]]] = {
    "schedule": _schedule,
    "replace": _replace,
    "cancel": _cancel,
    "reschedule": lambda draw: Step(
        "reschedule",
        {"now": draw.now(), "queue": "q", "wake": "delayq:wake", "id": draw.id(), "when": draw.when()},
    ),
    "run_now": _run_now,
    "retry": _retry,
    "forget": lambda draw: Step("forget", {}, [(draw.id(),) for _ in range(2)]),
    "promote": _promote,
    "ack": _ack,
    "release": _release,
    "fail": _fail,
    "renew": lambda draw: Step("renew", {"consumer": draw.random.choice(CONSUMERS)}, draw.held()),
    "hand_back": lambda draw: Step("hand_back", {"now": draw.now(), "unheld": draw.random.randrange(2)}, draw.held()),
    "reclaim": _reclaim,
    "progress": lambda draw: Step(
        "progress", {"now": draw.now()}, [(id, entry, '{"done":1') for id, entry in draw.held()]
    ),
    "outbox_read": _outbox_read,
    "outbox_ack": lambda draw: Step("outbox_ack", {}, [(draw.random.choice([*draw.outbox, "1-1"]),)]),
    "unlock": _unlock,
    "tidy": lambda draw: Step("tidy", {"lease_ms": LEASE}),
    "outside_acks": _outside_acks,
    "mend": lambda draw: Step(
        "mend", {"now": draw.now(), "queue": "q", "lost": '{"type":"PayloadLost"'}, [(id,) for id in IDS]
    ),
    "bury": _bury,
    "prune": _prune,
    "consumer_remove": lambda draw: Step(
        "consumer_remove",
        {"consumer": draw.random.choice(CONSUMERS), "idle_ms": draw.random.choice([0, 10**9])},
    ),
    "activity_record": lambda draw: Step("activity_record", {"now": draw.now()}),
    "get": lambda draw: Step("get", {"id": draw.id()}),
    "list": _list,
    "stats": lambda draw: Step("stats", {"now": draw.now()}),
    "pause": _pause,
    "control": _control,
    "clear": lambda draw: Step("clear", {"limit": draw.random.choice([1, 500]), "queue": "q", "wake": "delayq:wake"}),
    "queue_remove": lambda draw: Step("queue_remove", {"look": draw.random.randrange(2)}),
    "queue_configure": _queue_configure,
}

SCRIPTS: Final = sorted(_DRAWN)


def draw_plain(draw: Drawing) -> list[tuple[str, ...]]:
    """Draw what happens beside the scripts: reads, acknowledgements of foreign hands, time, and rarely damage."""
    stream, consumer = "delayq:{q}:stream", draw.random.choice(CONSUMERS)
    read = ("XREADGROUP", "GROUP", "delayq", consumer, "COUNT", "2", "STREAMS", stream, ">")
    id, entry = draw.random.choice(draw.held())
    usual: list[list[tuple[str, ...]]] = [
        [read],
        [read],
        [read],
        [("XCLAIM", stream, "delayq", consumer, "0", entry, "IDLE", str(2 * LEASE), "JUSTID")],
        [("XACK", stream, "delayq", entry)],
    ]
    damage: list[list[tuple[str, ...]]] = [
        [("HDEL", "delayq:{q}:jobs", id)],
        [("HDEL", "delayq:{q}:entries", id)],
        [("ZREM", "delayq:{q}:scheduled", id)],
        [("ZADD", "delayq:{q}:failed", "5", id)],
        [("XDEL", stream, entry)],
        [("XGROUP", "DELCONSUMER", stream, "delayq", consumer)],
        [("XGROUP", "DESTROY", stream, "delayq")],
        [("XGROUP", "SETID", stream, "delayq", "0")],
        [("DEL", stream)],
        [("HDEL", "delayq:{q}:meta", "delivered")],
        [("HSET", "delayq:{q}:meta", "lease_ms", "odd")],
        [("HSET", "delayq:{q}:errors", id, "odd")],
        [("ZADD", "delayq:{q}:scheduled", "-7", id)],
        [("FLUSHALL",)],
    ]
    return draw.random.choice(damage if draw.random.random() < 0.06 else usual)
