"""A call of Redis as a value: the command, the function that reads its reply, and whether it may be sent twice."""

import re
from collections.abc import Callable, Iterable
from typing import Any, Final, Generic, TypeVar

import msgspec

from delayq.core.errors import BackendError
from delayq.redis.keys import OF_BATCH, OF_LIMIT, Keys
from delayq.redis.scripts import Script, load

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)
Word = str | bytes | int
Parse = Callable[[Any], T]

MAX_ROWS: Final = 250
"""Maximum number of jobs in one call. A call with more jobs would block the server too long for other clients."""

MAX_BYTES: Final = 1_000_000
"""Maximum size of all envelopes in one call, in bytes. A single envelope may be larger."""

_WITHOUT_KEY: Final = frozenset({"CLUSTER", "INFO", "PING", "SENTINEL", "TIME", "WAIT", "WAITAOF"})

_HASH_TAG: Final = re.compile(r":\{(.+?)(?:#\d+)?\}:")


class Call(msgspec.Struct, Generic[T_co], frozen=True, gc=False):
    """One command.

    * `words`: the command and its arguments.
    * `parse`: converts the raw RESP2 reply. All text in the reply is bytes.
    * `repeatable`: True if the call may be sent again after its reply was lost: the second call has no further effect
      that does harm, and the caller can use the second reply.
    * `script`: the script of an EVALSHA, so that the executor can send its text to a server that does not have it.
    * `reads_only`: True if the call changes nothing, so that a lost reply does no harm.
    """

    words: tuple[Word, ...]
    parse: Parse[T_co]
    repeatable: bool
    script: Script | None = None
    reads_only: bool = False

    @property
    def name(self) -> str:
        """The name of the call in messages: the script or command, and the queue, batch or limit."""
        name = self.script.name if self.script else str(self.words[0])
        of = next((found[1] for word in self.words[:4] if (found := _HASH_TAG.search(str(word)))), "")
        if of.startswith(OF_BATCH):
            return f"{name} of the batch {of.removeprefix(OF_BATCH)}"
        if of.startswith(OF_LIMIT):
            return f"{name} of the limit {of.removeprefix(OF_LIMIT)}"
        return f"{name} in the queue {of}" if of else name

    @property
    def key(self) -> str | None:
        """The first key of the call, or None for a command without a key."""
        if self.script is not None:
            return str(self.words[3]) if self.words[2] else None
        if self.words[0] in _WITHOUT_KEY:
            return None
        if self.words[0] in ("XREADGROUP", "EVAL"):
            return str(self.words[self.words.index("STREAMS") + 1 if self.words[0] == "XREADGROUP" else 3])
        return str(self.words[2 if self.words[0] == "XINFO" else 1])

    def words_with_text(self) -> tuple[Word, ...]:
        """Return the EVAL that is equivalent to this EVALSHA. A call without a script returns its own words."""
        if self.script is None:
            return self.words
        return ("EVAL", self.script.text, *self.words[2:])


def command(*words: Word, parse: Parse[T], repeatable: bool = True) -> Call[T]:
    """Return a call of a plain command."""
    return Call(words, parse, repeatable)


def read(*words: Word, parse: Parse[T]) -> Call[T]:
    """Return a call of a plain command that changes nothing."""
    return Call(words, parse, True, reads_only=True)


def script_call(
    script: Script,
    keys: tuple[str, ...],
    parse: Parse[T],
    *,
    repeatable: bool,
    reads_only: bool = False,
    rows: Iterable[tuple[Word, ...]] = (),
    **arguments: Word,
) -> Call[T]:
    """Return a call of a script. `arguments` have the names that the manual of the script declares; `rows` follow them.

    Raises TypeError for a missing or unknown name. Names prevent calls with arguments in the wrong order.
    """
    return Call(_words(script, keys, arguments, rows), parse, repeatable, script, reads_only)


def queue_call(
    name: str,
    keys: Keys,
    queue: str,
    parse: Parse[T],
    /,
    *,
    repeatable: bool = True,
    reads_only: bool = False,
    token: str = "",
    rows: Iterable[tuple[Word, ...]] = (),
    **arguments: Word,
) -> Call[T]:
    """Return a call of a script with the keys of one queue.

    `token` identifies this call, so that a script with the key `once` can recognise the call when it is sent again.
    '' = no token.
    """
    script = load(name)
    of_script = keys.of_script(script, queue)
    if token:
        of_script = tuple(
            f"{key}:{token}" if role == "once" else key for role, key in zip(script.keys, of_script, strict=True)
        )
    return Call(_words(script, of_script, arguments, rows), parse, repeatable, script, reads_only)


def _words(
    script: Script, keys: tuple[str, ...], arguments: dict[str, Word], rows: Iterable[tuple[Word, ...]]
) -> tuple[Word, ...]:
    try:
        ordered = [arguments[name] for name in script.arguments]
    except KeyError:
        ordered = []
    if len(ordered) != len(arguments):
        raise TypeError(f"{script.name}.lua has the arguments {script.arguments}, not {tuple(arguments)}")
    flat = [value for row in rows for value in row]
    return ("EVALSHA", script.sha, len(keys), *keys, *ordered, *flat)


def number(reply: bytes | None) -> int | None:
    """Convert a score or counter to an int. A fraction is cut off.

    Return None if the value is missing, infinite or not a number, because another program may have written it.
    """
    if not reply:
        return None
    try:
        return int(float(reply))
    except (ValueError, OverflowError):
        return None


def texts(words: Iterable[bytes]) -> list[str]:
    """Decode names and ids. Bytes that are not UTF-8 become U+FFFD, so that one entry does not stop a whole list."""
    return [word.decode("utf-8", "replace") for word in words]


def value_of(outcome: T | BackendError) -> T:
    """Return the value of one call of a round trip, or raise its error."""
    if isinstance(outcome, BackendError):
        raise outcome
    return outcome
