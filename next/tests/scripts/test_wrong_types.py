"""A key of the wrong type stops a script before its first write."""

import pytest

from delayq.core.errors import BackendError
from tests.support.queue import QueueOnServer
from tests.support.scenes import SCENES, keys_of, set_up


@pytest.mark.parametrize("name", SCENES)
def test_a_key_of_the_wrong_type_is_an_error_and_nothing_is_written(damaged_queue: QueueOnServer, name: str) -> None:
    queue = damaged_queue
    for key in keys_of(queue, name):
        queue.server.flushall()
        act = set_up(queue, name)
        queue.server.delete(key)
        queue.server.rpush(key, "of another program")
        with queue.unchanged(), pytest.raises(BackendError, match="WRONGTYPE"):
            act()
