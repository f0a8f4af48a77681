"""What clients send to a server while a test does something."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import redis

BEGIN: Final = "the-beginning"
END: Final = "the-end"


@contextmanager
def commands(client: redis.Redis) -> Iterator[Counter[str]]:
    """The commands sent during the block, by name; what scripts call is not counted."""
    found: Counter[str] = Counter()
    with client.monitor() as monitor:  # type: ignore[no-untyped-call]
        client.echo(BEGIN)
        while not monitor.next_command()["command"].endswith(BEGIN):  # what connecting takes
            pass
        yield found
        client.echo(END)
        while not (seen := monitor.next_command())["command"].endswith(END):
            if seen["client_type"] != "lua":
                found[seen["command"].split()[0].upper()] += 1
