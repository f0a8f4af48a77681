"""All commands by name, and a root that imports and builds the one that is asked for.

A command costs the time of making its options, and there are sixty. So `--help` of the root, completion of names and
hints at a mistyped one read the table below; whoever runs a command pays for that one. A test holds the table to what
the commands say of themselves.
"""

from __future__ import annotations

from functools import cache
from importlib import import_module
from typing import Any, Final

import typer
from typer.core import TyperCommand, TyperGroup

COMMANDS: Final = {
    "schedule": ("job", "Schedule a job for later."),
    "cancel": ("job", "Make sure a job does not run."),
    "archive": ("job", "Put a waiting job among the failed."),
    "run-now": ("job", "Let a waiting job run at once."),
    "reschedule": ("job", "Give a waiting job another time."),
    "show": ("job", "Show everything known about one job."),
    "why": ("job", "Say why a job has not run, and what to do about it."),
    "list": ("job", "List jobs, state by state."),
    "upcoming": ("job", "Show how many jobs fall due when."),
    "stats": ("queue", "Show how many jobs are in which state."),
    "activity": ("queue", "Show what happened in the last minutes, hours or days."),
    "job-types": ("queue", "Show which job names run most, slowest, and fail most."),
    "pause": ("queue", "Stop a queue, or with --all every one, until it is resumed."),
    "resume": ("queue", "Undo a pause; with --all the pause of everything."),
    "drain": ("queue", "Let running jobs end and start no others."),
    "clear": ("queue", "Drop every job that waits in a queue."),
    "healthcheck": ("health", "Say whether a role is well, by exit code."),
    "audit": ("limit", "Show what was done by hand: who, what, why, when."),
    "workers": ("worker", "List the workers that are alive, and what each runs."),
    "top": ("worker", "Watch queues, rates, workers, what runs and what failed."),
    "listen": ("worker", "Run a worker that is started anew whenever the code changes."),
    "restart": ("worker", "Let every worker leave after its job."),
    "work": ("service", "Run jobs."),
    "move": ("service", "Run mover and janitor without a worker."),
    "up": ("service", "Run everything on the embedded server."),
    "down": ("service", "Stop the embedded server; its data stays."),
    "demo": ("service", "Watch delayed jobs run for a few seconds."),
    "doctor": ("service", "Find out why jobs do not run."),
    "serve": ("http", "Serve the HTTP API."),
    "migrate": ("migrate", "Move waiting jobs to another connection."),
    "relay": ("outbox", "Send what applications wrote to their outbox."),
    "push": ("push", "Post the jobs of a queue to a URL."),
    "queue": ("queue", "What a queue keeps for itself."),
    "failed": ("failed", "Look at failed jobs, retry or forget them."),
    "batch": ("batch", "Look at batches, cancel them, retry what failed in them."),
    "limit": ("limit", "Look at what keeps jobs from starting, and free it."),
    "lock": ("lock", "Look at the locks of unique jobs, and free one."),
    "maintenance": ("worker", "Keep workers from fetching for a while."),
    "config": ("service", "Show the settings in force."),
    "scripts": ("service", "Find the Lua scripts for clients in other languages."),
    "outbox": ("outbox", "Look after the table of an outbox."),
    "database": ("database", "Look after the tables of jobs in a database."),
    "key": ("key", "Make keys for payloads; see which are in use."),
    "api-key": ("api_key", "Make, list and revoke API keys."),
}
"""Name: the family whose `*_commands.py` has it, and its line in the list of all."""


class Root(TyperGroup):
    """`delayq`: its commands are lines of a list until one of them is called."""

    def __init__(self, **given: Any) -> None:
        super().__init__(**given)
        self.commands = {name: TyperCommand(name, help=line) for name, (_, line) in COMMANDS.items()}

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """The command that the words name, as it is; raises as any group does for one that there is not."""
        name, line, rest = super().resolve_command(ctx, args)
        return name, built(name) if name in COMMANDS else line, rest


@cache
def built(name: str) -> Any:
    """A command or a group of them, with its options."""
    family = family_of(name)
    family.registered_commands = [one for one in family.registered_commands if one.name == name]
    family.registered_groups = [one for one in family.registered_groups if one.name == name]
    return typer.main.get_group(family).commands[name]


def family_of(name: str) -> typer.Typer:
    """All commands of the family that this one belongs to."""
    family = typer.Typer(rich_markup_mode=None)
    import_module(f"delayq.cli.{COMMANDS[name][0]}_commands").add_to(family)
    return family
