"""From a fault of Redis to the error a user of delayq sees: cause, place, next step. Never a password."""

from __future__ import annotations

import os
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from typing import assert_never

from redis import exceptions

from delayq.core.errors import (
    BackendDamaged,
    BackendError,
    BackendFull,
    BackendUnavailable,
    ConfigError,
    DelayqError,
    OutcomeUnknown,
    ProtocolError,
)
from delayq.redis.faults import (
    REDIS_ERRORS,
    Fault,
    Kind,
    NoPrimary,
    fault_of,
    node_of,
    place_of,
    primary_of,
    said,
    tell_place,
)

_CHECK = "Check DELAYQ_URL, or the url of its connection"
_NODE_DOWN = "Start this node again, or let a replica take over. What lies on the other nodes can be used."
_PRIMARY_DOWN = "Start it again, or wait until the sentinels name another primary."
_HUNG_UP = "the server hung up: it speaks none there, or wants a certificate (ssl_certfile, ssl_keyfile)"
_NOT_READY = {
    "LOADING": "is still loading its data",
    "BUSY": "is busy with a long script",
    "MISCONF": "refuses writes because it cannot save to disk",
    "TRYAGAIN": "is moving these keys between nodes",
    "CLUSTERDOWN": "is a cluster with a part missing",
    "NOREPLICAS": "refuses writes because too few replicas follow it",
    "MAXCLIENTS": "has reached its limit of clients",
    "READONLY": "is a read-only replica",
    "MASTERDOWN": "is a replica that has lost its primary",
    "UNBLOCKED": "has just become a replica",
}
_NO_WRITES = {
    "MISCONF": "Free its disk, or let it write to its directory; `delayq doctor` says what it could not save.",
    "NOREPLICAS": "Bring its replicas back.",
    "READONLY": "Try again later; if it stays so, put the address of the primary into DELAYQ_URL.",
}
"""Codes of servers that answer and refuse writes, and what helps."""
_MISCONFIGURED = {
    "NOAUTH": (
        "wants a password",
        "Put it in DELAYQ_URL, or its connection's url: redis://:password@host:6379/0.",
    ),
    "WRONGPASS": (
        "refused the user or the password",
        "Check the login in DELAYQ_URL, or its connection's url.",
    ),
    "NOPERM": (
        "forbids this user a command or a key",
        "See the ACL of that user; delayq's needs are in docs/protocol.md.",
    ),
    "MOVED": ("is a node of a cluster", "Use redis+cluster:// in DELAYQ_URL."),
    "NODB": ("has no database of that number", "Check the number at the end of DELAYQ_URL."),
    "NOCLUSTER": ("is no cluster", "Use redis:// in DELAYQ_URL."),
}
_SENTINEL_LOGIN = "in DELAYQ_URL, or its connection's url: redis+sentinel://host:26379/service/0?sentinel_password=..."
_SENTINEL_REFUSES = {
    "NOAUTH": ("wants a password", f"Put sentinel_password {_SENTINEL_LOGIN}"),
    "WRONGPASS": (
        "refused the user or the password",
        f"Check sentinel_username and sentinel_password {_SENTINEL_LOGIN}",
    ),
    "NOPERM": (
        "forbids this user a command",
        "Allow sentinel_username `SENTINEL MASTER` (ACL rules +sentinel|master +auth +client|setname).",
    ),
    "NOSERVICE": (
        "does not know the service",
        "Check the name of the service in DELAYQ_URL, or its connection's url: redis+sentinel://host:26379/service/0.",
    ),
    "NOSENTINEL": ("is no sentinel", "Check host and port in DELAYQ_URL, or use redis://."),
}


def translate(error: BaseException, *, where: str, fault: Fault | None = None, reads: bool = False) -> DelayqError:
    """The error to raise from `error`. `where` names the server; `reads` says that the call changes nothing."""
    fault = fault or fault_of(error)
    if node := node_of(error):
        where = f"{node}, a node of {where},"
    elif primary := primary_of(error):
        where = f"{primary}, the primary behind {where},"
    told = _told(error, where, fault, reads=reads)
    if isinstance(told, BackendError):
        told.apart = fault.apart
    return told


def _told(error: BaseException, where: str, fault: Fault, *, reads: bool) -> DelayqError:
    if fault.kind is Kind.CONFIG and isinstance(error, NoPrimary) and error.why and error.sentinel:
        host, port = error.sentinel
        refusal, hint = _SENTINEL_REFUSES.get(fault.code, ("cannot be used", f"{_CHECK}."))
        answer = said(error.why) if fault.code else _reason(error.why)
        return ConfigError(f"The sentinel {host}:{port}, one of {where}, {refusal}: {answer}.", hint=hint)
    if fault.reply_lost and not reads:
        now = f" (now it says: {said(error)})" if fault.code else f" ({_reason(error)})"
        return OutcomeUnknown(
            f"Redis at {where} gave no answer to a command that was sent{now}; its outcome is unknown.",
            hint="Look the job up by its id, or send the same call again: the same id is the same job.",
        )
    match fault.kind:
        case Kind.RETRY | Kind.RESOLVE:
            if state := _NOT_READY.get(fault.code):
                hint = _NO_WRITES.get(fault.code, "Try again later.")
                unavailable = BackendUnavailable(f"Redis at {where} {state}: {said(error)}.", hint=hint)
                unavailable.refuses_writes = fault.code in _NO_WRITES
                return unavailable
            hint = f"Is it running? {_CHECK}."
            if node_of(error):
                hint = _NODE_DOWN
            elif primary_of(error):
                hint = _PRIMARY_DOWN
            return BackendUnavailable(f"Redis at {where} cannot be reached: {_reason(error)}.", hint=hint)
        case Kind.FULL:
            return BackendFull(
                f"Redis at {where} is at its memory limit (maxmemory); nothing was written.",
                hint="Give it more memory, or let workers finish what is waiting.",
            )
        case Kind.CONFIG:
            state, hint = _MISCONFIGURED.get(fault.code, ("cannot be used", f"{_CHECK}, and the rights on it."))
            why = said(error) if fault.code else _reason(error)
            return ConfigError(f"Redis at {where} {state}: {why}.", hint=hint)
        case Kind.DAMAGE:
            return BackendDamaged(
                f"A key of {place_of(error) or 'delayq'} on Redis at {where} is missing or holds something else: "
                f"{said(error)}.",
                hint="Another program wrote there: `delayq doctor` names the key; rename or delete it and all goes on.",
            )
        case Kind.BUG:
            return ProtocolError(f"Redis at {where} gave an answer delayq does not know: {said(error)}.")
        case _:
            assert_never(fault.kind)


@contextmanager
def translated(where: str, *, reads: bool = False, place: str = "") -> Iterator[None]:
    """Raise the errors of redis-py inside the block as delayq's own; nothing is sent again.

    `place`: the queues or the key the block is about, for the sentence.
    """
    try:
        yield
    except REDIS_ERRORS as error:
        if place:
            tell_place(error, place)
        raise translate(error, where=where, reads=reads) from error


def _reason(error: BaseException) -> str:
    if isinstance(error, NoPrimary) and error.why:
        return f"{said(error)}, {_reason(error.why)}"
    part: BaseException | None = error
    while part is not None:
        if isinstance(part, ssl.SSLError):  # an OSError too, but its errno counts TLS's own errors
            why = getattr(part, "verify_message", "") or getattr(part, "reason", "")
            return f"TLS failed, {why.replace('_', ' ').lower().rstrip('.') if why else _HUNG_UP}"
        # The system's own words; redis-py and asyncio wrap them in theirs and repeat the host.
        if isinstance(part, BlockingIOError):  # the kernel's timeout; see `sockets`
            return "no answer in time"
        if isinstance(part, OSError) and part.errno:
            # Negative numbers are the resolver's.
            words = os.strerror(part.errno) if part.errno > 0 else str(part.strerror)
            return words[:1].lower() + words[1:]
        part = part.__cause__ or part.__context__
    return "no answer in time" if isinstance(error, exceptions.TimeoutError) else said(error)
