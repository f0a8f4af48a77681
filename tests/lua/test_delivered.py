"""Delivered or not: by the entry's id alone, in doubt always delivered. "cancelled" means that nobody will run it."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from delayq.core.states import Answer, OnConflict, State
from delayq.redis.calls import deliver, inspect, produce
from delayq.redis.calls.deliver import Acked
from delayq.redis.keys import GROUP
from tests.support.engine import OURS, Engine, envelope

MAX = 2**64 - 1


def ask(engine: Engine, verb: str, job_id: str) -> Answer:
    if verb == "cancel":
        return engine.run(produce.cancel(engine.scope, job_id, running=False, token=job_id))
    if verb == "reschedule":
        return engine.run(produce.reschedule(engine.scope, job_id, "+5")).answer
    if verb == "run_now":
        return engine.run(produce.run_now(engine.scope, job_id)).answer
    return engine.schedule([engine.job(job_id)], OnConflict(verb))[0]


TAKEN = {
    "cancel": (Answer.RUNNING, Answer.CANCELLED),
    "reschedule": (Answer.RUNNING, Answer.RESCHEDULED),
    "run_now": (Answer.RUNNING, Answer.READY),
    "replace": (Answer.RUNNING, Answer.REPLACED),
    "postpone": (Answer.RUNNING, Answer.POSTPONED),
}
each_verb = pytest.mark.parametrize("verb", TAKEN)

# Numbers, not text: 9 comes before 10 on either side of the dash, and both sides go up to 2^64 - 1.
IDS = ["9-9", "9-10", "10-1", "10-9", "10-10", "999-0", "1000-0", f"1000-{MAX}", f"{MAX - 1}-5", f"{MAX}-{MAX - 1}"]


@each_verb
def test_around_the_last_delivered_entry(engine: Engine, verb: str) -> None:
    names = [f"j{n}" for n in range(len(IDS))]
    for delivered in range(1, len(IDS) + 1):
        fill(engine, IDS[delivered - 1])
        infos = [engine.run(inspect.get(engine.scope, name)) for name in names]
        states = [info.state for info in infos if info]
        assert states == [State.RESERVED] * delivered + [State.READY] * (len(IDS) - delivered)
        reserved, ready = (
            [job.id for job in engine.run(inspect.list_jobs(engine.scope, state, "", 99)).jobs]
            for state in (State.RESERVED, State.READY)
        )
        assert (reserved, ready) == (names[:delivered], names[delivered:])
        taken, free = TAKEN[verb]
        answers = [ask(engine, verb, name) for name in names]
        assert answers == [taken] * delivered + [free] * (len(IDS) - delivered)


def fill(engine: Engine, last: str) -> None:
    """A stream with these entries and no others, delivered up to `last`."""
    stream = engine.keys.stream
    engine.client.flushall()
    engine.client.xgroup_create(stream, GROUP, "0", mkstream=True)
    for n, entry in enumerate(IDS):
        engine.client.xadd(stream, {"id": f"j{n}", "job": envelope(f"j{n}"), "due": "1", "recoveries": "0"}, id=entry)
        engine.client.hset(engine.keys.of("entries"), f"j{n}", entry)
        engine.client.hset(engine.keys.of("jobs"), f"j{n}", envelope(f"j{n}"))
    engine.client.xgroup_setid(stream, GROUP, last)


Damage = Callable[[Engine], object]


def deleted_and(then: Damage) -> Damage:
    def damage(engine: Engine) -> None:
        engine.client.delete(engine.keys.stream)
        then(engine)

    return damage


def promote_one(engine: Engine) -> None:
    engine.client.zadd(engine.keys.of("scheduled"), {"p": 1})
    engine.client.hset(engine.keys.of("jobs"), "p", envelope("p"))
    assert engine.run(deliver.promote(engine.scope)).moved == 1


DAMAGES: dict[str, Damage] = {
    "acknowledged early": lambda e: e.client.xack(e.keys.stream, GROUP, e.held("a").entry),
    "its consumer deleted": lambda e: e.client.xgroup_delconsumer(e.keys.stream, GROUP, OURS),
    "its entry deleted": lambda e: e.client.xdel(e.keys.stream, e.held("a").entry),
    "the stream trimmed": lambda e: e.client.xtrim(e.keys.stream, maxlen=0, approximate=False),
    "the group destroyed": lambda e: e.client.xgroup_destroy(e.keys.stream, GROUP),
    "the stream deleted": deleted_and(lambda e: None),
    "the stream deleted, then schedule": deleted_and(lambda e: e.ready("n")),
    "the stream deleted, then promote": deleted_and(promote_one),
    "the stream deleted, then tidy": deleted_and(lambda e: e.run(deliver.tidy(e.scope))),
    "the stream deleted, then hand_back": deleted_and(
        lambda e: e.run(deliver.hand_back(e.scope, [deliver.Held("b", e.held("b").entry)]))
    ),
    "the stream deleted, then somebody's XADD": deleted_and(lambda e: e.client.xadd(e.keys.stream, {"junk": "x"})),
    "the stream deleted, then schedule, and read on": deleted_and(lambda e: e.reserved("n")),
}


@pytest.mark.parametrize("tidied", [True, False], ids=["tidied since", "never tidied"])
@pytest.mark.parametrize("damage", DAMAGES)
def test_what_a_worker_was_given_stays_given_whatever_happens(engine: Engine, damage: str, tidied: bool) -> None:
    engine.reserved("a", "b")
    if tidied:
        engine.run(deliver.tidy(engine.scope))
    with engine.damaged():
        DAMAGES[damage](engine)
        assert {verb: ask(engine, verb, "a") for verb in TAKEN} == dict.fromkeys(TAKEN, Answer.RUNNING)
        info = engine.run(inspect.get(engine.scope, "a"))
        assert info is not None
        assert info.state == State.RESERVED
        engine.client.flushall()


@each_verb
@pytest.mark.parametrize("then", ["nothing", "tidy"])
def test_a_group_set_back_makes_everything_delivered_until_tidy_has_appended_it_anew(
    engine: Engine, verb: str, then: str
) -> None:
    """Somebody made the group again at 0, as clients do on NOGROUP."""
    engine.reserved("a")
    engine.run(deliver.tidy(engine.scope))
    engine.ready("b")
    engine.client.xgroup_destroy(engine.keys.stream, GROUP)
    engine.client.xgroup_create(engine.keys.stream, GROUP, "0")
    if then == "tidy":
        assert engine.run(deliver.tidy(engine.scope)).regrouped
    assert [ask(engine, verb, name) for name in "ab"] == [Answer.RUNNING] * 2
    held = [engine.held(name) for name in "ab"]
    engine.run(deliver.tidy(engine.scope))
    assert engine.run(deliver.hand_back(engine.scope, held)) == [True, True]
    assert [ask(engine, verb, name) for name in "ab"] == [TAKEN[verb][1]] * 2


@each_verb
def test_what_nobody_was_given_is_free_although_its_entry_is_gone(engine: Engine, verb: str) -> None:
    engine.ready("a")
    with engine.damaged():
        engine.client.xdel(engine.keys.stream, engine.held("a").entry)
        assert ask(engine, verb, "a") == TAKEN[verb][1]
        engine.run(deliver.mend(engine.scope, ["a"]))


@pytest.mark.parametrize("maker", ["schedule", "promote"])
def test_after_a_deleted_stream_new_jobs_are_ready_and_run(each_engine: Engine, maker: str) -> None:
    """The old group's place is not the new jobs': they are readable at once, and settle."""
    engine = each_engine
    (old,) = engine.reserved("a")
    engine.run(deliver.tidy(engine.scope))
    with engine.damaged():
        engine.client.delete(engine.keys.stream)
        if maker == "schedule":
            engine.ready("n", "m")
        else:
            promote_one(engine)
        assert {engine.state(name) for name in set(engine.in_stream())} == {State.READY}
        fresh = engine.read()
        assert all(_parts(held.entry) > _parts(old.entry) for held in fresh)
        assert engine.run(deliver.ack(engine.scope, [Acked(held) for held in fresh])) == [True] * len(fresh)
        engine.run(deliver.mend(engine.scope, ["a"]))


def test_streams_made_and_deleted_within_one_millisecond_give_no_id_twice(engine: Engine) -> None:
    """By turns schedule and tidy find it gone, and what was in it is still on record."""
    seen: list[tuple[int, ...]] = []
    with engine.damaged():
        for turn in range(20):
            ids = [f"j{turn}-{n}" for n in range(50)]
            engine.schedule([engine.job(job_id, "+0") for job_id in ids])
            if turn % 2:
                engine.client.delete(engine.keys.stream)
                engine.run(deliver.tidy(engine.scope))
                engine.run(deliver.mend(engine.scope, ids))
            seen += [_parts(held.entry) for held in engine.read()]
            engine.client.delete(engine.keys.stream)
        engine.client.flushall()
    assert len(set(seen)) == len(seen) == 1_000


def _parts(entry: str) -> tuple[int, ...]:
    return tuple(int(part) for part in entry.split("-"))
