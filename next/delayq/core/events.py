"""Events of delayq for listeners."""

import msgspec


class WorkerStopping(msgspec.Struct, frozen=True):
    """A child process of a worker is about to end in good order. It is heard in that process, before `atexit`."""

    consumer: str
