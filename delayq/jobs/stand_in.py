"""What every handler has in common that stands in another one's place: whatever it does not change, it passes on."""

from __future__ import annotations

from delayq.jobs.handler import Handler
from delayq.jobs.options import HandlerOptions
from delayq.jobs.payload import Payload


class StandIn:
    """Looks like `inner` to a worker. Whoever derives from it adds `open`, `run` and `failed`, and is a `Handler`."""

    def __init__(self, inner: Handler) -> None:
        self.inner = inner

    def __repr__(self) -> str:
        return repr(self.inner)

    @property
    def name(self) -> str:
        """As the inner one's; so is all that follows."""
        return self.inner.name

    @property
    def options(self) -> HandlerOptions:
        return self.inner.options

    @property
    def place(self) -> str:
        return self.inner.place

    @property
    def is_async(self) -> bool:
        return self.inner.is_async

    @property
    def hears_failures(self) -> bool:
        return self.inner.hears_failures

    @property
    def brings_middleware(self) -> bool:
        return self.inner.brings_middleware

    @property
    def payload(self) -> Payload | None:
        return self.inner.payload
