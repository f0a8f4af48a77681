"""A partner is notified of a payment up to ten times, 1, 3, 5 … 19 minutes apart, until it acknowledges."""

from __future__ import annotations

import os
import subprocess
import sys

from delayq import Job
from delayq.redis.client import Client
from delayq.testing import Attempted, Travel

GAPS = [f"{2 * n + 1}m" for n in range(10)]  # 1m, 3m, 5m … 19m
NOTIFIED: list[int] = []
ACKNOWLEDGES: dict[int, int] = {}  # payment → the notification to which the partner answers "success"


class NotAcknowledged(Exception):
    """The partner did not answer "success"."""


class Notify(Job, name="payment.notify", queue="notify", tries=10, delay=GAPS[0], backoff=GAPS[1:]):
    payment_id: int

    def handle(self) -> None:
        NOTIFIED.append(self.payment_id)
        if NOTIFIED.count(self.payment_id) != ACKNOWLEDGES.get(self.payment_id):
            raise NotAcknowledged(f"payment {self.payment_id}")


def notify(payment_id: int) -> None:
    Notify(payment_id=payment_id).dispatch(id=f"notify-{payment_id}")


def acknowledge(payment_id: int, q: Client) -> None:
    """The partner calls back between two notifications: no further one is sent."""
    q.cancel(f"notify-{payment_id}", queue="notify")


def delayq(url: str, *words: str) -> str:
    """What the command line prints; that of a shell: delayq failed list …"""
    command = [sys.executable, "-m", "delayq", *words]
    environment = {**os.environ, "DELAYQ_URL": url}
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout


def minutes(attempts: list[Attempted], began_ms: int) -> list[float]:
    return [(attempt.at_ms - began_ms) / 60_000 for attempt in attempts]


def test_the_answer_to_the_third_notification_ends_it(delayq_travel: Travel) -> None:
    ACKNOWLEDGES[42] = 3
    began_ms = delayq_travel.now_ms
    notify(42)
    attempts = delayq_travel("1d")
    assert minutes(attempts, began_ms) == [1, 4, 9]
    assert [attempt.ended for attempt in attempts] == ["released", "released", "done"]


def test_an_acknowledgement_in_between_ends_it_too(delayq_travel: Travel) -> None:
    notify(43)
    delayq_travel("5m")
    acknowledge(43, delayq_travel.client)
    assert delayq_travel("1d") == []
    assert NOTIFIED.count(43) == 2


def test_without_one_it_fails_is_seen_and_can_be_sent_again(delayq_travel: Travel) -> None:
    url, began_ms = delayq_travel.url, delayq_travel.now_ms
    notify(44)
    attempts = delayq_travel("1d")
    assert minutes(attempts, began_ms) == [1, 4, 9, 16, 25, 36, 49, 64, 81, 100]
    assert [attempt.ended for attempt in attempts] == ["released"] * 9 + ["failed"]

    [stats] = delayq_travel.client.stats("notify")
    assert (stats.failed, stats.scheduled) == (1, 0)
    assert "NotAcknowledged: payment 44" in delayq(url, "failed", "list", "--queue", "notify")

    ACKNOWLEDGES[44] = 11  # the partner is repaired
    assert delayq(url, "failed", "retry", "--name", "payment.*", "--queue", "notify") == "notify-44\n"
    assert [(attempt.id, attempt.ended) for attempt in delayq_travel("0s")] == [("notify-44", "done")]
    assert delayq_travel.client.stats("notify")[0].failed == 0
