"""One request, read: who makes it, what its address and its form say."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from urllib.parse import urlencode

from starlette.requests import Request

from delayq.core.errors import InvalidInput
from delayq.core.names import check_queue
from delayq.core.states import State
from delayq.http.dashboard.viewer import Viewer


class WrongQueue(InvalidInput):
    """The key does not cover the queue."""


class NotAllowed(InvalidInput):
    """The page covers all queues, and the key covers some."""


@dataclass(frozen=True, slots=True)
class Visit:
    """A request and its viewer. `form` holds the fields of a form that was sent, each with all its values."""

    request: Request
    viewer: Viewer
    form: Mapping[str, list[str]] = field(default_factory=dict)

    def asked(self, name: str) -> str:
        """A member of the address, or ''."""
        return self.request.query_params.get(name, "").strip()

    def filled(self, name: str) -> str:
        """A field of the form, or ''."""
        return next(iter(self.form.get(name, ())), "").strip()

    def chosen(self, name: str) -> list[str]:
        """All values of a field: the boxes that were ticked."""
        return self.form.get(name, [])

    def queue(self, given: str) -> str:
        """A queue's name that this viewer may use. Raises `InvalidName`, and `WrongQueue` for another."""
        name = check_queue(given)
        if not self.viewer.caller.sees(name):
            raise WrongQueue(f"Your key does not cover the queue {name}.", hint="Ask for a key that does.")
        return name

    def state(self, given: str, otherwise: State) -> State:
        """A state by its name. Raises `InvalidInput`."""
        state = State(given) if given else otherwise
        if state is State.ABSENT:
            raise InvalidInput("Absent jobs cannot be listed.", hint="Choose one of the states above.")
        return state


def all_queues(visit: Visit) -> None:
    """Raise `NotAllowed` for a key for some queues, on pages that belong to no queue."""
    if visit.viewer.queues:
        raise NotAllowed("This page covers all queues, and your key is for some.", hint="It needs a key for all.")


def here(request: Request) -> str:
    """The address of the page that was asked for, on this server."""
    query = request.url.query
    return f"{request.url.path}?{query}" if query else request.url.path


def link(path: str, **members: str | int | None) -> str:
    """An address on this server; members that say nothing are left out."""
    said = {name: str(value) for name, value in members.items() if value not in (None, "")}
    return f"{path}?{urlencode(said)}" if said else path


def job_link(queue: str, job_id: str) -> str:
    """Where a job's page is. An id may hold anything printable, so it is no part of the path."""
    return link("/job", queue=queue, id=job_id)
