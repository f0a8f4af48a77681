"""Calls whose answer is given only when it is as safe as was asked, as one talk over one connection.

    probe ──▶ can this server tell at all?          only the first time; a refusal comes before anything is written
    calls ──▶ the scripts, as always
    mark  ──▶ a small write
    wait  ──▶ WAIT or WAITAOF: until the replicas, or the disk, have what this connection wrote

Why one connection: a server counts what each of them wrote, and behind another one there may be another server by now.
Why the mark: a call that was sent again, or whose answer is `kept`, writes nothing, and then there is nothing to wait
for on its connection, although the job may still be on the primary alone.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from redis.exceptions import NoPermissionError, NoScriptError

from delayq.core.durability import Durability
from delayq.core.errors import ConfigError
from delayq.redis.calls.call import Call
from delayq.redis.direct import Words
from delayq.redis.faults import REDIS_ERRORS, said, tell_place, text_of
from delayq.redis.resend import SPARE_MS
from delayq.redis.send import words_of

Talk = Generator[Sequence[Words], list[Any], "Confirmed"]
"""Yields commands for one round trip over the one connection; gets the replies, errors in their places."""

_MARK_MS = 1
_AT_ONCE_MS = 300
_BRIEFLY = 5
_LOST = "the connection was lost while it was waited for"


@dataclass(frozen=True, slots=True)
class Confirm:
    """Calls of one queue, and what is to be waited for. `counts` says of an answer whether it changed anything.

    `mark` is the key that is written between them. `probed`: this server is known to be able to tell. `again`
    False: not sent again after a lost reply, whatever the calls are. `brief`: for a fifth of the time, because
    another wait of the same call was at length, and in vain.
    """

    calls: tuple[Call[Any], ...]
    durability: Durability
    mark: str
    counts: Callable[[Any], bool]
    probed: bool = False
    again: bool = True
    brief: bool = False

    @property
    def resend(self) -> bool:
        """Whether all of it may be sent again after a lost reply."""
        return self.again and all(call.resend for call in self.calls)


@dataclass(frozen=True, slots=True)
class Confirmed:
    """The answers; and what was not confirmed, as a clause for a sentence ('' = it was)."""

    answers: list[Any]
    missing: str = ""


@dataclass(frozen=True, slots=True)
class Wait:
    """How long a confirmation may take: `most_ms`, and not beyond `by`, as `time.monotonic` counts."""

    most_ms: int
    by: float

    def ms(self, *, brief: bool) -> int:
        """Return how long the server may wait if it is asked now; at least 1, as Redis takes 0 for 'for ever'."""
        most_ms = self.most_ms // _BRIEFLY if brief else self.most_ms
        return max(1, int(min(most_ms, (self.by - time.monotonic()) * 1000 - SPARE_MS)))


def talk(step: Confirm, where: str, wait: Wait) -> Talk:
    """The talk. Raises what a call met, and `ConfigError` where the server cannot tell; then nothing was written."""
    wanted = step.durability
    if not step.probed and wanted.waits:
        yield from _probed(step, where, wait.ms(brief=step.brief))
    answers = yield from _carried_out(step.calls)
    if not wanted.waits or not any(map(step.counts, answers)):
        return Confirmed(answers)
    wait_ms = wait.ms(brief=step.brief)
    try:
        marked, reply = yield [("SET", step.mark, "", "PX", _MARK_MS), wanted.wait(wait_ms)]
    except REDIS_ERRORS:  # the calls were answered: their outcome is no longer in doubt
        return Confirmed(answers, _LOST)
    for one in (marked, reply):
        if isinstance(one, Exception):
            return Confirmed(answers, f"the server said: {said(one)}")
    return Confirmed(answers, wanted.missing(reply, wait_ms))


def _probed(step: Confirm, where: str, wait_ms: int) -> Generator[Sequence[Words], list[Any], None]:
    """Raises unless the server can tell, and tells the truth.

    With `appendfsync everysec` some versions say "on disk" as soon as it is written (redis/redis#13793; Valkey 9.1 has
    it too). Just after a sync the next one is a second away: who says so at once again either syncs always, or is one
    of those.
    """
    wanted = step.durability
    [probed] = yield [wanted.probe]
    if isinstance(probed, Exception):
        raise _cannot_tell(wanted, probed, where)
    if not wanted.fsync:
        return
    mark = ("SET", step.mark, "", "PX", _MARK_MS)
    *_, second = yield [mark, wanted.wait(wait_ms), mark, wanted.wait(_AT_ONCE_MS)]
    if isinstance(second, Exception):
        raise second
    if wanted.missing(second, _AT_ONCE_MS):
        return
    [policy] = yield [("CONFIG", "GET", "appendfsync")]
    if isinstance(policy, Exception):
        raise ConfigError(
            f"Redis at {where} may say that a job is on disk before it is, and forbids this user to look: "
            f"{said(policy)}.",
            hint="Allow it +config|get, or ask for replicas:n, or memory.",
        )
    if b"always" not in (policy.values() if isinstance(policy, dict) else policy):
        raise ConfigError(
            f"Redis at {where} says that a job is on disk before it is, with its appendfsync (durability {wanted}).",
            hint="CONFIG SET appendfsync always, and the same in its configuration file; or ask for replicas:n.",
        )


def _carried_out(calls: Sequence[Call[Any]]) -> Generator[Sequence[Words], list[Any], list[Any]]:
    """The answers of calls; those whose script the server forgot are sent again with its text."""
    replies = yield [words_of(call) for call in calls]
    forgotten = [n for n, reply in enumerate(replies) if isinstance(reply, NoScriptError)]
    if forgotten:
        again = yield [words_of(calls[n], whole=True) for n in forgotten]
        for n, reply in zip(forgotten, again, strict=True):
            replies[n] = reply
    for call, reply in zip(calls, replies, strict=True):
        if isinstance(reply, Exception):
            tell_place(reply, call.place)
            raise reply
    return [call.parse(reply) for call, reply in zip(calls, replies, strict=True)]


def _cannot_tell(wanted: Durability, refusal: Exception, where: str) -> Exception:
    """From a refused probe to the error to raise; what has nothing to do with it goes on as it is."""
    command, text = str(wanted.probe[0]), text_of(refusal)
    refuse = partial(ConfigError, hint="Give it that, or ask for another durability: memory, replicas:n, fsync.")
    if isinstance(refusal, NoPermissionError):
        return refuse(f"Redis at {where} forbids this user {command}, so durability {wanted} cannot be confirmed.")
    if "unknown command" in text:
        return ConfigError(
            f"Redis at {where} has no {command}, so nobody can tell when a job is on disk (durability {wanted}).",
            hint="Redis 7.2 and Valkey have it; or ask for replicas:n, or memory.",
        )
    if "appendonly" in text:
        return ConfigError(
            f"Redis at {where} writes no append-only file, so nothing gets to disk in time (durability {wanted}).",
            hint="CONFIG SET appendonly yes, and the same in its configuration file; or ask for another durability.",
        )
    return refusal
