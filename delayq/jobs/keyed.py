"""Unique and debounced jobs where they are dispatched: whose word counts, and the text that a key comes to.

The text is made from the payload before anything changes that on its way, so an encrypted job has the same key.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

from delayq.core.debounce import Debounce
from delayq.core.errors import InvalidInput
from delayq.core.events import JobDebounced, UniqueJobSkipped
from delayq.core.shown import shown
from delayq.core.spec import JobSpec
from delayq.core.states import Answer
from delayq.core.unique import Unique, key_text
from delayq.core.views import JobRef
from delayq.jobs.options import Dispatched, HandlerOptions


class Keyed(NamedTuple):
    """What a job is unique by, or debounced by."""

    unique: str | Unique | None = None
    debounce: Debounce | None = None


NEITHER = Keyed()


def keyed(declared: HandlerOptions, said: Dispatched, data: Any, subject: Any) -> Keyed:
    """What a dispatch says over what its job declares, with a key that is a text.

    `subject` is the job, for a key that is a function. Raises `InvalidInput` for both at once.
    """
    unique, debounce = said.get("unique"), said.get("debounce")
    if unique is None and debounce is None:
        unique, debounce = declared.unique, declared.debounce
    if unique is None and debounce is None:
        return NEITHER
    if unique is not None and debounce is not None:
        raise InvalidInput("A job is unique or debounced, not both.", hint="Drop unique= or debounce=.")
    if debounce is not None and said.get("id") is not None:
        raise InvalidInput(
            "A debounced job has no id of your own: each dispatch of it is another job.", hint="Leave id= out."
        )
    if unique is not None and not isinstance(unique, str | Unique):
        raise InvalidInput(
            f"unique={shown(unique)} is no key.", hint='Use a text, or a Unique: unique=Unique("order").'
        )
    if isinstance(unique, Unique):
        unique = replace(unique, key=key_text(unique.key, data, subject))
    if debounce is not None:
        debounce = replace(debounce, key=key_text(debounce.key, data, subject))
    return Keyed(unique, debounce)


def tell_keyed(tell: Callable[[object], None], ref: JobRef, spec: JobSpec) -> None:
    """Let those who listen hear that a dispatch was left out, or took another one's place."""
    if ref.outcome is Answer.KEPT and spec.unique is not None and ref.id != spec.id:
        tell(UniqueJobSkipped(ref.id, spec.name, ref.queue))
    elif ref.instead_of:
        tell(JobDebounced(ref.instead_of, spec.name, ref.queue, ref.id))
