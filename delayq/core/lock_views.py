"""What people are told of the locks of unique keys."""

from __future__ import annotations

from dataclasses import dataclass

from delayq.core.states import State
from delayq.core.unique import Until


@dataclass(frozen=True, slots=True)
class LockView:
    """A lock and its owner, who may be gone: `state` absent.

    `lock` is what it is called: a digest, with the length of its window. `since_ms` is when its owner was made, by the
    clock of whoever did, if that is known. `until_ms` is only known of a window.
    """

    queue: str
    lock: str
    until: Until
    owner: str
    state: State
    name: str = ""
    since_ms: int | None = None
    until_ms: int | None = None
