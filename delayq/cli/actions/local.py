"""up and down: everything on the embedded server."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Final

from delayq.app import open_driver
from delayq.cli import logs
from delayq.cli.actions import serve
from delayq.cli.session import Session
from delayq.core.errors import BackendError, ConfigError
from delayq.redis.embedded import ChildServer, EmbeddedServer
from delayq.redis.opening import embedded_server
from delayq.settings import Settings

JOINED_LOOK_S: Final = 1.0


def up(session: Session, apps: Sequence[str], wishes: serve.Wishes, *, quiet: bool) -> int:
    """Server, mover, janitor and (when jobs are registered) a worker, until a signal or `down`; the exit code."""
    settings = _embedded(session.settings(), "up")
    registry = serve.handlers(settings, apps)
    options = serve.worker_options(settings, registry, wishes, serve.Limits())
    quiet = quiet or session.out.quiet
    embedded = embedded_server(settings)
    with embedded.start_child() as server:
        running = server.running
        serve.look_before(settings, running.url, wishes)  # CONFIG SET may have changed a server that runs already
        session.out.line(running.url)
        how = "Started" if server.is_own else "Joined"
        session.out.note(f"{how} {running.product} {running.version}, data in {embedded.data_dir}.")
        gone = _Gone(embedded, server)
        if registry.names():
            code = serve.run_worker(session, settings, running.url, serve.Staff(registry, options, quiet), gone)
        else:
            session.out.note("No --app, so jobs become ready and wait. Stop with Ctrl-C.")
            logs.start(settings, quiet=quiet)
            with open_driver(settings, url=running.url) as driver:
                code = serve.run_loops(driver, settings, gone)
        if gone.seen:
            session.out.note("The embedded server was stopped, so this ends with it.")
        return code


def down(session: Session, *, as_json: bool) -> None:
    """Stop the embedded server, whoever started it."""
    server = embedded_server(_embedded(session.settings(), "down"))
    stopped = server.stop()
    if as_json:
        session.out.json({"stopped": stopped, "data_dir": str(server.data_dir)})
        return
    session.out.line("stopped" if stopped else "not running")
    session.out.note(f"The data stays in {server.data_dir}.")


def _embedded(settings: Settings, command: str) -> Settings:
    if settings.url is not None:
        raise ConfigError(
            f"`delayq {command}` is about the embedded server, but a URL is set ({settings.origin_of('url')}): "
            f"{settings.url}.",
            hint="Unset it, or use `delayq work` with the Redis it names.",
        )
    return settings


class _Gone:
    """Whether the server `up` began with has ended: asked again and again, and true from then on.

    Our own child tells at once. One that we joined is asked now and then, and known by its process: after `down` the
    next command starts another on the same socket, which is not ours to serve.
    """

    def __init__(self, embedded: EmbeddedServer, server: ChildServer) -> None:
        self._embedded = embedded
        self._server = server
        self._looked_at = time.monotonic()
        self.seen = False

    def __call__(self) -> bool:
        self.seen = self.seen or self._look()
        return self.seen

    def _look(self) -> bool:
        if self._server.is_own:
            return self._server.has_ended()
        if time.monotonic() - self._looked_at < JOINED_LOOK_S:
            return False
        self._looked_at = time.monotonic()
        try:
            running = self._embedded.running()
        except BackendError:
            return False  # it is there and does not answer: that is no end
        return running is None or running.pid != self._server.running.pid
