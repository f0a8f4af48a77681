"""The machine's own Chromium, headless, without anything that talks to others."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager

from playwright.sync_api import Browser, sync_playwright

QUIET = (
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)


def program() -> str | None:
    """Where it is; None where there is none."""
    return shutil.which("chromium") or shutil.which("chromium-browser")


@contextmanager
def chromium() -> Iterator[Browser]:
    """A browser with a profile of its own, gone at the end."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program(), args=list(QUIET))
        try:
            yield browser
        finally:
            browser.close()
