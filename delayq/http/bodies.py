"""Bodies of requests, read strictly: what is wrong names its member."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from functools import lru_cache
from typing import Any, Final, TypeVar

import msgspec
from fastapi import Request

from delayq.http.once import looked_through
from delayq.http.problems import Problem, Refused, Wrong

T = TypeVar("T")
_SMALL: Final = 256 * 1024
_PLACE: Final = re.compile(r"(.*?) - at `(?:key in )?\$(.*)`\Z", re.DOTALL)
_UNKNOWN: Final = re.compile(r"Object contains unknown field `(.*)`\Z", re.DOTALL)
_STEP: Final = re.compile(r"\.([^.\[]+)|\[(\d+|\.\.\.)\]")


async def read(request: Request, kind: type[T]) -> T:
    """The body as that struct. Raises `Refused`: no JSON, or not of that shape."""
    return (await read_through(request, kind))[0]


async def read_any(request: Request, kind: type[T]) -> T:
    """As `read`, for a body that may be left out."""
    return (await _read(await request.body() or b"{}", kind))[0]


async def read_through(request: Request, kind: type[T]) -> tuple[T, bool]:
    """As `read`; and whether its payloads were read too. Else one of them holds what no payload may."""
    return await _read(await request.body(), kind)


async def _read(body: bytes, kind: type[T]) -> tuple[T, bool]:
    """Decode a small body here, a large one in a thread: other requests go on meanwhile."""
    return _decoded(body, kind) if len(body) <= _SMALL else await asyncio.to_thread(_decoded, body, kind)


def decode(body: bytes, kind: type[T]) -> T:
    """As `read`, from bytes."""
    return _decoded(body, kind)[0]


def _decoded(body: bytes, kind: type[T]) -> tuple[T, bool]:
    try:
        key: Any = kind  # mypy takes no class of a type variable for hashable
        read_as: Callable[[bytes], T] = _decoder(key)
        found = read_as(body)
        twice, through = looked_through(body)
    except msgspec.ValidationError as error:
        raise Refused(_misshapen(str(error))) from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        said = str(error) if isinstance(error, msgspec.DecodeError) else "it is not UTF-8, or nested too deep"
        detail = "A JSON body is needed." if not body else f"The body is no JSON: {said}."
        raise Refused(Problem(400, "invalid-json", detail, wrong=[Wrong("#", detail)])) from None
    if twice:
        raise Refused(invalid(twice, "It stands there twice, and takes one value"))
    return found, through


@lru_cache(maxsize=64)
def _decoder(kind: Any) -> Callable[[bytes], Any]:
    return msgspec.json.Decoder(kind).decode


def _misshapen(said: str) -> Problem:
    """The problem of a body of the wrong shape, from msgspec's words."""
    found = _PLACE.fullmatch(said)
    rule, path = (found[1], found[2]) if found else (said, "")
    pointer = "#" + "".join(f"/{name or number}" for name, number in _STEP.findall(path))
    if unknown := _UNKNOWN.fullmatch(rule):
        pointer, rule = f"{pointer}/{unknown[1][:100]}", "There is no such member"
    return invalid(pointer, rule)


def invalid(pointer: str, rule: str, hint: str = "", kind: str = "invalid-input") -> Problem:
    """A problem with one place of a request."""
    rule = rule.rstrip(".")
    return Problem(422, kind, f"{pointer.rstrip(':')}: {rule}.", hint, wrong=[Wrong(pointer, rule)])


def members(struct: Any) -> dict[str, Any]:
    """A struct's members by name."""
    return {name: getattr(struct, name) for name in struct.__struct_fields__}
