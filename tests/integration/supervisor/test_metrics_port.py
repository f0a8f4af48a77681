"""The metrics port of a worker: exact through the deaths of children and of the process that shows it."""

from __future__ import annotations

import os
import re
import signal
import socket
import threading
import urllib.request

from delayq.core.envelope import UNKNOWN_SINCE
from delayq.core.states import State
from delayq.redis.calls import deliver
from delayq.redis.calls.deliver import Held
from delayq.redis.send import through
from tests.support.metrics import complaints, promtool, samples
from tests.support.supervision import House, Shop
from tests.support.waiting import wait_until

Found = dict[tuple[str, ...], float]


def port(shop: Shop) -> int:
    """Where it listens."""
    wait_until(lambda: "metrics at http" in shop.said(), what="it listens")
    (number,) = set(re.findall(r"metrics at http://127\.0\.0\.1:(\d+)/metrics", shop.said()))
    return int(number)


def page(shop: Shop) -> str:
    """What the port shows."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port(shop)}/metrics", timeout=60) as answer:
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
    house.client.schedule("nobody_knows", id="u1", headers={UNKNOWN_SINCE: "0"})  # unknown for more than an hour
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


def test_an_attempt_whose_outcome_does_not_count_is_counted_as_fenced_alone(house: House) -> None:
    house.schedule("held", "h1")
    with house.open(metrics_port=0) as shop:
        house.until_started("h1")
        info = house.client.get("h1")
        assert info is not None
        scope = house.client.verbs.scope(None)
        through(house.client.connector, deliver.recover(scope, [Held("h1", info.entry)]))
        house.let_go()
        house.until_gone("h1")
        wait_until(lambda: shows_ends(shop, 2), what="two attempts that ended, each counted once")
        found = shown(shop)
    assert found["delayq_job_attempts_total", "held", "fenced", "default"] == 1
    assert found["delayq_job_attempts_total", "held", "done", "default"] == 1


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


class Dripping(threading.Thread):
    """A request without an end, a byte now and then, until it is hung up on or `stop` is set."""

    def __init__(self, number: int) -> None:
        super().__init__()
        self.stop = threading.Event()
        self.hung_up = False
        self._client = socket.create_connection(("127.0.0.1", number))

    def run(self) -> None:
        self._client.settimeout(0.1)
        self._client.sendall(b"GET /metrics HTTP/1.1\r\n")
        with self._client:
            while not self.stop.is_set() and not self.hung_up:
                try:
                    self._client.sendall(b"a")
                    self.hung_up = not self._client.recv(1)
                except TimeoutError:
                    continue
                except OSError:
                    self.hung_up = True


def test_clients_that_take_their_time_keep_no_scrape_waiting(house: House) -> None:
    with house.open(metrics_port=0) as shop:
        drip = Dripping(port(shop))
        drip.start()
        silent = [socket.create_connection(("127.0.0.1", port(shop))) for _ in range(40)]
        try:
            assert "delayq_worker_start_time_seconds" in page(shop)
            wait_until(lambda: drip.hung_up, timeout=60.0, what="the dripping client is left")
        finally:
            drip.stop.set()
            drip.join()
            for one in silent:
                one.close()
