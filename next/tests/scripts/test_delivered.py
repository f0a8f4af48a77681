"""The entry id alone tells whether a job was delivered; in doubt it was. `cancelled` means that it will never run."""

from collections.abc import Callable

import pytest

from delayq.backends.values import DeliveryRef
from delayq.core.states import Answer
from delayq.redis.keys import GROUP
from tests.support.queue import NOW, OURS, QueueOnServer, envelope_of, new_job
from tests.support.stored import parts

LARGEST = 2**64 - 1
IDS = ["9-9", "9-10", "10-1", "10-10", "999-0", "1000-0", f"1000-{LARGEST}", f"{LARGEST - 1}-5", f"{LARGEST}-7"]
"""Entry ids are pairs of numbers up to 2^64 - 1, so 9 comes before 10 on either side."""

VERBS: dict[str, tuple[Callable[[QueueOnServer, str], Answer], Answer]] = {
    "cancel": (lambda queue, id: queue.cancel(id), "cancelled"),
    "archive": (lambda queue, id: queue.archive(id), "archived"),
    "reschedule": (lambda queue, id: queue.reschedule(id, "+5").answer, "rescheduled"),
    "run_now": (lambda queue, id: queue.run_now(id).answer, "ready"),
    "replace": (lambda queue, id: queue.replace(id, "+5").answer, "replaced"),
    "postpone": (lambda queue, id: queue.replace(id, "+5", word="postponed").answer, "postponed"),
}
"""An operation, and its answer for a job that was not delivered."""
each_verb = pytest.mark.parametrize("verb", VERBS)


@each_verb
@pytest.mark.parametrize("delivered", [1, 3, 6, 8])
def test_entry_ids_compare_as_numbers(damaged_queue: QueueOnServer, verb: str, delivered: int) -> None:
    queue = damaged_queue
    act, free = VERBS[verb]
    queue.server.xgroup_create(queue.stream, GROUP, "0", mkstream=True)
    for id in IDS:
        queue.server.xadd(queue.stream, {"id": id, "job": envelope_of(id), "due": "1", "recoveries": "0"}, id=id)
    queue.server.hset(queue.key("entries"), mapping={id: id for id in IDS})
    queue.server.hset(queue.key("jobs"), mapping={id: envelope_of(id) for id in IDS})
    queue.server.xgroup_setid(queue.stream, GROUP, IDS[delivered - 1])
    listed = [[job.id for job in queue.page(state).jobs] for state in ("reserved", "ready")]
    assert listed == [IDS[:delivered], IDS[delivered:]]
    answers = [act(queue, id) for id in IDS]
    assert answers == ["running"] * delivered + [free] * (len(IDS) - delivered)


def _delete_stream(queue: QueueOnServer) -> None:
    queue.server.delete(queue.stream)


def _promote_one(queue: QueueOnServer) -> None:
    queue.schedule("new", "+5000")
    queue.server.delete(queue.stream)
    assert queue.promote(now=NOW + 5000).promoted == 1


DAMAGE: dict[str, list[Callable[[QueueOnServer], object]]] = {
    "acknowledged early": [lambda queue: queue.server.xack(queue.stream, GROUP, queue.held("a").entry)],
    "consumer deleted": [lambda queue: queue.server.xgroup_delconsumer(queue.stream, GROUP, OURS)],
    "entry deleted": [lambda queue: queue.server.xdel(queue.stream, queue.held("a").entry)],
    "stream trimmed": [lambda queue: queue.server.xtrim(queue.stream, maxlen=0, approximate=False)],
    "group destroyed": [lambda queue: queue.server.xgroup_destroy(queue.stream, GROUP)],
    "stream deleted": [_delete_stream],
    "stream deleted, then schedule": [_delete_stream, lambda queue: queue.schedule("new")],
    "stream deleted, then schedule and read": [
        _delete_stream,
        lambda queue: queue.schedule("new"),
        lambda queue: queue.read(),
    ],
    "stream deleted, then promote": [_promote_one],
    "stream deleted, then tidy": [_delete_stream, lambda queue: queue.tidy()],
    "stream deleted, then hand_back": [_delete_stream, lambda queue: queue.hand_back(queue.held("b"))],
    "stream deleted, then an XADD": [_delete_stream, lambda queue: queue.server.xadd(queue.stream, {"foreign": "x"})],
}


@pytest.mark.parametrize("was_tidied", [False, True])
@pytest.mark.parametrize("damage", DAMAGE)
def test_a_delivered_job_stays_delivered_whatever_happens(
    damaged_queue: QueueOnServer, damage: str, was_tidied: bool
) -> None:
    queue = damaged_queue
    queue.reserve("a", "b")
    if was_tidied:
        queue.tidy()
    for step in DAMAGE[damage]:
        step(queue)
    assert [act(queue, "a") for act, _ in VERBS.values()] == ["running"] * len(VERBS)
    info = queue.get("a")
    assert info is not None and info.state == "reserved"


@each_verb
@pytest.mark.parametrize("is_tidied", [False, True])
def test_after_a_group_was_set_back_every_job_is_delivered_until_it_is_appended_anew(
    queue: QueueOnServer, verb: str, is_tidied: bool
) -> None:
    act, free = VERBS[verb]
    queue.reserve("a")
    queue.tidy()
    queue.schedule("b")
    queue.server.xgroup_destroy(queue.stream, GROUP)
    queue.server.xgroup_create(queue.stream, GROUP, "0")
    if is_tidied:
        queue.tidy()
    assert [act(queue, id) for id in "ab"] == ["running", "running"]
    held = [queue.held(id) for id in "ab"]
    queue.tidy()
    assert queue.hand_back_all(*held) == [True, True]
    answers = [queue.cancel(id, token=id) for id in "ab"] if verb == "cancel" else [free, free]
    assert answers == [free, free]
    if verb not in ("cancel", "replace", "postpone"):
        assert [VERBS["reschedule"][0](queue, id) for id in "ab"] == ["rescheduled", "rescheduled"]


@each_verb
def test_a_job_that_was_not_delivered_is_free_although_its_entry_is_gone(
    damaged_queue: QueueOnServer, verb: str
) -> None:
    queue = damaged_queue
    act, free = VERBS[verb]
    queue.schedule("job")
    queue.server.xdel(queue.stream, queue.held("job").entry)
    assert act(queue, "job") == free


@pytest.mark.parametrize("maker", ["schedule", "promote"])
def test_after_a_lost_stream_new_jobs_are_ready_and_run(damaged_queue: QueueOnServer, maker: str) -> None:
    queue = damaged_queue
    (old,) = queue.reserve("old")
    queue.tidy()
    if maker == "schedule":
        queue.server.delete(queue.stream)
        queue.schedule("new")
    else:
        _promote_one(queue)
    assert queue.state_of("new") == "ready"
    (new,) = queue.read()
    assert parts(new.entry) > parts(old.entry)
    assert queue.ack(new)
    assert not queue.ack(DeliveryRef("orders", "old", new.entry))


@pytest.mark.parametrize("maker", ["schedule", "promote", "tidy", "foreign"])
def test_streams_lost_again_and_again_never_give_an_entry_id_twice(damaged_queue: QueueOnServer, maker: str) -> None:
    """All within one second. Two jobs with one entry id are as bad: who settles the one deletes the other."""
    queue = damaged_queue
    seen: list[str] = []
    for turn in range(8):
        ids = [f"job-{turn}-{number}" for number in range(20)]
        if maker == "promote":
            queue.schedule_all(*(new_job(id, "+5000") for id in ids))
        queue.server.delete(queue.stream)
        if maker == "promote":
            queue.promote(now=NOW + 5000)
        else:
            if maker == "foreign" and turn % 2:
                queue.server.xadd(queue.stream, {"foreign": "entry"})
            if maker != "schedule":
                queue.tidy()
            queue.schedule_all(*map(new_job, ids))
        seen += [queue.held(id).entry for id in ids]
        queue.read()
    assert len(set(seen)) == len(seen) == 160
