"""A transaction is checked twice: at once by the shop's own books, and a day later by the bank's statement."""

from __future__ import annotations

from delayq import Fail, Job, dispatch_many
from delayq.testing import Travel, run_job

BOOKED: dict[str, int] = {}  # cents, as the shop wrote them down
STATEMENT: dict[str, int] = {}  # cents, as the bank says
CONFIRMED: list[str] = []


class ConfirmTransaction(Job, name="transaction.confirm", queue="books"):
    number: str
    cents: int

    def handle(self) -> None:
        if BOOKED.get(self.number) != self.cents:
            raise Fail(f"{self.number} is booked with {BOOKED.get(self.number)}, not {self.cents}")
        CONFIRMED.append(self.number)


class VerifyTransaction(Job, name="transaction.verify", queue="audit", tries=4, backoff="6h"):
    """Knows nothing of the first check, and shares neither its queue nor its source."""

    number: str
    cents: int

    def handle(self) -> None:
        if self.number not in STATEMENT:
            raise LookupError(f"{self.number} is not on the statement yet")
        if STATEMENT[self.number] != self.cents:
            raise Fail(f"{self.number}: the bank has {STATEMENT[self.number]}, we have {self.cents}")


def book(number: str, cents: int) -> None:
    BOOKED[number] = cents
    dispatch_many(
        [
            ConfirmTransaction(number=number, cents=cents),
            VerifyTransaction(number=number, cents=cents).delay("24h"),
        ]
    )


def test_both_agree(delayq_travel: Travel) -> None:
    book("t1", 1_999)
    assert [attempt.name for attempt in delayq_travel("0s")] == ["transaction.confirm"]
    STATEMENT["t1"] = 1_999
    assert [(check.name, check.ended) for check in delayq_travel("24h")] == [("transaction.verify", "done")]
    assert list(delayq_travel.client.iter_failed("audit")) == []


def test_the_later_check_finds_what_the_first_could_not(delayq_travel: Travel) -> None:
    book("t2", 1_999)
    STATEMENT["t2"] = 19_990
    delayq_travel("24h")
    assert "t2" in CONFIRMED
    [found] = delayq_travel.client.iter_failed("audit", name="transaction.*")
    info = delayq_travel.client.get(found.id, queue="audit")
    assert info is not None
    assert info.failure is not None
    assert info.failure.message == "t2: the bank has 19990, we have 1999"


def test_a_statement_that_is_late_is_waited_for(delayq_travel: Travel) -> None:
    book("t3", 500)
    assert [check.ended for check in delayq_travel("30h")] == ["done", "released", "released"]
    STATEMENT["t3"] = 500
    assert [check.ended for check in delayq_travel("6h")] == ["done"]


def test_one_check_by_itself() -> None:
    STATEMENT["t4"] = 1
    outcome = run_job(VerifyTransaction(number="t4", cents=2))
    assert "the bank has 1, we have 2" in str(getattr(outcome, "error", None))
