"""The table of all commands. A run imports only the module of its own command, so that each command starts fast.

`delayq --help` and the hint for a mistyped command read this table. A test compares its lines with the docstrings.
"""

import gc
from importlib import import_module
from itertools import groupby
from typing import Any, Final, NamedTuple

import typer
from typer.core import TyperGroup
from typer.main import get_command, get_group

from delayq.core.display import shown
from delayq.core.errors import InvalidInput

PLAIN: Final[dict[str, Any]] = {
    "add_completion": False,
    "pretty_exceptions_enable": False,
    "rich_markup_mode": None,
}
"""Options of all Typer apps: plain text, no shell completion."""


class Command(NamedTuple):
    """A command or a group of commands: its section and line in the help, and its place as `module:attribute`."""

    section: str
    line: str
    place: str


COMMANDS: Final = {
    "schedule": Command("Jobs", "Schedule a job.", "jobs:schedule"),
    "cancel": Command("Jobs", "Cancel a job, unless a worker already has it.", "jobs:cancel"),
    "run-now": Command("Jobs", "Run a scheduled job now.", "jobs:run_now"),
    "reschedule": Command("Jobs", "Change the due time of a scheduled or ready job.", "jobs:reschedule"),
    "archive": Command("Jobs", "Move a scheduled or ready job to the failed jobs.", "jobs:archive"),
    "show": Command("Jobs", "Show all details of a job.", "show_jobs:show"),
    "list": Command("Jobs", "List the jobs of a queue in one state, sorted by time.", "show_jobs:list_jobs"),
    "upcoming": Command("Jobs", "Count the jobs that become due in the next minutes.", "show_jobs:upcoming"),
    "why": Command("Jobs", "Explain why a job has not run.", "show_jobs:why"),
    "stats": Command("Queues", "Count the jobs of each queue by state.", "queues:stats"),
    "pause": Command("Queues", "Pause a queue, or all workers.", "queues:pause"),
    "resume": Command("Queues", "Resume a queue, or all workers.", "queues:resume"),
    "clear": Command("Queues", "Delete all scheduled and ready jobs of a queue.", "queues:clear"),
    "queue": Command("Queues", "One queue: set or show its settings, or remove the queue.", "queues:queue"),
    "failed": Command(
        "Failed jobs", "Failed jobs (dead letters): list, group, retry and delete them.", "failed:failed"
    ),
    "batch": Command("Batches", "Batches of jobs: list, show, cancel and retry them.", "batches:batch"),
    "limit": Command("Limits", "Limits of jobs: list them, and free places.", "limits:limit"),
    "work": Command("Workers", "Run a worker until SIGTERM or Ctrl-C.", "work:work"),
    "move": Command("Workers", "Make due jobs ready without running them, until SIGTERM or Ctrl-C.", "work:move"),
    "workers": Command("Workers", "List the child processes of all workers.", "workers:workers"),
    "restart": Command("Workers", "Ask all workers to finish their running jobs and exit.", "workers:restart"),
    "maintenance": Command("Workers", "Stop all workers from starting jobs: on, off.", "workers:maintenance"),
    "up": Command("Local", "Start the embedded server, and run a worker until SIGTERM or Ctrl-C.", "local:up"),
    "down": Command("Local", "Stop the embedded server of this project.", "local:down"),
    "listen": Command("Local", "Run a worker and restart it when the code changes.", "local:listen"),
    "demo": Command("Local", "Show delayq at work for ten seconds, on a temporary server.", "local:demo"),
    "config": Command("Setup", "Settings in effect: show.", "config:config"),
    "key": Command("Setup", "Keys for encrypted jobs: new.", "key:key"),
    "scripts": Command("Setup", "Lua scripts for other languages: export.", "scripts:scripts"),
}
"""The commands of a section follow each other, because the help groups neighbours."""

_OF_OTHER_TOOLS: Final = {
    "--concurrency": "--processes",
    "--countdown": "--in",
    "--delay": "--in",
    "--eta": "--at",
    "--queues": "--queue",
}
"""Options that similar tools have, and the options of delayq with the same meaning."""

_OF_FAILED_JOBS: Final = ("forget", "groups", "retry")
"""Commands of `delayq failed` that users look for among the other commands."""

_OF_NUMBERS: Final = {
    "int_parsing": "",
    "int_parsing_size": "",
    "int_from_float": "",
    "greater_than_equal": " of at least ",
    "less_than_equal": " of at most ",
}
"""Errors of pydantic, with which typer checks options, and a text that follows 'Use a whole number'."""

_WIDTH: Final = max(map(len, COMMANDS))


class Families(TyperGroup):
    """The root group. It has the names of all commands, and imports a command on request."""

    def __init__(self, **attributes: Any) -> None:
        super().__init__(**attributes)
        self.commands = dict.fromkeys(COMMANDS)  # type: ignore[assignment]  # typer reads the names for its hints

    def resolve_command(self, ctx: Any, args: Any) -> Any:
        """Return the command of a command line. Without this method, the hint for `retry` would be `restart`."""
        if args[0] in _OF_FAILED_JOBS:
            ctx.fail(f"No such command {args[0]!r}. Did you mean 'failed {args[0]}'?")
        return super().resolve_command(ctx, args)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """Import a command and return it, or None for an unknown name."""
        if cmd_name not in COMMANDS:
            return None
        module, _, attribute = COMMANDS[cmd_name].place.partition(":")
        found = getattr(import_module(f"delayq.cli.commands.{module}"), attribute)
        if not gc.get_freeze_count():  # only once, because a test process runs many commands
            # At its exit, Python searches all objects for garbage, except frozen ones. Searching the imported objects,
            # which are not garbage, takes a fifth of the time of a short command.
            gc.freeze()
        if isinstance(found, typer.Typer):
            return get_group(found)
        app = typer.Typer(**PLAIN)
        app.command(cmd_name)(found)
        return get_command(app)

    def invoke(self, ctx: Any) -> Any:
        """Run the command. If an option is unknown, or a word belongs to no option, the error names the right option.

        Raises InvalidInput for an option that needs a number and has another value.
        """
        try:
            return super().invoke(ctx)
        except Exception as error:
            _refuse_number(error)
            option = getattr(error, "option_name", "")
            is_extra_word = getattr(error, "message", "").startswith("Got unexpected extra argument")
            if type(error).__name__ != "NoSuchOption" and not is_extra_word:
                raise
            command_has = [name for one in error.ctx.command.params for name in one.opts]  # type: ignore[attr-defined]
            if is_extra_word:
                if missing := " or ".join(name for name in ("--app", "--queue") if name in command_has):
                    error.message += f". Put {missing} before it."  # type: ignore[attr-defined]
            elif _OF_OTHER_TOOLS.get(option) in command_has:
                error.possibilities = [_OF_OTHER_TOOLS[option]]  # type: ignore[attr-defined]
            elif any(option in one.opts for one in self.params):
                _, _, command = error.ctx.command_path.partition(" ")  # type: ignore[attr-defined]
                error.possibilities = None  # type: ignore[attr-defined]
                error.message += f". Put it before the command: delayq {option} … {command}"  # type: ignore[attr-defined]
            raise

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write the names and lines by section."""
        for section, rows in groupby(COMMANDS.items(), key=lambda row: row[1].section):
            with formatter.section(section):
                formatter.write_dl([(name.ljust(_WIDTH), command.line) for name, command in rows])


def _refuse_number(error: Exception) -> None:
    """Raise InvalidInput if typer refused the value of an option because it is not a number that the option allows."""
    found: list[Any] = getattr(error.__cause__, "errors", list)()
    if type(error).__name__ != "BadParameter" or not found or found[0]["type"] not in _OF_NUMBERS:
        return
    (bound,) = found[0].get("ctx", {}).values() or ("",)
    raise InvalidInput(
        f"{error.param.opts[0]} is {shown(found[0]['input'])}.",  # type: ignore[attr-defined]
        hint=f"Use a whole number{_OF_NUMBERS[found[0]['type']]}{bound}.",
    ) from None
