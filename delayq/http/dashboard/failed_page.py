"""Failed jobs: the newest first, with their errors; retried and forgotten one by one, as ticked, or all that fit.

choose ──▶ preview: how many ──▶ confirm, with a reason ──▶ two seconds of it ──▶ go on, until none is left
"""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from typing import Any, Final

from starlette.responses import Response

from delayq.core.browsing import Found, Sought
from delayq.core.errors import InvalidInput
from delayq.core.failure_groups import FailureGroup, FailureGroups, common_message
from delayq.core.states import State
from delayq.core.views import JobInfo
from delayq.core.when import format_instant
from delayq.http import many, outcomes
from delayq.http.dashboard.confirm import Question as Confirm
from delayq.http.dashboard.deeds import note
from delayq.http.dashboard.house import House
from delayq.http.dashboard.jobs_page import Question, look, picks, question
from delayq.http.dashboard.login import inside
from delayq.http.dashboard.pages import back, show
from delayq.http.dashboard.payload import without
from delayq.http.dashboard.visit import Visit
from delayq.http.dashboard.wording import plural
from delayq.redis.browse import count, grouped, matching, narrowed

ACTS: Final = ("retry", "forget")
PREVIEW_LOOKS: Final = 4_000
STEP: Final = 100
BUDGET_S: Final = 2.0


@dataclass(frozen=True, slots=True)
class Row:
    """A failed job as the list shows it."""

    info: JobInfo
    message: str


async def page(house: House, visit: Visit) -> Response:
    """GET /failed"""
    asked = replace(question(visit, State.FAILED), state=State.FAILED)
    names = visit.viewer.of(await house.client.queues())
    now_ms = await house.now_ms()
    client = house.client
    queues = [asked.queue] if asked.queue else names
    wrong = asked.mistakes(now_ms)
    typed = replace(asked, since="", until="") if wrong else asked
    sought = await client.run(narrowed(client.verbs, typed.sought(queues, now_ms)))
    found = Found((), "", 0) if wrong else await look(house, sought, visit.asked("cursor"))
    told = {
        "now_ms": now_ms,
        "asked": asked,
        "names": names,
        "found": found,
        "rows": [Row(info, _message(house, info)) for info in found.jobs],
        "total": await client.run(count(client.verbs, replace(sought, name=None, tag=None, signature=None))),
        "cursor": visit.asked("cursor"),
        "wrong": wrong,
    }
    return await show(house, visit, "failed.html", told, 400 if wrong else 200)


@dataclass(frozen=True, slots=True)
class GroupRow:
    """A group of failed jobs as the page shows it: its common message, and the message of its sample."""

    group: FailureGroup
    common: str
    message: str


async def groups(house: House, visit: Visit) -> Response:
    """GET /failed/groups: failed jobs by job name and error."""
    asked = replace(question(visit, State.FAILED), state=State.FAILED, signature="")
    names = visit.viewer.of(await house.client.queues())
    now_ms = await house.now_ms()
    wrong = asked.mistakes(now_ms)
    typed = replace(asked, since="", until="") if wrong else asked
    sought = replace(typed.sought([asked.queue] if asked.queue else names, now_ms), looks=PREVIEW_LOOKS)
    found = FailureGroups(())
    if not wrong:
        found = await house.client.run(grouped(house.client.verbs, sought, visit.asked("cursor")))
    told = {
        "now_ms": now_ms,
        "asked": asked,
        "names": names,
        "found": found,
        "rows": [_group_row(house, group) for group in found.groups],
        "wrong": wrong,
        "total": await house.client.run(count(house.client.verbs, replace(sought, name=None, tag=None))),
        "cursor": visit.asked("cursor"),
    }
    return await show(house, visit, "failed_groups.html", told, 400 if wrong else 200)


def _group_row(house: House, group: FailureGroup) -> GroupRow:
    message = _message(house, group.sample)  # without the secrets of its payload; so is what is common to all
    return GroupRow(group, common_message(message), message)


def _message(house: House, info: JobInfo) -> str:
    if info.failure is None:
        return ""
    covered = house.redaction.payload(info)[1]
    return without(info.failure.message, covered)[:300]


# -- those that were ticked ------------------------------------------------------------------------------------------


async def ask_picked(house: House, visit: Visit) -> Confirm | None:
    """The question before the ticked jobs are forgotten; to retry them can be repeated, so it is not asked."""
    if visit.filled("act") != "forget" or not visit.chosen("pick"):
        return None
    jobs, page = plural(len(visit.chosen("pick")), "failed job"), inside(visit.filled("back") or "/failed")
    what = "Their payloads and errors are deleted; there is no undo."
    return Confirm(f"Forget {jobs}?", what, f"Forget {jobs}", page, needs_reason=True)


async def picked(house: House, visit: Visit) -> Response:
    """POST /failed/picked"""
    act, chosen = _act(visit.filled("act")), picks(visit)
    if not chosen:
        raise InvalidInput("No job was ticked.", hint="Tick some, or choose all that fit.")
    detail = ", ".join(f"{queue}/{job_id}" for queue, job_id in chosen)
    await note(house, visit, f"failed {act}", plural(len(chosen), "job"), detail[:2_000])
    done = many.done(await many.do(house.client, many.Act(act), chosen))
    if not done:
        outcomes.refused("It was done to none of these jobs.")
    house.health.forget()
    return back(house, visit, inside(visit.filled("back") or "/failed"), _said(act, done, len(chosen) - done))


# -- all that fit ----------------------------------------------------------------------------------------------------


async def preview(house: House, visit: Visit) -> Response:
    """GET /failed/all: how many it would be, and a form to confirm it."""
    act, now_ms = _act(visit.asked("act")), await house.now_ms()
    asked = replace(question(visit, State.FAILED), state=State.FAILED, order="oldest")
    if not asked.until or asked.sought((), now_ms).until_ms is None:
        asked = replace(asked, until=format_instant(now_ms))  # what fails from now on is not meant
    sought = await _sought(house, visit, asked, now_ms)
    counted = matching(house.client.verbs, replace(sought, looks=PREVIEW_LOOKS), PREVIEW_LOOKS)
    number, exact = await house.client.run(counted)
    since_until = asked.sought((), now_ms)
    fixed = replace(
        asked,
        since="" if since_until.since_ms is None else format_instant(since_until.since_ms),
        until=format_instant(since_until.until_ms or now_ms),
    )
    told = {"act": act, "asked": fixed, "number": number, "exact": exact, "looks": PREVIEW_LOOKS, "now_ms": now_ms}
    return await show(house, visit, "failed_all.html", told)


async def all_of_them(house: House, visit: Visit) -> Response:
    """POST /failed/all: two seconds of it; then the page goes on, or says what was done."""
    act, now_ms = _act(visit.filled("act")), await house.now_ms()
    words = {name: visit.filled(name) for name in ("queue", "name", "tag", "since", "until", "signature")}
    if not words["until"]:
        raise InvalidInput("It is not said until when.", hint="Begin with the preview.")
    if words["queue"]:
        visit.queue(words["queue"])
    asked = Question(State.FAILED, order="oldest", **words)
    sought = await _sought(house, visit, asked, now_ms)
    cursor, done, left = visit.filled("cursor"), _number(visit.filled("done")), _number(visit.filled("left"))
    if not cursor:
        if not visit.filled("reason"):
            raise InvalidInput("What is done to many jobs needs a reason.", hint="Say why, for the audit log.")
        await note(house, visit, f"failed {act}", "all that fit", asked.link(""))
    end_s = time.monotonic() + BUDGET_S
    while True:
        found = await look(house, sought, cursor)
        well = many.done(await many.do(house.client, many.Act(act), many.which(found.jobs)))
        done, left = done + well, left + len(found.jobs) - well
        cursor = found.cursor
        if not cursor:
            house.health.forget()
            return back(house, visit, "/failed", _said(act, done, left))
        if time.monotonic() >= end_s:
            told: dict[str, Any] = {"act": act, "asked": asked, "cursor": cursor, "done": done, "left": left}
            return await show(house, visit, "failed_going_on.html", told)


async def _sought(house: House, visit: Visit, asked: Question, now_ms: int) -> Sought:
    names = visit.viewer.of(await house.client.queues())
    return asked.sought([asked.queue] if asked.queue else names, now_ms, STEP)


def _act(word: str) -> str:
    if word not in ACTS:
        raise InvalidInput(f"{word!r} cannot be done to failed jobs.", hint=f"There are: {', '.join(ACTS)}.")
    return word


def _number(word: str) -> int:
    return int(word) if word.isascii() and word.isdigit() and len(word) < 10 else 0


def _said(act: str, done: int, left: int) -> str:
    what = "will be retried" if act == "retry" else "forgotten"
    rest = f" {plural(left, 'job')} could not be: somebody was faster, or its unique key is taken." if left else ""
    return f"{plural(done, 'job')} {what}.{rest}"
