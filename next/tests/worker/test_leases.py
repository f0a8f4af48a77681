"""What the supervisor does for its children, living and dead."""

from delayq.worker.leases import renew, settle_for_ended
from delayq.worker.shared_memory import SlotState, SlotTable
from tests.support.fakes import FakeKeeper, delivery


def test_everything_in_the_slots_is_renewed() -> None:
    slots, keeper = SlotTable(["q"]), FakeKeeper(delivery(1))
    slots.write(0, delivery(1))
    renew(keeper, "dq:a:1:x", slots)
    assert keeper.renewed == [delivery(1).held]
    assert not slots.take_replay()


def test_a_child_replays_when_the_backend_holds_more_for_it() -> None:
    slots = SlotTable(["q"])
    renew(FakeKeeper(delivery(1)), "dq:a:1:x", slots)
    assert slots.take_replay()
    assert not slots.take_replay()


def test_only_what_was_running_is_charged_for_a_death() -> None:
    slots, keeper = SlotTable(["q"]), FakeKeeper(*[delivery(n) for n in range(1, 5)])
    for slot, state in enumerate((SlotState.DONE, SlotState.WAITING, SlotState.RUNNING)):
        slots.write(slot, delivery(slot + 1))
        slots.mark(slot, state)
    settle_for_ended(keeper, "dq:a:1:x", slots)
    done, unstarted, running = ([held.id for held in group] for group in keeper.settled)
    assert (done, unstarted, running) == (["job-1"], ["job-2", "job-4"], ["job-3"])
