"""up and down: everything on the embedded server."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Final

from delayq.app import embedded_server, open_driver
from delayq.cli import logs
from delayq.cli.actions import serve
from delayq.cli.session import Session
from delayq.core.errors import BackendError, ConfigError
from delayq.redis.embedded import ChildServer, EmbeddedServer
from delayq.settings import Settings

JOINED_LOOK_S: Final = 2.0


def up(session: Session, apps: Sequence[str], queue: str | None, *, quiet: bool) -> int:
    """Server, mover, janitor and (when jobs are registered) a worker, until a signal or `down`; the exit code."""
    settings = _embedded(session.settings(), "up")
    registry = serve.handlers(settings, apps)
    options = serve.worker_options(settings, registry, serve.Wishes(queue=queue), serve.Limits())
    quiet = quiet or session.out.quiet
    embedded = embedded_server(settings)
    with embedded.start_child() as server:
        running = server.running
        session.out.line(running.url)
        how = "Started" if server.is_own else "Joined"
        session.out.note(f"{how} {running.product} {running.version}, data in {embedded.data_dir}.")
        gone = _gone(embedded, server)
        with open_driver(settings, url=running.url) as driver:
            if registry.names():
                return serve.run_worker(session, settings, driver, serve.Staff(registry, options, quiet), gone)
            session.out.note("No --app, so jobs become ready and wait. Stop with Ctrl-C.")
            logs.start(settings, quiet=quiet)
            return serve.run_loops(driver, settings, gone)


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


def _gone(embedded: EmbeddedServer, server: ChildServer) -> Callable[[], bool]:
    """Whether the server has ended. Our own child tells at once; one we joined is asked now and then."""
    looked_at = time.monotonic()

    def gone() -> bool:
        nonlocal looked_at
        if server.is_own:
            return server.has_ended()
        if time.monotonic() - looked_at < JOINED_LOOK_S:
            return False
        looked_at = time.monotonic()
        try:
            return embedded.running() is None
        except BackendError:
            return False  # it is there and does not answer: that is no end

    return gone
