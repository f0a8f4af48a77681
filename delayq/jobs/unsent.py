"""A warning for what was made to be sent, and is dropped without the call that sends it."""

from __future__ import annotations

import logging
import os
import sys
import warnings
from collections.abc import Iterable, Sequence

log = logging.getLogger("delayq.jobs")


class Unsent:
    """Shared by a dispatch, a chain or a batch and everything that its methods make of it.

    `used`: one of them was sent, or became a part of something else. When the last of them is garbage and none was,
    a `ResourceWarning` names the call to make. Python hides these by default, so it is logged as well. What lives as
    long as its process, or was inherited by a forked one, is no mistake: nothing is said of it.
    """

    __slots__ = ("pid", "used", "what")

    def __init__(self, what: str) -> None:
        self.what = what
        self.used = False
        self.pid = os.getpid()

    def __del__(self) -> None:
        if not self.used and self.pid == os.getpid() and not sys.is_finalizing():
            text = f"{self.what} was made and was not sent. End it with .dispatch() or await .adispatch()."
            log.warning(text)
            warnings.warn(text, ResourceWarning, stacklevel=2)


def include(parts: Iterable[object]) -> None:
    """Jobs, chains and batches became parts of a chain or a batch: from then on that one warns, and not they."""
    for part in parts:
        if isinstance(part, Sequence) and not isinstance(part, str):
            include(part)
        elif isinstance(unsent := getattr(part, "unsent", None), Unsent):
            unsent.used = True
