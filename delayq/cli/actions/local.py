"""up and down: everything on the embedded server."""

from __future__ import annotations

import signal
import time
from collections.abc import Sequence
from typing import Final

from delayq.app import open_driver, with_application
from delayq.cli import logs
from delayq.cli.actions import serve
from delayq.cli.actions.wishes import Limits, Wishes
from delayq.cli.session import Session
from delayq.core.errors import BackendError, BackendUnavailable, ConfigError
from delayq.redis.embedded import Attendance, ChildServer, EmbeddedServer
from delayq.redis.opening import embedded_server, left_behind, refuse_embedded
from delayq.settings import Settings

WITHOUT_APP: Final = "No --app, so jobs become ready and wait. Stop with Ctrl-C."
JOINED_LOOK_S: Final = 1.0
LOOK_S: Final = 0.05
TELL_S: Final = 5.0
LEAVE_S: Final = 2.0
"""How long an `up` may take to leave after its grace."""
NOW_S: Final = 5.0


def up(session: Session, apps: Sequence[str], wishes: Wishes, *, quiet: bool) -> int:
    """Server, mover, janitor and (when jobs are registered) a worker, until a signal or `down`; the exit code."""
    settings = _embedded(session.settings(), "up")
    refuse_embedded(settings)
    registry = serve.handlers(settings, apps)
    settings = _embedded(with_application(settings, session.read()), "up")
    options = serve.worker_options(settings, registry, wishes, Limits())
    quiet = quiet or session.out.quiet
    embedded = embedded_server(settings)
    if said := left_behind(settings):
        session.out.note(said)
    with embedded.attendance() as attendance, embedded.start_child() as server:
        attendance.attend()
        running = server.running
        serve.look_before(settings, running.url, wishes)  # CONFIG SET may have changed a server that runs already
        session.out.line(running.url)
        how = "Started" if server.is_own else "Joined"
        session.out.note(f"{how} {running.product} {running.version}, data in {embedded.data_dir}.")
        gone = _Gone(embedded, server)
        if not registry.is_empty:
            code = serve.run_worker(session, settings, running.url, serve.Staff(registry, options, quiet), gone)
        else:
            logs.start(settings, quiet=quiet)
            with open_driver(settings, url=running.url) as driver:
                code = serve.run_loops(driver, settings, lambda: session.out.note(WITHOUT_APP), gone)
        if gone.seen and server.failure:
            raise BackendUnavailable(
                f"The embedded server has died ({server.failure}), so this ends with it.",
                hint=f"Its data is in {embedded.data_dir}; `delayq up` starts it again.",
            )
        if gone.seen:
            session.out.note("The embedded server was stopped, so this ends with it.")
        elif attendance.end_awaited():
            session.out.note("`delayq down` wants to stop the embedded server, so this ended first.")
        return code


def down(session: Session, *, now: bool, as_json: bool) -> None:
    """Stop the embedded server, whoever started it, after every `up` on it; with `now` those do not finish their jobs.

    An `up` whose server is its own takes it along.
    """
    server = embedded_server(_embedded(session.settings(), "down"))
    stopped = False
    if server.has_run:
        with server.attendance() as attendance:
            stopped = _see_them_off(session, attendance, now=now)
            stopped = server.stop() or stopped
    if as_json:
        session.out.json({"stopped": stopped, "data_dir": str(server.data_dir)})
        return
    session.out.line("stopped" if stopped else "not running")
    session.out.note(f"The data stays in {server.data_dir}.")


def _see_them_off(session: Session, attendance: Attendance, *, now: bool) -> bool:
    """Ask every `up` to leave and wait until they have, at most as long as they may take; whether there was one."""
    asked = [pid for pid in attendance.others() if pid]
    if not asked:
        return False
    attendance.await_end()
    # A second wish means "at once"; two of one kind might be heard as one.
    for pid in asked:
        for number in (signal.SIGTERM, signal.SIGINT) if now else (signal.SIGTERM,):
            _ask(attendance, pid, number)
    who = f"`delayq up` ({_processes(asked)})"
    leave_s = session.settings().grace_ms / 1000 + LEAVE_S
    if now:
        session.out.note(f"Asked {who} to leave at once; what runs is handed back.")
    else:
        session.out.note(
            f"Asked {who} to leave; what runs may end within {leave_s:g} s. A second `delayq down`, or "
            "`delayq down --now`, does not wait for it."
        )
    _wait_for(session, attendance, asked, NOW_S if now else leave_s)
    return True


def _ask(attendance: Attendance, pid: int, number: signal.Signals) -> None:
    try:
        attendance.ask_to_leave(pid, number)
    except PermissionError:
        raise ConfigError(
            f"`delayq up` ({_processes([pid])}) is another user's, so this one cannot ask it to leave.",
            hint="Run `delayq down` as that user.",
        ) from None


def _wait_for(session: Session, attendance: Attendance, asked: Sequence[int], limit_s: float) -> None:
    began = told = time.monotonic()
    while left := [pid for pid in attendance.others() if pid in asked]:
        now = time.monotonic()
        if now - began >= limit_s:
            session.out.note(f"`delayq up` ({_processes(left)}) is still there; the server stops all the same.")
            return
        if now - told >= TELL_S:
            told = now
            session.out.note(f"Waiting for {_processes(left)}, {now - began:.0f} s so far.")
        time.sleep(LOOK_S)


def _processes(pids: Sequence[int]) -> str:
    return f"process{'' if len(pids) == 1 else 'es'} {', '.join(map(str, pids))}"


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
