"""Asking the nodes of a cluster, one after the other, who has which slot."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

from redis.exceptions import AuthenticationError, RedisError, ResponseError

from delayq.redis.direct import OneServer
from delayq.redis.directory import Directory
from delayq.redis.faults import NothingSent
from delayq.redis.slots import Address

MAP_S: Final = 1.5
"""So long in all."""


def read_map(directory: Directory, witness: Callable[[Address], OneServer]) -> None:
    """Learn the map of the first node that tells one. Raises `NothingSent` if none does; no command was sent then.

    `witness` makes the client of a node, one that answers soon or not at all.
    """
    end, trouble = time.monotonic() + MAP_S, "no node answers"
    for address in directory.witnesses():
        node = witness(address)
        try:
            if directory.learn(node.ask(("CLUSTER", "SLOTS")), address):
                return
            trouble = f"{address[0]}:{address[1]} has no slots and knows no node that has"
        except (AuthenticationError, ResponseError):
            raise  # no cluster, a wrong password: asking others does not help
        except (RedisError, OSError) as error:
            directory.lost(address, error)
            trouble = str(error)
        finally:
            node.close()
        if time.monotonic() > end:
            break
    raise NothingSent(f"no node told who has which slot: {trouble}")
