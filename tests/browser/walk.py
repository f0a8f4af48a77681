"""A walk through the dashboard, as a person takes it: a program of its own, `python -m tests.browser.walk BASE REDIS`.

It ends with 0, or with the first thing that is not as it should be. Nothing is waited for by time: what must appear is
looked for until it does, without loading a page again.
"""

from __future__ import annotations

import os
import sys
from datetime import UTC, datetime
from pathlib import Path

from playwright.sync_api import BrowserContext, Page, expect

from delayq import DelayQ
from tests.browser.chromium import chromium, patient


class Walk:
    """One browser window, and the queue it looks at."""

    def __init__(self, base: str, page: Page, q: DelayQ) -> None:
        self.base, self.page, self.q = base, page, q

    def open(self, path: str) -> None:
        self.page.goto(f"{self.base}{path}")

    def told(self, text: str) -> None:
        """What the page says was done."""
        expect(self.page.locator("#told")).to_contain_text(text)

    def sure(self, button: str) -> None:
        """Press a button whose act is confirmed, and confirm it."""
        self.page.get_by_role("button", name=button).click()
        expect(self.page.locator("h1")).to_contain_text("?")
        self.page.get_by_role("button", name=button, exact=True).click()

    def becomes(self, state: str) -> None:
        """The badge of the job's page changes by itself."""
        expect(self.page.locator("#job_state .badge")).to_have_text(state)

    def watches_a_job_run(self) -> None:
        self.q.schedule("order.close", {"order_id": 1}, delay="3s", id="run", queue="orders")
        self.open("/job?queue=orders&id=run")
        expect(self.page.locator("h1")).to_have_text("order.close")
        self.becomes("completed")
        result = self.page.get_by_role("region", name="The result as JSON")
        expect(result).to_contain_text("order 1 closed")

    def sees_one_fail_and_retries_it(self) -> None:
        data = {"order_id": 2, "card_number": "4111-1111"}
        self.q.schedule("order.pay", data, delay="1s", id="pay", queue="orders")
        self.open("/job?queue=orders&id=pay")
        self.becomes("failed")
        expect(self.page.locator("#job_attempts")).to_contain_text("the bank did not take ••••••")
        assert "4111-1111" not in self.page.content()
        Path(os.environ["SHOP_BANK"]).touch()
        self.page.get_by_role("button", name="Retry pay").click()
        self.told("is retried from its first attempt")
        self.becomes("completed")
        result = self.page.get_by_role("region", name="The result as JSON")  # there when the page was read anew
        expect(result).to_contain_text("order 2 paid")
        self.told("is retried from its first attempt")

    def pauses_and_resumes_a_queue(self) -> None:
        self.open("/queues/orders")
        self.page.get_by_label("for", exact=True).fill("10m")
        self.sure("Pause queue")
        self.told("The queue orders is paused for 10m.")
        expect(self.page.locator("#findings")).to_contain_text("It is paused")
        self.page.get_by_role("button", name="Resume").click()
        self.told("The queue orders goes on.")

    def reschedules_by_ones_own_clock(self) -> None:
        self.q.schedule("order.close", {"order_id": 3}, delay="3h", id="move", queue="orders")
        self.open("/job?queue=orders&id=move")
        assert self.page.locator("#r-zone").input_value() == "Asia/Tokyo"
        day = f"{datetime.now(UTC).year + 1}-05"
        self.page.get_by_label("or at").fill(f"{day}-06T07:08:09")
        self.page.get_by_role("button", name="Reschedule").click()
        self.told(f"is due at {day}-05T22:08:09.000Z")
        time = self.page.locator("#job_state time")
        expect(time).to_have_attribute("datetime", f"{day}-05T22:08:09.000Z")
        expect(time.locator(".clock")).to_contain_text("07:08:09")

    def cancels(self) -> None:
        self.open("/jobs?name=order.close&queue=orders")
        row = self.page.locator("tr", has_text="move")
        row.get_by_role("button", name="Cancel job").click()
        self.page.get_by_role("button", name="Cancel job", exact=True).click()
        self.told("The job was cancelled; nobody will run it.")
        expect(self.page.locator("tr", has_text="move")).to_have_count(0)

    def ticks_rows_that_stay_ticked_and_one_that_leaves(self) -> None:
        for name in ("tick-1", "tick-2", "tick-3"):
            self.q.schedule("order.close", {"order_id": 5}, delay="5h", id=name, queue="orders")
        self.open("/jobs?queue=orders")
        for name in ("tick-1", "tick-2"):
            self.page.get_by_role("checkbox", name=name).check()
        expect(self.page.locator("[data-picked]")).to_have_text("2 ticked")
        self.q.schedule("order.close", {"order_id": 6}, delay="4h", id="newcomer", queue="orders")
        self.q.cancel("tick-2", queue="orders")
        expect(self.page.locator("tr", has_text="newcomer")).to_have_count(1)
        expect(self.page.locator("tr", has_text="tick-2")).to_have_count(0)
        expect(self.page.get_by_role("checkbox", name="tick-1")).to_be_checked()
        expect(self.page.locator("[data-picked]")).to_have_text("2 ticked")
        self.page.get_by_role("button", name="Cancel ticked").click()
        expect(self.page.locator("h1")).to_have_text("Cancel 2 jobs?")
        self.page.get_by_label("Reason").fill("a wrong import")
        self.page.get_by_role("button", name="Cancel 2 jobs").click()
        self.told("1 job cancelled. 1 not: 1 gone.")
        row = self.page.locator("tr", has_text="tick-3")
        row.get_by_role("button", name="Cancel job").click()
        self.page.get_by_role("button", name="Cancel job", exact=True).click()
        self.q.cancel("newcomer", queue="orders")

    def sees_the_overview_change(self) -> None:
        self.open("/")
        count = self.page.locator("#figures .is-scheduled strong")
        expect(count).to_have_text("0")
        self.q.schedule_many([{"name": "order.close", "data": {"order_id": 9}, "delay": "1h", "queue": "orders"}] * 7)
        expect(count).to_have_text("7")

    def stops_the_changes(self) -> None:
        live = self.page.get_by_role("button", name="Live")
        live.click()
        expect(live).to_have_attribute("aria-pressed", "false")
        live.click()
        expect(live).to_have_attribute("aria-pressed", "true")

    def goes_by_keyboard(self) -> None:
        self.open("/queues")
        self.page.keyboard.press("Tab")
        expect(self.page.locator(".skip")).to_be_focused()
        self.page.keyboard.press("Enter")
        expect(self.page.locator("#main")).to_be_focused()
        self.open("/queues")
        for _ in range(30):
            self.page.keyboard.press("Tab")
            if self.page.evaluate("document.activeElement.textContent") == "orders":
                break
        self.page.keyboard.press("Enter")
        expect(self.page.locator("h1")).to_have_text("orders")

    def changes_the_colours(self) -> None:
        def ground() -> str:
            return str(self.page.evaluate("getComputedStyle(document.documentElement).backgroundColor"))

        before = ground()
        self.page.get_by_role("button", name="Colours").click()
        expect(self.page.locator("html")).to_have_attribute("data-theme", "dark")
        assert ground() != before

    def finds_it_all_in_the_log(self) -> None:
        self.open("/audit")
        for deed in ("cancel", "reschedule", "resume", "pause", "retry"):
            expect(self.page.locator("tbody")).to_contain_text(deed)


STEPS = (
    Walk.watches_a_job_run,
    Walk.sees_one_fail_and_retries_it,
    Walk.pauses_and_resumes_a_queue,
    Walk.reschedules_by_ones_own_clock,
    Walk.cancels,
    Walk.ticks_rows_that_stay_ticked_and_one_that_leaves,
    Walk.sees_the_overview_change,
    Walk.stops_the_changes,
    Walk.goes_by_keyboard,
    Walk.changes_the_colours,
    Walk.finds_it_all_in_the_log,
)


def listen(context: BrowserContext, base: str, wrong: list[str]) -> None:
    """Whatever a page asks of others, and whatever its console says, is wrong."""
    context.on("request", lambda asked: None if asked.url.startswith(base) else wrong.append(asked.url))
    context.on("console", lambda said: wrong.append(said.text) if said.type == "error" else None)
    context.on("weberror", lambda error: wrong.append(str(error.error)))


def main(base: str, redis_url: str) -> None:
    wrong: list[str] = []
    with chromium() as browser, DelayQ(redis_url) as q:
        context = patient(browser.new_context(timezone_id="Asia/Tokyo", locale="en-GB", color_scheme="light"))
        listen(context, base, wrong)
        walk = Walk(base, context.new_page(), q)
        for step in STEPS:
            step(walk)
            sys.stdout.write(f"{step.__name__}\n")
            sys.stdout.flush()
        context.close()
    assert wrong == []


if __name__ == "__main__":
    main(*sys.argv[1:])
