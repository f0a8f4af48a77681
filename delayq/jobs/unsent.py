"""A warning for what was made to be sent, and is dropped without the call that sends it."""

from __future__ import annotations

import logging
import os
import sys
import warnings
from collections.abc import Iterable, Sequence
from opcode import opmap, opname
from types import CodeType, FrameType
from typing import Final

log = logging.getLogger("delayq.jobs")

_OURS: Final = frozenset(f"delayq.jobs.{name}" for name in ("batch", "chain", "dispatch", "function", "unsent"))
_DROPS: Final = ("POP_", "STORE_", "DELETE_", "RETURN_")
"""Instructions that drop a value because the program says so. At any other, an error has ended the sentence."""


class Unsent:
    """Shared by a dispatch, a chain or a batch and everything that its methods make of it.

    `used`: one of them was sent, or became a part of something else. When the last of them is garbage and none was,
    a `ResourceWarning` names the call to make. Python hides these by default, so it is logged as well. What lives as
    long as its process, or was inherited by a forked one, is no mistake: nothing is said of it. Neither is it when an
    exception kept the program from the call: then that exception is what to look at.
    """

    __slots__ = ("made_in", "pid", "used", "what")

    def __init__(self, what: str) -> None:
        self.what = what
        self.used = False
        self.pid = os.getpid()
        self.made_in = _caller()

    def __del__(self) -> None:
        if not self.used and self.pid == os.getpid() and not sys.is_finalizing():
            if _ended_by_error(sys._getframe(1), self.made_in):
                return
            text = f"{self.what} was made and was not sent. End it with .dispatch() or await .adispatch()."
            log.warning(text)
            warnings.warn(text, ResourceWarning, stacklevel=2)


def _caller() -> CodeType | None:
    """The code that made it: the first frame outside of the modules that build dispatches."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and frame.f_globals.get("__name__") in _OURS:
        frame = frame.f_back
    return None if frame is None else frame.f_code


def _ended_by_error(frame: FrameType, made_in: CodeType | None) -> bool:
    """Whether what was made in `made_in` and is dropped in `frame` is dropped because of an exception.

    An exception that was caught lets go of the frames it went through when its `except` ends: at POP_EXCEPT, or two
    instructions later, where `as error` is unset. One that is still on its way drops what the line had made so far: the
    instruction is the one that raised.
    """
    code, at = frame.f_code.co_code, frame.f_lasti
    ends_except = opmap["POP_EXCEPT"]
    if sys.exc_info()[0] is not None or code[at] == ends_except:
        return True
    name = opname[code[at]]
    if name.startswith("STORE_") and at >= 4 and code[at - 4] == ends_except:
        return True
    here = frame.f_code is made_in or frame.f_globals.get("__name__") in _OURS
    return here and not name.startswith(_DROPS)


def include(parts: Iterable[object]) -> None:
    """Jobs, chains and batches became parts of a chain or a batch: from then on that one warns, and not they."""
    for part in parts:
        if isinstance(part, Sequence) and not isinstance(part, str):
            include(part)
        elif isinstance(unsent := getattr(part, "unsent", None), Unsent):
            unsent.used = True
