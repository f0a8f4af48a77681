"""One run of the command line: its root options and its settings."""

import logging
import os
import socket
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Final

import typer
from pydantic import SecretStr

from delayq.cli.logging import writes_json
from delayq.cli.streams import drop_lost_output
from delayq.cli.waiting import tell_waiting
from delayq.client import DelayQ
from delayq.core.errors import CallRefused, DelayqError, QueueNotFound
from delayq.core.names import check_queue
from delayq.settings.connections import Routes, destination
from delayq.settings.model import Settings, load_settings
from delayq.settings.sources import flag_of

if TYPE_CHECKING:
    from delayq.redis.embedded.server import EmbeddedServer

SKIP_NODES: Final = 30.0
"""For this many seconds, a command sends nothing to a node of a cluster that did not answer one of its calls."""

audit: Final = logging.getLogger("delayq.audit")


@dataclass
class Deed:
    """A change for the audit log. `what`: the command. `on`: the job, queue or other target.

    The command sets `outcome` when the change is done.
    """

    what: str
    on: str
    reason: str
    outcome: object = "done"


@dataclass
class CliSession:
    """The root options of one run.

    `given`: the values of root options that override settings, by the name of the setting; None = the option was not
    given. `quiet`: leave out hints.
    """

    given: Mapping[str, object]
    quiet: bool = False

    def root_words(self) -> list[str]:
        """Return the root options as words for another run of the command line."""
        said = {name: str(value) for name, value in self.given.items() if value is not None}
        level = {"DEBUG": ["-v"], "WARNING": ["-q"]}.get(said.pop("log_level", ""), [])
        return level + [word for name, value in said.items() for word in (flag_of(name), value)]

    @cached_property
    def settings(self) -> Settings:
        """The settings of the chosen connection. Raises ConfigError."""
        return load_settings(**self.given).chosen()

    def routed(self, job_name: str) -> Settings:
        """Return the settings for a job, with the connection and queue of its route. Raises ConfigError.

        A connection or url on the command line overrides the connection of the route.
        """
        of_all = self.with_given()
        is_given = self.given.get("connection") or self.given.get("url")
        to = destination(
            job_name,
            Routes(of_all.routes),
            queue=None,
            connection=of_all.connection if is_given else None,
            default_connection=of_all.connection,
        )
        settings = of_all.of_connection(to.connection)
        return settings if to.queue is None else settings.model_copy(update={"queue": to.queue})

    def queue_or_default(self, queue: str | None) -> str:
        """Return the given queue, or the default queue. Raises InvalidInput, such as for '' from an unset variable."""
        return self.settings.queue if queue is None else check_queue(queue)

    def with_given(self, **given: object) -> Settings:
        """Return the settings of all connections, with the options of this command. Raises ConfigError."""
        return load_settings(**self.given, **given)

    @cached_property
    def embedded(self) -> "EmbeddedServer":
        """The embedded server of this project, running or not. Raises ConfigError."""
        return embedded_of(self.settings)

    def with_server(self, settings: Settings, *, names_server: bool = True) -> Settings:
        """Return settings with a url.

        If they have no url, find or start the embedded server. Unless the command is quiet or `names_server` is False,
        print one line on stderr that names the server.

        Raises ConfigError, BackendUnavailable.
        """
        if not settings.uses_embedded:
            return settings
        server = embedded_of(settings)
        verb = "started" if server.find_or_start() else "using"
        if names_server and not self.quiet:
            self._tell(f"{verb} the embedded server, data in {server.data_dir}")
        return settings.model_copy(update={"url": SecretStr(server.url)})

    def client(self) -> DelayQ:
        """Return a client for existing data. Raises ConfigError, BackendUnavailable.

        The embedded server is started only if its data directory exists. Otherwise, BackendUnavailable is raised.
        """
        self.tell_waiting()
        if self.settings.uses_embedded:
            self.embedded.check_data()
        client = DelayQ(settings=self.with_server(self.settings))
        client._operations._session.executor.skip_failed_nodes(SKIP_NODES)
        return client

    def tell_waiting(self) -> None:
        """If a call of this command has to wait for Redis, print one line about it, unless the command is quiet."""
        if not self.quiet:
            tell_waiting()

    def _tell(self, text: str) -> None:
        """Print a line on stderr, as a log line if log lines are JSON."""
        if writes_json():
            logging.getLogger("delayq").info(text)
        else:
            print(f"delayq: {text}", file=sys.stderr)

    @contextmanager
    def audited(self, what: str, on: str, *, reason: str = "") -> Iterator[Deed]:
        """After a change or its failure, write a line to the log `delayq.audit`: user, change, target, reason, outcome.

        The line is visible only if the logging of the process shows this logger.
        """
        drop_lost_output()
        deed = Deed(what, on, reason)
        try:
            yield deed
        except BaseException as error:
            deed.outcome = error.message if isinstance(error, DelayqError) else type(error).__name__
            raise
        finally:
            if audit.isEnabledFor(logging.INFO):
                about = {"user": _user(), "deed": what, "on": on, "reason": reason, "outcome": str(deed.outcome)}
                why = f" ({reason})" if reason else ""
                audit.info("%s: %s %s%s: %s", about["user"], what, on, why, deed.outcome, extra=about)


def embedded_of(settings: Settings) -> "EmbeddedServer":
    """Return the embedded server of the project of these settings, running or not. Raises ConfigError."""
    from delayq.redis.embedded.server import EmbeddedServer  # only this server needs it

    return EmbeddedServer.of_project(settings)


def session_of(context: typer.Context) -> CliSession:
    """Return the session of the root command."""
    session: CliSession = context.obj
    return session


def check_queue_known(client: DelayQ, queue: str) -> None:
    """Raise QueueNotFound if a queue is unknown, because its name may be misspelt."""
    if not is_queue_known(client, queue):
        raise QueueNotFound(f"No queue {queue!r} is known.", hint="`delayq stats` lists the queues.")


def is_queue_known(client: DelayQ, queue: str) -> bool:
    """Return True if a queue is listed or has data in Redis.

    Every queue counts as known for a Redis user without access to the list of queues.
    """
    (stats,) = client.stats(queue)
    if stats.lease_ms or stats.scheduled or stats.ready or stats.reserved or stats.failed or stats.completed:
        return True
    try:
        return queue in client.queues()
    except CallRefused:
        return True


def _user() -> str:
    """Return the user as login@host. Under `sudo`, the login is that of the person who called `sudo`."""
    import getpass  # only the audit log needs it

    try:
        login = os.environ.get("SUDO_USER") or getpass.getuser()
    except (OSError, KeyError):
        login = str(os.getuid())
    return f"{login}@{socket.gethostname()}"
