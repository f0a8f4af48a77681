"""One week after sign-up a customer is asked how it goes; one who left is not."""

from __future__ import annotations

from datetime import timedelta

from delayq import Discard, Job
from delayq.testing import Fake, Travel

CUSTOMERS: set[str] = set()
SENT: list[str] = []


class AskHowItGoes(Job, name="customer.ask", queue="mail"):
    customer: str

    def handle(self) -> None:
        if self.customer not in CUSTOMERS:
            raise Discard
        SENT.append(self.customer)


def sign_up(customer: str) -> None:
    CUSTOMERS.add(customer)
    AskHowItGoes(customer=customer).dispatch(delay="1w", id=f"ask:{customer}")


def test_one_week_later(delayq_travel: Travel) -> None:
    signed_up = delayq_travel.now
    sign_up("ann")
    sign_up("ann")  # twice on the button: the id is taken, so there is one message
    [attempt] = delayq_travel("30d")
    assert attempt.at - signed_up == timedelta(days=7)
    assert SENT.count("ann") == 1


def test_who_left_hears_nothing(delayq_travel: Travel) -> None:
    sign_up("bob")
    delayq_travel("6d")
    CUSTOMERS.remove("bob")
    assert [attempt.ended for attempt in delayq_travel("1d")] == ["discarded"]
    assert "bob" not in SENT


def test_what_sign_up_promises_without_waiting_for_it(delayq_fake: Fake) -> None:
    sign_up("eve")
    delayq_fake.assert_pushed_with_delay(AskHowItGoes, "1w", lambda job: job.customer == "eve")
    delayq_fake.assert_pushed_on("mail", AskHowItGoes)
