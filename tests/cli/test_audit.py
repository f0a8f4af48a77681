"""`delayq audit`: the outcome of what was done from the command line."""

from __future__ import annotations

import pytest

from delayq import DelayQ
from tests.cli.conftest import Inline


@pytest.mark.parametrize(
    ("command", "refusal"),
    [
        (("cancel", "gone"), "The job is unknown."),
        (("archive", "gone"), "The job is unknown."),
        (("run-now", "gone"), "No job 'gone' is known in queue 'default'."),
        (("reschedule", "gone", "--in", "1h"), "No job 'gone' is known in queue 'default'."),
    ],
)
def test_what_was_refused_is_told_so(inline: Inline, q: DelayQ, command: tuple[str, ...], refusal: str) -> None:
    assert inline(*command).code == 3
    [deed] = inline.ok("audit", "--json").documents
    assert (deed["what"], deed["outcome"]) == (command[0], "refused")
    assert deed["refusal"].startswith(refusal)
    assert "refused: " in inline.ok("audit").out
    assert [one.outcome for one in q.audit_log.last()] == ["refused"]


def test_what_was_done_is_told_so(inline: Inline, q: DelayQ) -> None:
    q.schedule("order.close", delay="1h", id="a")
    inline.ok("pause", "orders")
    inline.ok("cancel", "a")
    assert [(deed["what"], deed["outcome"]) for deed in inline.ok("audit", "--json").documents] == [
        ("cancel", "done"),
        ("pause", "done"),
    ]
