"""What a view of a job adds to what is stored."""

from __future__ import annotations

import pytest

from delayq.core import envelope as envelopes
from delayq.core.states import State
from delayq.core.views import JobInfo

RAW = b'{"v":1,"id":"o1","name":"close","queue":"orders","data":null,"attempts":2,"created_ms":5}'


@pytest.mark.parametrize("state", [state for state in State if state is not State.ABSENT])
def test_the_attempt_that_succeeded_counts(state: State) -> None:
    info = JobInfo("o1", "orders", state, RAW, envelopes.decode(RAW))
    assert info.attempts == (3 if state is State.COMPLETED else 2)


def test_without_an_envelope_nobody_knows() -> None:
    assert JobInfo("o1", "orders", State.COMPLETED, b"?", None).attempts is None
