"""How a reservation ends: the message is deleted, hidden for longer, or sent anew with what has changed and deleted.

A body cannot be changed where it lies, and the server's own count of receives counts what costs nothing too. So a retry
is a new message, sent before the old one is deleted: a crash between the two leaves both, never none.

When a call fails on the way, the same acts come again. What had ended or been sent by then is remembered until all of
them have been answered, so that it is neither taken for somebody else's nor sent twice.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

from delayq.core.errors import DelayqError
from delayq.drivers.base import Claim
from delayq.drivers.broker import Act, Again, Item
from delayq.drivers.sqs.message import Message, entry
from delayq.drivers.sqs.place import HIDDEN_S
from delayq.drivers.sqs.receipts import Receipt, Receipts, clock
from delayq.drivers.sqs.receiving import MARGIN_S
from delayq.drivers.sqs.service import DELETE, HIDE, SEND, Gone, Service


class Settling:
    """Of one connection in one process. `send` pushes what follows."""

    def __init__(self, service: Service, receipts: Receipts, send: Callable[[Sequence[Item]], None]) -> None:
        self._service = service
        self._receipts = receipts
        self._send = send
        self._ended: set[str] = set()
        self._sent: set[str] = set()

    def settle(self, acts: Sequence[Act]) -> list[bool]:
        """End reservations; False for one that has run out. Repeated after an error, the same ones end once."""
        names = {act.claim.entry for act in acts}
        for queue, numbers in _by_queue([act.claim for act in acts]).items():
            self._settle(queue, [acts[n] for n in numbers])
        answers = [act.claim.entry in self._ended for act in acts]
        self._ended -= names
        self._sent -= names
        return answers

    def _settle(self, queue: str, acts: Sequence[Act]) -> None:
        held = [
            (act, receipt)
            for act in acts
            if act.claim.entry not in self._ended and (receipt := self._receipts.get(act.claim.entry)) is not None
        ]
        for act, _ in held:
            if not isinstance(act, Again) and act.claim.entry not in self._sent:
                self._send(act.then)
                self._sent.add(act.claim.entry)
        stayed = self._release(queue, [(act, receipt) for act, receipt in held if isinstance(act, Again)])
        ended = [(act.claim.entry, receipt) for act, receipt in held if act.claim.entry not in stayed]
        self._delete(queue, ended)
        self._ended.update(act.claim.entry for act, _ in held)

    def count(self, claims: Sequence[Claim]) -> None:
        """Send those anew whose process died while it ran them, counted."""
        for queue, numbers in _by_queue(claims).items():
            entries = [claims[n].entry for n in numbers]
            held = [(name, receipt) for name in entries if (receipt := self._receipts.get(name)) is not None]
            messages = [
                (name, Message(receipt.body, 0, receipt.recoveries + 1, receipt.group)) for name, receipt in held
            ]
            self._resend(queue, messages)
            self._delete(queue, held)

    def hide(self, claims: Sequence[Claim], seconds: int) -> list[bool]:
        """Hide messages for so long from now on, 0 = not at all; False for one that is not held any more."""
        answers = [False] * len(claims)
        for queue, numbers in _by_queue(claims).items():
            held = {n: receipt for n in numbers if (receipt := self._receipts.get(claims[n].entry)) is not None}
            asked_at = clock()
            rows = [{"ReceiptHandle": receipt.handle, "VisibilityTimeout": seconds} for receipt in held.values()]
            for n, why in zip(held, self._batch(HIDE, queue, rows), strict=True):
                answers[n] = why is None
                if answers[n] and seconds:
                    self._receipts.stands(claims[n].entry, asked_at + seconds - MARGIN_S)
                else:
                    self._receipts.forget([claims[n].entry])
        return answers

    def _release(self, queue: str, again: Sequence[tuple[Again, Receipt]]) -> set[str]:
        """Send what has changed anew. The names of those whose message stays where it is, hidden until it is due."""
        fifo = self._service.queue(queue).fifo if again else False
        now_ms = time.time_ns() // 1_000_000
        stayed: set[str] = set()
        anew: list[tuple[str, Message]] = []
        for act, receipt in again:
            body = self._service.place.bodies.write(act.envelope) if act.envelope else receipt.body
            changed = body != receipt.body
            if fifo and not changed and act.delay_ms <= HIDDEN_S * 1000:
                self.hide([act.claim], -(-act.delay_ms // 1000))
                self._receipts.forget([act.claim.entry])
                stayed.add(act.claim.entry)
                continue
            due_ms = now_ms + act.delay_ms if act.delay_ms else 0
            anew.append((act.claim.entry, Message(body, due_ms, receipt.recoveries, receipt.group)))
        self._resend(queue, [(name, message) for name, message in anew if name not in self._sent])
        self._sent.update(name for name, _ in anew)
        return stayed

    def _resend(self, queue: str, messages: Sequence[tuple[str, Message]]) -> None:
        if not messages:
            return
        now_ms, fifo = time.time_ns() // 1_000_000, self._service.queue(queue).fifo
        rows = [entry(message, now_ms, fifo=fifo, token=f"{name}-again") for name, message in messages]
        self._batch(SEND, queue, rows, once=True)

    def _delete(self, queue: str, held: Sequence[tuple[str, Receipt]]) -> None:
        """Delete messages. A receipt that counts no more is no message any more, or another's: it is let be."""
        self._batch(DELETE, queue, [{"ReceiptHandle": receipt.handle} for _, receipt in held])
        self._receipts.forget([name for name, _ in held])

    def _batch(
        self, operation: str, queue: str, rows: Sequence[dict[str, Any]], *, once: bool = False
    ) -> list[DelayqError | None]:
        """As the service's; what is no matter of receipts is raised, once all of the others have worked."""
        answers = self._service.batch(operation, queue, rows, once=once) if rows else []
        for why in answers:
            if why is not None and not isinstance(why, Gone):
                raise why
        return answers


def _by_queue(claims: Sequence[Claim]) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {}
    for n, claim in enumerate(claims):
        found.setdefault(claim.queue, []).append(n)
    return found
