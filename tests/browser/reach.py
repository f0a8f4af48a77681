"""Every button of a page reached on a phone without sideways scrolling: `python -m tests.browser.reach BASE PATH…`.

It prints each button, link of a table row and header that lies outside the window, and ends with 1 when one does.
"""

from __future__ import annotations

import sys
from typing import Any, Final

from tests.browser.chromium import chromium, patient

PHONE: Final[dict[str, Any]] = {"viewport": {"width": 390, "height": 844}, "has_touch": True}
OUTSIDE: Final = """() => [...document.querySelectorAll("main :is(button, .button, input, td, tbody th)")]
    .filter((one) => one.checkVisibility() && !one.closest(".hidden, details, .tabs") && one.type !== "hidden")
    .map((one) => [one, one.getBoundingClientRect()])
    .filter(([one, box]) => box.width && (box.left < 0 || box.right > innerWidth + 0.5))
    .map(([one, box]) => `${one.tagName} ${one.textContent.trim().slice(0, 30)} ends at ${Math.round(box.right)}`)"""
LOST: Final = """() => [...document.querySelectorAll("main table.stack tbody :is(td, th)")]
    .filter((one) => one.textContent.trim() && !one.checkVisibility())
    .map((one) => `lost: ${one.textContent.trim()}`)"""
SIDEWAYS: Final = """() => [document.documentElement, ...document.querySelectorAll("main .scroll:has(> .stack)")]
    .filter((one) => one.scrollWidth > one.clientWidth)
    .map((one) => `${one.getAttribute("aria-label") || "the page"} scrolls sideways`)"""


def main(base: str, *paths: str) -> int:
    wrong = 0
    with chromium() as browser:
        context = patient(browser.new_context(**PHONE))
        page = context.new_page()
        for path in paths:
            page.goto(f"{base}{path}")
            for rule in (OUTSIDE, LOST, SIDEWAYS):
                for said in page.evaluate(rule):
                    wrong += 1
                    sys.stdout.write(f"{path}: {said}\n")
        context.close()
    sys.stdout.write(f"{len(paths)} pages reached\n")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
