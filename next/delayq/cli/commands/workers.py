"""Commands for all workers: workers, restart, and the group `maintenance`."""

import time
from collections import Counter
from collections.abc import Sequence
from typing import Any

import typer

from delayq.cli.families import PLAIN
from delayq.cli.options import For, Json, Reason
from delayq.cli.output import print_json, print_note, print_table, print_text
from delayq.cli.session import session_of
from delayq.client import DelayQ
from delayq.core.display import printable
from delayq.core.errors import NodeError
from delayq.core.exit_codes import ExitCode
from delayq.core.json_shapes.workers import ControlShape, WorkerShape
from delayq.core.times import format_instant, rough_duration
from delayq.core.views import Control, WorkerInfo

maintenance = typer.Typer(help="Stop all workers from starting jobs: on, off.", no_args_is_help=True, **PLAIN)


def workers(context: typer.Context, json: Json = False) -> None:
    """List the child processes of all workers, and up to ten running jobs of each, the longest-running first.

    With --json, print one line for each process. Exit code 1: a process could not be shown.

    delayq workers
    """
    session = session_of(context)
    with session.client() as client:
        found = _read_workers(client)
        control = read_control(client)
    now_ms = control.now_ms if control is not None else int(time.time() * 1000)
    if json:
        for worker in found:
            print_json(WorkerShape.of(worker, now_ms=now_ms))
        _fail_if_incomplete(found)
        return
    readable = [worker for worker in found if "error" not in worker.about]
    if readable or not found:
        print_table(
            ("HOST", "PID", "STATE", "RUNS", "DONE", "SINCE", "QUEUES"),
            map(_row, readable),
            below=_lines_of_jobs(readable, now_ms),
        )
    if not found and not session.quiet:
        print_note("No worker is running; `delayq work --app shop.jobs` starts one.")
    unread = Counter((worker.about["error"], _process(worker.name)) for worker in found if "error" in worker.about)
    for (error, process), count in unread.items():
        text = process if count == 1 else process.replace("A process", f"{count} processes")
        print_note(f"{text} cannot be shown. {error}")
    if control is not None:
        note_switches(control)
    _fail_if_incomplete(found)


def _fail_if_incomplete(found: Sequence[WorkerInfo]) -> None:
    if any("error" in worker.about for worker in found):
        raise typer.Exit(ExitCode.FAILED)


def _read_workers(client: DelayQ) -> list[WorkerInfo]:
    try:
        return client.workers()
    except NodeError as error:
        raise type(error)(f"The list of workers cannot be read. {error.message}", hint=error.hint) from error


def restart(context: typer.Context, json: Json = False) -> None:
    """Ask all workers to finish their running jobs and exit. Their process manager restarts them.

    delayq restart
    """
    session = session_of(context)
    with session.client() as client, session.audited("restart", "all workers"):
        control = client.restart_workers()
    if json:
        print_json(ControlShape.of(control))
    else:
        print_text("all workers  asked to restart")


@maintenance.command("on")
def start_maintenance(context: typer.Context, duration: For = None, reason: Reason = "", json: Json = False) -> None:
    """Stop all workers from starting jobs, except for workers with --force. Running jobs continue.

    delayq maintenance on --for 30m --reason 'new disks'
    """
    session = session_of(context)
    with session.client() as client, session.audited("maintenance on", "all workers", reason=reason):
        control = client.start_maintenance(duration=duration, reason=reason)
    if json:
        print_json(ControlShape.of(control))
    else:
        until_ms = control.maintenance_until_ms
        print_text(f"maintenance  on{f' until {format_instant(until_ms)}' if until_ms else ''}")


@maintenance.command("off")
def end_maintenance(context: typer.Context, json: Json = False) -> None:
    """Let all workers start jobs again.

    delayq maintenance off
    """
    session = session_of(context)
    with session.client() as client, session.audited("maintenance off", "all workers"):
        control = client.end_maintenance()
    if json:
        print_json(ControlShape.of(control))
    else:
        print_text("maintenance  off")


def _process(name: str) -> str:
    """Return a text that identifies a child whose description cannot be read.

    The name of the child usually contains the host, and the process id of the supervisor.
    """
    words = name.split(":")
    is_known = len(words) == 4 and words[0] == "dq"
    return f"A process of the worker on {words[1]} (pid {words[2]})" if is_known else f"The process {name}"


def _row(worker: WorkerInfo) -> tuple[object, ...]:
    about = worker.about
    since = about.get("started_ms")
    started = format_instant(since) if isinstance(since, int | float) else ""
    told = [about.get(member) for member in ("host", "pid", "state", "runs", "done")]
    return (*("" if value is None else value for value in told), started, ",".join(worker.queues))


def _lines_of_jobs(workers: Sequence[WorkerInfo], now_ms: int) -> list[list[str]]:
    """Return a line for each running job of each child, with the columns aligned over all children.

    The id is the last column, so that a long id does not widen other lines. Other releases may announce other values,
    so each value is checked.
    """
    jobs = [[_cells(job, now_ms) for job in _dicts(worker.about.get("running"))] for worker in workers]
    flat = [job for of_child in jobs for job in of_child]
    widths = [max((len(job[column]) for job in flat), default=0) for column in range(2)]
    lines = []
    for worker, of_child in zip(workers, jobs, strict=True):
        below = [f"{runtime:<{widths[0]}}  {name:<{widths[1]}}  {id}".strip() for runtime, name, id in of_child]
        runs = worker.about.get("runs")
        if isinstance(runs, int) and runs > len(of_child) > 0:
            below.append(f"… and {runs - len(of_child):,} more")
        lines.append(below)
    return lines


def _cells(job: dict[str, Any], now_ms: int) -> tuple[str, str, str]:
    since = job.get("started_ms")
    runtime = f"running for {rough_duration(max(now_ms - since, 0))}" if isinstance(since, int) else ""
    return runtime, printable(str(job.get("name") or "")), printable(str(job.get("id", "")))


def _dicts(found: object) -> list[dict[str, Any]]:
    return [one for one in found if isinstance(one, dict)] if isinstance(found, list) else []


def read_control(client: DelayQ) -> Control | None:
    """Read the switches for all workers. If their node of a cluster does not answer, print a note and return None."""
    try:
        return client.control()
    except NodeError as error:
        print_note(f"The pause and the maintenance of all workers cannot be read. {error}")
        return None


def note_switches(control: Control) -> None:
    """Print a note for the maintenance and for the pause of all workers, if they are on."""
    if control.maintenance_until_ms is not None:
        why = f" ({control.reason})" if control.reason else ""
        print_note(f"Maintenance is on{why}; `delayq maintenance off` ends the maintenance.")
    if control.paused_until_ms is not None:
        why = f" ({control.paused_reason})" if control.paused_reason else ""
        print_note(f"All workers are paused{why}; `delayq resume --all` ends the pause.")
