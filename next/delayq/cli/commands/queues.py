"""Commands on queues: stats."""

from collections.abc import Sequence
from typing import Annotated

import typer

from delayq.cli.options import Json
from delayq.cli.output import print_json, print_table
from delayq.cli.session import check_queue_known, session_of
from delayq.core import json_shapes
from delayq.core.times import format_duration
from delayq.core.views import QueueStats


def stats(
    context: typer.Context,
    queue: Annotated[
        str | None, typer.Option("--queue", metavar="QUEUE", help="Only this queue.", show_default=False)
    ] = None,
    json: Json = False,
) -> None:
    """Count the jobs of all queues in each state. Exit code 1: a queue could not be read."""
    with session_of(context).client() as client:
        if queue is not None:
            check_queue_known(client, queue)
        found = client.stats(queue)
    if json:
        print_json({"queues": [json_shapes.of_stats(one) for one in found]})
    else:
        _print_counts(found)
    if any(one.error for one in found):
        raise typer.Exit(1)


def _print_counts(found: Sequence[QueueStats]) -> None:
    rows = [
        (
            one.queue,
            one.scheduled,
            one.ready,
            one.reserved,
            one.failed,
            one.completed,
            format_duration(one.overdue_oldest_ms) if one.overdue_oldest_ms else "",
            one.error or ("paused" if one.paused else ""),
        )
        for one in found
    ]
    print_table(("QUEUE", "SCHEDULED", "READY", "RESERVED", "FAILED", "COMPLETED", "OVERDUE", ""), rows)
