"""What a connection refuses is sent elsewhere by name: to a database too, exactly where a database would take it."""

from __future__ import annotations

from typing import Any

import pytest

from delayq.core.errors import InvalidInput
from delayq.core.spec import JobSpec
from delayq.core.states import OnConflict
from delayq.drivers.capabilities import ALSO_DATABASE, ELSEWHERE, Capabilities, refuse_spec
from delayq.drivers.database.backend import CAPABILITIES as DATABASE

POOREST = Capabilities()
WISHES: dict[str, tuple[dict[str, Any], OnConflict]] = {
    "id": ({"id": "order-42"}, OnConflict.KEEP),
    "error": ({}, OnConflict.ERROR),
    "replace": ({}, OnConflict.REPLACE),
    "unique": ({"unique": "x"}, OnConflict.KEEP),
    "retention": ({"retention": "1h"}, OnConflict.KEEP),
    "limits": ({"limits": "Concurrency"}, OnConflict.KEEP),
}


def refusal(wish: str, can: Capabilities) -> InvalidInput | None:
    fields, on_conflict = WISHES[wish]
    try:
        refuse_spec(JobSpec(name="close", **fields), on_conflict, can, "mq")
    except InvalidInput as refused:
        return refused
    return None


@pytest.mark.parametrize("wish", WISHES)
def test_a_database_is_named_where_it_would_take_the_job(wish: str) -> None:
    refused = refusal(wish, POOREST)
    assert refused is not None
    assert refused.hint == (ALSO_DATABASE if refusal(wish, DATABASE) is None else ELSEWHERE)
