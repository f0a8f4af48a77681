"""A traceback for people who look for a mistake of theirs: without the frames of delayq itself. Pure."""

from __future__ import annotations

import re
from typing import Final, NamedTuple

_FRAME: Final = re.compile(r'^ {2}File "(?P<path>[^"]*)", line \d+')
_OWN: Final = re.compile(r"[\\/]delayq[\\/](?:app|cli|contrib|core|drivers|jobs|loops|push|redis|testing|worker)[\\/]")
"""Files of the package, wherever a worker has it installed."""


class Brief(NamedTuple):
    """The text without the frames of delayq, and how many there were."""

    text: str
    hidden: int


def brief(trace: str) -> Brief:
    """Leave the frames of delayq out; when there are no others, they stay."""
    kept: list[str] = []
    own = False
    hidden = others = 0
    for line in trace.splitlines():
        frame = _FRAME.match(line)
        if frame is not None:
            own = _OWN.search(frame["path"]) is not None
            hidden, others = hidden + own, others + (not own)
        elif not line.startswith("    "):  # a frame's source is indented further than its head
            own = False
        if not own:
            kept.append(line)
    return Brief("\n".join(kept), hidden) if hidden and others else Brief(trace, 0)
