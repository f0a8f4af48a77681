"""What handlers say to their test from other processes, and what the test says to them. All of it lies in files.

tapes.tape()     a list that any process appends to; reading it shows what all have said so far
tapes.tally()    counts what any process adds
tapes.flag()     set by one process, seen by all
"""

from __future__ import annotations

import os
import pickle
import struct
import time
from collections import Counter
from collections.abc import Hashable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Generic, TypeVar, overload

T = TypeVar("T")
K = TypeVar("K", bound=Hashable)

_HEAD = struct.Struct("=I")


class Tapes:
    """All tapes of one test: one file in `folder`, one write for each thing said, so nothing is torn or lost."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._made = 0
        self._fd = os.open(folder / "tapes", os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o600)
        self._at = 0
        self._rest = b""
        self._heard: dict[int, list[Any]] = {}

    def close(self) -> None:
        os.close(self._fd)

    def tape(self) -> Tape[Any]:
        return Tape(self, self._number())

    def tally(self) -> Tally[Any]:
        return Tally(self.tape())

    def flag(self) -> Flag:
        return Flag(self._folder / f"flag-{self._number()}")

    def write(self, number: int, value: object) -> None:
        said = pickle.dumps((number, value))
        os.write(self._fd, _HEAD.pack(len(said)) + said)

    def read(self, number: int) -> list[Any]:
        """Everything said on one tape so far."""
        while chunk := os.pread(self._fd, 1 << 20, self._at):
            self._at += len(chunk)
            self._rest += chunk
        while len(self._rest) >= _HEAD.size and len(self._rest) >= (
            end := _HEAD.size + _HEAD.unpack_from(self._rest)[0]
        ):
            tape, value = pickle.loads(self._rest[_HEAD.size : end])
            self._heard.setdefault(tape, []).append(value)
            self._rest = self._rest[end:]
        return self._heard.setdefault(number, [])

    def _number(self) -> int:
        self._made += 1
        return self._made


class Tape(Sequence[T]):
    """A list that grows in any process and can be read in any."""

    def __init__(self, tapes: Tapes, number: int) -> None:
        self._tapes = tapes
        self._number = number

    def append(self, value: T) -> None:
        self._tapes.write(self._number, value)

    @overload
    def __getitem__(self, index: int) -> T: ...
    @overload
    def __getitem__(self, index: slice) -> list[T]: ...
    def __getitem__(self, index: int | slice) -> T | list[T]:
        found: T | list[T] = self._tapes.read(self._number)[index]
        return found

    def __len__(self) -> int:
        return len(self._tapes.read(self._number))

    def __eq__(self, other: object) -> bool:
        return self[:] == other

    __hash__ = None  # type: ignore[assignment]  # as a list

    def __repr__(self) -> str:
        return repr(self[:])


class Tally(Mapping[K, int], Generic[K]):
    """Counts in any process; 0 for what was never added."""

    def __init__(self, tape: Tape[K]) -> None:
        self._tape = tape

    def add(self, key: K) -> None:
        self._tape.append(key)

    def __getitem__(self, key: K) -> int:
        return self._tape.count(key)

    def __iter__(self) -> Iterator[K]:
        return iter(self._counted())

    def __len__(self) -> int:
        return len(self._counted())

    def __repr__(self) -> str:
        return repr(self._counted())

    def items(self) -> Any:
        return self._counted().items()

    def values(self) -> Any:
        return self._counted().values()

    def _counted(self) -> Counter[K]:
        return Counter(self._tape[:])


class Flag:
    """As an Event, over processes. Looks every two milliseconds: a process that died cannot keep it locked."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def set(self) -> None:
        self._path.touch()

    def is_set(self) -> bool:
        return self._path.exists()

    def wait(self, timeout: float) -> bool:
        end = time.monotonic() + timeout
        while not self.is_set():
            if time.monotonic() >= end:
                return False
            time.sleep(0.002)
        return True
