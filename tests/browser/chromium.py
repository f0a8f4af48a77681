"""The machine's own Chromium, headless, without anything that talks to others."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager

from playwright.sync_api import Browser, BrowserContext, expect, sync_playwright

PATIENCE_MS = 60_000
"""How long anything is waited for: a busy machine takes its time, and none of it is waited for that is there."""
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


def patient(context: BrowserContext) -> BrowserContext:
    """The same, waiting as long as that for whatever it waits for."""
    context.set_default_timeout(PATIENCE_MS)
    expect.set_options(timeout=PATIENCE_MS)
    return context
