"""Which member of a request an error of delayq's is about. Asked only when something was refused."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final

from delayq.core.backoff import parse_backoff
from delayq.core.durability import parse_durability
from delayq.core.durations import duration_ms
from delayq.core.errors import ConfigError, DelayqError, InvalidInput
from delayq.core.names import check_id, check_job_name, check_queue
from delayq.core.spec import check_headers, check_tags
from delayq.http.bodies import invalid
from delayq.http.problems import Problem, Refused, Wrong, of_error

_CHECKS: Final[dict[str, Callable[[Any], object]]] = {
    "name": check_job_name,
    "queue": check_queue,
    "id": check_id,
    "delay": duration_ms,
    "backoff": parse_backoff,
    "retention": duration_ms,
    "timeout": duration_ms,
    "headers": check_headers,
    "tags": check_tags,
    "durability": parse_durability,
    "wait": duration_ms,
    "older": duration_ms,
    "span": duration_ms,
    "length": duration_ms,
}
_MENTIONED: Final = (
    "deadline",
    "retry_until",
    "tries",
    "max_exceptions",
    "unique_for",
    "unique",
    "encrypted",
    "fold",
    "tz",
    "at",
)


@contextmanager
def told_by(struct: Any, *, before: str = "#/") -> Iterator[None]:
    """Inside, what delayq refuses becomes a problem that names the member of `struct`."""
    try:
        yield
    except InvalidInput as error:
        raise Refused(problem(error, struct, before=before)) from error
    except ConfigError as error:
        if not getattr(struct, "encrypted", None):
            raise
        raise Refused(invalid(f"{before}encrypted", error.message)) from error  # this server has no key


def problem(error: InvalidInput, struct: Any, *, before: str = "#/") -> Problem:
    """The problem of an error about that struct; `before` stands in front of its members' names."""
    found = of_error(error)
    name = member_of(error, struct)
    pointer = f"{before}{name}" if name else before.rstrip("/") or "#"
    wrong = [Wrong(pointer, error.message)]
    return Problem(found.status, found.kind, f"{pointer}: {error.message}", error.hint, wrong)


def member_of(error: DelayqError, struct: Any) -> str:
    """The name of the member that raises this very error when it is checked alone; '' when none does."""
    names: Sequence[str] = struct.__struct_fields__
    for name in names:
        value = getattr(struct, name)
        check = _CHECKS.get(name)
        if value is not None and check is not None and _raises(error, check, value):
            return name
    if getattr(struct, "at", None) is not None and type(error).__name__ == "InvalidTime":
        return "at"
    if "payload" in error.message.lower() and "data" in names:
        return "data"
    return next((name for name in _MENTIONED if name in names and _says(error.message, name)), "")


def _says(message: str, name: str) -> bool:
    return name in message.replace("=", " ").replace(",", " ").split()


def _raises(error: DelayqError, check: Callable[[Any], object], value: Any) -> bool:
    try:
        check(value)
    except DelayqError as raised:
        return raised.message == error.message
    return False
