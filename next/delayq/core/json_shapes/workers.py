"""JSON shapes of workers, and of their pause, maintenance and restart switches."""

from dataclasses import dataclass
from typing import Any, Literal

import msgspec

from delayq.core.json_shapes.answers import JobIdShape
from delayq.core.json_shapes.members import end_text, members_of, time_text
from delayq.core.times import format_instant
from delayq.core.views import Control, WorkerInfo


@dataclass(frozen=True, slots=True)
class ControlShape:
    """Answer of `delayq pause --all`, `resume --all`, `restart` and `maintenance`.

    `paused_until_ms` and `maintenance_until_ms` are null if the switch is off, and 0 if the switch has no end. `reason`
    is the reason of the maintenance, and `paused_reason` the reason of the pause.
    """

    paused: bool
    paused_until_ms: int | None
    paused_until: str | None
    paused_reason: str
    maintenance: bool
    maintenance_until_ms: int | None
    maintenance_until: str | None
    maintenance_since_ms: int | None
    maintenance_since: str | None
    reason: str
    restart_ms: int | None
    restart: str | None

    @classmethod
    def of(cls, control: Control) -> "ControlShape":
        """Return the shape of the switches for all workers."""
        return ControlShape(
            paused=control.paused_until_ms is not None,
            paused_until_ms=control.paused_until_ms,
            paused_until=end_text(control.paused_until_ms),
            paused_reason=control.paused_reason,
            maintenance=control.maintenance_until_ms is not None,
            maintenance_until_ms=control.maintenance_until_ms,
            maintenance_until=end_text(control.maintenance_until_ms),
            maintenance_since_ms=control.maintenance_since_ms,
            maintenance_since=time_text(control.maintenance_since_ms),
            reason=control.reason,
            restart_ms=control.restart_ms,
            restart=time_text(control.restart_ms),
        )

    def with_running(self, running: list[JobIdShape]) -> "ControlWaitShape":
        """Return the shape with the jobs that workers still have after the wait."""
        return ControlWaitShape(**members_of(self), running=running)


@dataclass(frozen=True, slots=True)
class ControlWaitShape(ControlShape):
    """Answer of `delayq pause --all --wait`. `running` lists up to 20 jobs that workers still have after the wait."""

    running: list[JobIdShape]


ChildState = Literal["idle", "working", "paused", "leaving", "crashed"]


class _AnnouncedJob(msgspec.Struct, frozen=True):
    """A running job, as the worker announced it."""

    id: str
    name: str
    queue: str
    started_ms: int


class _Announced(msgspec.Struct, frozen=True):
    """A child, as the worker announced it."""

    name: str
    queues: list[str]
    host: str
    pid: int | None
    supervisor: int
    started_ms: int
    state: ChildState
    done: int
    held: int
    running: list[_AnnouncedJob]
    runs: int


@dataclass(frozen=True, slots=True)
class RunningJobShape:
    """A running job of a child. `runtime_ms` is the time from its start until `delayq workers` read the list."""

    id: str
    name: str
    queue: str
    started_ms: int
    started: str
    runtime_ms: int


@dataclass(frozen=True, slots=True)
class WorkerShape:
    """One child process of a worker, as `delayq workers` prints it.

    `pid`: the process id; null if the process crashed and its replacement has not started.
    `supervisor`: the process id of the parent. `state`: 'working' = a job is running; 'idle' = no job is running, and
    the child may start jobs; 'paused' = a signal has paused the worker; 'leaving' = the child is shutting down;
    'crashed' = the process died, and its replacement has not started.
    `done`: jobs finished since the child started. `held`: jobs that the child has now. `runs`: how many of these are
    running. `running`: up to ten running jobs, the longest-running first.
    """

    name: str
    queues: list[str]
    host: str
    pid: int | None
    supervisor: int
    started_ms: int
    started: str
    state: ChildState
    done: int
    held: int
    running: list[RunningJobShape]
    runs: int

    @classmethod
    def of(cls, worker: WorkerInfo, *, now_ms: int) -> "WorkerShape | dict[str, Any]":
        """Return the shape of a child, or a dict of its members if another release announces other members.

        `now_ms`: the time of the server when the list was read.
        """
        members = {"name": worker.name, "queues": worker.queues, **worker.about}
        try:
            announced = msgspec.convert(members, _Announced)
        except msgspec.ValidationError:
            return members
        if msgspec.json.encode(announced) != msgspec.json.encode(members):
            return members
        return WorkerShape(
            name=announced.name,
            queues=announced.queues,
            host=announced.host,
            pid=announced.pid,
            supervisor=announced.supervisor,
            started_ms=announced.started_ms,
            started=format_instant(announced.started_ms),
            state=announced.state,
            done=announced.done,
            held=announced.held,
            running=[
                RunningJobShape(
                    id=job.id,
                    name=job.name,
                    queue=job.queue,
                    started_ms=job.started_ms,
                    started=format_instant(job.started_ms),
                    runtime_ms=max(now_ms - job.started_ms, 0),
                )
                for job in announced.running
            ],
            runs=announced.runs,
        )


@dataclass(frozen=True, slots=True)
class MoveShape:
    """Answer of `delayq move --once`: the number of jobs that became ready."""

    moved: int
