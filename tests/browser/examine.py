"""Every page examined for what keeps people out: `python -m tests.browser.examine BASE PATH…`; the rules are axe's.

In both colours, on a large screen and on a small one. It prints what each page breaks, and ends with 1 when one does.
"""

from __future__ import annotations

import sys
from importlib.resources import files
from typing import Any

from playwright.sync_api import Page

from tests.browser.chromium import chromium, patient

WINDOWS: tuple[dict[str, Any], ...] = (
    {"color_scheme": "light", "viewport": {"width": 1280, "height": 900}},
    {"color_scheme": "dark", "viewport": {"width": 390, "height": 844}},
)


def broken(page: Page, rules: str) -> list[str]:
    """The rules a page breaks, and where."""
    page.evaluate(rules)
    found = page.evaluate("axe.run()")
    assert found["passes"], "axe has examined nothing"
    wide = page.evaluate("document.documentElement.scrollWidth > innerWidth")
    said = [f"{one['id']}: {', '.join(str(node['target']) for node in one['nodes'])}" for one in found["violations"]]
    return said + (["the page is wider than its window"] if wide else [])


def main(base: str, *paths: str) -> int:
    rules = files("axe_playwright_python").joinpath("axe.min.js").read_text(encoding="utf-8")
    wrong = 0
    with chromium() as browser:
        for window in WINDOWS:
            context = patient(browser.new_context(**window))
            page = context.new_page()
            for path in paths:
                page.goto(f"{base}{path}")
                for rule in broken(page, rules):
                    wrong += 1
                    sys.stdout.write(f"{path} {window['color_scheme']} {window['viewport']['width']}: {rule}\n")
            context.close()
    sys.stdout.write(f"{len(paths) * len(WINDOWS)} pages examined\n")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
