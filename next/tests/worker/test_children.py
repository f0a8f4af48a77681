"""When a dead child is replaced: at once in good order, later and later when children die early."""

from collections.abc import Callable

import pytest

from delayq.worker import children as children_module
from delayq.worker import sidecar as sidecar_module
from delayq.worker.children import Children, as_text
from delayq.worker.shared_memory import SlotTable
from delayq.worker.sidecar import Sidecar
from tests.support.fakes import FakeClock

PID = 4_000_000
CRASHED = 1


@pytest.fixture
def forks(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The titles of the processes that were forked; none of them is one."""
    titles: list[str] = []

    def fork(main: Callable[[], int], *, title: str) -> int:
        titles.append(title)
        return PID

    for module in (children_module, sidecar_module):
        monkeypatch.setattr(module, "fork", fork)
    return titles


def children_of(clock: FakeClock) -> Children:
    return Children(
        lambda *_: 0, lambda: SlotTable(["q"], clock=clock), processes=1, max_jobs=None, host="a", clock=clock
    )


def pause_after(children: Children, clock: FakeClock, forks: list[str], *, code: int) -> float:
    """End the child and return the seconds until the next one is forked."""
    assert children.ended(PID, code)
    children.all[0].is_settled = True
    before, start = len(forks), clock.now
    children.spawn()
    while len(forks) == before:
        clock.now += 0.5
        children.spawn()
    return clock.now - start


def test_children_that_die_early_are_replaced_later_and_later(forks: list[str]) -> None:
    clock = FakeClock()
    children = children_of(clock)
    children.spawn()
    assert forks == ["delayq-child"]
    pauses = [pause_after(children, clock, forks, code=CRASHED) for _ in range(8)]
    assert pauses == [1, 2, 4, 8, 16, 30, 30, 30]


def test_a_child_is_crashed_from_its_death_until_its_replacement_starts(forks: list[str]) -> None:
    clock = FakeClock()
    children = children_of(clock)
    assert children.crashed() == []  # it has never run
    children.spawn()
    assert children.crashed() == []
    children.ended(PID, CRASHED)
    assert children.crashed() == children.all
    children.all[0].is_settled = True
    clock.now += 1
    children.spawn()
    assert children.crashed() == []


@pytest.mark.parametrize("reason", ["it ended in good order", "it lived long", "it finished a job"])
def test_a_child_that_did_something_ends_the_slow_replacement(forks: list[str], reason: str) -> None:
    clock = FakeClock()
    children = children_of(clock)
    children.spawn()
    for _ in range(4):
        pause_after(children, clock, forks, code=CRASHED)
    code = CRASHED
    if reason == "it ended in good order":
        code = 0
    elif reason == "it lived long":
        clock.now += 60
    else:
        children.all[0].slots.count_finished()
    assert pause_after(children, clock, forks, code=code) == (0 if code == 0 else 0.5)
    assert pause_after(children, clock, forks, code=CRASHED) == 1


def test_a_pause_by_signal_stays_when_a_child_is_replaced(forks: list[str]) -> None:
    clock = FakeClock()
    children = children_of(clock)
    children.spawn()
    children.all[0].slots.set_paused(True)
    pause_after(children, clock, forks, code=CRASHED)
    assert children.all[0].slots.is_paused()


def test_a_sidecar_that_dies_early_is_replaced_later_and_later(forks: list[str]) -> None:
    clock = FakeClock()
    sidecar = Sidecar(lambda: 0, clock=clock)
    for _ in range(60):
        sidecar.spawn()
        sidecar.ended(PID, CRASHED)
        clock.now += 1
    assert len(forks) == 6


@pytest.mark.parametrize(
    ("code", "text"), [(1, "exit code 1"), (-9, "signal SIGKILL"), (-34, "signal SIGRTMIN"), (-40, "signal 40")]
)
def test_the_end_of_a_process_is_named_by_its_exit_code_or_signal(code: int, text: str) -> None:
    assert as_text(code) == text
