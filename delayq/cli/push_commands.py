"""push: a worker that posts the jobs of a queue to a URL."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from delayq.cli.flags import QueueName, duration, example, rate, session_of
from delayq.cli.service_commands import (
    AllowEviction,
    Backoff,
    Events,
    Force,
    Grace,
    MaxJobs,
    MaxTime,
    Memory,
    MetricsPort,
    NoMover,
    Once,
    Processes,
    Quiet,
    Served,
    StopWhenEmpty,
    StopWhenEmptyFor,
    Tries,
    WorkerName,
)

To = Annotated[
    str | None,
    typer.Option("--to", metavar="URL", help="Where to; without it, the url of [push.QUEUE] in the settings."),
]
SecretFile = Annotated[
    Path | None,
    typer.Option("--secret-file", metavar="FILE", help="What it signs with: one whsec_… a line; two while you rotate."),
]
Unsigned = Annotated[bool, typer.Option("--unsigned", help="Without a signature; the receiver cannot tell who posts.")]
Allow = Annotated[
    list[str] | None,
    typer.Option("--allow", metavar="NET", help="A network beside the internet: 10.1.0.0/16; may be repeated."),
]
CaFile = Annotated[Path | None, typer.Option("--ca-file", metavar="FILE", help="Who else may vouch for the host.")]
RequestTimeout = Annotated[
    str | None, typer.Option("--timeout", metavar="D", help="For a whole request: 10s.", callback=duration)
]
RateLimit = Annotated[
    str | None, typer.Option("--rate", metavar="N/s", help="Requests to the host, over all workers.", callback=rate)
]
Concurrency = Annotated[
    int | None, typer.Option("--concurrency", metavar="N", min=0, help="Requests to the host at a time; 0 = any.")
]
Threads = Annotated[int, typer.Option("--threads", metavar="N", min=1, max=512, help="Requests at once in each.")]


def add_to(app: typer.Typer) -> None:
    """Give `app` the commands of this module."""
    line = "delayq push orders --to https://shop.example/hooks/orders --secret-file orders.secret"
    app.command("push", epilog=example(line))(push)


def push(
    ctx: typer.Context,
    queue: QueueName,
    to: To = None,
    secret_file: SecretFile = None,
    unsigned: Unsigned = False,
    allow: Allow = None,
    ca_file: CaFile = None,
    timeout: RequestTimeout = None,
    rate: RateLimit = None,
    concurrency: Concurrency = None,
    tries: Tries = None,
    backoff: Backoff = None,
    grace: Grace = None,
    connection: Served = None,
    once: Once = False,
    stop_when_empty: StopWhenEmpty = False,
    stop_when_empty_for: StopWhenEmptyFor = "0s",
    max_jobs: MaxJobs = 0,
    max_time: MaxTime = "0s",
    memory: Memory = 0,
    processes: Processes = 1,
    threads: Threads = 8,
    quiet: Quiet = False,
    as_json: Events = False,
    name: WorkerName = None,
    no_mover: NoMover = False,
    allow_eviction: AllowEviction = False,
    force: Force = False,
    metrics: MetricsPort = None,
) -> None:
    """Post the jobs of a queue to a URL.

    A worker whose handler is one signed POST of the envelope. 2xx settles the job; 429 and 503 with Retry-After snooze
    it, 410 discards it, other 4xx and redirects fail it, anything else is tried again.
    """
    from delayq.cli.actions import push as pusher

    raise typer.Exit(pusher.push(session_of(ctx), ctx.params))
