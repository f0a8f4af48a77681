"""The command `delayq`: its root options, its commands, and the exit code of an error.

0 done · 1 failed · 2 wrong use · 3 unknown id · 4 conflict, running, failed, finished · 5 Redis away or full ·
6 refused for safety · 7 outcome unknown or not confirmed · 130 interrupted
"""

import sys
from typing import Annotated

import typer

from delayq.cli.errors import sentence_of
from delayq.cli.families import PLAIN, Families
from delayq.core.errors import DelayqError

app = typer.Typer(name="delayq", help="Run work later and never lose it.", cls=Families, no_args_is_help=True, **PLAIN)


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
    from delayq.cli.session import CliSession  # it brings redis-py, which `--help` does without

    context.obj = CliSession(url=url, prefix=prefix)


def main() -> None:
    """Run one command. An error of delayq is one sentence on stderr and its exit code."""
    try:
        app()
    except DelayqError as error:
        print(f"delayq: {sentence_of(error)}", file=sys.stderr)
        sys.exit(error.exit_code)
