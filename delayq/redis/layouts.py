"""What a client knows of how queues are spread over shards.

It begins by taking every queue for one that was never sharded, and is corrected by the first shard that knows better:
so a queue without shards costs nothing. What was learned is only ever replaced by a newer layout.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Any, Final

from delayq.core.errors import BackendDamaged
from delayq.core.shards import PLAIN, Layout, read_layout
from delayq.redis.calls.call import Command, text
from delayq.redis.keys import Keys

FIELD: Final = "shards"


class Layouts:
    """The layouts of the queues under one prefix, as last heard. Safe to share between threads."""

    def __init__(self, prefix: str) -> None:
        self._prefix = prefix
        self._known: dict[str, Layout] = {}

    def of(self, queue: str) -> Layout:
        """The layout of a queue, as far as it is known."""
        return self._known.get(queue, PLAIN)

    def learn(self, queue: str, layout: Layout) -> None:
        """Somebody said so; an older one than known is left alone."""
        if layout.epoch > self.of(queue).epoch:
            self._known[queue] = layout

    def forget(self, queue: str) -> None:
        """The queue was removed."""
        self._known.pop(queue, None)

    def moved(self, queue: str, layout: Layout) -> None:
        """A shard did nothing, as it knows this newer one.

        Raises `BackendDamaged` for one that cannot be read: asked anew, the shard would say the same for ever.
        """
        if not layout.epoch:
            raise self.unreadable(queue)
        self.learn(queue, layout)

    def unreadable(self, queue: str) -> BackendDamaged:
        """What to say of a queue whose layout is none."""
        return BackendDamaged(
            f"`{FIELD}` in {Keys(self._prefix, queue).meta} is not a number of shards that delayq has written.",
            hint="Look at it with HGET, and set it to what it was; a queue that was never spread has 1.",
        )

    def read(self, queue: str) -> Generator[Command[Any], Any, Layout]:
        """The layout as the first shard has it now, or a newer one that was heard of; one command."""
        self.learn(queue, (yield self.question(queue)))
        return self.of(queue)

    def check(self, queue: str) -> Generator[Command[Any], Any, None]:
        """Raises `BackendDamaged` when what the first shard has is no layout. A new queue has none at all."""
        written = yield Command(("HGET", Keys(self._prefix, queue).meta, FIELD), lambda reply: reply, True)
        if written is not None and str(read_layout(text(written))) != text(written):
            raise self.unreadable(queue)

    def question(self, queue: str) -> Command[Layout]:
        """What the first shard is asked."""
        return Command(("HGET", Keys(self._prefix, queue).meta, FIELD), _layout, True)


def _layout(reply: bytes | None) -> Layout:
    return read_layout(text(reply or b""))
