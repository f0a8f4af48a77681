"""Commands on the embedded server of a project: up, down."""

import typer

from delayq.cli.commands.work import work
from delayq.cli.options import App, Queues
from delayq.cli.output import print_text
from delayq.cli.session import session_of
from delayq.core.errors import ConfigError


def up(context: typer.Context, app: App = None, queue: Queues = None) -> None:
    """Run the embedded server and a worker, until SIGTERM or Ctrl-C. The server stays; `delayq down` stops it.

    delayq up --app shop.jobs
    """
    settings = session_of(context).settings
    if not settings.uses_embedded:
        why = "DELAYQ_EMBEDDED is never" if settings.url is None else "a url is set"
        raise ConfigError(
            f"`up` runs the embedded server, but {why}.", hint="Run `delayq work` with the server of DELAYQ_URL."
        )
    work(context, app=app, queue=queue)


def down(context: typer.Context) -> None:
    """Stop the embedded server of this project. Its data stay, and the next command starts it again."""
    server = session_of(context).embedded
    if server.stop():
        print_text(f"stopped the embedded server, data in {server.data_dir}")
    else:
        print_text(f"no embedded server runs for this project, data in {server.data_dir}")
