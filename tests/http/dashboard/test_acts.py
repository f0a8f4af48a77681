"""What people do from the pages: each form, without JavaScript, and what is written down of it."""

from __future__ import annotations

import httpx
import msgspec
import pytest

from delayq import DelayQ
from delayq.core.followups import Link, Plan
from delayq.core.options import Options
from delayq.core.spec import JobSpec, prepare
from delayq.core.states import OnConflict, State
from delayq.core.when import format_instant
from delayq.http.dashboard import failed_page
from delayq.http.dashboard.visit import job_link
from tests.support.failing import fail_job, take
from tests.support.pages import Page, confirm, read, send

HOUR_MS = 3_600_000


def link_of(n: int) -> Link:
    """A member of a batch, due in an hour."""
    spec = JobSpec(name="order.close", id=f"m-{n}", queue="orders")
    made = prepare(spec, Options(), 1_800_000_000_000, OnConflict.KEEP)
    return Link(job=msgspec.Raw(made.envelope), delay_ms=HOUR_MS)


def deeds(q: DelayQ) -> list[tuple[str, str]]:
    """What was done from pages, the newest first."""
    entries = q.audit_log.last()
    assert all((entry.door, entry.who) == ("page", "anybody on this machine") for entry in entries)
    return [(entry.what, entry.target) for entry in entries]


async def test_cancel(api: httpx.AsyncClient, q: DelayQ) -> None:
    q.schedule("order.close", delay="1h", id="a", queue="orders")
    page = await confirm(api, await read(api, "/job?queue=orders&id=a"), "/job/cancel")
    assert page.url.path == "/jobs"  # the page of a job that is gone would tell him nothing
    assert "The job was cancelled; nobody will run it." in page.text
    assert q.get("a", queue="orders") is None
    assert deeds(q) == [("cancel", "orders/a")]


async def test_an_act_without_undo_asks_once(api: httpx.AsyncClient, q: DelayQ) -> None:
    q.schedule("order.close", delay="1h", id="a", queue="orders")
    fail_job(q, "b", "no")
    q.schedule("order.close", delay="0s", id="c", queue="orders")
    take(q, "c")
    acts = (("a", "cancel", "Cancel job"), ("b", "forget", "Forget job"), ("c", "stop", "Ask job to stop"))
    for job_id, act, button in acts:
        page = await read(api, f"/job?queue=orders&id={job_id}")
        assert f"{button} {job_id}" in page.text
        asked = await send(api, page, f"/job/{act}")
        assert f"order.close {job_id}" in asked.text
        assert f"Back without a change {button}" in asked.text
        assert job_link("orders", job_id) in asked.links
    asked = await send(api, await read(api, "/queues/orders"), "/queues/orders/pause", length="10m")
    assert "Pause the queue orders for 10m?" in asked.text
    assert "/queues/orders" in asked.links
    assert deeds(q) == []
    states = {name: q.get(name, queue="orders") for name in "abc"}
    assert {name: info and info.state for name, info in states.items()} == {
        "a": State.SCHEDULED,
        "b": State.FAILED,
        "c": State.RESERVED,
    }
    assert not q.stats("orders")[0].paused


async def test_an_act_on_many_jobs_tells_the_number_and_needs_a_reason(api: httpx.AsyncClient, q: DelayQ) -> None:
    for name in "ab":
        fail_job(q, name, "no")
    headers = {"origin": "http://localhost"}
    mark = dict((await read(api, "/failed")).form("/failed/picked").fields)["mark"]
    fields = {"mark": mark, "act": "forget", "pick": ["orders a", "orders b"]}
    asked = Page(await api.post("/failed/picked", data=fields, headers=headers))
    assert "Forget 2 failed jobs?" in asked.text
    refused = await send(api, asked, "/failed/picked", 400)
    assert "An act on many jobs needs a reason." in refused.text
    assert q.stats("orders")[0].failed == 2
    q.batches.open(Plan(id="spring", name="spring", members=[link_of(n) for n in range(3)]))
    asked = await send(api, await read(api, "/batch?id=spring"), "/batch/cancel")
    assert "Cancel the rest of the batch spring? 3 jobs of 3 have not ended." in asked.text
    await send(api, asked, "/batch/cancel", 400)
    assert q.batches.get("spring").cancelled_ms is None
    await send(api, asked, "/batch/cancel", reason="wrong prices")
    assert [(entry.what, entry.reason) for entry in q.audit_log.last()] == [("batch cancel", "wrong prices")]


async def test_a_mistyped_duration_stays_on_the_page_of_its_queue(api: httpx.AsyncClient, q: DelayQ) -> None:
    q.schedule("order.close", delay="1h", id="a", queue="orders")
    page = await send(api, await read(api, "/queues/orders"), "/queues/orders/pause", 400, length="10 minuets")
    assert "'10 minuets' is no duration" in page.text
    assert ("length", "10 minuets") in page.form("/queues/orders/pause").fields
    assert "Nothing was changed." in page.text
    assert deeds(q) == []
    page = await confirm(api, page, "/queues/orders/pause", length="10m")
    assert "is paused for 10m" in page.text


async def test_what_was_said_is_said_once(api: httpx.AsyncClient, q: DelayQ) -> None:
    q.schedule("order.close", delay="1h", id="a", queue="orders")
    page = await send(api, await read(api, "/job?queue=orders&id=a"), "/job/run-now")
    assert "The job a is due now: it is ready." in page.text
    assert "is due now: it is" not in (await read(api, "/job?queue=orders&id=a")).text


async def test_reschedule_in_a_while(api: httpx.AsyncClient, q: DelayQ) -> None:
    before = q.schedule("order.close", delay="1h", id="a", queue="orders").due_ms or 0
    page = await send(api, await read(api, "/job?queue=orders&id=a"), "/job/reschedule", 200, **{"in": "3h"})
    info = q.get("a", queue="orders")
    assert info is not None
    assert info.due_ms is not None
    assert before + HOUR_MS < info.due_ms < before + 3 * HOUR_MS
    assert f"is due at {format_instant(info.due_ms)} now" in page.text
    assert deeds(q) == [("reschedule", "orders/a")]


async def test_reschedule_to_a_time_of_ones_own_zone(api: httpx.AsyncClient, q: DelayQ) -> None:
    now_ms = q.schedule("order.close", delay="1h", id="a", queue="orders").due_ms or 0
    year = int(format_instant(now_ms)[:4]) + 1
    page = await read(api, "/job?queue=orders&id=a")
    for at in (f"{year}-01-15T12:00", f"{year}-01-15T12:00:00"):
        page = await send(api, page, "/job/reschedule", at=at, zone="Europe/Berlin")
        assert f"is due at {year}-01-15T11:00:00.000Z now" in page.text


@pytest.mark.parametrize(
    "filled",
    [{}, {"in": "15 minuets"}, {"in": "1h", "at": "2999-01-01T00:00"}, {"at": "2026-11-21T15:00", "zone": "X/Y"}],
)
async def test_a_time_that_cannot_be_used_moves_nothing(
    api: httpx.AsyncClient, q: DelayQ, filled: dict[str, str]
) -> None:
    due_ms = q.schedule("order.close", delay="1h", id="a", queue="orders").due_ms
    page = await send(api, await read(api, "/job?queue=orders&id=a"), "/job/reschedule", 400, **filled)
    assert page.url.path == "/job/reschedule"
    assert "order.close" in page.text
    assert page.source.count('role="alert"') == 1
    typed = {name: value for name, value in page.form("/job/reschedule").fields if name in filled}
    assert typed == filled
    assert deeds(q) == []
    info = q.get("a", queue="orders")
    assert info is not None
    assert info.due_ms == due_ms


async def test_a_failed_job_is_tried_again_or_forgotten(api: httpx.AsyncClient, q: DelayQ) -> None:
    fail_job(q, "a", "no")
    page = await send(api, await read(api, "/job?queue=orders&id=a"), "/job/retry")
    assert "The job a is retried from its first attempt" in page.text
    fail_job(q, "b", "no", queue="mail")
    page = await confirm(api, await read(api, "/job?queue=mail&id=b"), "/job/forget")
    assert "The job b is forgotten." in page.text
    assert q.get("b", queue="mail") is None
    assert deeds(q) == [("forget", "mail/b"), ("retry", "orders/a")]


async def test_a_running_job_is_asked_to_stop(api: httpx.AsyncClient, q: DelayQ) -> None:
    q.schedule("order.close", delay="0s", id="a", queue="orders")
    take(q, "a")
    page = await read(api, "/job?queue=orders&id=a")
    assert [form.action for form in page.forms if form.action.startswith("/job/")] == ["/job/stop", "/job/edit"]
    assert "dq:test:1:a holds it." in page.text
    page = await confirm(api, page, "/job/stop")
    assert "It runs, and was asked to stop." in page.text


async def test_what_a_job_has_become_is_said_and_not_done(api: httpx.AsyncClient, q: DelayQ) -> None:
    q.schedule("order.close", delay="0s", id="a", queue="orders")
    page = await read(api, "/job?queue=orders&id=a")
    take(q, "a")
    assert "It was not cancelled: the job runs already." in (await confirm(api, page, "/job/cancel")).text
    assert "Not in this state" in (await send(api, page, "/job/reschedule", 409, **{"in": "1h"})).text


async def test_a_queue_is_paused_and_resumed(api: httpx.AsyncClient, q: DelayQ) -> None:
    q.schedule("order.close", delay="1h", id="a", queue="orders")
    page = await confirm(api, await read(api, "/queues/orders"), "/queues/orders/pause", length="10m")
    assert "The queue orders is paused for 10m." in page.text
    assert q.stats("orders")[0].paused
    assert "delayq resume orders" in page.text
    page = await send(api, page, "/queues/orders/resume")
    assert not q.stats("orders")[0].paused
    await send(api, page, "/queues/orders/pause", 400, length="long")
    assert not q.stats("orders")[0].paused


async def test_ticked_jobs(api: httpx.AsyncClient, q: DelayQ) -> None:
    for name in "abc":
        fail_job(q, name, "no", queue=name)
    page = await read(api, "/failed")
    assert 'value="a a"' in page.source
    page = await confirm(api, page, "/failed/picked", act="forget", pick="b b", reason="old")
    assert "1 job forgotten." in page.text
    assert [one.failed for one in q.stats()] == [1, 0, 1]
    page = await send(api, page, "/failed/picked", act="retry", pick="b b")
    assert "0 jobs will be retried. 1 job could not be" in page.text
    await send(api, page, "/failed/picked", 400, act="retry")


async def test_all_that_fit_with_a_count_before_and_a_reason(api: httpx.AsyncClient, q: DelayQ) -> None:
    for n in range(3):
        fail_job(q, f"mail-{n}", "no", queue="mail", name="mail.send")
        fail_job(q, f"order-{n}", "no")
    page = await read(api, "/failed/all?act=retry&name=mail.*")
    assert "Retry 3 failed jobs?" in page.text
    fail_job(q, "mail-later", "no", queue="later", name="mail.send")
    assert "needs a reason" in (await send(api, page, "/failed/all", 400)).text
    assert sum(one.failed for one in q.stats()) == 7
    done = await send(api, page, "/failed/all", reason="the mail server is back")
    assert "3 jobs will be retried." in done.text
    assert {one.queue: one.failed for one in q.stats()} == {"later": 1, "mail": 0, "orders": 3}
    [entry] = q.audit_log.last()
    assert (entry.what, entry.reason) == ("failed retry", "the mail server is back")


async def test_many_go_on_from_page_to_page(api: httpx.AsyncClient, q: DelayQ, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(failed_page, "BUDGET_S", 0.0)
    monkeypatch.setattr(failed_page, "STEP", 2)
    for n in range(5):
        fail_job(q, f"order-{n}", "no")
    page = await send(api, await read(api, "/failed/all?act=forget"), "/failed/all", reason="old")
    assert "2 jobs done, more to go" in page.text
    page = await send(api, page, "/failed/all")
    assert "4 jobs done, more to go" in page.text
    page = await send(api, page, "/failed/all")
    assert "5 jobs forgotten." in page.text
    assert q.stats("orders")[0].failed == 0
    assert len(deeds(q)) == 1


async def test_a_lock_is_freed_with_a_reason(api: httpx.AsyncClient, q: DelayQ) -> None:
    q.schedule("order.close", delay="1h", id="a", queue="orders", unique="order-7")
    page = await read(api, "/limits")
    await send(api, page, "/locks/free", 400, reason="")
    page = await send(api, page, "/locks/free", reason="stuck")
    assert "The lock that a held in orders is free." in page.text
    assert q.locks.all() == []
    assert "stuck (by this machine)" in (await read(api, "/audit")).text


async def test_a_batch_is_looked_at_cancelled_and_retried(api: httpx.AsyncClient, q: DelayQ) -> None:
    plan = Plan(id="spring", name="spring", members=[link_of(n) for n in range(3)])
    q.batches.open(plan)
    page = await read(api, "/batch?id=spring")
    assert "Left 3 of 3" in page.text
    assert all(f"m-{n} orders" in page.text for n in range(3))
    assert "spring" in (await read(api, "/batches")).text
    page = await confirm(api, page, "/batch/cancel", reason="wrong prices")
    assert "Nothing of it starts any more" in page.text
    assert "cancelled" in page.text
    await read(api, "/batch?id=absent", 404)


async def test_the_log_tells_who_did_what_and_where(api: httpx.AsyncClient, q: DelayQ) -> None:
    q.schedule("order.close", delay="1h", id="a", queue="orders")
    await send(api, await read(api, "/job?queue=orders&id=a"), "/job/run-now")
    page = await read(api, "/audit")
    assert "anybody on this machine page run now orders/a" in page.text


async def test_one_group_of_failures_is_retried(api: httpx.AsyncClient, q: DelayQ) -> None:
    fail_job(q, "a", "no stock of 41, t0p-s3cret")
    fail_job(q, "b", "no stock of 7, t0p-s3cret")
    fail_job(q, "c", "no money")
    page = await read(api, "/failed")
    [way] = [link for link in page.links if link.startswith("/failed/groups")]
    page = await read(api, way)
    assert "no stock of #, ••••••" in page.text
    assert "s3cret" not in page.source
    assert "t#p" not in page.source
    [retry] = [link for link in page.links if "act=retry" in link and "signature" in link][:1]
    page = await read(api, retry)
    assert "Retry 2 failed jobs?" in page.text
    page = await send(api, page, "/failed/all", reason="there is stock again")
    assert "2 jobs will be retried." in page.text
    assert [info.id for info in q.iter_failed("orders")] == ["c"]
    entry = q.audit_log.last()[0]
    assert (entry.what, entry.reason) == ("failed retry", "there is stock again")
    assert "signature=" in entry.detail
    assert "not a signature" in (await read(api, "/failed?signature=no", 400)).text


async def press_picked(api: httpx.AsyncClient, act: str, picks: list[str], **filled: str) -> Page:
    """Press a button of the list of jobs with these rows ticked."""
    page = await read(api, "/jobs")
    fields = {**dict(page.form("/jobs/picked").fields), "act": act, "pick": picks, **filled}
    answer = await api.post("/jobs/picked", data=fields, headers={"origin": "http://localhost"}, follow_redirects=True)
    return Page(answer)


async def test_ticked_jobs_are_cancelled_and_the_others_are_told(api: httpx.AsyncClient, q: DelayQ) -> None:
    for name in "abcd":
        q.schedule("order.close", delay="1h", id=name, queue="orders")
    asked = await press_picked(api, "cancel", [f"orders {name}" for name in "abc"])
    assert "Cancel 3 jobs?" in asked.text
    q.cancel("b", queue="orders")
    q.run_now("c", queue="orders")
    take(q, "c")
    fields = [(name, value) for name, value in asked.form("/jobs/picked").fields]
    picks = [value for name, value in fields if name == "pick"]
    assert picks == ["orders a", "orders b", "orders c"]
    sent = {**dict(fields), "pick": picks, "reason": "a wrong import"}
    answer = await api.post("/jobs/picked", data=sent, headers={"origin": "http://localhost"}, follow_redirects=True)
    assert "1 job cancelled. 2 not: 1 running already, 1 gone." in Page(answer).text
    assert [q.get(name, queue="orders") is None for name in "abcd"] == [True, True, False, False]
    [deed] = q.audit_log.last()
    assert (deed.what, deed.target, deed.reason) == ("bulk cancel", "3 jobs", "a wrong import")
    assert deed.detail == "orders/a, orders/b, orders/c"


@pytest.mark.parametrize(
    ("act", "state"), [("run-now", State.READY), ("reschedule", State.SCHEDULED), ("archive", State.FAILED)]
)
async def test_ticked_jobs_move(api: httpx.AsyncClient, q: DelayQ, act: str, state: State) -> None:
    q.schedule("order.close", delay="1h", id="a", queue="orders")
    asked = await press_picked(api, act, ["orders a"], delay="2h")
    assert "1 job" in asked.text
    assert q.audit_log.last() == []
    await send(api, asked, "/jobs/picked", reason="a wrong import")
    info = q.get("a", queue="orders")
    assert info is not None
    assert info.state is state
    if act == "archive":
        assert info.failure is not None
        assert info.failure.message == "a wrong import"


async def test_nothing_ticked_and_a_mistyped_duration_change_nothing(api: httpx.AsyncClient, q: DelayQ) -> None:
    q.schedule("order.close", delay="1h", id="a", queue="orders")
    assert "no job is ticked" in (await press_picked(api, "cancel", [])).text
    said = await press_picked(api, "reschedule", ["orders a"], delay="15 minuets")
    assert "Nothing was changed." in said.text
    assert "'15 minuets' is no duration" in said.text
    assert ("delay", "15 minuets") in said.form("/jobs/picked").fields, "the typed text stays in its field"
    assert said.source.count(" checked") == 1, "the row stays ticked"
    assert ("back", "/jobs") in said.form("/jobs/picked").fields
    assert (await press_picked(api, "explode", ["orders a"])).status == 400
    assert q.audit_log.last() == []


async def test_a_mistyped_payload_comes_back_in_its_field(api: httpx.AsyncClient, q: DelayQ) -> None:
    fail_job(q, "a", "no")
    page = await read(api, "/job?queue=orders&id=a")
    again = await send(api, page, "/job/edit", 400, data='{"order_id": 4,, }', how="retry", reason="mended")
    assert "{&#34;order_id&#34;: 4,, }" in again.source
    assert 'id="e-data-wrong"' in again.source
    assert 'value="mended"' in again.source
    assert "Nothing was changed." in again.text
    assert q.audit_log.last() == []
