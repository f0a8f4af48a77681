"""Commands of redis-py's methods for any nodes of a cluster, collected and sent together."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from redis.client import Pipeline

from delayq.redis.direct import Words

if TYPE_CHECKING:
    from delayq.redis.cluster import Cluster


class ClusterPipeline(Pipeline):
    """redis-py's methods, collected; `execute` sends them."""

    def __init__(self, cluster: Cluster) -> None:
        super().__init__(cluster.connection_pool, cluster.response_callbacks, False, None)
        self._cluster = cluster

    def execute(self, raise_on_error: bool = True) -> list[Any]:
        """The replies in order. Raises the first error, or leaves errors in their places."""
        stack, self.command_stack = list(self.command_stack), []
        raw = self._cluster.exchange([as_words(args) for args, _ in stack])
        shaped = [
            self._cluster.shaped(str(args[0]), reply, options)
            for (args, options), reply in zip(stack, raw, strict=True)
        ]
        for reply in shaped if raise_on_error else ():
            if isinstance(reply, Exception):
                raise reply
        return shaped


def as_words(args: Sequence[Any]) -> Words:
    """A command as redis-py's methods write it, with the words of its name apart."""
    return (*str(args[0]).split(), *args[1:])
