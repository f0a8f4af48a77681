"""Commands that change jobs: schedule, cancel."""

from typing import Annotated

import msgspec
import typer

from delayq.cli.options import JobId, Json, Queue
from delayq.cli.output import print_json, print_text
from delayq.cli.session import session_of
from delayq.core import json_shapes
from delayq.core.errors import InvalidInput
from delayq.core.states import OnConflict
from delayq.core.times import format_instant

REFUSED = {"unknown": 3, "running": 4, "failed": 4, "finished": 4}
"""Exit codes of a cancel that changed nothing."""


def schedule(
    context: typer.Context,
    name: Annotated[
        str, typer.Argument(metavar="NAME", help="Name of the job, such as order.close.", show_default=False)
    ],
    delay: Annotated[
        str | None, typer.Option("--in", metavar="DURATION", help="Run after this time: 90s, 15m, 1h30m, 2d.")
    ] = None,
    at: Annotated[
        str | None, typer.Option("--at", metavar="TIME", help="Run at this time: 2026-11-21T15:00:00Z.")
    ] = None,
    tz: Annotated[str | None, typer.Option("--tz", metavar="ZONE", help="Time zone of --at: Europe/Berlin.")] = None,
    fold: Annotated[
        int | None, typer.Option("--fold", help="Which of two, when --at happens twice: 0 the first, 1 the second.")
    ] = None,
    data: Annotated[str | None, typer.Option("--data", metavar="JSON", help="Payload of the job.")] = None,
    id: Annotated[str | None, typer.Option("--id", metavar="ID", help="Id of the job; made when left out.")] = None,
    queue: Queue = None,
    on_conflict: Annotated[
        OnConflict, typer.Option("--on-conflict", help="What happens when a job with this id exists.")
    ] = "keep",
    tries: Annotated[int | None, typer.Option("--tries", help="Attempts before the job fails; 0 = no limit.")] = None,
    retention: Annotated[
        str | None, typer.Option("--retention", metavar="DURATION", help="Keep the finished job this long.")
    ] = None,
    timeout: Annotated[
        str | None, typer.Option("--timeout", metavar="DURATION", help="Interrupt each attempt after this time.")
    ] = None,
    deadline: Annotated[
        str | None,
        typer.Option(
            "--deadline", metavar="LIMIT", help="When the job is no use any more: a time, or 2h after it is due."
        ),
    ] = None,
    json: Json = False,
) -> None:
    """Schedule one job.

    delayq schedule order.close --in 15m --id order-42 --data '{"order_id": 42}'
    """
    payload = None if data is None else _read_payload(data)
    with session_of(context).client() as client:
        ref = client.schedule(
            name,
            payload,
            delay=delay,
            at=at,
            tz=tz,
            fold=fold,
            id=id,
            queue=queue,
            on_conflict=on_conflict,
            tries=tries,
            retention=retention,
            timeout=timeout,
            deadline=deadline,
        )
    if json:
        shape = json_shapes.of_reference(
            id=ref.id, name=ref.name, queue=ref.queue, state=ref.state, due_ms=ref.due_ms, outcome=ref.outcome
        )
        print_json(shape)
    else:
        due = f", due {format_instant(ref.due_ms)}" if ref.due_ms is not None else ""
        print_text(f"{ref.id}  {ref.outcome}: {ref.state} in queue {ref.queue}{due}")


def cancel(
    context: typer.Context,
    id: JobId,
    queue: Queue = None,
    running: Annotated[bool, typer.Option("--running", help="Ask the job to stop if it is running.")] = False,
    json: Json = False,
) -> None:
    """Cancel a job, unless a worker has it already.

    `cancelled` means that it will never run. Exit code 3: the id is unknown; 4: the job is running, failed or finished.
    """
    session = session_of(context)
    with session.client() as client:
        answer = client.cancel(id, queue=queue, running=running)
    name = session.settings.queue if queue is None else queue
    if json:
        print_json({"id": id, "queue": name, "outcome": answer})
    else:
        print_text(f"{id}  {answer}")
    is_asked = answer == "running" and running
    if answer in REFUSED and not is_asked:
        raise typer.Exit(REFUSED[answer])


def _read_payload(text: str) -> bytes:
    """Return a payload that is JSON; it is sent byte for byte."""
    raw = text.encode("utf-8", "surrogateescape")
    try:
        msgspec.json.decode(raw)
    except (msgspec.MsgspecError, UnicodeError) as error:
        raise InvalidInput(
            f"--data is no JSON: {error}.", hint="""An example: --data '{"order_id": 42}'.""", field="data"
        ) from None
    return raw
