"""What handlers wrote down, and what it says: the oracle of the chaos tests. The file never saw Redis."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Line:
    """One start or end of one attempt."""

    word: str
    id: str
    attempt: int
    token: str
    pid: int


@dataclass(frozen=True, slots=True)
class Ledger:
    """All lines, in the order in which they were written."""

    lines: tuple[Line, ...]

    @classmethod
    def read(cls, path: Path) -> Ledger:
        """Read the file; a line cut off by a kill is no line."""
        found = []
        for text in path.read_text(encoding="ascii").split("\n")[:-1]:
            word, job_id, attempt, token, pid = text.split(" ")
            found.append(Line(word, job_id, int(attempt), token, int(pid)))
        return cls(tuple(found))

    def ends(self) -> Counter[str]:
        """How often each job came to its end."""
        return Counter(line.id for line in self.lines if line.word == "end")

    def duplicates(self) -> int:
        """Ends beyond the first of each job."""
        return sum(count - 1 for count in self.ends().values())

    def attempts(self) -> set[int]:
        """The attempt numbers that occurred."""
        return {line.attempt for line in self.lines}

    def last_tokens(self) -> dict[str, str]:
        """The newest token under which each job was started."""
        tokens: dict[str, str] = defaultdict(lambda: "0-0")
        for line in self.lines:
            if line.word == "start":
                tokens[line.id] = max(tokens[line.id], line.token, key=_order)
        return dict(tokens)


def _order(token: str) -> tuple[int, int]:
    ms, seq = token.split("-")
    return int(ms), int(seq)
