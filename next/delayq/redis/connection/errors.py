"""Errors of Redis: decides when a call is sent again, and which delayq error is raised otherwise."""

import builtins
import errno
import re
from typing import Final

from hiredis import pack_command
from redis.exceptions import (
    AskError,
    AuthenticationError,
    BusyLoadingError,
    ClusterDownError,
    ConnectionError,
    InvalidResponse,
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

from delayq.core.errors import BackendError, BackendFull, BackendUnavailable, CallRefused, LoginRefused
from delayq.redis.connection.leaf import ConnectionLost
from delayq.redis.connection.url import CLUSTER_FORM, SENTINEL_FORM, Address, form_like

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
"""Error codes, with a text for people. A call whose reply has one of these codes had no effect, and a retry may succeed
soon."""

_HINTS: Final = {
    "NOPERM": "Allow it in the ACL of this user. `delayq scripts export DIR` shows the commands of the scripts.",
    "NOGROUP": "The server lost the queue, or someone removed it. The janitor creates the queue again within seconds.",
    "WRONGTYPE": "Another program overwrote a key of this queue. To find the key, run `TYPE` on all keys of the queue.",
}

_OF_CLIENT_CERTIFICATE: Final = (
    "The server demands a client certificate. Name it in the url: "
    "?ssl_certfile=/path/cert.pem&ssl_keyfile=/path/key.pem."
)
_HINTS_OF_LOST: Final = (
    ("max number of clients", "Raise `maxclients` of the server, or close connections that are not needed."),
    (
        "mismatch",
        "In the url, use a host that the server's certificate names. Sentinels and nodes of a Cluster must announce "
        "such a host.",
    ),
    ("certificate has expired", "Renew the certificate of the server."),
    ("CERTIFICATE_REQUIRED", _OF_CLIENT_CERTIFICATE),
    ("certificate required", _OF_CLIENT_CERTIFICATE),
    ("alert unknown ca", "In ssl_certfile, name a client certificate that is signed by a CA that the server accepts."),
    (
        "Protocol error",
        "Check that the url is the address of a Redis server, and that it begins with rediss if its port uses TLS.",
    ),
    (
        "reset by peer",
        "Check that the server is running. If its port uses TLS, begin the url with rediss instead of redis.",
    ),
)
"""Parts of the texts of connection errors, each with the next step."""

_CODE_OF_TYPE: Final[dict[type, str]] = {
    ClusterDownError: "CLUSTERDOWN",
    MasterDownError: "MASTERDOWN",
    NoPermissionError: "NOPERM",
    NoScriptError: "NOSCRIPT",
    OutOfMemoryError: "OOM",
    ReadOnlyError: "READONLY",
    TryAgainError: "TRYAGAIN",
}
"""The error codes of those redis-py classes whose text lacks the code."""

_PLACE_IN_SCRIPT: Final = re.compile(
    r"(?:ERR )?Error running script \(call to \w+\): @user_script:\d+: -?|,? script: (?!.* script: ).*"
)
"""The position in the script at which the error occurred. The position does not help the caller, so it is removed.

Redis 6.2 writes the position before the error, and newer servers write it after the error.
"""

_ARGUMENTS: Final = re.compile(r",? with args beginning with: .*")
"""The part of the error reply to an unknown command that repeats the arguments of the command."""

_OF_LOGIN: Final = re.compile(r"NOAUTH|WRONGPASS|NOPERM|DB index|\b(?:AUTH|SELECT)\b")
"""Error replies about the user, the password or the database number, if redis-py has no type for them."""

_CODE: Final = re.compile(r"\b(?:OOM|NOSCRIPT|NOPERM|NOAUTH|WRONGTYPE|NOGROUP|" + "|".join(NOT_READY) + r")\b")


HELLO: Final = pack_command(("HELLO", 2))  # type: ignore[arg-type]  # the stub declares a tuple with one element
"""Asks a server for its mode. Every user may send it, whatever the ACL."""

CONNECTION_ERRORS: Final = (ConnectionError, TimeoutError, builtins.TimeoutError, InvalidResponse)
"""Errors that redis-py and sockets raise if a connection cannot be made or was lost, if no reply comes in time, or if
the server is not Redis.
"""

ERROR_REPLIES: Final = (ResponseError, BusyLoadingError, AuthenticationError)
"""Errors that redis-py raises for an error reply. The last two of these errors derive from ConnectionError of
redis-py, so catch them before CONNECTION_ERRORS."""


def error_reply(error: Exception) -> ResponseError:
    """Return an error reply as a ResponseError, with the error code if redis-py has removed it."""
    if isinstance(error, BusyLoadingError):
        return ResponseError(f"LOADING {error}")
    if isinstance(error, AuthenticationError):
        return ResponseError(f"NOAUTH {error}")
    assert isinstance(error, ResponseError)
    return error


def code_of(error: ResponseError) -> str:
    """Return the code of an error reply, or '' without a known code.

    The code may be anywhere in the text, because servers before version 7 put a prefix before errors of scripts.
    redis-py removes some codes from the text.
    """
    if type(error) in _CODE_OF_TYPE:
        return _CODE_OF_TYPE[type(error)]
    if "ACL failure in script" in str(error) or "The user executing the script" in str(error):
        return "NOPERM"
    if "unauthenticated" in str(error):  # the reply to a long command before the login
        return "NOAUTH"
    found = _CODE.search(str(error))
    return found[0] if found else ""


def is_not_ready(error: ResponseError) -> bool:
    """Return True if the same call may succeed soon."""
    return code_of(error) in NOT_READY


def may_be_replaced(error: ResponseError) -> bool:
    """Return True if another server may be the primary by now: this one is a replica, or has lost its replicas."""
    return code_of(error) in ("READONLY", "MASTERDOWN", "UNBLOCKED", "NOREPLICAS")


def is_unknown_command(error: Exception) -> bool:
    """Return True if the server does not know a command. Sentinels and servers that are not Redis reply in this way."""
    return "unknown command" in str(error)


def refusal(call: str, error: ResponseError, where: str) -> BackendError:
    """Return the delayq error for an error reply of the server at `where`. `call` is the name of the call."""
    code = code_of(error)
    if code in NOT_READY:
        return (KeysMoving if code == "TRYAGAIN" else BackendUnavailable)(
            f"Redis at {where} is not ready: {NOT_READY[code]}. Nothing was written.", hint="Try again later."
        )
    if code == "OOM":
        return BackendFull(
            f"Redis at {where} has reached its memory limit. Nothing was written.",
            hint="Raise maxmemory, or let workers drain the queues.",
        )
    words = _ARGUMENTS.sub("", _PLACE_IN_SCRIPT.sub("", str(error))).removesuffix(".")
    if isinstance(error, AskError):  # MOVED too
        return Redirected(
            f"Redis at {where} refused {call}: it is a node of a Redis Cluster.",
            hint=f"Write {form_like(where, CLUSTER_FORM)} instead of the address of one node.",
            slot=error.slot_id,
            node=error.node_addr,
            is_ask=not isinstance(error, MovedError),
        )
    hint = _if_sentinel(where) if is_unknown_command(error) else _HINTS.get(code, "")
    return CallRefused(f"Redis at {where} refused {call}: {words}.", hint=hint)


def _if_sentinel(where: str) -> str:
    return f"If this is the address of a sentinel, write {form_like(where, SENTINEL_FORM)}."


class KeysMoving(BackendUnavailable):
    """A node of a Redis Cluster is moving the keys of the call to another node. Its other keys can be used."""


class Redirected(CallRefused):
    """A node of a Redis Cluster named another node for a slot. The call had no effect.

    `node`: host and port of the other node. `is_ask`: the slot is moving, and only this call goes to the other node.
    """

    def __init__(self, message: str, *, hint: str, slot: int, node: tuple[str, int], is_ask: bool) -> None:
        super().__init__(message, hint=hint)
        self.slot = slot
        self.node = node
        self.is_ask = is_ask


def login_error(address: Address, error: Exception) -> LoginRefused | ConnectionLost:
    """Return the error for an error reply that the server at `address` gave before the end of the login.

    Some replies concern the login itself. Others, such as "max number of clients reached", may not come again, so the
    login is tried again.
    """
    reason = _ARGUMENTS.sub("", str(error)).rstrip(".?")
    if not isinstance(error, AuthenticationError | NoPermissionError) and not _OF_LOGIN.search(reason):
        return ConnectionLost(f"it refused the connection: {reason}", sent=False)
    hint = "Check the user, the password and the database number in the url."
    if is_unknown_command(error):
        hint = _if_sentinel(address.masked)
    elif "Authentication required" in reason:
        hint = f"Put the password into the url: {address.form_with_password}."
    elif "without any password" in reason:
        hint = "Remove the password from the url, or set the password on the server."
    return LoginRefused(f"Redis at {address.masked} refused the login: {reason}.", hint=hint, field="url")


def check_mode(hello: object, where: str) -> None:
    """Raise LoginRefused if the reply to HELLO comes from a sentinel or from a node of a cluster.

    `where`: the address of the server, without secrets.
    """
    words = hello if isinstance(hello, list) else []
    mode = dict(zip(words[::2], words[1::2], strict=False)).get(b"mode")
    kinds = {b"cluster": ("a node of a Redis Cluster", CLUSTER_FORM), b"sentinel": ("a sentinel", SENTINEL_FORM)}
    if mode in kinds:
        kind, form = kinds[mode]
        raise LoginRefused(
            f"The server at {where} is {kind}. The request was not sent.",
            hint=f"Write {form_like(where, form)} instead.",
            field="url",
        )


def is_logged_in(error: Exception) -> bool:
    """Return True if this error reply to the PING after a login shows that the login succeeded.

    "Not ready" and "no permission for PING" are errors that come only after a successful login.
    """
    return code_of(error_reply(error)) in (*NOT_READY, "NOPERM")


def why_lost(error: BaseException) -> str:
    """Return the reason for a lost connection or reply, as a text for people."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, OSError) and cause.errno in (errno.EMFILE, errno.ENFILE):
            return "this process has too many open files (EMFILE); raise `ulimit -n`, or close unused files"
        if isinstance(cause, builtins.TimeoutError | BlockingIOError):
            return "no reply came in time"
        cause = cause.__cause__ or cause.__context__
    return str(error).removesuffix(".") or type(error).__name__


def hint_of_lost(reason: str, where: str) -> str:
    """Return the next step after a connection that could not be made or was lost.

    `reason`: the text of the failure. `where`: the address, without secrets.
    """
    for text, hint in _HINTS_OF_LOST:
        if text in reason:
            return hint
    if "certificate verify failed" in reason:
        if "ssl_ca_path=" in where:
            return "Run `openssl rehash DIRECTORY` on the directory of ssl_ca_path, which must contain the CA."
        if "ssl_ca_certs=" in where:
            return (
                "The file of ssl_ca_certs must contain the certificate of the CA that signed the server's certificate."
            )
        return "In the url, name the file with the CA certificate of the server: ?ssl_ca_certs=/path/ca.pem."
    if where.startswith("rediss"):
        return (
            "Check that the server is running, that the url is right, that its port uses TLS, and whether the server "
            "demands a client certificate."
        )
    return "Check that the server is running and that the url is right."
