"""`delayq limit …`: what keeps jobs from starting. `delayq audit`: what was done by hand, and why."""

from __future__ import annotations

from typing import Annotated

import typer

from delayq.cli.flags import Json, NdJson, example, session_of


def limit_name(value: str) -> str:
    """Raises `InvalidName` for what cannot name a limit."""
    from delayq.core.limit_names import check_limit

    return check_limit(value)


def given_reason(value: str) -> str:
    """Raises `InvalidInput` for a reason that says nothing."""
    from delayq.core.audit import check_reason

    return check_reason(value)


LimitName = Annotated[str, typer.Argument(metavar="NAME", help="The limit's name.", callback=limit_name)]
Key = Annotated[str, typer.Option("--key", metavar="K", help="Whose limit it is; without it, that of no key.")]
Holder = Annotated[str | None, typer.Option("--holder", metavar="ID", help="Only the place that this job holds.")]
Reason = Annotated[str, typer.Option("--reason", metavar="TEXT", help="Why; it is kept.", callback=given_reason)]
Limit = Annotated[int, typer.Option("--limit", metavar="N", min=1, help="At most so many.")]


def add_to(app: typer.Typer) -> None:
    """Give `app` the group `limit`, and `audit`."""
    limits = typer.Typer(no_args_is_help=True, rich_markup_mode=None)
    limits.callback(epilog=example("delayq limit list"))(_limit)
    limits.command("list", epilog=example("delayq limit list --json"))(list_limits)
    limits.command("show", epilog=example("delayq limit show warehouse-api"))(show)
    limits.command(
        "free",
        epilog=example(
            "delayq limit free warehouse-api --holder order-42 --reason 'the host is gone'",
            "delayq limit free sms --key account-7 --reason 'wrong limit until today'",
        ),
    )(free)
    app.add_typer(limits, name="limit")
    app.command("audit", epilog=example("delayq audit --limit 20"))(audit)


def _limit() -> None:
    """Look at what keeps jobs from starting, and free it."""


def list_limits(ctx: typer.Context, as_json: NdJson = False) -> None:
    """List the limits that jobs have asked, each with its keys."""
    from delayq.cli.actions import limits

    limits.list_limits(session_of(ctx), as_json=as_json)


def show(ctx: typer.Context, name: LimitName, as_json: Json = False) -> None:
    """Show who holds places of a limit, and since when."""
    from delayq.cli.actions import limits

    limits.show(session_of(ctx), name, as_json=as_json)


def free(
    ctx: typer.Context, name: LimitName, reason: Reason, key: Key = "", holder: Holder = None, as_json: Json = False
) -> None:
    """Free what is held and counted for a key of a limit.

    Jobs that run go on. The reason goes to the audit log.
    """
    from delayq.cli.actions import limits

    limits.free(session_of(ctx), limits.Target(name, key, holder), reason, as_json=as_json)


def audit(ctx: typer.Context, limit: Limit = 50, as_json: NdJson = False) -> None:
    """Show what was done by hand: who, what, why, when."""
    from delayq.cli.actions import limits

    limits.audit(session_of(ctx), limit, as_json=as_json)
