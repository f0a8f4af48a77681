"""`delayq` itself: the options before the command, and all commands put together."""

from __future__ import annotations

import inspect
import os
from collections.abc import Sequence
from itertools import dropwhile
from typing import Annotated, Any

import typer

from delayq import __version__
from delayq.cli.families import COMMANDS, Root, built
from delayq.cli.flags import example, session_of

app = typer.Typer(
    name="delayq",
    cls=Root,
    no_args_is_help=True,
    rich_markup_mode=None,  # plain help is three times as fast
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 120},
)


def _show_version(ctx: typer.Context, asked: bool) -> None:
    if asked:
        session_of(ctx).out.line(f"delayq {__version__}")
        raise typer.Exit


Text = str | None


@app.callback(
    epilog=example("delayq --url redis://localhost:6379/0 schedule order.close --in 15m", "delayq work --app shop.jobs")
)
def root(
    ctx: typer.Context,
    url: Annotated[Text, typer.Option(metavar="URL", help="Where Redis is; without it, the embedded server.")] = None,
    connection: Annotated[
        Text, typer.Option(metavar="NAME", help="Use this one of [connections]; default: that of the settings.")
    ] = None,
    prefix: Annotated[Text, typer.Option(metavar="P", help="What every key starts with.")] = None,
    config: Annotated[Text, typer.Option(metavar="FILE", help="The settings file, instead of ./delayq.toml.")] = None,
    lease: Annotated[Text, typer.Option(metavar="D", help="Lease of a queue seen for the first time.")] = None,
    tidy_every: Annotated[Text, typer.Option(metavar="D", help="How often the janitor looks.")] = None,
    max_recoveries: Annotated[Text, typer.Option(metavar="N", help="Starts after a vanished worker.")] = None,
    max_payload: Annotated[Text, typer.Option(metavar="SIZE", help="Largest payload: 256KiB.")] = None,
    high_water: Annotated[Text, typer.Option(metavar="N", help="Ready jobs above which the mover waits.")] = None,
    durability: Annotated[Text, typer.Option(metavar="D", help="Wait for: memory, replicas:N or fsync.")] = None,
    encrypt: Annotated[Text, typer.Option(metavar="NAMES", help="Encrypt these jobs: 'payment.*,…'; * = all.")] = None,
    keys_file: Annotated[Text, typer.Option(metavar="FILE", help="The keys of encrypted payloads.")] = None,
    api_keys_file: Annotated[Text, typer.Option(metavar="FILE", help="The keys of the HTTP API.")] = None,
    max_overdue: Annotated[Text, typer.Option(metavar="D", help="Overdue for longer, /readyz says no.")] = None,
    redact: Annotated[Text, typer.Option(metavar="NAMES", help="Fields of payloads that no page shows.")] = None,
    embedded: Annotated[Text, typer.Option(metavar="auto|never", help="May a Redis be started without a URL?")] = None,
    data_dir: Annotated[Text, typer.Option(metavar="DIR", help="Data of the embedded server.")] = None,
    redis_server: Annotated[Text, typer.Option(metavar="PROGRAM", help="Program of the embedded server.")] = None,
    log_format: Annotated[Text, typer.Option(metavar="console|json", help="How log lines look.")] = None,
    log_level: Annotated[Text, typer.Option(metavar="LEVEL", help="debug, info, warning or error.")] = None,
    verbose: Annotated[bool, typer.Option("-v", "--verbose", help="Show tracebacks.")] = False,
    quiet: Annotated[bool, typer.Option("-q", "--quiet", help="Data and errors only.")] = False,
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version and leave.")
    ] = False,
) -> None:
    """Run work later and never lose it.

    Options stand before the command. Those that set something can be set as DELAYQ_URL and so on as well, or in
    delayq.toml (`delayq config show --origin` tells what counts); an option goes before both.
    """
    session = session_of(ctx)
    session.verbose, session.out.quiet, session.command = verbose, quiet, ctx.invoked_subcommand or ""
    if config is not None:
        os.environ["DELAYQ_CONFIG"] = config
    given = {name: value for name, value in ctx.params.items() if name not in _NO_SETTINGS and value is not None}
    session.flags.update(given)


def misplaced(words: Sequence[str]) -> str:
    """The first option of `delayq` itself that stands behind a command which has none of that name; '' for none."""
    own = {f"--{name.replace('_', '-')}" for name in inspect.signature(root).parameters} - {"--quiet"} | {"-v", "-q"}
    behind = list(dropwhile(lambda word: word not in COMMANDS, words))
    own -= _options_of(behind)
    return next((word.partition("=")[0] for word in behind if word.partition("=")[0] in own), "")


def _options_of(words: Sequence[str]) -> set[str]:
    """The options of the command that these words name: `queue set orders …`."""
    command: Any = built(words[0]) if words else None
    for word in words[1:]:
        command = getattr(command, "commands", {}).get(word, command)
    return {option for parameter in command.params for option in parameter.opts} if words else set()


_NO_SETTINGS = frozenset({"config", "verbose", "quiet", "version"})
