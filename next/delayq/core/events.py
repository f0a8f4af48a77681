"""Events that listeners can receive."""

import msgspec


class WorkerStopping(msgspec.Struct, frozen=True):
    """A child process of a worker is about to exit normally.

    Listeners of this event run in the child process, before its `atexit` hooks. `consumer`: the name of the child as a
    consumer of the Redis streams.
    """

    consumer: str
