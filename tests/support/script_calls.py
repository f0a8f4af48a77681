"""One call of each script in a queue where it has something to do, for what must hold of all scripts alike.

SCENES["ack"].prepare(engine)       builds the queue, and gives the call
.first, .again                      what the call answers, and what the same call answers once more
.grows                              whether a server at its memory limit may refuse it
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import msgspec

from delayq.core.control import Control, WorkerOrder
from delayq.core.debounce import Quiet
from delayq.core.envelope import fingerprint
from delayq.core.followups import End, Note, Send, Todo, Word
from delayq.core.limiting import Admit, Admitted, Circuit, Place, Probe, Report, Unlocked, Verdict, Who
from delayq.core.rate_limit import RateLimit
from delayq.core.shards import PLAIN, Layout
from delayq.core.spec import Prepared
from delayq.core.states import Answer, OnConflict, State
from delayq.core.views import Page, Silent
from delayq.redis.calls import activity, aside, deliver, follow, inspect, limit, lock, operate, produce
from delayq.redis.calls.call import Call, Scope
from delayq.redis.calls.deliver import Acked, Failed, Held, Released
from delayq.redis.calls.follow import Finished, Opened, Owed, OwedPage, Standing, Told
from delayq.redis.calls.inspect import LaidOut
from delayq.redis.calls.operate import Switch, Telling
from delayq.redis.calls.produce import Outcome
from delayq.redis.keys import GROUP
from tests.support.call_families import following, operating
from tests.support.engine import HOUR, OURS, START, Engine, envelope

FAILURE = b'{"type":"E","message":"m"}'
OTHER = "dq:host:9:z9"
LEASE = Held("j", "1-1")
PLACE, UNKEPT = Place("api", "k", 1), limit.Kept(30_000, (None,))
RATES = (RateLimit.per_minute(1).by("k"), RateLimit.sliding(2, "1m"), RateLimit.bucket(2, "1m"))
DUE = START + 1_000
NOW = START + 2_000

FOUR, UNSAID = Layout(4, START, (1,)), LaidOut(PLAIN, "", "")
Prepare = Callable[[Engine], Call[Any]]


@dataclass(frozen=True, slots=True)
class Scene:
    """See the module."""

    prepare: Prepare
    first: object
    again: object
    grows: bool = False
    writes: bool = True


def world(engine: Engine) -> None:
    """A job in every place: later, due (scheduled); ready; held (with a lock and a failure); gone (failed); done."""
    engine.completed("done")
    engine.failed("gone")
    engine.reserved("held", digest="dg-held")
    engine.run(deliver.release(engine.scope, [Released(engine.held("held"), 0, b"", FAILURE)]))
    engine.run(deliver.promote(engine.scope))
    assert [held.id for held in engine.read()] == ["held"]
    engine.ready("ready")
    engine.schedule([engine.job("later", digest="dg-later"), engine.job("due", "+1000")])
    engine.now = NOW


def held(engine: Engine) -> Held:
    return engine.held("held")


def schedule(engine: Engine) -> Call[Any]:
    jobs = [engine.job("new", "+0", digest="dg-new"), engine.job("later", "+5")]
    return engine.scheduling(jobs, OnConflict.ERROR, token="same")


def replace(engine: Engine) -> Call[Any]:
    jobs = [engine.job("later", "+0", digest="dg-other"), engine.job("ready", "+5")]
    return engine.scheduling(jobs, OnConflict.REPLACE, token="same")


def release(engine: Engine) -> Call[Any]:
    return deliver.release(engine.scope, [Released(held(engine), 500, envelope("held", attempts=1), FAILURE)])


def tell(engine: Engine) -> Call[Any]:
    return operate.progress(engine.scope, [Telling(held(engine), b'{"done":1,"total":2')])


def reclaim(engine: Engine) -> Call[Any]:
    engine.calm()
    engine.rest([held(engine).entry], 60_000)
    return deliver.reclaim(engine.scope)


def retry(engine: Engine) -> Call[Any]:
    raw = engine.client.hget(engine.keys.of("jobs"), "gone")
    return produce.retry(engine.scope, "gone", fingerprint(raw), envelope("gone"), "dg-gone")


def unsettled(engine: Engine) -> Call[Any]:
    engine.client.xgroup_createconsumer(engine.keys.stream, GROUP, OTHER)
    return deliver.unsettled(engine.scope, "-", "", everything=True)


def mend(engine: Engine) -> Call[Any]:
    engine.client.zrem(engine.keys.of("scheduled"), "later")
    return deliver.mend(engine.scope, ["later", "held"])


def bury(engine: Engine) -> Call[Any]:
    entry = engine.client.xadd(engine.keys.stream, {"job": b"\xff"}).decode()
    return deliver.bury(engine.scope, [(entry, FAILURE)])


def retire(engine: Engine) -> Call[Any]:
    engine.run(deliver.renew(engine.scope, OTHER, []))
    return deliver.retire(engine.scope, OTHER, 0)


def empty(engine: Engine) -> Call[Any]:
    """Of a queue that has its frame, and no job."""
    engine.client.flushall()
    engine.run(deliver.tidy(engine.scope))
    return inspect.remove(engine.scope)


def prune(engine: Engine) -> Call[Any]:
    engine.now += HOUR
    return deliver.prune(engine.scope, 0)


def who(job_id: str) -> Who:
    return Who("orders", job_id, "1-1")


def vacate(engine: Engine) -> Call[Any]:
    engine.run(limit.acquire(engine.scope, PLACE, who("a")))
    engine.run(limit.line_up(engine.scope, PLACE, who("b")))
    return limit.vacate(engine.scope, PLACE, who("a").holder)


def line_up(engine: Engine) -> Call[Any]:
    engine.run(limit.acquire(engine.scope, PLACE, who("a")))
    return limit.line_up(engine.scope, PLACE, who("b"))


def debounce(engine: Engine) -> Call[Any]:
    """The second dispatch, for a job that is ready by then."""
    engine.run(produce.debounce(engine.scope, debounced("early"), Quiet(1_000, 1_000), "first"))
    engine.now += 1_000
    engine.run(deliver.promote(engine.scope))
    return produce.debounce(engine.scope, debounced("late"), Quiet(1_000, 9_000), "second")


def debounced(job_id: str) -> Prepared:
    raw = envelope(job_id, unique="b.start")
    return Prepared(job_id, raw, "+0", "b", "order.close", "orders", False, Quiet(1_000, 9_000))


def unlock(engine: Engine) -> Call[Any]:
    return lock.unlock(engine.scope, "held", "dg-held", held(engine).entry)


def sweep(engine: Engine) -> Call[Any]:
    engine.schedule([engine.job("windowed", digest="w.1000")])
    engine.now += 1_000
    return lock.sweep(engine.scope, ["w.1000", "dg-held"])


def report(engine: Engine, verdict: Verdict = Verdict.FAILED) -> Call[Any]:
    return limit.report(engine.scope, Report(who("a"), "api", "k", verdict, 1, 1_000))


def probe(engine: Engine) -> Call[Any]:
    engine.run(report(engine))
    engine.now += 1_000
    return limit.probe(engine.scope, Probe(who("b"), "api", "k"))


def finish(engine: Engine) -> Call[Any]:
    """A link that ends: the next one is for this queue, and its batch lives elsewhere."""
    todo: Todo = [Note("b", [("held", Word.DONE)]), Send("orders", "next", msgspec.Raw(envelope("next")), 500)]
    return follow.finish(engine.scope, [Finished(held(engine), End.DONE, todo, HOUR, b"", b"1")])


def owed(engine: Engine) -> Call[Any]:
    engine.client.xadd(engine.keys.of("outbox"), {"todo": "[]"}, id="7-1")
    return follow.owed(engine.scope, "relay", "-")


def carried(engine: Engine) -> Call[Any]:
    engine.run(owed(engine))
    return follow.carried(engine.scope, ["7-1"])


def batch(engine: Engine) -> Scope:
    return follow.place(engine.scope, "b")


def noting(engine: Engine) -> Call[Any]:
    engine.run(follow.batch_open(batch(engine), b"{}", [("m", "orders"), ("n", "mails")]))
    return follow.batch_note(batch(engine), [Told("m", Word.FAILED)])


def telling(engine: Engine) -> Call[Any]:
    engine.run(noting(engine))
    return follow.batch_told(batch(engine), ["catch", "progress"], STANDING)


OWED = (Owed("7-1", NOW, {"todo": b"[]"}),)
STANDING = Standing(b"{}", 1, 0, 1, 0, 0, NOW, NOW, None, ("progress", "catch"), 1)


def scene(prepare: Prepare, first: object, again: object, *, grows: bool = False, writes: bool = True) -> Scene:
    def prepared(engine: Engine) -> Call[Any]:
        world(engine)
        return prepare(engine)

    return Scene(prepared, first, again, grows, writes)


def words(reply: Any) -> Any:
    """An answer in a form that a table can hold: references as their outcomes, jobs as their ids."""
    if isinstance(reply, produce.Scheduled):
        return [str(ref.outcome) for ref in reply.refs]
    if isinstance(reply, Outcome):
        return (str(reply.answer), reply.due_ms)
    if isinstance(reply, deliver.Sums):
        return (reply.agree, reply.regrouped)
    if isinstance(reply, deliver.UnsettledPage):
        return reply.entries
    if isinstance(reply, deliver.Renewed):
        return (reply.pending, reply.lost, reply.asked_to_stop)
    return reply


SCENES = {
    "schedule": scene(schedule, ["created", "conflict"], ["created", "conflict"], grows=True),
    "later": scene(lambda e: e.later("new", "newer"), ["created", "created"], [], grows=True),
    "replace": scene(replace, ["replaced", "replaced"], ["replaced", "replaced"], grows=True),
    "reschedule": scene(
        lambda e: produce.reschedule(e.scope, "later", "+7"),
        ("rescheduled", NOW + 7),
        ("rescheduled", NOW + 7),
        grows=True,
    ),
    "run_now": scene(lambda e: produce.run_now(e.scope, "later"), ("ready", NOW), ("ready", None), grows=True),
    "retry": scene(retry, ("scheduled", NOW), ("refused", None), grows=True),
    "pause": scene(lambda e: inspect.pause(e.scope, 5_000), NOW + 5_000, NOW + 5_000),
    "control": scene(
        lambda e: operate.switch(e.scope, Switch.MAINTENANCE, 5_000, "new schema"),
        Control(NOW, None, NOW + 5_000, NOW, None, "new schema"),
        Control(NOW, None, NOW + 5_000, NOW, None, "new schema"),
    ),
    "order": scene(lambda e: operate.order(e.scope, "dq:host:1:a1", WorkerOrder.QUIET), None, None),
    "progress": scene(tell, [True], [True], grows=True),
    "configure": scene(lambda e: inspect.configure(e.scope, 5_000), 5_000, 5_000, grows=True),
    "lay_out": scene(
        lambda e: inspect.lay_out(e.scope, FOUR, UNSAID),
        LaidOut(FOUR, "30000", ""),
        LaidOut(FOUR, "30000", ""),
        grows=True,
    ),
    "promote": scene(
        lambda e: deliver.promote(e.scope),
        deliver.Promoted(1, 0, (HOUR - 2_000) * 1000),
        deliver.Promoted(0, 0, (HOUR - 2_000) * 1000),
    ),
    "done": scene(lambda e: deliver.done(e.scope, *([word] for word in held(e))), [True], [False]),
    "ack": scene(lambda e: deliver.ack(e.scope, [Acked(held(e), HOUR, b"1")]), [True], [False]),
    "release": scene(release, [True], [False]),
    "fail": scene(lambda e: deliver.fail(e.scope, [Failed(held(e), b"", FAILURE)]), [True], [False]),
    "finish": scene(finish, [True], [False]),
    "owed": scene(owed, OwedPage(False, False, OWED), OwedPage(False, False, OWED)),
    "carried": scene(carried, 1, 0),
    "batch_open": scene(
        lambda e: follow.batch_open(batch(e), b"{}", [("m", "orders"), ("n", "mails")]),
        Opened("opened", 2),
        Opened("opened", 0),
        grows=True,
    ),
    "batch_note": scene(noting, STANDING, STANDING),
    "batch_told": scene(telling, True, True),
    "hand_back": scene(lambda e: deliver.hand_back(e.scope, [held(e)]), [True], [False]),
    "reclaim": scene(reclaim, deliver.Reclaimed(1, 0, 0, 30_000, False), deliver.Reclaimed(0, 0, 0, 30_000, False)),
    "recover": scene(
        lambda e: deliver.recover(e.scope, [held(e)]), deliver.Recovered(1, 1, 0), deliver.Recovered(1, 0, 0)
    ),
    "renew": scene(lambda e: deliver.renew(e.scope, OTHER, [held(e)]), (1, (), ()), (1, (), ())),
    "cancel": scene(
        lambda e: produce.cancel(e.scope, "ready", running=False, token="same"), Answer.CANCELLED, Answer.CANCELLED
    ),
    "archive": scene(
        lambda e: produce.archive(e.scope, "ready", "why", token="same"),
        produce.Cancelled(Answer.ARCHIVED),
        produce.Cancelled(Answer.ARCHIVED),
    ),
    "forget": scene(
        lambda e: produce.forget(e.scope, ["gone", "done", "held"]),
        [Answer.FORGOTTEN, Answer.FORGOTTEN, Answer.REFUSED],
        [Answer.UNKNOWN, Answer.UNKNOWN, Answer.REFUSED],
    ),
    "prune": scene(prune, deliver.Pruned(1, 1), deliver.Pruned(0, 0)),
    "clear": scene(lambda e: inspect.clear(e.scope), 3, 0),
    "remove": scene(empty, inspect.Holds(0, 0, 0, 0, 0, 0, 0), inspect.Holds(0, 0, 0, 0, 0, 0, 0)),
    "set_aside": scene(
        lambda e: aside.set_aside(e.scope, "lot", ["ready", "held", "gone"]), [True, False, False], [False] * 3
    ),
    "tidy": scene(lambda e: deliver.tidy(e.scope), (True, False), (True, False)),
    "unsettled": scene(unsettled, (), ()),
    "mend": scene(mend, ["scheduled", "fine"], ["fine", "fine"]),
    "bury": scene(bury, ["buried"], ["left"]),
    "retire": scene(retire, True, True),
    "acquire": scene(lambda e: limit.acquire(e.scope, PLACE, who("a")), limit.Got(True, 0, ()), limit.Got(True, 0, ())),
    "vacate": scene(vacate, limit.Left(True, "orders b"), limit.Left(False, "")),
    "line_up": scene(line_up, False, False, grows=True),
    "kept": scene(lambda e: limit.kept(e.scope, [LEASE]), UNKEPT, UNKEPT, writes=False),
    "admit": scene(lambda e: limit.admit(e.scope, Admit(who("a"), "api", RATES)), Admitted(True, 0), Admitted(True, 0)),
    "probe": scene(probe, limit.Asked(Circuit.PROBE, 1, ""), limit.Asked(Circuit.PROBE, 1, "")),
    "report": scene(report, True, True),
    "debounce": scene(debounce, ["debounced"], ["debounced"], grows=True),
    "unlock": scene(unlock, Unlocked.FREED, Unlocked.FREE),
    "sweep": scene(sweep, 1, 0),
    "get": scene(lambda e: inspect.get(e.scope, "nobody"), None, None, writes=False),
    "list": scene(
        lambda e: inspect.list_jobs(e.scope, State.COMPLETED, f"{START + 2 * HOUR} x", 9),
        Page((), ""),
        Page((), ""),
        writes=False,
    ),
    "stats": scene(lambda e: inspect.stats(e.scope), ..., ..., writes=False),
    "silent": scene(lambda e: inspect.silent(e.scope), Silent(), Silent(), writes=False),
    "upcoming": scene(lambda e: inspect.upcoming(e.scope, 1_000, 3), ..., ..., writes=False),
    "weigh": scene(lambda e: activity.weigh(e.scope), ..., ..., writes=False),
    "tally": scene(lambda e: activity.tally(e.scope, {}), True, True, grows=True),
    "activity": scene(lambda e: activity.activity(e.scope, 2), ..., ..., writes=False),
}


def _kept(scope: Scope) -> list[Call[Any]]:
    return [inspect.lay_out(scope, FOUR, UNSAID), inspect.configure(scope, None)]


def _producing(scope: Scope, job: Prepared) -> list[Call[Any]]:
    short = produce.later(scope, [job], OnConflict.KEEP)
    assert short is not None
    return [short, *(produce.schedule(scope, [job], on, "t") for on in (OnConflict.KEEP, OnConflict.REPLACE))]


def all_calls(scope: Scope) -> list[Call[Any]]:
    """A call of every script, made without any server."""
    return [
        *_producing(scope, Engine(None).job("j")),
        produce.cancel(scope, "j", running=True, token="t"),
        produce.archive(scope, "j", "why", token="t"),
        produce.reschedule(scope, "j", "+1"),
        produce.run_now(scope, "j"),
        produce.retry(scope, "j", "", b"{}", ""),
        produce.forget(scope, ["j"]),
        deliver.promote(scope),
        deliver.ack(scope, [Acked(LEASE)]),
        deliver.done(scope, [LEASE.id], [LEASE.entry]),
        deliver.release(scope, [Released(LEASE, 0)]),
        deliver.fail(scope, [Failed(LEASE, b"", b"")]),
        deliver.bury(scope, [("1-1", b"{}")]),
        deliver.hand_back(scope, [LEASE]),
        deliver.renew(scope, OURS, [LEASE]),
        deliver.reclaim(scope),
        deliver.recover(scope, [LEASE]),
        deliver.tidy(scope),
        deliver.unsettled(scope, "-", "", everything=True),
        deliver.mend(scope, ["j"]),
        deliver.prune(scope, 0),
        deliver.retire(scope, OURS, 0),
        inspect.get(scope, "j"),
        inspect.list_jobs(scope, State.READY, "", 1),
        inspect.stats(scope),
        inspect.upcoming(scope, 1, 1),
        inspect.pause(scope, 0),
        inspect.resume(scope),
        *_kept(scope),
        inspect.clear(scope),
        inspect.remove(scope),
        inspect.silent(scope),
        aside.set_aside(scope, "lot", ["j"]),
        *operating(scope, LEASE),
        *following(scope, LEASE),
        *limit_calls(scope),
        *lock_calls(scope),
    ]


def lock_calls(scope: Scope) -> list[Call[Any]]:
    """Those about unique keys."""
    return [
        produce.debounce(scope, debounced("j"), Quiet(1, 2), "d"),
        lock.unlock(scope, "j", "d", "1-1"),
        lock.sweep(scope, ["d.1"]),
    ]


def limit_calls(scope: Scope) -> list[Call[Any]]:
    """Those about limits."""
    return [
        limit.acquire(scope, PLACE, who("j"), ["orders k 1-1"]),
        limit.vacate(scope, PLACE, ""),
        limit.line_up(scope, PLACE, who("j")),
        limit.kept(scope, [LEASE]),
        limit.admit(scope, Admit(who("j"), "api", RATES)),
        limit.probe(scope, Probe(who("j"), "api", "k"), ["orders k 1-1"]),
        limit.report(scope, Report(who("j"), "api", "k", Verdict.PASSED, 1, 1)),
    ]
