"""The command line: `python -m delayq schedule NAME --in 15m` and `python -m delayq work --app module`."""

import argparse
import json
import logging
import sys
from collections.abc import Sequence
from importlib import import_module

from delayq.core.errors import DelayqError

DEFAULT_URL = "redis://localhost:6379/0"


def schedule(options: argparse.Namespace) -> int:
    """Schedule one job and print it as JSON."""
    from delayq.client import DelayQ

    with DelayQ(options.url, prefix=options.prefix) as queue:
        ref = queue.schedule(
            options.name, json.loads(options.data), delay=options.delay, id=options.id, queue=options.queue
        )
    print(
        json.dumps({"id": ref.id, "queue": ref.queue, "state": ref.state, "outcome": ref.outcome, "due_ms": ref.due_ms})
    )
    return 0


def work(options: argparse.Namespace) -> int:
    """Run a worker until SIGTERM or SIGINT."""
    from delayq.jobs.function import registry
    from delayq.worker.options import WorkerOptions
    from delayq.worker.wiring import work as run_worker

    sys.path.insert(0, "")
    import_module(options.app)
    queues = options.queue.split(",") if options.queue else registry.queues()
    return run_worker(
        WorkerOptions(
            url=options.url,
            prefix=options.prefix,
            queues=queues,
            processes=options.processes,
            threads=options.threads,
        ),
        registry,
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return the exit code."""
    parser = argparse.ArgumentParser(prog="delayq")
    parser.add_argument("--url", default=DEFAULT_URL)
    parser.add_argument("--prefix", default="delayq")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    command = commands.add_parser("schedule", help="schedule one job")
    command.add_argument("name")
    command.add_argument("--in", dest="delay", default="0s", metavar="DURATION")
    command.add_argument("--data", default="{}", metavar="JSON")
    command.add_argument("--id")
    command.add_argument("--queue", default="default")
    command.set_defaults(run=schedule)

    command = commands.add_parser("work", help="run a worker")
    command.add_argument("--app", required=True, metavar="MODULE")
    command.add_argument("--queue", default="", metavar="QUEUE,…")
    command.add_argument("--processes", type=int, default=1)
    command.add_argument("--threads", type=int, default=1)
    command.set_defaults(run=work)

    options = parser.parse_args(arguments)
    logging.basicConfig(format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    try:
        code: int = options.run(options)
    except DelayqError as error:
        print(f"delayq: {error}", file=sys.stderr)
        return error.exit_code
    return code


if __name__ == "__main__":
    sys.exit(main())
