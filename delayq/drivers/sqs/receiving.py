"""Receives messages: what is due becomes a delivery, what is not yet is passed on.

A message of SQS waits 15 minutes at most. One that is due later is therefore sent with the longest delay and its due
time, and whoever receives it early sends it on with what is left, until the rest fits. It is sent before the old one is
deleted, so it is never lost; and it is new to SQS, so its count of receives begins anew.

A FIFO queue knows no delay for one message. There it is hidden until it is due, at most 12 hours at a time, and with it
all that stand behind it in its group. Its messages are received one by one: two of a group that came together would run
side by side, or the second though the first was given back.
"""

from __future__ import annotations

import logging
import time
import uuid
from typing import Any

from delayq.core.errors import BadEnvelope, InvalidName
from delayq.drivers.base import Delivery
from delayq.drivers.sqs.message import Received, entry, received
from delayq.drivers.sqs.place import BATCH, HIDDEN_S
from delayq.drivers.sqs.receipts import Receipt, Receipts, clock
from delayq.drivers.sqs.service import DELETE, HIDE, SEND, Service

log = logging.getLogger("delayq.sqs")

ASIDE_S = 3600
"""For so long nobody sees a message again that is no job: it is the redrive policy's, or its owner's."""
MARGIN_S = 0.5


class Receiving:
    """Of one connection in one process."""

    def __init__(self, service: Service, receipts: Receipts) -> None:
        self._service = service
        self._receipts = receipts

    def take(self, queue: str, count: int, *, wait_s: int) -> list[Delivery]:
        """Receive up to ten messages, and of a FIFO queue one; the deliveries among them. Wait up to `wait_s` there."""
        asked_at, lease_s = clock(), self._service.place.lease_s
        most = 1 if self._service.queue(queue).fifo else BATCH
        rows = self._receive(queue, min(count, most), wait_s)
        now_ms = time.time_ns() // 1_000_000
        found: list[Delivery] = []
        early: list[Received] = []
        for row in rows:
            try:
                one = received(row, self._service.place.bodies, queue, now_ms)
            except (BadEnvelope, InvalidName, UnicodeError) as error:
                self._set_aside(queue, row, error)
                continue
            if one.message.due_ms > now_ms:
                early.append(one)
            else:
                found.append(self._delivery(queue, one, now_ms, asked_at + lease_s - MARGIN_S))
        if early:
            self._pass_on(queue, early, now_ms)
        return found

    def _receive(self, queue: str, count: int, wait_s: int) -> list[dict[str, Any]]:
        url, lease_s = self._service.queue(queue).url, self._service.place.lease_s
        answer = self._service.call(
            lambda client: client.receive_message(
                QueueUrl=url,
                MaxNumberOfMessages=count,
                WaitTimeSeconds=wait_s,
                VisibilityTimeout=lease_s,
                MessageAttributeNames=["All"],
                MessageSystemAttributeNames=["All"],
            ),
            queue=queue,
        )
        rows: list[dict[str, Any]] = answer.get("Messages", [])
        return rows

    def _delivery(self, queue: str, one: Received, now_ms: int, until_s: float) -> Delivery:
        message = one.message
        receipt = Receipt(one.handle, message.body, message.recoveries, message.group)
        name = self._receipts.keep(receipt, until_s)
        job, due_ms = one.job, message.due_ms or now_ms
        return Delivery(queue, job.id, name, job.envelope, due_ms, message.recoveries, unreadable=job.unreadable)

    def _pass_on(self, queue: str, early: list[Received], now_ms: int) -> None:
        if self._service.queue(queue).fifo:
            self._service.batch(HIDE, queue, [_hidden(one, now_ms) for one in early])
            return
        rows = [entry(one.message, now_ms, fifo=False, token=uuid.uuid4().hex) for one in early]
        sent = self._service.batch(SEND, queue, rows, once=True)
        gone = [{"ReceiptHandle": one.handle} for one, why in zip(early, sent, strict=True) if why is None]
        self._service.batch(DELETE, queue, gone)
        for one, why in zip(early, sent, strict=True):
            if why is not None:
                log.warning("job %s: it is not due and could not be sent on, so it comes again: %s", one.job.id, why)

    def _set_aside(self, queue: str, row: dict[str, Any], error: Exception) -> None:
        message = row.get("MessageId")
        log.warning("queue %s: message %s is no job of delayq, and is set aside for an hour: %s", queue, message, error)
        self._service.batch(HIDE, queue, [{"ReceiptHandle": row["ReceiptHandle"], "VisibilityTimeout": ASIDE_S}])


def _hidden(one: Received, now_ms: int) -> dict[str, Any]:
    left_s = -(-(one.message.due_ms - now_ms) // 1000)
    return {"ReceiptHandle": one.handle, "VisibilityTimeout": min(HIDDEN_S, left_s)}
