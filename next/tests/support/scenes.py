"""One call of each script, on a queue where it has something to do, for what must hold of all scripts alike."""

from collections.abc import Callable
from dataclasses import dataclass

from delayq.backends.values import Acked
from delayq.core.job_spec import NewJob
from delayq.core.limits import RateLimit
from delayq.redis.calls import batches, delivery, limits
from delayq.redis.keys import GROUP
from delayq.redis.scripts import load
from tests.support.queue import FAILURE, HOUR, NOW, OTHER, SECOND, QueueOnServer, envelope_of, new_job

Act = Callable[[], object]
LATER = NOW + 2 * SECOND


@dataclass(frozen=True)
class Scene:
    """`make` builds the queue further and returns the call. A scene that `grows` is refused by a full server."""

    make: Callable[[QueueOnServer], Act]
    grows: bool = False
    only_reads: bool = False
    spends: bool = False
    """A second call takes more, as a second job would. So such a call is not repeated after a lost reply."""
    roles: tuple[str, ...] = ()
    """The keys that the call needs, when it does not need all that the manual names."""


def set_up(queue: QueueOnServer, name: str) -> Act:
    """Build a queue with a job in every place, and return the call of the scene. It may be made more than once."""
    queue.put("done", "completed")
    queue.put("gone", "failed")
    queue.put("held", "reserved", lock="digest-held")
    queue.release(queue.held("held"), 0, envelope=b"")
    queue.promote()
    queue.read()
    queue.put("ready", "ready")
    queue.put("later", "scheduled", lock="digest-later")
    queue.schedule("due", f"+{SECOND}")
    return SCENES[name].make(queue)


def script_of(name: str) -> str:
    return name.split(maxsplit=1)[0]


def keys_of(queue: QueueOnServer, name: str) -> list[str]:
    """Return the keys of the call."""
    named = {
        "once": f"{queue.key('once')}:token",
        "control": queue.keys.control,
        "set": queue.key("completed"),
        **{role: queue.keys.of_batch("b1", role) for role in batches.ROLES},
        **{role: queue.keys.of_limit("mail", f"{role}:ann") for role in ("holders", "rates")},
        **{role: queue.keys.of_limit("mail", role) for role in ("places", "counters")},
    }
    roles = SCENES[name].roles or load(script_of(name)).keys
    return [named.get(role, queue.key(role)) for role in roles]


def _schedule(queue: QueueOnServer) -> Act:
    jobs = new_job("new", lock="digest-new"), new_job("later", "+5")
    return lambda: queue.schedule_all(*jobs, token="token", now=LATER)


def _replace(queue: QueueOnServer) -> Act:
    jobs = new_job("later", lock="digest-new"), new_job("ready", "+5")
    return lambda: queue.replace_all(*jobs, token="token", now=LATER)


def _retry(queue: QueueOnServer) -> Act:
    read = envelope_of("gone")
    return lambda: queue.retry("gone", digest="digest-gone", read=read, now=LATER)


def _unlock(queue: QueueOnServer) -> Act:
    entry = queue.held("held").entry
    return lambda: queue.unlock("held", "digest-held", entry=entry)


def _ack(queue: QueueOnServer) -> Act:
    held = queue.held("held")
    return lambda: queue.ack(held, retention_ms=HOUR, now=LATER)


def _rewrite(queue: QueueOnServer) -> Act:
    held = queue.held("held")
    done = [Acked("orders", "held", held.entry, envelope=envelope_of("held", extra=',"chain":{}'))]
    return lambda: queue.run(delivery.rewrite(queue.keys, "orders", done))


def _ack_plain(queue: QueueOnServer) -> Act:
    held = queue.held("held")
    queue.server.delete(queue.key("unique"), queue.key("locks"))
    return lambda: queue.ack_all(Acked("orders", held.id, held.entry), alone=True, now=LATER)


def _release(queue: QueueOnServer) -> Act:
    held = queue.held("held")
    return lambda: queue.release(held, 500, now=LATER)


def _fail(queue: QueueOnServer) -> Act:
    held = queue.held("held")
    return lambda: queue.fail(held, envelope=b"last", failure=FAILURE, now=LATER)


def _hand_back(queue: QueueOnServer) -> Act:
    held = queue.held("held")
    return lambda: queue.hand_back(held, now=LATER)


def _renew(queue: QueueOnServer) -> Act:
    held = queue.held("held")
    return lambda: queue.renew(held, consumer=OTHER)


def _progress(queue: QueueOnServer) -> Act:
    row = ("held", queue.held("held").entry, b'{"done":1')
    return lambda: queue.report_progress(row, now=LATER)


def _reclaim(queue: QueueOnServer) -> Act:
    queue.trust_leases(now=LATER)
    queue.rest("held")
    return lambda: queue.reclaim(now=LATER)


def _recover(queue: QueueOnServer) -> Act:
    held = queue.held("held")
    return lambda: queue.recover(held, now=LATER)


def _queue_remove(queue: QueueOnServer) -> Act:
    queue.server.flushall()
    queue.tidy()
    return queue.remove


def _outside_acks(queue: QueueOnServer) -> Act:
    queue.server.xgroup_createconsumer(queue.stream, GROUP, OTHER)
    return lambda: queue.outside_acks(scope="all")


def _mend(queue: QueueOnServer) -> Act:
    queue.server.zrem(queue.key("scheduled"), "later")
    return lambda: queue.mend("later", "held", now=LATER)


def _three_later() -> list[NewJob]:
    return [new_job("one", "+5000"), new_job("two", "+7000"), new_job("three", "+5000")]


def _bury(queue: QueueOnServer) -> Act:
    entry = queue.server.xadd(queue.stream, {"job": b"\xff"})
    return lambda: queue.bury(entry, now=LATER)


def _consumer_remove(queue: QueueOnServer) -> Act:
    queue.renew(consumer=OTHER)
    return lambda: queue.remove_consumer(OTHER)


def _outbox_read(queue: QueueOnServer) -> Act:
    queue.schedule("linked", "+5", envelope=envelope_of("linked", extra=',"chain":[1]'))
    queue.cancel("linked")
    return lambda: queue.read_outbox(now=LATER)


def _outbox_ack(queue: QueueOnServer) -> Act:
    _outbox_read(queue)
    (row,) = queue.read_outbox(now=LATER).rows
    return lambda: queue.ack_outbox(row.entry)


def _open_batch(queue: QueueOnServer, *members: str) -> object:
    rows = [(id, "orders 1") for id in members]
    call = batches.open_batch(
        queue.keys, "b1", plan=b"{}", allow_failures=False, seal=True, members=rows, now_ms=str(LATER)
    )
    return queue.run(call)


def _note_batch(queue: QueueOnServer) -> Act:
    _open_batch(queue, "a", "b", "c")
    rows: list[tuple[str, batches.Word, str]] = [("a", "done", ""), ("b", "failed", "orders b"), ("c", "next", "")]
    call = batches.note_batch(queue.keys, "b1", rows, keep_ms=HOUR, keep_broken_ms=HOUR, now_ms=str(LATER))
    return lambda: queue.run(call)


def _acquire_place(queue: QueueOnServer, holder: str) -> limits.Taken:
    call = limits.acquire_place(
        queue.keys, "mail", limit=2, holder=holder, key="ann", expire_ms=HOUR, now_ms=str(LATER)
    )
    return queue.run(call)


def _place_acquire(queue: QueueOnServer) -> Act:
    _acquire_place(queue, "orders a")
    return lambda: _acquire_place(queue, "orders b")


def _place_release(queue: QueueOnServer) -> Act:
    taken = _acquire_place(queue, "orders a")
    call = limits.release_place(queue.keys, "mail", holder="orders a", key="ann", expires_ms=taken.expires_ms or 0)
    return lambda: queue.run(call)


def _rate_acquire(queue: QueueOnServer) -> Act:
    call = limits.acquire_rate(queue.keys, "mail", [RateLimit.per_minute(60)], key="ann", now_ms=str(LATER))
    return lambda: queue.run(call)


SCENES: dict[str, Scene] = {
    "schedule": Scene(_schedule, grows=True),
    "schedule (plain)": Scene(
        lambda queue: lambda: queue.schedule("new", "+5000", now=LATER),
        grows=True,
        roles=("jobs", "scheduled", "entries", "meta"),
    ),
    "schedule (plain, several)": Scene(
        lambda queue: lambda: queue.schedule_all(*_three_later(), now=LATER),
        grows=True,
        roles=("jobs", "scheduled", "entries", "meta"),
    ),
    "replace": Scene(_replace, grows=True),
    "cancel": Scene(lambda queue: lambda: queue.cancel("ready", token="token", now=LATER)),
    "cancel (archive)": Scene(lambda queue: lambda: queue.archive("ready", token="token", now=LATER)),
    "reschedule": Scene(lambda queue: lambda: queue.reschedule("later", "+7", now=LATER), grows=True),
    "run_now": Scene(lambda queue: lambda: queue.run_now("later", now=LATER), grows=True),
    "retry": Scene(_retry, grows=True),
    "forget": Scene(lambda queue: lambda: queue.forget("gone", "done", "held")),
    "unlock": Scene(_unlock),
    "promote": Scene(lambda queue: lambda: queue.promote(now=LATER)),
    "ack": Scene(_ack),
    "ack (plain)": Scene(
        _ack_plain,
        roles=("entries", "stream", "jobs", "recoveries", "errors", "cancel", "locks", "meta", "progress"),
    ),
    "rewrite": Scene(_rewrite),
    "release": Scene(_release),
    "fail": Scene(_fail),
    "hand_back": Scene(_hand_back),
    "renew": Scene(_renew),
    "progress": Scene(_progress, grows=True),
    "reclaim": Scene(_reclaim),
    "reclaim (named)": Scene(_recover),
    "get": Scene(lambda queue: lambda: queue.get("held"), only_reads=True),
    "list": Scene(lambda queue: lambda: queue.page("completed"), only_reads=True),
    "stats": Scene(lambda queue: queue.stats, only_reads=True),
    "pause": Scene(lambda queue: lambda: queue.pause(5 * SECOND, now=LATER)),
    "control": Scene(lambda queue: lambda: queue.control("maintenance", 5 * SECOND, "upgrade", now=LATER)),
    "clear": Scene(lambda queue: queue.clear),
    "queue_configure": Scene(lambda queue: lambda: queue.configure(5 * SECOND), grows=True),
    "queue_remove": Scene(_queue_remove),
    "tidy": Scene(lambda queue: queue.tidy),
    "outside_acks": Scene(_outside_acks),
    "mend": Scene(_mend),
    "bury": Scene(_bury),
    "prune": Scene(lambda queue: lambda: queue.prune(now=LATER + HOUR)),
    "consumer_remove": Scene(_consumer_remove),
    "batch_open": Scene(lambda queue: lambda: _open_batch(queue, "a", "b"), grows=True),
    "batch_note": Scene(_note_batch),
    "place_acquire": Scene(_place_acquire, grows=True),
    "place_release": Scene(_place_release),
    "rate_acquire": Scene(_rate_acquire, grows=True, spends=True),
    "outbox_read": Scene(_outbox_read),
    "outbox_ack": Scene(_outbox_ack),
    "activity_record": Scene(lambda queue: lambda: queue.record_activity(now=LATER), grows=True),
}
"""A scene for every script; what stands behind the name of a script tells several scenes of it apart."""
