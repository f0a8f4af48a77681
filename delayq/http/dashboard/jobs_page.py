"""Jobs by state, with a search: by id, name, tag and time; and acts on those that are ticked."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Final
from urllib.parse import parse_qsl

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from delayq.core.api_keys import Scope
from delayq.core.browsing import Found, Sought
from delayq.core.durations import duration_ms, span
from delayq.core.errors import InvalidInput
from delayq.core.failure_groups import check_signature
from delayq.core.names import check_id
from delayq.core.states import State
from delayq.core.when import instant_ms
from delayq.http import many, outcomes
from delayq.http.dashboard.confirm import Question as Ask
from delayq.http.dashboard.deeds import note
from delayq.http.dashboard.house import House
from delayq.http.dashboard.live import Parts, Watched
from delayq.http.dashboard.login import inside
from delayq.http.dashboard.overview import sums
from delayq.http.dashboard.pages import back, show
from delayq.http.dashboard.visit import Visit, link
from delayq.http.dashboard.wording import plural
from delayq.redis.browse import browse

PAGE: Final = 50
STATES: Final = (State.SCHEDULED, State.READY, State.RESERVED, State.FAILED, State.COMPLETED)


@dataclass(frozen=True, slots=True)
class Question:
    """What was asked for, as it was written; it fills the form again, and makes the links to other pages."""

    state: State
    queue: str = ""
    name: str = ""
    tag: str = ""
    since: str = ""
    until: str = ""
    order: str = ""
    signature: str = ""

    @property
    def narrow(self) -> bool:
        """Whether it asks for a part of them."""
        return any((self.name, self.tag, self.since, self.until, self.signature))

    @property
    def newest(self) -> bool:
        """Whether the latest come first: what failed does, unless told otherwise; what is due does not."""
        return self.order == "newest" if self.order else self.state in (State.FAILED, State.COMPLETED)

    def link(self, path: str = "/jobs", **changes: str) -> str:
        """The address of the same question, with some of it changed."""
        names = ("state", "queue", "name", "tag", "since", "until", "order", "signature")
        return link(path, **{name: str(getattr(self, name)) for name in names} | changes)

    def mistakes(self, now_ms: int) -> dict[str, str]:
        """What is wrong with the times that were typed, by the name of the field."""
        wrong: dict[str, str] = {}
        found: dict[str, int] = {}
        for name, text in (("since", self.since), ("until", self.until)):
            try:
                found |= {name: time_of(text, now_ms)} if text else {}
            except InvalidInput as error:
                wrong[name] = f"{error.message} {error.hint}".rstrip()
        if len(found) == 2 and found["since"] > found["until"]:
            wrong["until"] = "The end is before the start. Swap the two."
        return wrong

    def sought(self, queues: Sequence[str], now_ms: int, limit: int = PAGE) -> Sought:
        """What is looked for. Raises `InvalidInput` for what is no time and no signature."""
        since_ms, until_ms = (time_of(text, now_ms) if text else None for text in (self.since, self.until))
        if since_ms is not None and until_ms is not None and since_ms > until_ms:
            raise InvalidInput("The end lies before the beginning.", hint="Exchange from and to.")
        return Sought(
            self.state,
            tuple(queues),
            self.name or None,
            self.tag or None,
            since_ms,
            until_ms,
            self.newest,
            limit,
            signature=check_signature(self.signature) if self.signature else None,
        )


def question(visit: Visit, otherwise: State = State.SCHEDULED) -> Question:
    """What the address asks for. Raises `InvalidInput`."""
    queue = visit.asked("queue")
    return Question(
        visit.state(visit.asked("state"), otherwise),
        visit.queue(queue) if queue else "",
        *(visit.asked(name) for name in ("name", "tag", "since", "until", "order", "signature")),
    )


def time_of(text: str, now_ms: int) -> int:
    """Epoch ms of '2026-11-21T15:00:00Z', of '+15m' (in a quarter of an hour), of '-2h' (two hours ago)."""
    if text[:1] in "+-":
        return max(0, now_ms + duration_ms(text[1:]) * (-1 if text.startswith("-") else 1))
    moment = text if "T" not in text or text.endswith("Z") or "+" in text or text.count("-") > 2 else f"{text}Z"
    return instant_ms(moment, now_ms=now_ms)


async def page(house: House, visit: Visit) -> Response:
    """GET /jobs"""
    if visit.asked("id"):
        return RedirectResponse(link("/job", queue=visit.asked("queue"), id=visit.asked("id")), 303)
    told = await _told(house, visit)
    return await show(house, visit, "jobs.html", told, 400 if told["wrong"] else 200)


async def _again(house: House, visit: Visit, where: str, wrong: str) -> Response:
    """The list at the address `where` after a form with a mistyped duration: what was typed and ticked, and why not."""
    scope = {**visit.request.scope, "path": "/jobs", "query_string": where.partition("?")[2].encode()}
    told = await _told(house, replace(visit, request=Request(scope)))
    typed = {"delay_wrong": wrong, "delay": visit.filled("delay"), "ticked": visit.chosen("pick")}
    return await show(house, visit, "jobs.html", {**told, **typed, "said": "Nothing was changed.", "here": where}, 400)


async def _told(house: House, visit: Visit) -> dict[str, Any]:
    """What the page is made of, with nothing typed into the form for ticked jobs."""
    asked = question(visit)
    names = await house.queues(visit.viewer.queues)
    queues = [asked.queue] if asked.queue else names
    stats = await (house.client.stats(asked.queue) if asked.queue else house.stats(visit.viewer.queues))
    now_ms = await house.now_ms()
    wrong = asked.mistakes(now_ms)
    found = Found((), "", 0) if wrong else await look(house, asked.sought(queues, now_ms), visit.asked("cursor"))
    return {
        "now_ms": now_ms,
        "asked": asked,
        "states": STATES,
        "names": names,
        "sums": sums(stats),
        "found": found,
        "cursor": visit.asked("cursor"),
        "wrong": wrong,
        "writes": visit.viewer.may(Scope.WRITE),
        "live": not wrong and not asked.narrow and not visit.asked("cursor"),
        "delay": "",
        "delay_wrong": "",
        "ticked": (),
    }


async def parts(house: House, watched: Watched) -> Parts:
    """The rows of the first page, without a search: a search would read thousands of payloads each second."""
    members = dict(parse_qsl(watched.find))
    asked = Question(State(members["state"]), members.get("queue", ""), order=members.get("order", ""))
    queues = [asked.queue] if asked.queue else await house.queues(watched.queues)
    now_ms = await house.now_ms()
    told = {
        "now_ms": now_ms,
        "asked": asked,
        "found": await look(house, asked.sought(queues, now_ms), ""),
        "wrong": {},
        "writes": watched.role in (Scope.WRITE, Scope.ADMIN),
        "ticked": (),  # the script of the page ticks them again
        "mark": "",  # the script of the page fills in the viewer's own
        "here": asked.link(),
    }
    return {"job_table": house.renderer.text("parts/job_table.html", told)}


# -- those that were ticked ------------------------------------------------------------------------------------------

_DONE: Final = {"run-now": "due now", "reschedule": "rescheduled", "cancel": "cancelled", "archive": "archived"}
_ASKED: Final = {
    "run-now": ("Run {} now?", "Each is due at once, whatever its due time was.", "Run now"),
    "reschedule": ("Reschedule {}?", "Each is due {} from now.", "Reschedule"),
    "cancel": ("Cancel {}?", "They will not run. Their payloads are deleted; there is no undo.", "Cancel"),
    "archive": ("Archive {}?", "They will not run, and stand among the failed, where they can be retried.", "Archive"),
}
_WHY_NOT: Final = {
    "unknown": "gone",
    "running": "running already",
    "finished": "finished",
    "failed": "failed already",
    "refused": "in another state",
}


async def ask_picked(house: House, visit: Visit) -> Ask | Response | None:
    """The question with the number of jobs; the list again when nothing is ticked or the duration is mistyped."""
    act, chosen = _act(visit), picks(visit)
    where = inside(visit.filled("back") or "/jobs")
    if not chosen:
        return back(house, visit, where, "Nothing was changed: no job is ticked.")
    length = visit.filled("delay")
    if act == "reschedule":
        try:
            length = span(duration_ms(length))
        except InvalidInput as error:
            return await _again(house, visit, where, f"{error.message} {error.hint}".rstrip())
    title, what, button = _ASKED[act]
    jobs = plural(len(chosen), "job")
    needs = act in ("cancel", "archive")
    return Ask(title.format(jobs), what.format(length), f"{button} {jobs}", where, needs_reason=needs)


async def picked(house: House, visit: Visit) -> Response:
    """POST /jobs/picked: does it to each, and tells how many were done and why the others were not."""
    act, chosen = _act(visit), picks(visit)
    delay, reason = visit.filled("delay") or None, visit.filled("reason")
    detail = ", ".join(f"{queue}/{job_id}" for queue, job_id in chosen)
    await note(house, visit, f"bulk {act}", plural(len(chosen), "job"), detail[:2_000])
    doing = many.Act(act, delay if act == "reschedule" else None, reason=reason)
    found = await many.do(house.client, doing, chosen)
    done = many.done(found)
    if not done:
        outcomes.refused("It was done to none of these jobs.")
    house.health.forget()
    said = f"{plural(done, 'job')} {_DONE[act]}."
    left = [f"{number:,} {_WHY_NOT.get(word, word)}" for word, number in sorted(found.items()) if word in many.UNDONE]
    said += f" {len(chosen) - done:,} not: {', '.join(left)}." if left else ""
    return back(house, visit, inside(visit.filled("back") or "/jobs"), said)


def picks(visit: Visit) -> list[tuple[str, str]]:
    """Queue and id of each job that was ticked. Raises `WrongQueue` and `InvalidName`."""
    words = dict.fromkeys(visit.chosen("pick"))
    return [(visit.queue(queue), check_id(job_id)) for queue, _, job_id in (word.partition(" ") for word in words)]


def _act(visit: Visit) -> str:
    word = visit.filled("act")
    if word not in _ASKED:
        raise InvalidInput(f"{word!r} cannot be done to many jobs here.", hint=f"There are: {', '.join(_ASKED)}.")
    return word


async def look(house: House, sought: Sought, cursor: str) -> Found:
    """A page of what is sought."""
    return await house.client.run(browse(house.client.verbs, sought, cursor))
