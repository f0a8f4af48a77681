"""What went wrong with Redis, and what it means for the caller. The only reader of redis-py's exceptions.

    kind      codes and causes                                            what helps
    RETRY     no connection, timeouts, LOADING, BUSY, MISCONF, TRYAGAIN,  the same call a little later
              CLUSTERDOWN, NOREPLICAS, too many clients
    RESOLVE   READONLY, MASTERDOWN, UNBLOCKED, demoted master             the same, over new connections
    FULL      OOM                                                         room; nothing was written
    CONFIG    NOAUTH, WRONGPASS, NOPERM, wrong database, TLS, MOVED,      a person
              a service that the sentinels do not know
    DAMAGE    WRONGTYPE, NOGROUP                                          tidy, or a person
    BUG       everything else                                             us

**Was it sent?** redis-py raises the same ConnectionError for a refused connect and for a reply cut off
half-way, but only the second leaves the outcome open. What fails while a connection is got ready (pool,
connect, handshake) is raised from inside those functions of redis-py, before a byte of the command goes out, so the
traceback tells them apart: for all topologies, sync and asyncio, redis-py 6.2 to 8. In doubt: sent.
"""

from __future__ import annotations

import re
import ssl
from collections.abc import Iterator
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import TypeVar

from redis import exceptions

from delayq.redis.bounded import ReplyTooLarge

E = TypeVar("E", bound=BaseException)

REDIS_ERRORS = (exceptions.RedisError, exceptions.RedisClusterException, OSError)
"""All that a client of ours may raise."""

_OF_THE_WAY = (
    exceptions.ConnectionError,
    exceptions.TimeoutError,
    exceptions.RedisClusterException,
    exceptions.InvalidResponse,
)
_TLS_FOR_A_PERSON = frozenset({"WRONG_VERSION_NUMBER", "TLSV13_ALERT_CERTIFICATE_REQUIRED", "TLSV1_ALERT_UNKNOWN_CA"})
# Functions of redis-py that prepare a connection; see the module's docstring.
_PREPARING = frozenset({"get_connection", "ensure_connection", "connect", "connect_check_health", "initialize"})


class NothingSent(exceptions.ConnectionError):
    """Nothing went out: nobody told where to."""


class NodeHangs(NothingSent):
    """Nothing went out: the node that has the key is known to answer nothing (see `hanging`)."""


class NoPrimary(NothingSent):
    """Nothing went out: no sentinel names a primary that is up.

    `why` is what kept the one at `sentinel` from naming it; None when the sentinels know the primary, and it is down.
    """

    def __init__(self, why: Exception | None = None, *, sentinel: tuple[str, int] | None = None) -> None:
        super().__init__("the sentinels report it as down" if why is None else "no sentinel names a primary")
        self.why, self.sentinel = why, sentinel


class Kind(StrEnum):
    """What helps against a fault; the table is in the module's docstring."""

    RETRY = "retry"
    RESOLVE = "resolve"
    FULL = "full"
    CONFIG = "config"
    DAMAGE = "damage"
    BUG = "bug"


AGAIN = (Kind.RETRY, Kind.RESOLVE)
"""What a later try may get over."""


@dataclass(frozen=True, slots=True)
class Fault:
    """One error of Redis or of the way to it."""

    kind: Kind
    code: str
    """The server's own word for it ('OOM'), or empty for a fault of the connection."""
    reply_lost: bool
    """The command went out and no answer came: it may or may not have been carried out."""
    apart: bool = False
    """Other nodes of the same cluster may well be there."""


_KINDS = {
    "LOADING": Kind.RETRY,
    "BUSY": Kind.RETRY,
    "MISCONF": Kind.RETRY,
    "TRYAGAIN": Kind.RETRY,
    "CLUSTERDOWN": Kind.RETRY,
    "NOREPLICAS": Kind.RETRY,
    "MAXCLIENTS": Kind.RETRY,
    "READONLY": Kind.RESOLVE,
    "MASTERDOWN": Kind.RESOLVE,
    "UNBLOCKED": Kind.RESOLVE,
    "OOM": Kind.FULL,
    "NOAUTH": Kind.CONFIG,
    "WRONGPASS": Kind.CONFIG,
    "NOPERM": Kind.CONFIG,
    "MOVED": Kind.CONFIG,
    "NODB": Kind.CONFIG,
    "NOCLUSTER": Kind.CONFIG,
    "NOSERVICE": Kind.CONFIG,
    "NOSENTINEL": Kind.CONFIG,
    "WRONGTYPE": Kind.DAMAGE,
    "NOGROUP": Kind.DAMAGE,
}
# redis-py takes the code out of the text of these.
_CLASSES: tuple[tuple[type[Exception], str], ...] = (
    (exceptions.BusyLoadingError, "LOADING"),
    (exceptions.NoPermissionError, "NOPERM"),
    (exceptions.OutOfMemoryError, "OOM"),
    (exceptions.ReadOnlyError, "READONLY"),
    (exceptions.MasterDownError, "MASTERDOWN"),  # before its base class
    (exceptions.ClusterDownError, "CLUSTERDOWN"),
    (exceptions.TryAgainError, "TRYAGAIN"),
    (exceptions.MovedError, "MOVED"),
)
# Errors whose code is missing, or just ERR.
_TEXTS = (
    ("max number of clients reached", "MAXCLIENTS"),
    ("previous master is now a slave", "READONLY"),
    ("previous master is now a replica", "READONLY"),
    ("DB index is out of range", "NODB"),
    ("Cluster mode is not enabled", "NOCLUSTER"),
    ("cluster support disabled", "NOCLUSTER"),
    ("can't run this command", "NOPERM"),
    ("ACL failure in script", "NOPERM"),
    ("No such master with that name", "NOSERVICE"),
    ("unknown command 'SENTINEL'", "NOSENTINEL"),
    ("unknown command `SENTINEL`", "NOSENTINEL"),  # Redis 6.2
    ("the stream key no longer exists", "NOGROUP"),  # UNBLOCKED, of Redis 7.0: deleted under a blocked reader
)
# A pipeline puts 'Command # 1 (...) of pipeline caused error: ' before the server's text, and Redis 6.2 writes
# 'Error running script (call to f_1f2e): @user_script:1: @user_script: 1: -OOM ...' for an error inside a script.
_PIPELINE = re.compile(r"^Command # \d+ \(.*?\) of pipeline caused error: ", re.DOTALL)
_PLACE = "delayq: about "
_APART = "delayq: one node of a cluster"
_PRIMARY = "delayq: the primary behind sentinels "
_SCRIPT = re.compile(r"^Error running script \(call to \S+\): (?:@user_script: ?\d+: ?)+-?")
_SCRIPT_PLACE = re.compile(r"[,.]? *(script: ([0-9a-f]+, )?)?on @user_script:\d+\.?")
_AGAIN_LATER = re.compile(r" *(You can only call SCRIPT KILL or SHUTDOWN NOSAVE\.|Try again later\.?)")
_CODE = re.compile(r"^([A-Z]{2,})\b")


def fault_of(error: BaseException, *, outside: BaseException | None = None) -> Fault:
    """Classify `error`. `outside` is what the caller's caller was handling already; its story is not ours."""
    apart = bool(_notes(error, _APART)) and not isinstance(error, ReplyTooLarge)
    return replace(_fault(error, outside), apart=apart)


def _fault(error: BaseException, outside: BaseException | None) -> Fault:
    if isinstance(error, NoPrimary) and error.why is not None:
        return replace(_fault(error.why, None), reply_lost=False)
    code = _code(error)
    if code:
        return Fault(_KINDS.get(code, Kind.BUG), code, reply_lost=False)
    story = list(_story(error, outside))
    # A cluster client refreshes its map after a failure; when that fails too, the first failure is the context of
    # the second, and one lost reply is enough.
    of_the_way = [
        part for part in story if isinstance(part, _OF_THE_WAY) or (part is error and isinstance(part, OSError))
    ]
    lost = any(_may_have_arrived(part) for part in of_the_way)
    if any(isinstance(part, PermissionError) or _is_tls(part) for part in story):
        return Fault(Kind.CONFIG, "", reply_lost=lost)
    if isinstance(error, exceptions.InvalidResponse) and not lost:
        return Fault(Kind.CONFIG, "", reply_lost=False)
    return Fault(Kind.RETRY if error in of_the_way else Kind.BUG, "", reply_lost=lost)


def is_silence(error: BaseException) -> bool:
    """Whether an error means that no answer came in time; one of the kernel's clock, or of redis-py's."""
    silences = (TimeoutError, exceptions.TimeoutError, BlockingIOError)
    return any(isinstance(part, silences) for part in _story(error, None))


def is_pool_empty(error: BaseException) -> bool:
    """Whether all connections of the pool were in use, so that nothing was asked of the server."""
    return isinstance(error, exceptions.MaxConnectionsError) or "No connection available" in str(error)


def of_a_part(error: Exception, node: tuple[str, int] | None = None) -> Exception:
    """Note with an error that it is about one node of several, and which; returns it."""
    error.add_note(_APART if node is None else f"{_APART} {node[0]}:{node[1]}")
    return error


def node_of(error: BaseException) -> str:
    """Which node of a cluster an error is about ('127.0.0.1:7001'); '' if nothing says so."""
    return next((note.removeprefix(_APART).strip() for note in _notes(error, _APART) if note != _APART), "")


def of_primary(error: E, address: tuple[str, int]) -> E:
    """Note with an error which primary behind sentinels it is about; returns it."""
    error.add_note(f"{_PRIMARY}{address[0]}:{address[1]}")
    return error


def primary_of(error: BaseException) -> str:
    """Which primary behind sentinels an error is about ('127.0.0.1:7001'); '' if nothing says so."""
    return next((note.removeprefix(_PRIMARY) for note in _notes(error, _PRIMARY)), "")


def _notes(error: BaseException, start: str) -> list[str]:
    return [note for note in getattr(error, "__notes__", ()) if note.startswith(start)]


def text_of(error: BaseException) -> str:
    """What the server said, without redis-py's and the script engine's words before it; one line."""
    text = _SCRIPT.sub("", _PIPELINE.sub("", str(error)))
    return text.splitlines()[0][:300] if text else type(error).__name__


def said(error: BaseException) -> str:
    """What the server said, for the middle of a sentence: without the place in a script, without its full stop."""
    text = _AGAIN_LATER.sub("", _SCRIPT_PLACE.sub("", text_of(error)))
    return text.rstrip(" .,")


def tell_place(error: BaseException, place: str) -> None:
    """Note with an error which queue or key it is about; the server's own words do not say."""
    error.add_note(_PLACE + place)


def place_of(error: BaseException) -> str:
    """What `tell_place` noted; '' for nothing."""
    return next((note.removeprefix(_PLACE) for note in _notes(error, _PLACE)), "")


def _code(error: BaseException) -> str:
    if isinstance(error, exceptions.MaxConnectionsError):
        return ""
    for kind, code in _CLASSES:
        if isinstance(error, kind):
            return code
    text = text_of(error)
    for piece, code in _TEXTS:
        if piece in text:
            return code
    if isinstance(error, exceptions.AuthenticationError):
        return "NOAUTH" if "required" in text or "already authenticated" in text else "WRONGPASS"
    if not isinstance(error, exceptions.ResponseError):
        return ""
    found = _CODE.match(text)
    return found[1] if found else "ERR"


def _story(error: BaseException, outside: BaseException | None) -> Iterator[BaseException]:
    part: BaseException | None = error
    while part is not None and part is not outside:
        yield part
        part = part.__cause__ or part.__context__


def _may_have_arrived(error: BaseException) -> bool:
    if isinstance(error, exceptions.MaxConnectionsError | NothingSent) or _code(error):
        return False  # not sent, or answered
    trace = error.__traceback__
    while trace is not None:
        frame = trace.tb_frame
        if frame.f_code.co_name in _PREPARING and str(frame.f_globals.get("__name__", "")).startswith("redis."):
            return False
        trace = trace.tb_next
    return True


def _is_tls(error: BaseException) -> bool:
    # Other errors of TLS, such as an end of file in the middle, are faults of the network.
    return isinstance(error, ssl.SSLCertVerificationError) or getattr(error, "reason", "") in _TLS_FOR_A_PERSON
