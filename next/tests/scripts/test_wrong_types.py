"""A key of the wrong type stops a script before its first write."""

import pytest

from delayq.core.errors import BackendError
from tests.support.queue import QueueOnServer
from tests.support.scenes import SCENES, keys_of, set_up


@pytest.mark.parametrize("name", SCENES)
def test_a_key_of_the_wrong_type_is_an_error_and_nothing_is_written(queue: QueueOnServer, name: str) -> None:
    act = set_up(queue, name)
    for key in keys_of(queue, name):
        was_there = queue.server.exists(key)
        if was_there:
            queue.server.rename(key, "aside")
        queue.server.rpush(key, "of another program")
        with queue.unchanged(), pytest.raises(BackendError, match="WRONGTYPE"):
            act()
        queue.server.delete(key)
        if was_there:
            queue.server.rename("aside", key)
    act()
