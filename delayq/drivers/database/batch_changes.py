"""What a note changes in a batch, and what is due because of it. Pure."""

from __future__ import annotations

from dataclasses import replace
from typing import Final, NamedTuple

import msgspec

from delayq.core.followups import Word
from delayq.drivers.database.batch_rows import BatchRow

FROM: Final = {
    Word.DONE: (Word.PENDING, Word.FAILED, Word.SKIPPED),
    Word.FAILED: (Word.PENDING, Word.SKIPPED),
    Word.SKIPPED: (Word.PENDING,),
    Word.PENDING: (Word.FAILED, Word.SKIPPED),
}
"""What a member may have been before. A note that comes twice, or late, changes nothing."""


class Standing(NamedTuple):
    """A batch after a note. `calls_off`: what has not started is to be cancelled now."""

    row: BatchRow
    calls_off: bool


class Changes:
    """Of the members of one batch; `words`: what had become of them before."""

    def __init__(self, row: BatchRow, words: dict[str, Word]) -> None:
        self.new: dict[str, Word] = {}
        self.ended = False
        self._row = row
        self._words = dict(words)
        self._pending = row.pending
        self._failed = dict.fromkeys(row.failed)
        self._again = self._fresh = False

    def mark(self, member: str, word: Word) -> None:
        """This has become of a member; nothing for one that is none, or that cannot have come to it."""
        was = self._words.get(member)
        if was is None or was not in FROM[word]:
            return
        self._words[member] = self.new[member] = word
        self._pending += (word is Word.PENDING) - (was is Word.PENDING)
        self._failed.pop(member, None)
        if word is Word.FAILED:
            self._failed[member] = None
            self._fresh = True
        elif word is Word.PENDING:
            self._again, self._fresh = True, False
        self.ended = self.ended or word is not Word.PENDING

    def standing(self, now_s: int, *, cancel: bool) -> Standing:
        """The batch as it is now. A failure cancels it when it is written down, not for as long as it stands."""
        row = replace(self._row, pending=self._pending, failed=tuple(self._failed))
        if self._again:
            kept = msgspec.structs.replace(row.kept, rounds=row.kept.rounds + 1, caught=False)
            row = replace(row, finished_s=None, cancelled_s=None, kept=kept)
        fails = self._fresh and not row.plan.allow_failures
        newly = not row.over and row.finished_s is None and (cancel or fails)
        if newly:
            row = replace(row, cancelled_s=now_s)
        return Standing(row, row.over and (newly or cancel))

    def due(self, row: BatchRow, *, over: bool, well: bool, now_s: int) -> tuple[BatchRow, list[str]]:
        """The batch with what is told now written down, and that. `over`: all have ended; `well`: all succeeded."""
        kept, due = row.kept, list[str]()
        if self._again:
            due.append("resumed")
        if self.ended:
            due.append("progress")
        if self._fresh and not kept.caught:
            due.append("catch")
            kept = msgspec.structs.replace(kept, caught=True)
        goes_on = well or (row.plan.allow_failures and not row.over)
        if over and row.finished_s is None:
            due += ["finally"] if goes_on else ["finally", "stopped"]
            row = replace(row, finished_s=now_s)
        if over and well and not kept.then:
            due.append("then")
            kept = msgspec.structs.replace(kept, then=True)
        if over and goes_on and not kept.onward:
            due.append("onward")
            kept = msgspec.structs.replace(kept, onward=True)
        return replace(row, kept=kept), due
