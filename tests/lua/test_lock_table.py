"""What becomes of a lock, whatever happens to its owner: the table of docs/unique.md, cell by cell."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from msgspec.structs import replace

from delayq.core.envelope import fingerprint
from delayq.core.states import Answer
from delayq.core.unique import again_of, word_of
from delayq.redis.calls import deliver, inspect, lock, produce
from delayq.redis.calls.deliver import Acked, Failed, Released
from tests.docs.pages import page, rows, section
from tests.support.engine import QUEUE, Engine, envelope

MINUTE = 60_000
WIRES = {"until done": "d", "until start": "d.start", "window": f"w.{MINUTE}"}
TABLE = rows(section(page("docs/unique.md"), "What frees a lock"), "what happens to its owner")


def held(engine: Engine) -> deliver.Held:
    return engine.held("a")


def reclaim(engine: Engine) -> None:
    engine.calm()
    engine.rest([held(engine).entry], 10 * MINUTE)
    assert engine.run(deliver.reclaim(engine.scope)).back == 1


def fail(engine: Engine) -> None:
    engine.run(deliver.fail(engine.scope, [Failed(held(engine), b"", b"{}")]))


def retry(engine: Engine, wire: str) -> None:
    fail(engine)
    raw = engine.client.hget(engine.keys.of("jobs"), "a")
    call = produce.retry(engine.scope, "a", fingerprint(raw), raw, again_of(wire))
    assert engine.run(call).answer is Answer.SCHEDULED


def forget(engine: Engine) -> None:
    fail(engine)
    engine.run(produce.forget(engine.scope, ["a"]))


def begin(engine: Engine, wire: str) -> None:
    """As a worker of delayq: only a lock until start is spoken of."""
    if wire.endswith(".start"):
        engine.run(lock.unlock(engine.scope, "a", word_of(wire), held(engine).entry))


def over(engine: Engine, wire: str) -> None:
    engine.now += MINUTE
    engine.run(lock.sweep(engine.scope, [word_of(wire)]))


WAITING: dict[str, Callable[[Engine], object]] = {
    "created": lambda e: None,
    "pause": lambda e: e.run(inspect.pause(e.scope, 0)),
    "cancel": lambda e: e.run(produce.cancel(e.scope, "a", running=False, token="c")),
    "archive": lambda e: e.run(produce.archive(e.scope, "a", "by hand", token="c")),
    "clear": lambda e: e.run(inspect.clear(e.scope)),
}
RUNNING: dict[str, Callable[[Engine], object]] = {
    "delivered": lambda e: None,
    "release": lambda e: e.run(deliver.release(e.scope, [Released(held(e), 5)])),
    "hand_back": lambda e: e.run(deliver.hand_back(e.scope, [held(e)])),
    "reclaim": reclaim,
    "ack": lambda e: e.run(deliver.ack(e.scope, [Acked(held(e))])),
    "fail": fail,
    "forget": forget,
}
TOLD: dict[str, Callable[[Engine, str], None]] = {
    "handler begins": begin,
    "retry of what failed": retry,
    "its time is over": over,
}


def owned(engine: Engine, wire: str) -> bool:
    value = engine.rows("unique").get(word_of(wire), "")
    return value.partition(" ")[0] == "a"


def test_the_table_is_complete() -> None:
    assert {cells[0] for cells in TABLE} == WAITING.keys() | RUNNING.keys() | TOLD.keys()
    assert len(TABLE) == len(WAITING) + len(RUNNING) + len(TOLD)


@pytest.mark.parametrize("kind", WIRES)
@pytest.mark.parametrize("cells", TABLE, ids=lambda cells: cells[0])
def test_what_happens_to_a_lock(engine: Engine, cells: list[str], kind: str) -> None:
    what, wire = cells[0], WIRES[kind]
    said = dict(zip(WIRES, cells[1:], strict=True))[kind]
    job = engine.job("a", "+1000" if what in WAITING else "+0", digest=word_of(wire))
    raw = envelope("a", QUEUE, unique=wire)
    assert engine.schedule([replace(job, envelope=raw)]) == [Answer.CREATED]
    assert owned(engine, wire)
    if what in WAITING:
        WAITING[what](engine)
    else:
        assert [one.id for one in engine.read()] == ["a"]
        RUNNING[what](engine) if what in RUNNING else TOLD[what](engine, wire)
    assert owned(engine, wire) is (said in ("taken", "kept"))
    other = engine.run(engine.scheduling([engine.job("b", digest=word_of(wire))])).refs[0]
    assert (other.outcome, other.id) == ((Answer.KEPT, "a") if said != "freed" else (Answer.CREATED, "b"))
