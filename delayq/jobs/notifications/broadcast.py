"""The channel `broadcast`: notifications for whoever listens on Redis, a websocket server say.

    use_channel("broadcast", BroadcastChannel("redis://localhost:6379/0"))
    notify(Recipient({"broadcast": "user.42"}), InvoicePaid(invoice_id=7))

An address is a pub/sub channel, or with `stream=True` a stream. What arrives is JSON: `{"id", "name", "data"}`, `data`
being the answer of `to_broadcast`. An `id` that was seen already came twice.
"""

from __future__ import annotations

import msgspec

from delayq.core.errors import InvalidInput
from delayq.core.signals import Fail
from delayq.jobs.notifications.channel import Letter
from delayq.redis.broadcasting import append, publish
from delayq.redis.connect import Connector


class BroadcastChannel:
    """Tells Redis at `url`. Pub/sub reaches those who listen now; of a `stream` about the last `keep` entries stay.

    Raises `ConfigError` for a URL that cannot be read.
    """

    def __init__(self, url: str, *, stream: bool = False, keep: int = 1_000) -> None:
        if keep < 1:
            raise InvalidInput(f"keep is {keep}; a stream keeps at least 1 entry.")
        self._connector = Connector(url)
        self._stream = stream
        self._keep = keep

    def deliver(self, letter: Letter) -> None:
        """Tell one message. `Fail`s for what is no JSON; raises `BackendError` when Redis does not take it."""
        try:
            message = msgspec.json.encode({"id": letter.id, "name": letter.name, "data": letter.message})
        except (TypeError, ValueError) as error:
            raise Fail(error) from error
        if self._stream:
            append(self._connector, letter.address, message, self._keep)
        else:
            publish(self._connector, letter.address, message)

    def close(self) -> None:
        """Close the connections; the channel may be used again."""
        self._connector.close()
