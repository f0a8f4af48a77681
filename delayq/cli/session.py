"""One run of the command line: what was said before the command, and what is opened for it."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager, redirect_stdout
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from delayq.cli.render import Output

if TYPE_CHECKING:
    from delayq.core.audit import Noted
    from delayq.drivers.serving.desk import BrokerDesk, Sender
    from delayq.drivers.serving.failed_desk import FailedDesk
    from delayq.redis.client import Client
    from delayq.settings import Settings


@dataclass(slots=True)
class Session:
    """Filled by the root callback before a command runs. `command`: its name. `flags`: settings given as options."""

    flags: dict[str, Any] = field(default_factory=dict)
    verbose: bool = False
    command: str = ""
    out: Output = field(default_factory=Output)
    _noted: list[Noted] = field(default_factory=list)

    def settings(self, **flags: Any) -> Settings:
        """The settings, with the options before the command and `flags` on top; None counts as not given."""
        settings = self.read(**flags)
        for warning in settings.warnings:
            self.out.note(f"Warning: {warning}")
        return settings

    def read(self, **flags: Any) -> Settings:
        """As `settings`, without its warnings: for a second look, once an application was loaded."""
        from delayq.settings import Settings

        given = {name: value for name, value in flags.items() if value is not None}
        return Settings(**{**self.flags, **given})

    @contextmanager
    def client(self) -> Iterator[Client]:
        """All verbs, on the Redis that is meant. Raises `ConfigError` where `--connection` names another backend."""
        from delayq.app import open_client

        settings = self.settings()
        with open_client(settings, f"`delayq {self.command}`") as client:
            self._listen(client, settings)
            with self._outcomes(client):
                yield client

    @contextmanager
    def sender(self, apps: Sequence[str] = ()) -> Iterator[Client | BrokerDesk | Sender]:
        """Where jobs are handed in, over any connection, with the options that the jobs of an application declare.

        The application is that of the modules `apps`, else that of the settings. Raises `ConfigError` when it cannot be
        loaded. What it prints on import goes to stderr.
        """
        from delayq.app import open_sender

        settings = self.settings()
        modules = apps or ([settings.app] if settings.app else [])
        if modules:
            from delayq.app import load_handlers, with_application

            with redirect_stdout(sys.stderr):
                load_handlers(modules)
            settings = with_application(settings, self.read())
        with open_sender(settings) as desk:
            self._listen(desk, settings)
            if modules:
                _use_declared(desk)
            yield desk

    @contextmanager
    def desk(self, *, by_hand: bool = False) -> Iterator[Client | BrokerDesk]:
        """What every connection that keeps jobs can be asked, as far as its backend can.

        `by_hand`: for something that is done for a reason. A backend without an audit log writes that to stderr.
        """
        from delayq.app import open_desk

        settings = self.settings()
        with open_desk(settings) as desk:
            self._listen(desk, settings)
            if by_hand:
                _show_reasons(desk, settings)
            with self._outcomes(desk):
                yield desk

    @contextmanager
    def failed(self) -> Iterator[Client | FailedDesk]:
        """The failed jobs of the connection."""
        from delayq.app import open_failed

        settings = self.settings()
        with closing(open_failed(settings)) as desk:
            self._listen(desk, settings)
            with self._outcomes(desk):
                yield desk

    def record(self, desk: object, what: str, target: str, detail: str = "", reason: str = "") -> None:
        """Write down what is about to be done by hand. Backends without an audit log keep none.

        A server that is full takes no record, and what frees it must go on all the same.
        """
        from delayq.core.audit import Deed, Noted
        from delayq.core.errors import BackendFull
        from delayq.redis.client import Client

        if isinstance(desk, Client):
            try:
                self._noted.append(Noted(desk.audit_log.record(Deed(what, target, reason, detail))))
            except BackendFull:
                self.out.note("Warning: Redis is at its memory limit, so this is not in the audit log.")

    def refused(self, why: str) -> None:
        """Remember that what was written down last was not done."""
        if self._noted:
            self._noted[-1].refusal = why

    @contextmanager
    def _outcomes(self, desk: object) -> Iterator[None]:
        """Write down how the deeds of a command ended. What Redis lost, or a signal ended, has no known outcome."""
        from delayq.core.errors import BackendError, DelayqError

        try:
            yield
        except DelayqError as error:
            if isinstance(error, BackendError):
                raise
            self.refused(error.message)
            self._end(desk)
            raise
        self._end(desk)

    def _end(self, desk: object) -> None:
        from delayq.redis.client import Client

        if isinstance(desk, Client):
            for one in self._noted:
                desk.audit_log.end(one.id, one.refusal)
        self._noted.clear()

    def _listen(self, desk: object, settings: Settings) -> None:
        """Let the application hear of what is done here; over other connections it hears by its manager."""
        from delayq.cli.audience import Audience
        from delayq.core.audit import Door
        from delayq.redis.client import Client

        if isinstance(desk, Client):
            desk.verbs.tell = Audience(settings, self.out).tell
            desk.verbs.door = Door.CLI


def _use_declared(desk: Client | BrokerDesk | Sender) -> None:
    """Give each job sent there the options that the loaded application declares for its name."""
    from delayq.jobs.registry import current
    from delayq.jobs.sending import with_declared
    from delayq.redis.client import Client

    where = desk.verbs if isinstance(desk, Client) else desk
    where.declaring, where.complete = current().declaring, with_declared


def _show_reasons(desk: object, settings: Settings) -> None:
    """Let the log `delayq.audit` through, which is all the record that backends other than Redis keep of a deed."""
    from delayq.cli import logs
    from delayq.redis.client import Client

    if not isinstance(desk, Client):
        logs.start(settings, quiet=False)
