"""What an operator asks first, answered from the overview by clicks alone: `python -m tests.browser.flows BASE REDIS`.

Each flow may click four times. It ends with 0, or with the first flow that finds no answer.
"""

from __future__ import annotations

import sys

from playwright.sync_api import Locator, Page, expect

from delayq import DelayQ
from delayq.core.states import State
from tests.browser.chromium import chromium, patient
from tests.browser.walk import listen

MOST_CLICKS = 4
CANCELLED = "order-4711"


class Operator:
    """A person at the overview, whose clicks are counted."""

    def __init__(self, base: str, page: Page, q: DelayQ) -> None:
        self.base, self.page, self.q = base, page, q
        self.clicks = 0

    def begins(self) -> None:
        """Go to the overview and count from none."""
        self.page.goto(self.base)
        self.clicks = 0

    def click(self, what: Locator) -> None:
        """Click once more; raise when it is once too often."""
        self.clicks += 1
        assert self.clicks <= MOST_CLICKS, f"{self.clicks} clicks"
        what.click()

    def opens(self, link: str) -> None:
        """Click the link of that name."""
        self.click(self.page.get_by_role("link", name=link, exact=True))

    def finds_the_error_that_hurts_most(self) -> None:
        self.opens("By error")
        worst = self.page.locator("main tbody tr").first
        expect(worst).to_contain_text("no customer")
        expect(worst.locator("td").first).to_have_text("3")

    def finds_the_late_queue(self) -> None:
        late = self.page.locator("#queue_table tr:has(.bad[data-label=overdue])")
        expect(late).to_have_count(1, timeout=20_000)  # a queue is late after ten seconds; the table is live
        self.click(late.get_by_role("link"))
        expect(self.page.locator("h1")).to_have_text("mail")
        expect(self.page.locator("#queue_figures")).to_contain_text("Oldest overdue")

    def finds_the_person_who_cancelled(self) -> None:
        self.opens("Audit log")
        self.page.get_by_label("Find").fill(CANCELLED)
        self.click(self.page.get_by_role("button", name="Search"))
        [row] = self.page.locator("main tbody tr").all()
        expect(row).to_contain_text("cancel")
        expect(row.locator("[data-label=who]")).to_contain_text("@")

    def mends_one_job_of_the_group(self) -> None:
        self.opens("By error")
        self.click(self.page.locator("main tbody tr").first.get_by_role("link", name="pay-"))
        self.click(self.page.get_by_text("Edit the payload"))
        self.page.get_by_label("New payload").fill('{"customer": 7}')
        self.click(self.page.get_by_role("button", name="Retry with this payload"))
        expect(self.page.locator("#told")).to_contain_text("is retried")

    def retries_the_rest_of_the_group(self) -> None:
        self.opens("By error")
        self.click(self.page.locator("main tbody tr").first.get_by_role("link", name="Retry …"))
        expect(self.page.locator("h1")).to_have_text("Retry 2 failed jobs?")
        self.page.get_by_label("Why, for the audit log").fill("the customer is there")
        self.click(self.page.get_by_role("button", name="Retry them"))
        expect(self.page.locator("#told")).to_contain_text("2 jobs will be retried")
        assert [info.id for info in self.q.iter_failed("orders")] == ["broken"], "the other error is left alone"
        states = {self.q.get(f"pay-{n}", queue="orders").state for n in (1, 2, 3)}  # type: ignore[union-attr]
        assert states <= {State.SCHEDULED, State.READY}


FLOWS = (
    Operator.finds_the_error_that_hurts_most,
    Operator.finds_the_late_queue,
    Operator.finds_the_person_who_cancelled,
    Operator.mends_one_job_of_the_group,
    Operator.retries_the_rest_of_the_group,
)


def main(base: str, redis_url: str) -> None:
    wrong: list[str] = []
    with chromium() as browser, DelayQ(redis_url) as q:
        context = patient(browser.new_context())
        listen(context, base, wrong)
        operator = Operator(base, context.new_page(), q)
        for flow in FLOWS:
            operator.begins()
            flow(operator)
            sys.stdout.write(f"{flow.__name__} {operator.clicks}\n")
            sys.stdout.flush()
        context.close()
    assert wrong == []


if __name__ == "__main__":
    main(*sys.argv[1:])
