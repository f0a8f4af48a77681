"""Positions of jobs in a search: the common order of the jobs of several shards, and the end of a page."""

import base64
import math
from typing import Final, NamedTuple

import msgspec

from delayq.core.display import shown
from delayq.core.errors import InvalidInput
from delayq.core.views import JobState
from delayq.redis.calls.inspect import Row

_IN_STREAM: Final = ("ready", "reserved")
_LAST_SEQ: Final = 2**64 - 1
_BEFORE_ALL_IDS: Final = b"\x00"
_AFTER_ALL_IDS: Final = b"\xff" * 256


class Position(NamedTuple):
    """The position of a job in the common order of all shards: by time, name of the shard, and order in the shard.

    `time` is a score, `seq` is 0, and `id` is the job id. But for ready and reserved jobs, `time` and `seq` are the
    parts of the stream entry id, and `id` is b''.
    """

    time: float
    seq: int
    shard: str
    id: bytes

    def as_cursor(self) -> str:
        """Return the position as a text, which `read_cursor` reads."""
        return base64.urlsafe_b64encode(msgspec.msgpack.encode(self)).decode()

    def after(self, shard: str, *, state: JobState, newest_first: bool) -> bytes:
        """Return the cursor of list.lua with which the jobs of a shard after this position are read.

        Jobs with equal times are sorted by the names of their shards. So among the jobs with the time of this position,
        the jobs of shards with later names come after the position, and the jobs of shards with earlier names before.
        """
        if state in _IN_STREAM:
            return b"%d-%d" % self._entry_before(shard, newest_first=newest_first)
        score = format(self.time, ".17g").encode()
        if shard == self.shard:
            return b"%s %s" % (score, self.id)
        return b"%s %s" % (score, _AFTER_ALL_IDS if shard < self.shard else _BEFORE_ALL_IDS)

    def _entry_before(self, shard: str, *, newest_first: bool) -> tuple[int, int]:
        """Return the id of the stream entry after which the entries of a shard are read."""
        ms, seq = int(self.time), self.seq
        if shard == self.shard or (shard > self.shard) == newest_first:
            return ms, seq
        if newest_first:
            return ms, min(seq + 1, _LAST_SEQ)
        return (ms, seq - 1) if seq else (max(ms - 1, 0), _LAST_SEQ)


def before_time(time_ms: int) -> Position:
    """Return the position between all jobs before a time and all jobs of this time."""
    return Position(time_ms, 0, "", b"")


def position_of(shard: str, row: Row) -> Position:
    """Return the position of a job."""
    if not row.entry:
        return Position(float(row.time), 0, shard, row.id)
    ms, _, seq = row.entry.partition(b"-")
    return Position(float(ms), int(seq), shard, b"")


def read_cursor(cursor: str, state: JobState) -> Position:
    """Return the position of a cursor. Raises InvalidInput if the cursor does not come from a page."""
    try:
        position = msgspec.msgpack.decode(base64.urlsafe_b64decode(cursor), type=Position)
        if math.isnan(position.time) or (state in _IN_STREAM and not 0 <= position.time < 2**53):
            raise ValueError("no time")
        return position
    except (ValueError, TypeError, msgspec.MsgspecError):
        raise InvalidInput(
            f"cursor is {shown(cursor)}.",
            hint="Use the cursor of the previous page, or '' for the first page.",
            field="cursor",
        ) from None
