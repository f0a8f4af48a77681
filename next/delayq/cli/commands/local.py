"""Commands for development: up and down (embedded server of the project), demo (temporary server), listen."""

from pathlib import Path
from typing import Annotated

import typer
from pydantic import SecretStr

from delayq.cli.application import name_of_application
from delayq.cli.commands.work import work
from delayq.cli.options import App, Json, Queues
from delayq.cli.output import print_json, print_text
from delayq.cli.session import session_of
from delayq.client import DelayQ
from delayq.core.errors import ConfigError, JobRunning
from delayq.core.json_shapes.setup import ServerStoppedShape
from delayq.core.queue_order import parse_queues
from delayq.settings.model import Settings


def up(context: typer.Context, app: App = None, queue: Queues = None) -> None:
    """Start the embedded server, and run a worker until SIGTERM or Ctrl-C.

    The server keeps running after that; `delayq down` stops it.

    delayq up --app shop.jobs
    """
    settings = session_of(context).settings
    if not settings.uses_embedded:
        why = 'DELAYQ_EMBEDDED is set to "never"' if settings.url is None else "a url is set"
        raise ConfigError(
            f"`up` needs the embedded server, but {why}.",
            hint="Run `delayq work`, which uses the server of the url. If no url is set, set DELAYQ_URL first.",
        )
    work(context, app=app, queue=queue)


def down(
    context: typer.Context,
    now: Annotated[
        bool, typer.Option("--now", help="Stop even if jobs are running. These jobs run again later.")
    ] = False,
    json: Json = False,
) -> None:
    """Stop the embedded server of this project.

    Its data is kept, and the next command that uses Redis starts the server again.

    delayq down

    Exit code 4: jobs are running.
    """
    session = session_of(context)
    server = session.embedded
    if not now and server.is_running():
        _refuse_running_jobs(session.settings.model_copy(update={"url": SecretStr(server.url)}))
    stopped = server.stop()
    if json:
        print_json(ServerStoppedShape(stopped, str(server.data_dir)))
    elif stopped:
        print_text(f"stopped the embedded server, data in {server.data_dir}")
    else:
        print_text(f"no embedded server runs for this project, data in {server.data_dir}")


def demo(context: typer.Context) -> None:
    """Show delayq at work for ten seconds, on a temporary server. Nothing is left behind.

    delayq demo
    """
    from delayq.cli.demo import run_demo

    raise typer.Exit(run_demo(session_of(context).settings.redis_server))


def listen(
    context: typer.Context,
    app: App = None,
    queue: Queues = None,
    watch: Annotated[
        Path, typer.Option("--watch", metavar="DIR", help="Directory to watch.", exists=True, file_okay=False)
    ] = Path(),
) -> None:
    """Run a worker and restart it when the code changes. For development.

    delayq listen --app shop.jobs
    """
    from delayq.cli.listening import listen as listen_to_changes

    session = session_of(context)
    words = [*session.root_words(), "work", "--app", name_of_application(app, session.settings)]
    words += ["--queue", ",".join(parse_queues(*queue))] if queue else []
    raise typer.Exit(listen_to_changes(watch, words))


def _refuse_running_jobs(settings: Settings) -> None:
    with DelayQ(settings=settings) as client:
        workers = client.workers()
        announced = sum(worker.about.get("runs", 0) for worker in workers)
        held = sum(one.reserved for one in client.stats()) if workers else 0  # workers announce only every few seconds
    if running := max(announced, held):
        raise JobRunning(
            f"Jobs are running on the embedded server: {running}.",
            hint="Stop the worker first (Ctrl-C), or use `delayq down --now`.",
        )
