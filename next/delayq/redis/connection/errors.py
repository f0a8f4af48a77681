"""Errors of a server: whether a call is sent again, or which error of delayq is raised."""

import builtins
import errno
import re
from typing import Final

from redis.exceptions import (
    AuthenticationError,
    BusyLoadingError,
    ClusterDownError,
    ConnectionError,
    MasterDownError,
    MovedError,
    NoPermissionError,
    NoScriptError,
    OutOfMemoryError,
    ReadOnlyError,
    ResponseError,
    TimeoutError,
    TryAgainError,
)

from delayq.core.errors import BackendError, BackendFull, BackendUnavailable, CallRefused, ConfigError

NOT_READY: Final = {
    "LOADING": "it is loading its data",
    "BUSY": "it is busy with a long script",
    "MISCONF": "it refuses writes because it cannot save to disk",
    "NOREPLICAS": "it refuses writes because too few replicas follow it",
    "READONLY": "it is a read-only replica",
    "MASTERDOWN": "it is a replica that has lost its primary",
    "UNBLOCKED": "it has just become a replica",
    "TRYAGAIN": "it is moving these keys to another node",
    "CLUSTERDOWN": "a part of its cluster is missing",
}
"""A call that is answered with one of these had no effect, and may work in a moment."""

_HINTS: Final = {
    "NOPERM": "Allow it in the ACL of this user; `delayq scripts export DIR` shows what the scripts call.",
    "NOGROUP": "The server lost the queue, or someone removed it; the janitor makes it anew within seconds.",
    "NOAUTH": "Put the password into the url: redis://:password@host:6379/0.",
    "WRONGTYPE": "A key of this queue was overwritten; `TYPE` of its keys shows which one.",
    "MOVED": "This server is a node of a cluster: use redis+cluster:// in the url.",
}

_CODE_OF_TYPE: Final[dict[type, str]] = {
    ClusterDownError: "CLUSTERDOWN",
    MasterDownError: "MASTERDOWN",
    MovedError: "MOVED",
    NoPermissionError: "NOPERM",
    NoScriptError: "NOSCRIPT",
    OutOfMemoryError: "OOM",
    ReadOnlyError: "READONLY",
    TryAgainError: "TRYAGAIN",
}
"""The errors from whose texts redis-py takes the code off."""

_PLACE_IN_SCRIPT: Final = re.compile(r",? script: (?!.* script: ).*")
"""The place in a script where the server met the error, which is of no use to the caller."""

_CODE: Final = re.compile(r"\b(?:OOM|NOSCRIPT|NOPERM|NOAUTH|WRONGTYPE|NOGROUP|MOVED|" + "|".join(NOT_READY) + r")\b")


CONNECTION_ERRORS: Final = (ConnectionError, TimeoutError, builtins.TimeoutError)
"""Raised by redis-py and sockets when there is no connection, or no answer."""

ERROR_REPLIES: Final = (ResponseError, BusyLoadingError, AuthenticationError)
"""Raised by redis-py for a reply that is an error. redis-py counts the last two as lost connections."""


def error_reply(error: Exception) -> ResponseError:
    """Return an error reply as a ResponseError with its code, which redis-py takes off."""
    if isinstance(error, BusyLoadingError):
        return ResponseError(f"LOADING {error}")
    if isinstance(error, AuthenticationError):
        return ResponseError(f"NOAUTH {error}")
    assert isinstance(error, ResponseError)
    return error


def code_of(error: ResponseError) -> str:
    """Return the code of an error reply; '' for one without a known code.

    redis-py takes some codes off, and a server before 7 puts its own words in front of what a script met.
    """
    if type(error) in _CODE_OF_TYPE:
        return _CODE_OF_TYPE[type(error)]
    if "ACL failure in script" in str(error) or "The user executing the script" in str(error):
        return "NOPERM"
    if "unauthenticated" in str(error):  # the answer to a long command before the log-in
        return "NOAUTH"
    found = _CODE.search(str(error))
    return found[0] if found else ""


def is_not_ready(error: ResponseError) -> bool:
    """Whether the same call may work in a moment."""
    return code_of(error) in NOT_READY


def is_of_replica(error: ResponseError) -> bool:
    """Whether the error says that the server is, or has become, a replica."""
    return code_of(error) in ("READONLY", "MASTERDOWN", "UNBLOCKED")


def refusal(call: str, error: ResponseError, where: str) -> BackendError:
    """Return the error to raise when the server at `where` answers a call with an error."""
    code = code_of(error)
    if code in NOT_READY:
        return BackendUnavailable(
            f"Redis at {where} is not ready: {NOT_READY[code]}. Nothing was written.", hint="Try again later."
        )
    if code == "OOM":
        return BackendFull(
            f"Redis at {where} has reached its memory limit. Nothing was written.",
            hint="Raise maxmemory, or let workers drain the queues.",
        )
    words = _PLACE_IN_SCRIPT.sub("", str(error)).removesuffix(".")
    return CallRefused(f"Redis at {where} refused {call}: {words}.", hint=_HINTS.get(code, ""))


def refused_login(where: str, error: Exception) -> ConfigError:
    """Return the error to raise when the server at `where` refuses a log-in. Another try would not help."""
    return ConfigError(
        f"Redis at {where} refused the log-in: {str(error).removesuffix('.')}.",
        hint="Check the user, the password and the number of the database in the url.",
        field="url",
    )


def why_lost(error: BaseException) -> str:
    """Return in words why there was no connection, or no answer."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, OSError) and cause.errno in (errno.EMFILE, errno.ENFILE):
            return "this process has too many open files (EMFILE): raise `ulimit -n`, or close what it no longer needs"
        if isinstance(cause, builtins.TimeoutError | BlockingIOError):
            return "no answer came in time"
        cause = cause.__cause__ or cause.__context__
    return str(error).removesuffix(".") or type(error).__name__
