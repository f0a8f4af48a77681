"""The command `delayq`: its root options, its commands, and the exit code of an error.

0 done · 1 failed · 2 wrong use · 3 unknown id · 4 conflict, running, failed, finished · 5 Redis away or full ·
6 refused for safety · 7 outcome unknown or not confirmed · 130 interrupted
"""

import sys
from typing import Annotated

import typer

from delayq.cli.commands import jobs, local, queues, workers
from delayq.cli.errors import sentence_of
from delayq.cli.session import CliSession
from delayq.core.errors import DelayqError

app = typer.Typer(
    name="delayq",
    help="Run work later and never lose it.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
app.command("schedule")(jobs.schedule)
app.command("cancel")(jobs.cancel)
app.command("show")(jobs.show)
app.command("list")(jobs.list_jobs)
app.command("stats")(queues.stats)
app.command("work")(workers.work)
app.command("move")(workers.move)
app.command("up")(local.up)
app.command("down")(local.down)
app.command("demo")(local.demo)
app.command("listen")(local.listen)


@app.callback()
def root(
    context: typer.Context,
    url: Annotated[
        str | None, typer.Option(metavar="URL", help="Address of Redis, instead of DELAYQ_URL.", show_default=False)
    ] = None,
    prefix: Annotated[
        str | None, typer.Option(metavar="PREFIX", help="Prefix of all keys [delayq].", show_default=False)
    ] = None,
) -> None:
    """Run work later and never lose it."""
    context.obj = CliSession(url=url, prefix=prefix)


def main() -> None:
    """Run one command. An error of delayq is one sentence on stderr and its exit code."""
    try:
        app()
    except DelayqError as error:
        print(f"delayq: {sentence_of(error)}", file=sys.stderr)
        sys.exit(error.exit_code)
