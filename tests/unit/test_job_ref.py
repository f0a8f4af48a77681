"""Answers as values: what travels of a `JobRef`, and what stays with the process that got it."""

from __future__ import annotations

import copy
import pickle
import threading
from collections.abc import Callable
from typing import cast

import msgspec
import pytest

from delayq.core.errors import ConfigError
from delayq.core.states import Answer, State
from delayq.core.views import JobRef, RefHome

LOCK = cast(RefHome, threading.RLock())
"""Stands for a client, which cannot be pickled either."""


def asked(home: RefHome | None = LOCK) -> JobRef:
    return JobRef("42", "orders", State.SCHEDULED, 1_000, Answer.CREATED, "order.close").asked_at(home)


def test_a_pickled_answer_is_equal_and_has_nothing_to_ask() -> None:
    ref = asked()
    again = pickle.loads(pickle.dumps(ref))
    assert again == ref
    with pytest.raises(ConfigError, match=r"cannot be asked about through this answer \(created\): no backend keeps"):
        again.cancel()


@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy])
def test_a_copy_can_be_asked_as_the_original(copied: Callable[[JobRef], JobRef]) -> None:
    ref = asked()
    assert (copied(ref), copied(ref).home) == (ref, ref.home)


def test_only_the_fields_are_encoded() -> None:
    assert msgspec.json.decode(msgspec.json.encode(asked())) == {
        "id": "42",
        "queue": "orders",
        "state": "scheduled",
        "due_ms": 1_000,
        "outcome": "created",
        "name": "order.close",
        "instead_of": "",
        "connection": "",
    }


def test_the_home_counts_for_nothing_in_a_comparison() -> None:
    assert asked() == asked(None)
    assert hash(asked()) == hash(asked(None))
