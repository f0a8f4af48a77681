"""What a broker holds for a job: the envelope itself, or Laravel's payload on queues that a Laravel application uses.

For brokers that give back what they were given and keep no count of attempts of ours: beanstalkd and SQS. The count
stands in the payload's member `attempts`, which Laravel does not read there: it goes by the server's own count.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, NamedTuple, Protocol

from delayq.core import envelope as envelopes
from delayq.core.errors import BadEnvelope
from delayq.core.names import check_id
from delayq.drivers.broker import Item
from delayq.drivers.laravel.payload import carried, label, read_payload
from delayq.drivers.laravel.writing import payload_of, refuse_nesting

DEFAULT_QUEUE: Final = "default"


class Read(NamedTuple):
    """A body as a job. `unreadable` says why it has no envelope; `envelope` is the body then."""

    id: str
    envelope: bytes
    unreadable: str = ""


class Bodies(Protocol):
    """From an envelope to a body and back. Pure."""

    def check(self, item: Item) -> None:
        """Raises `InvalidPayload` for a job that cannot be written so that all who use the queue can read it."""

    def write(self, envelope: bytes) -> bytes:
        """The body of an envelope. What is no envelope came from outside, and goes back as it is."""

    def read(self, body: bytes, queue: str, seen_ms: int = 0) -> Read:
        """A body as a job. Raises `BadEnvelope` or `InvalidName` for one that does not belong into the queue.

        `seen_ms` is when it was made, where the body does not say.
        """

    def load(self, body: bytes) -> bytes:
        """The envelope of a body that failed; raises `BadEnvelope`."""


@dataclass(frozen=True, slots=True)
class Envelopes:
    """A body is the envelope."""

    def check(self, item: Item) -> None:
        """Nothing to refuse."""

    def write(self, envelope: bytes) -> bytes:
        """The same bytes."""
        return envelope

    def read(self, body: bytes, queue: str, seen_ms: int = 0) -> Read:
        """Raises for what is no job of delayq."""
        return Read(check_id(envelopes.decode(body).id), body)

    def load(self, body: bytes) -> bytes:
        """The same bytes."""
        return body


@dataclass(frozen=True, slots=True)
class LaravelPayloads:
    """A body is Laravel's payload, written by PHP or by this connection."""

    def check(self, item: Item) -> None:
        """Raises `InvalidPayload` for data that PHP could not read."""
        refuse_nesting(envelopes.decode(item.envelope).data)

    def write(self, envelope: bytes) -> bytes:
        """Laravel's payload, with the attempts that were made."""
        try:
            return payload_of(envelope, attempts=envelopes.decode(envelope).attempts)
        except BadEnvelope:
            return envelope

    def read(self, body: bytes, queue: str, seen_ms: int = 0) -> Read:
        """Never raises: what cannot be run here is a job that fails with the reason, so that it is kept and seen."""
        try:
            payload = read_payload(body)
            return Read(payload.id, payload.envelope(queue=queue, attempts=payload.attempts or 0, seen_ms=seen_ms))
        except BadEnvelope as error:
            return Read(label(body)[0], body, str(error))

    def load(self, body: bytes) -> bytes:
        """The envelope; its queue is written where it is pushed. One that only Laravel can run is carried as it is."""
        try:
            payload = read_payload(body)
        except BadEnvelope:
            return carried(body, queue=DEFAULT_QUEUE)
        return payload.envelope(queue=DEFAULT_QUEUE, attempts=payload.attempts or 0)


def bodies_of(laravel: str) -> Bodies:
    """Of a connection: `laravel` is what Laravel calls it, '' where no Laravel application uses its queues."""
    return LaravelPayloads() if laravel else Envelopes()
