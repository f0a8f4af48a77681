"""Who hears of what a command does: the listeners of the application that the settings name.

The application is imported only when there is something to tell. That it cannot be loaded undoes nothing: the command
has done what it was asked to.
"""

from __future__ import annotations

import sys
from contextlib import redirect_stdout
from typing import TYPE_CHECKING

from delayq.cli.render import Output
from delayq.core.errors import DelayqError
from delayq.core.events import Tell, nobody_listens

if TYPE_CHECKING:
    from delayq.settings import Settings


class Audience:
    """The listeners of one run of the command line. What they print goes to stderr: stdout is the command's."""

    def __init__(self, settings: Settings, out: Output) -> None:
        self._settings = settings
        self._out = out
        self._tell: Tell | None = None if settings.app else nobody_listens

    def tell(self, event: object) -> None:
        """Tell an event."""
        with redirect_stdout(sys.stderr):
            if self._tell is None:
                self._tell = self._load()
            self._tell(event)

    def _load(self) -> Tell:
        from delayq.app import load_handlers
        from delayq.jobs.current import make_manager, set_manager

        try:
            registry = load_handlers([self._settings.app or ""])
            set_manager(make_manager(self._settings))
        except DelayqError as error:
            self._out.note(f"Warning: no listener hears of it. {error.message}")
            return nobody_listens
        return registry.events.tell
