"""A call of Redis as a value: what to send, how to read the answer, and whether it may be sent twice."""

import re
from collections.abc import Callable, Iterable
from typing import Any, Final, Generic, TypeVar

import msgspec

from delayq.core.errors import BackendError
from delayq.redis.keys import Keys
from delayq.redis.scripts import Script, load

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)
Word = str | bytes | int
Parse = Callable[[Any], T]

MAX_ROWS: Final = 250
"""Jobs in one call: more would hold the server for longer than other clients like to wait."""

MAX_BYTES: Final = 1_000_000
"""Payload in one call, but one job at least."""

_QUEUE: Final = re.compile(r":\{(.+?)\}:")


class Call(msgspec.Struct, Generic[T_co], frozen=True, gc=False):
    """One command. `parse` reads the raw RESP2 reply, in which all text is bytes.

    `repeatable`: sent twice, it has the effect of being sent once, and the answers agree. `reads_only`: it changes
    nothing, so a lost answer leaves nothing unknown.
    `script` is set when the command is an EVALSHA, so that the executor can send the text to a server that lacks it.
    """

    words: tuple[Word, ...]
    parse: Parse[T_co]
    repeatable: bool
    script: Script | None = None
    reads_only: bool = False

    @property
    def name(self) -> str:
        """Return what to call it in a message: the script or the command, and the queue."""
        name = self.script.name if self.script else str(self.words[0])
        queue = next((found[1] for word in self.words[:4] if (found := _QUEUE.search(str(word)))), "")
        return f"{name} in the queue {queue}" if queue else name

    def words_with_text(self) -> tuple[Word, ...]:
        """Return the EVAL that does the same as this EVALSHA; of a plain command its own words."""
        if self.script is None:
            return self.words
        return ("EVAL", self.script.text, *self.words[2:])


def command(*words: Word, parse: Parse[T], repeatable: bool = True) -> Call[T]:
    """Call a plain command."""
    return Call(words, parse, repeatable)


def read(*words: Word, parse: Parse[T]) -> Call[T]:
    """Call a plain command that changes nothing."""
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
    """Call a script. `arguments` are given by the names that its manual declares; `rows` follow them.

    Raises TypeError when a name is missing or unknown, so a call in the wrong order cannot be written.
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
    """Call a script on the keys of one queue. `token` names this call, for a script with the key `once`."""
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
        raise TypeError(f"{script.name}.lua takes {script.arguments}, not {tuple(arguments)}")
    flat = [value for row in rows for value in row]
    return ("EVALSHA", script.sha, len(keys), *keys, *ordered, *flat)


def value_of(outcome: T | BackendError) -> T:
    """Return the value of one call of a trip, or raise its error."""
    if isinstance(outcome, BackendError):
        raise outcome
    return outcome
