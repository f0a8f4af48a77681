"""The metrics port of a worker: exact through the deaths of children and of the process that shows it."""

from __future__ import annotations

import os
import re
import signal
import urllib.request

from delayq.core.states import State
from tests.support.metrics import complaints, promtool, samples
from tests.support.supervision import House, Shop
from tests.support.waiting import wait_until

Found = dict[tuple[str, ...], float]


def page(shop: Shop) -> str:
    """What the port shows."""
    wait_until(lambda: "metrics at http" in shop.said(), what="it listens")
    (url,) = set(re.findall(r"metrics at (http://127\.0\.0\.1:\d+/metrics)", shop.said()))
    with urllib.request.urlopen(url, timeout=20) as answer:
        return str(answer.read().decode())


def shown(shop: Shop) -> Found:
    return samples(page(shop))


def shows_ends(shop: Shop, count: int) -> bool:
    ends = [value for (name, *_), value in shown(shop).items() if name == "delayq_job_attempts_total"]
    return sum(ends) == count


def test_counts_are_exact_through_the_deaths_of_children(house: House) -> None:
    ids = [f"n{n}" for n in range(40)]
    house.schedule("noop", *ids)
    house.schedule("bad", "b1")
    house.schedule("nobody_knows", "u1")
    house.schedule("kill_self", "killer")
    with house.open(tries=1, processes=2, mover=True, metrics_port=0) as shop:
        house.until("killer", State.FAILED, timeout=30)
        house.schedule("noop", "last")
        house.until_gone(*ids, "last")
        wait_until(lambda: shows_ends(shop, 43), what="all that ended is shown")
        text = page(shop)
    found = samples(text)
    assert found["delayq_job_attempts_total", "noop", "done", "default"] == 41
    assert found["delayq_job_attempts_total", "bad", "failed", "default"] == 1
    assert found["delayq_job_attempts_total", "unknown", "failed", "default"] == 1
    assert found["delayq_job_duration_seconds_count", "noop", "done", "default"] == 41
    assert found["delayq_job_lateness_seconds_count", "noop", "default"] == 41
    assert found["delayq_job_lateness_seconds_count", "kill_self", "default"] == 4
    assert found["delayq_worker_child_deaths_total",] >= 4
    assert found["delayq_loop_last_success_timestamp_seconds", "mover"] > found["delayq_worker_start_time_seconds",] - 1
    assert complaints(text) == []
    assert promtool("metrics", text) == ""
    assert not [word for word in ("killer", "n17") if word in text.replace("kill_self", "")]


def test_the_process_that_shows_is_made_again_and_has_forgotten_nothing(house: House) -> None:
    with house.open(metrics_port=0) as shop:
        house.schedule("noop", "a", "b")
        house.until_gone("a", "b")
        wait_until(lambda: shows_ends(shop, 2), what="both are shown")
        [shows] = re.findall(r"(\d+) delayq\.metrics INFO", shop.said())
        os.kill(int(shows), signal.SIGKILL)
        wait_until(lambda: shop.said().count("metrics at http") == 2, what="another one shows")
        assert shows_ends(shop, 2)
        shop.signal(signal.SIGTERM)
        assert shop.ended() == 0
