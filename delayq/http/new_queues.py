"""Keys that may make so many new queues and no more.

The queues that a key has made lie in Redis, in a hash of their own: `1`, `2`, … and the name of each. A server takes
the lowest number that is free, with HSETNX: so servers that share the Redis together give no more than there are, and
a request that is sent again finds its queue there. A number is never given back, also when its queue is removed.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence

from delayq.core.names import check_queue
from delayq.core.spec import JobSpec, prepare
from delayq.core.states import OnConflict
from delayq.http.access import Caller
from delayq.http.problems import Refused, plain
from delayq.http.service import Service
from delayq.redis.calls.call import Command, text
from delayq.redis.keys import Globals
from delayq.redis.verbs import Flow, Verbs


async def admit_jobs(service: Service, caller: Caller, specs: Iterable[JobSpec], how: OnConflict) -> None:
    """Let the caller schedule these jobs; a key that is bound uses up a number for each new queue.

    Raises `Refused` (403), and `InvalidInput` as `schedule` does: a job that is refused uses up nothing.
    """
    if caller.key is not None and caller.key.new_queues is not None:
        now_ms, options = time.time_ns() // 1_000_000, service.client.options
        await admit(service, caller, *(prepare(spec, options, now_ms, how).queue for spec in specs))


async def admit(service: Service, caller: Caller, *queues: str) -> None:
    """Let the caller use these queues. Raises `Refused` (403) for one that its key may not make."""
    key = caller.key
    if key is None or key.new_queues is None:
        return
    names = list(dict.fromkeys(map(check_queue, queues)))
    if refused := await service.client.run(_claim(service.client.verbs, key.id, key.new_queues, names)):
        made = f"{key.new_queues} new queue{'' if key.new_queues == 1 else 's'}"
        said = f"This key may make {made} and no more, and the queue {refused} does not exist."
        raise Refused(plain(403, said, "Use a queue that exists, or a key with a larger --new-queues."))


def _claim(verbs: Verbs, key_id: str, most: int, queues: Sequence[str]) -> Flow[str]:
    """Take a number for each of these queues that is not known; answer the first one that gets none, or ''."""
    names = Globals(verbs.options.prefix)
    known: list[int] = yield tuple(Command(("SISMEMBER", names.queues, queue), int, True) for queue in queues)
    new = [queue for queue, there in zip(queues, known, strict=True) if not there]
    if not new:
        return ""
    place = names.new_queues(key_id)
    while True:
        taken: dict[int, str] = yield Command(("HGETALL", place), _numbered, True)
        left = [queue for queue in new if queue not in taken.values()]
        free = [number for number in range(1, most + 1) if number not in taken]
        if not left:
            return ""
        if len(left) > len(free):
            return left[0]
        yield Command(("HSETNX", place, free[0], left[0]), int)  # another server may have been first: look again


def _numbered(reply: Mapping[bytes, bytes] | Sequence[bytes]) -> dict[int, str]:
    pairs = reply.items() if isinstance(reply, Mapping) else zip(reply[::2], reply[1::2], strict=True)
    return {int(number): text(queue) for number, queue in pairs if number.isdigit()}
