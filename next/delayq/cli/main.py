"""The command `delayq`: its root options, and the exit codes of errors.

0 done · 1 the command failed · 2 bad usage · 3 unknown id · 4 conflict, or the job is running, failed or completed ·
5 Redis unreachable, not ready or full · 6 refused for safety · 7 outcome unknown or not confirmed · 130 interrupted
"""

import errno
import sys
from typing import Annotated

import typer

from delayq.cli.errors import sentence_of
from delayq.cli.families import PLAIN, Families
from delayq.cli.streams import drop_lost_output, open_closed_streams
from delayq.core.display import printable
from delayq.core.errors import DelayqError, InvalidInput
from delayq.core.exit_codes import ExitCode

app = typer.Typer(
    name="delayq",
    help="Run work later and never lose it.",
    cls=Families,
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
    **PLAIN,
)


def _print_version(is_asked: bool) -> None:
    if is_asked:
        from importlib.metadata import version  # only this option needs it

        print(f"delayq {version('delayq')}")
        raise typer.Exit


@app.callback()
def root(  # noqa: PLR0917
    context: typer.Context,
    url: Annotated[
        str | None, typer.Option(metavar="URL", help="Address of Redis, instead of DELAYQ_URL.", show_default=False)
    ] = None,
    connection: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Connection from [connections] in the settings file.", show_default=False),
    ] = None,
    prefix: Annotated[
        str | None, typer.Option(metavar="PREFIX", help="Prefix of all Redis keys [delayq].", show_default=False)
    ] = None,
    config: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="Settings file [nearest delayq.toml, here or above].", show_default=False),
    ] = None,
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Log everything, with tracebacks.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print only data, warnings and errors.")] = False,
    version: Annotated[
        bool, typer.Option("--version", help="Print the version.", callback=_print_version, is_eager=True)
    ] = False,
) -> None:
    """Run work later and never lose it. `delayq config show` lists the settings."""
    from delayq.cli.session import CliSession  # imports redis-py, which `--help` does not need

    if verbose and quiet:
        raise InvalidInput("-v and -q are both given.", hint="Leave out one of them.")
    level = "DEBUG" if verbose else "WARNING" if quiet else None
    given = {"url": url, "connection": connection, "prefix": prefix, "config": config, "log_level": level}
    context.obj = CliSession(given, quiet)
    if verbose:
        from delayq.cli.logging import begin_logging  # most commands log nothing

        begin_logging(log_format="text", level="DEBUG", quiet=False)


def main() -> None:
    """Run one command. Print an error of delayq on stderr, and exit with its code."""
    open_closed_streams()
    try:
        app()
    except SystemExit as end:
        sys.exit(_flushed(end.code))
    except DelayqError as error:
        import logging  # `--help` does not need them

        from delayq.cli.logging import writes_json

        logger = logging.getLogger("delayq")
        logger.debug("the command failed", exc_info=error)
        if writes_json():
            logger.error(sentence_of(error))
        else:
            print(f"delayq: {printable(sentence_of(error))}", file=sys.stderr)
        sys.exit(_flushed(error.exit_code))


def _flushed(code: str | int | None) -> str | int | None:
    """Flush stdout and return the exit code. If the answer cannot be written, return FAILED instead of 0."""
    try:
        sys.stdout.flush()
    except OSError as error:
        drop_lost_output()
        if error.errno != errno.EPIPE:  # the reader of a pipe may stop when it has enough
            print(f"delayq: The output could not be written: {error.strerror}.", file=sys.stderr)
        return code or ExitCode.FAILED
    return code
