"""The turns of a supervisor: a step that fails is logged once, and the end of its failures when it worked again."""

import logging
from collections.abc import Sequence

import pytest

from delayq.core.errors import BackendUnavailable
from delayq.worker import children as children_module
from delayq.worker import supervisor as supervisor_module
from delayq.worker.children import ChildProcess, Children
from delayq.worker.options import WorkerOptions
from delayq.worker.shared_memory import SlotTable
from delayq.worker.sidecar import Sidecar
from delayq.worker.stopping import Stopping
from delayq.worker.supervisor import Supervisor


class FakeRole:
    """A role that raises, or returns whether anything was due, as it is told."""

    def __init__(self, *answers: bool | Exception) -> None:
        self._answers = list(answers)

    def step(self, children: Sequence[ChildProcess], now: float) -> bool:
        answer = self._answers.pop(0) if self._answers else False
        if isinstance(answer, Exception):
            raise answer
        return answer


def supervisor_with(*roles: FakeRole) -> Supervisor:
    children = Children(lambda name, slots, jobs: 0, lambda: SlotTable(["q"]), processes=0, max_jobs=None)
    return Supervisor(children, Sidecar(None), Stopping(WorkerOptions()), alive=roles, ended=FakeRole())


class SlowRole:
    """A role whose step takes a time on the clock of the test."""

    def __init__(self, clock: list[float], seconds: float) -> None:
        self._clock = clock
        self._seconds = seconds

    def step(self, children: Sequence[ChildProcess], now: float) -> bool:
        self._clock[0] += self._seconds
        return True


def test_a_step_that_was_not_due_does_not_end_an_outage(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(supervisor_module, "reap", lambda: [])
    away = BackendUnavailable("away")
    supervisor = supervisor_with(FakeRole(away, False, away, False, True))
    with caplog.at_level(logging.INFO):
        for _ in range(5):
            supervisor.turn()
    assert [record.getMessage() for record in caplog.records] == [
        "the step 'FakeRole' of the supervisor failed: away",
        "this error has ended: the step 'FakeRole' of the supervisor failed",
    ]


def test_a_step_that_fails_stops_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(supervisor_module, "reap", lambda: [])
    other = FakeRole(True)
    supervisor_with(FakeRole(ValueError("why")), other).turn()
    assert other._answers == []


@pytest.mark.parametrize(("seconds", "extended"), [(2.0, 0.0), (5.0, 5.0)], ids=["slow backend", "suspended"])
def test_deadlines_are_extended_if_the_worker_is_suspended_during_a_step(
    monkeypatch: pytest.MonkeyPatch, seconds: float, extended: float
) -> None:
    monkeypatch.setattr(supervisor_module, "reap", lambda: [])
    time, slots = [100.0], SlotTable(["q"], clock=lambda: 100.0)
    children = Children(lambda name, slots, jobs: 4242, lambda: slots, processes=1, max_jobs=None)
    role, stopping = SlowRole(time, seconds), Stopping(WorkerOptions())
    Supervisor(children, Sidecar(None), stopping, alive=[role], ended=FakeRole(), clock=lambda: time[0]).turn()
    assert 100.0 - slots.now() == extended


def test_at_the_end_of_the_grace_period_only_the_kills_are_left(monkeypatch: pytest.MonkeyPatch) -> None:
    """A backend that does not answer would delay the end of the worker."""
    monkeypatch.setattr(supervisor_module, "reap", lambda: [])
    slots = SlotTable(["q"])
    children = Children(lambda name, slots, jobs: 4242, lambda: slots, processes=1, max_jobs=None)
    children.all[0].process_id = 4242
    killed: list[object] = []
    monkeypatch.setattr(children_module, "send", lambda process_id, number: killed.append(process_id))
    role, ended, stopping = FakeRole(True), FakeRole(True), Stopping(WorkerOptions(grace=0))
    stopping.begin("TERM", [])
    Supervisor(children, Sidecar(None), stopping, alive=[role], ended=ended).turn()
    assert (role._answers, ended._answers) == ([True], [True])
    assert killed
