"""`delayq batch …`."""

from __future__ import annotations

import re

import pytest

from delayq import DelayQ, Manager, Settings, batch, using_manager
from delayq.core.followups import Word
from delayq.core.states import State
from delayq.jobs.dispatch import named
from delayq.redis.audit import me
from delayq.redis.calls import follow
from delayq.redis.calls.call import Scope
from delayq.redis.calls.follow import Told
from delayq.redis.send import through
from tests.cli.conftest import Inline


@pytest.fixture
def imports(q: DelayQ, redis_url: str) -> str:
    """A batch of three: one has failed, two wait."""
    manager = Manager(Settings(url=redis_url))
    with using_manager(manager):
        members = [named("import", {"n": n}).having(id=f"m{n}", delay="1h") for n in range(3)]
        batch(members, id="import-7", name="imports", allow_failures=True).dispatch()
    manager.close()
    place = follow.place(Scope(q.options, "default"), "import-7")
    through(q.connector, follow.batch_note(place, [Told("m0", Word.FAILED)]))
    return "import-7"


def test_list(inline: Inline, imports: str) -> None:
    columns, row = [re.split(r" {2,}", line.strip()) for line in inline("batch", "list").out.splitlines()]
    assert columns == ["id", "name", "state", "ended", "total", "failed", "skipped", "began", "owner"]
    assert row[:-2] == ["import-7", "imports", "running", "33 %", "3", "1", "0"]
    assert row[-1] == me()
    shape = inline("batch", "list", "--json").json
    assert (shape["id"], shape["total"], shape["failed"]) == ("import-7", 3, 1)


def test_members_that_no_job_can_be_are_shown_as_forgotten(inline: Inline, q: DelayQ, imports: str) -> None:
    """Somebody else wrote them there."""
    broken = "delayq:{batch:import-7}:broken"
    q.connector.commands().hset(broken, mapping={"no id": "default", "x": "no/queue"})
    lines = inline.ok("batch", "show", imports).lines
    assert [line.strip() for line in lines if line.endswith("forgotten")] == [
        "no id  (queue default)  forgotten",
        "x  (queue no/queue)  forgotten",
    ]


def test_show(inline: Inline, imports: str) -> None:
    shown = inline("batch", "show", imports).out
    assert "3: 0 done, 1 failed, 0 skipped, 2 left" in shown
    assert "m0  (queue default)" in shown
    assert "m1  (queue default)" in shown
    assert me() in shown
    assert "not as it stands: 1 member failed or skipped" in shown
    shape = inline("batch", "show", imports, "--json").json
    assert set(shape) == {
        "id", "name", "state", "total", "pending", "done", "failed", "skipped", "progress", "allow_failures",
        "created_ms", "created", "cancelled_ms", "cancelled", "finished_ms", "finished", "failed_members",
        "owner", "pending_members",
    }  # fmt: skip
    assert shape["failed_members"] == [{"id": "m0", "queue": "default"}]
    assert shape["pending_members"] == [{"id": "m1", "queue": "default"}, {"id": "m2", "queue": "default"}]
    assert shape["owner"] == me()


def test_cancel(inline: Inline, imports: str, q: DelayQ) -> None:
    assert inline("batch", "cancel", imports).out.startswith("import-7: ")
    assert q.get("m1") is None
    assert inline("batch", "show", imports, "--json").json["cancelled_ms"] is not None


def test_what_is_done_to_it_goes_to_the_audit_log(inline: Inline, imports: str, q: DelayQ) -> None:
    inline("batch", "retry", imports, "--reason", "the API is back")
    inline("batch", "cancel", imports)
    deeds = [(deed.what, deed.target, deed.reason, deed.detail, deed.who) for deed in q.audit_log.last()]
    assert deeds == [
        ("batch cancel", imports, "none given", "2 left, 1 failed", me()),
        ("batch retry", imports, "the API is back", "2 left, 1 failed", me()),
    ]


def test_a_reason_that_says_nothing_is_refused(inline: Inline, imports: str, q: DelayQ) -> None:
    ended = inline("batch", "cancel", imports, "--reason", " ")
    assert (ended.code, q.audit_log.last()) == (2, [])
    assert q.batches.get(imports).cancelled_ms is None


def test_one_that_was_cut_short_says_so(inline: Inline, imports: str, q: DelayQ) -> None:
    inline("batch", "cancel", imports)
    place = follow.place(Scope(q.options, "default"), imports)
    through(q.connector, follow.batch_note(place, [Told("m0", Word.PENDING, 1, 1)]))
    through(q.connector, follow.batch_note(place, [Told("m0", Word.DONE, 1)]))
    assert inline("batch", "show", imports, "--json").json["state"] == "incomplete"
    assert "not sent: 0 failed, 2 skipped" in inline("batch", "show", imports).out


def test_retry_of_members_that_are_gone_is_none(inline: Inline, imports: str, q: DelayQ) -> None:
    q.cancel("m0")
    told = "import-7: 0 jobs to be tried again; 1 job that failed is forgotten\n"
    assert inline("batch", "retry", imports).out == told
    assert "m0  (queue default)  forgotten" in inline("batch", "show", imports).out
    assert inline("batch", "retry", imports, "--json").json == {"id": "import-7", "retried": 0}


def test_one_that_is_not_there(inline: Inline) -> None:
    for verb in ("show", "cancel", "retry"):
        ended = inline("batch", verb, "nobody")
        assert (ended.code, ended.out) == (3, "")
        assert "There is no batch 'nobody'" in ended.err


def test_an_id_that_none_can_have_is_refused_as_a_batchs(inline: Inline) -> None:
    for verb in ("show", "cancel", "retry"):
        ended = inline("batch", verb, "")
        assert (ended.code, ended.err.splitlines()[0]) == (2, "Error: '' cannot be the id of a batch.")


def test_members_are_jobs_like_others(inline: Inline, imports: str, q: DelayQ) -> None:
    assert inline("show", "m1").code == 0
    info = q.get("m1")
    assert info is not None
    assert info.state is State.SCHEDULED


def test_one_that_cannot_be_read_hides_no_other(q: DelayQ, inline: Inline, imports: str) -> None:
    q.connector.call(lambda client: client.set("delayq:{batch:odd}:plan", "no hash"), safe=True)
    q.connector.call(lambda client: client.zadd("delayq:batches", {"odd": 1}), safe=True)
    try:
        assert [row.split()[0] for row in inline("batch", "list").out.splitlines()] == ["id", imports]
    finally:
        q.connector.call(lambda client: client.delete("delayq:{batch:odd}:plan"), safe=True)
        q.connector.call(lambda client: client.zrem("delayq:batches", "odd"), safe=True)
