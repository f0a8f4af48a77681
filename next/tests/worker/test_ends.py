"""What a child may still hold when it ends in order."""

import os

from delayq.core.options import Options
from delayq.redis.connection.blocking import BlockingLeaf
from delayq.redis.connection.server import ServerExecutor
from delayq.redis.connection.url import Address
from delayq.redis.worker.consumer import RedisConsumer
from tests.support.queue import QueueOnServer


def test_a_wait_that_a_signal_ends_brings_what_was_delivered_meanwhile(queue: QueueOnServer, url: str) -> None:
    queue.schedule("job")
    queue.read("dq:a:1:x")
    wake_fd, signal_fd = os.pipe()
    os.write(signal_fd, b"x")
    executor = ServerExecutor(BlockingLeaf(Address(url), wake_fd=wake_fd))
    consumer = RedisConsumer(executor, queue.keys, ["orders"], Options(), name="dq:a:1:x")
    assert [job.id for job in consumer.wait(5)] == ["job"]
