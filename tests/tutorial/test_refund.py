"""A refund takes as long as the bank takes: it is asked for every hour, and after 14 days somebody is told."""

from __future__ import annotations

from delayq import Job, Snooze
from delayq.testing import Travel

ARRIVED: set[int] = set()  # what the bank says
TOLD: list[str] = []  # mail to the customer, or to the support


class AwaitRefund(Job, name="refund.await", queue="refunds", tries=3, delay="1h", deadline="14d"):
    refund_id: int

    def handle(self) -> None:
        if self.refund_id not in ARRIVED:
            raise Snooze("1h")  # nothing went wrong, so it costs no attempt
        TOLD.append(f"refund {self.refund_id} has arrived")

    def failed(self, error: BaseException) -> None:
        TOLD.append(f"refund {self.refund_id} did not come in time")


def test_it_is_asked_for_until_it_arrives(delayq_travel: Travel) -> None:
    AwaitRefund(refund_id=7).dispatch()
    polls = delayq_travel("3d")
    assert {(poll.ended, poll.attempt) for poll in polls} == {("snoozed", 1)}
    assert len(polls) == 3 * 24
    ARRIVED.add(7)
    assert [poll.ended for poll in delayq_travel("1h")] == ["done"]
    assert TOLD[-1] == "refund 7 has arrived"
    assert delayq_travel("1d") == []


def test_after_a_fortnight_somebody_is_told(delayq_travel: Travel) -> None:
    AwaitRefund(refund_id=8).dispatch(id="refund-8")
    delayq_travel("15d")
    assert TOLD[-1] == "refund 8 did not come in time"
    [failed] = delayq_travel.client.iter_failed("refunds")
    assert failed.id == "refund-8"
