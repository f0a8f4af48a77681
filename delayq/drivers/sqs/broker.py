"""SQS as a `Broker`: a lease hides a message; whoever knows its receipt handle renews it."""

from __future__ import annotations

import time
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from delayq.core.errors import DelayqError, InvalidInput, InvalidPayload, OutcomeUnknown
from delayq.core.states import OnConflict
from delayq.core.views import JobRef
from delayq.drivers.base import Claim, Delivery
from delayq.drivers.broker import Act, Depth, Item, Waiting, WaitingPage
from delayq.drivers.sqs.clients import Clients
from delayq.drivers.sqs.message import ROOM, Message, entry, group_of, size
from delayq.drivers.sqs.place import Place
from delayq.drivers.sqs.receipts import Receipts
from delayq.drivers.sqs.receiving import Receiving
from delayq.drivers.sqs.service import LONG_POLL_S, SEND, Service
from delayq.drivers.sqs.settling import Settling

READY = "ApproximateNumberOfMessages"
DELAYED = "ApproximateNumberOfMessagesDelayed"
RESERVED = "ApproximateNumberOfMessagesNotVisible"


@dataclass(frozen=True, slots=True)
class Shared:
    """What the brokers of one connection have in common, in all processes of a worker."""

    place: Place
    clients: Clients
    receipts: Receipts


class SqsBroker:
    """One process's way to SQS. `answer_ms`: how long to wait for an answer; then nothing is asked twice."""

    def __init__(self, shared: Shared, answer_ms: int | None = None) -> None:
        self._place = shared.place
        self._receipts = shared.receipts
        self._service = Service(shared.place, shared.clients, answer_ms)
        self._receiving = Receiving(self._service, shared.receipts)
        self._settling = Settling(self._service, shared.receipts, self._send)
        self._turn = 0
        self._open = False
        self._begin()

    # -- producing ---------------------------------------------------------------------------------------------------

    def push(self, items: Sequence[Item], on_conflict: OnConflict) -> list[JobRef]:
        """Send them, ten at a time, once all are known to fit. A FIFO queue gets them in order."""
        self._send(items)
        return [item.created() for item in items]

    def fit(self, items: Sequence[Item]) -> None:
        """Raises `InvalidPayload` for what is larger than its queue takes."""
        for item in items:
            self._fit(item)

    def _send(self, items: Sequence[Item]) -> None:
        queues: dict[str, list[Item]] = {}
        for item in items:
            self._fit(item)
            queues.setdefault(item.queue, []).append(item)
        sent = 0
        for queue, some in queues.items():
            now_ms, fifo = self.now_ms(), self._service.queue(queue).fifo
            rows = [self._entry(item, now_ms, fifo=fifo) for item in some]
            try:
                refused = [why for why in self._service.batch(SEND, queue, rows, once=True) if why is not None]
            except DelayqError as error:
                raise self._partly(error, sent, len(items)) from error
            sent += len(some) - len(refused)
            if refused:
                raise self._partly(refused[0], sent, len(items)) from refused[0]

    def _entry(self, item: Item, now_ms: int, *, fifo: bool) -> dict[str, Any]:
        group = group_of(item.envelope, self._place.group or item.queue) if fifo else ""
        message = Message(self._place.bodies.write(item.envelope), item.due_ms if item.delay_ms else 0, group=group)
        return entry(message, now_ms, fifo=fifo, token=uuid.uuid4().hex)

    def _fit(self, item: Item) -> None:
        self._place.bodies.check(item)
        queue = self._service.queue(item.queue)
        if self._place.laravel and queue.fifo and item.delay_ms > 0:
            raise InvalidInput(
                f"The queue {item.queue!r} is a FIFO queue that a Laravel application uses too, and SQS delays no "
                "single message there: a PHP worker would run the job at once.",
                hint="Send it without a delay, or to a queue that is no FIFO queue.",
            )
        limit, length = queue.max_bytes - ROOM, size(self._place.bodies.write(item.envelope))
        if length > limit:
            raise InvalidPayload(
                f"The job has {length:,} bytes as it travels; the queue {item.queue!r} takes {limit:,}.",
                hint="Store the payload elsewhere and send a reference, or raise the queue's MaximumMessageSize.",
            )

    @staticmethod
    def _partly(error: DelayqError, sent: int, of: int) -> DelayqError:
        """What is said of a send that went wrong: half of it may be there."""
        if not sent or isinstance(error, OutcomeUnknown):
            return error
        return OutcomeUnknown(f"{sent} of {of} jobs were sent; then: {error}", hint="Send the others again.")

    # -- working -----------------------------------------------------------------------------------------------------

    def ready(self, queues: Sequence[str]) -> None:
        """Look that the queues are there."""
        for queue in queues:
            self._service.queue(queue)

    def reserve(self, queue: str, count: int) -> list[Delivery]:
        """Receive up to ten, without waiting."""
        self._begin()
        return self._receiving.take(queue, count, wait_s=0)

    def wait(self, queues: Sequence[str], seconds: float) -> list[Delivery]:
        """Wait for one message: at one queue after the other in turn, because SQS waits at one only."""
        self._begin()
        turn, self._turn = self._turn, self._turn + 1
        patient = queues[turn % len(queues)]
        for queue in queues:
            if queue != patient and (found := self._receiving.take(queue, 1, wait_s=0)):
                return found
        wait_s = LONG_POLL_S if seconds >= LONG_POLL_S else 0
        found = self._receiving.take(patient, 1, wait_s=wait_s)
        if not found and not wait_s:
            time.sleep(max(0.0, seconds))
        return found

    def settle(self, acts: Sequence[Act]) -> list[bool]:
        """End reservations."""
        return self._settling.settle(acts)

    def give_back(self, claims: Sequence[Claim], *, vanished: bool) -> None:
        """Make visible at once; what vanished is sent anew, because only a message that is sent can carry a count."""
        if vanished:
            self._settling.count(claims)
        else:
            self._settling.hide(claims, 0)

    def renew(self, claims: Sequence[Claim]) -> list[bool]:
        """Hide them from others for as long again."""
        return self._settling.hide(claims, self._place.lease_s)

    def envelope(self, claim: Claim) -> bytes:
        """As it was received; also by another process of this worker."""
        receipt = self._receipts.get(claim.entry)
        return self._place.bodies.read(receipt.body, claim.queue).envelope if receipt is not None else b""

    def dump(self, envelope: bytes) -> bytes:
        """The body."""
        return self._place.bodies.write(envelope)

    def load(self, payload: bytes) -> bytes:
        """The envelope of a body."""
        return self._place.bodies.load(payload)

    def lease_s(self, queue: str) -> float:
        """For how long a message is hidden that was received."""
        return float(self._place.lease_s)

    def now_ms(self) -> int:
        """This machine's time."""
        return time.time_ns() // 1_000_000

    def _begin(self) -> None:
        """Receipts are in use from now on."""
        if not self._open:
            self._open = True
            self._receipts.open()

    # -- looking and removing ----------------------------------------------------------------------------------------

    def queues(self) -> list[str]:
        """The queues of that prefix and suffix, whatever they hold."""

        def names(client: Any) -> list[str]:
            pages = client.get_paginator("list_queues").paginate(QueueNamePrefix=self._place.prefix)
            return [str(url).rpartition("/")[2] for page in pages for url in page.get("QueueUrls", [])]

        found = map(self._place.queue, self._service.call(names))
        return sorted(queue for queue in found if queue is not None)

    def depth(self, queue: str) -> Depth:
        """About as long as this: SQS counts approximately."""
        url = self._service.queue(queue).url
        known = self._service.attributes(url, [READY, DELAYED, RESERVED], queue=queue)
        return Depth(int(known.get(READY, 0)), int(known.get(DELAYED, 0)), int(known.get(RESERVED, 0)))

    def page(self, queue: str, *, cursor: str, count: int) -> WaitingPage:
        """Nothing: SQS shows messages to those who receive them, and to nobody else."""
        return WaitingPage((), "")

    def remove(self, jobs: Sequence[Waiting]) -> list[bool]:
        """None of them: a message is deleted by whoever has received it."""
        return [False for _ in jobs]

    def clear(self, queue: str) -> int:
        """Purge the queue, as AWS does it: with what is delayed and what runs, once a minute. About how many."""
        depth, url = self.depth(queue), self._service.queue(queue).url
        self._service.call(lambda client: client.purge_queue(QueueUrl=url), queue=queue)
        return depth.ready + (depth.delayed or 0)

    def close(self) -> None:
        """Close the connections."""
        self._service.close()
        if self._open:
            self._open = False
            self._receipts.close()
