"""What must hold of all scripts alike. `tests/support/scenes.py` has a call of each."""

import pytest

from delayq.core.errors import BackendError, BackendFull
from delayq.redis.scripts import FOLDER
from tests.support.dump import dump
from tests.support.queue import QueueOnServer
from tests.support.scenes import SCENES, script_of, set_up

WRITERS = [name for name, scene in SCENES.items() if not scene.only_reads]


def test_every_script_has_a_scene() -> None:
    assert {script_of(name) for name in SCENES} == {path.stem for path in FOLDER.glob("*.lua")}


@pytest.mark.parametrize("name", SCENES)
def test_a_script_leaves_the_queue_whole_and_its_second_call_changes_nothing(queue: QueueOnServer, name: str) -> None:
    act = set_up(queue, name)
    before = dump(queue.server)
    act()
    assert (dump(queue.server) == before) == SCENES[name].only_reads
    if SCENES[name].spends:
        return
    with queue.unchanged():
        act()


@pytest.mark.parametrize("name", WRITERS)
def test_a_full_server_refuses_whole_what_adds_and_lets_the_rest_go_on(queue: QueueOnServer, name: str) -> None:
    act = set_up(queue, name)
    before = dump(queue.server)
    if SCENES[name].grows:
        with queue.full(), pytest.raises(BackendError, match="memory"):
            act()
        assert dump(queue.server) == before
        act()
    else:
        with queue.full():
            act()
    assert dump(queue.server) != before


def test_a_full_server_is_told_apart_from_a_refused_call(queue: QueueOnServer) -> None:
    with queue.full(), pytest.raises(BackendFull):
        queue.schedule("job")


def test_an_emptied_script_cache_is_no_error(queue: QueueOnServer) -> None:
    queue.schedule("before", "+5000")
    queue.server.script_flush()
    assert queue.schedule("after", "+5000").answer == "created"
