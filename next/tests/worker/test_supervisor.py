"""The turns of a supervisor: a step that fails is logged once, and the end of its failures when it worked again."""

import logging
from collections.abc import Sequence

import pytest

from delayq.core.errors import BackendUnavailable
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
