"""A chain and a batch behind a proxy that loses the n-th reply: each step once, each callback once."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from delayq.jobs.batch import batch
from delayq.jobs.chain import chain
from delayq.redis.connect import Waits
from tests.support.proxy import Proxy
from tests.support.station import Station
from tests.support.steps import QUEUES, Steps

pytestmark = pytest.mark.usefixtures("manager")
QUICK = Waits(connect_ms=500, answer_ms=500, budget_ms=2_000, reader_margin_ms=500)
CALLBACKS = ("before", "then", "finally")


@pytest.fixture
def proxy(redis_url: str) -> Iterator[Proxy]:
    with Proxy(Path(urlsplit(redis_url).path)) as made:
        yield made


def story(steps: Steps, n: int) -> set[str]:
    """A chain of five over three queues, and a batch of twenty with callbacks; the names of all their steps."""
    links = [f"{n}-link-{number}" for number in range(5)]
    members = [f"{n}-member-{number}" for number in range(20)]
    called: Any = {f"{name}_" if name == "finally" else name: steps(f"{n}-{name}") for name in CALLBACKS}
    chain(*(steps(name, queue=QUEUES[number % 3]) for number, name in enumerate(links))).dispatch()
    batch([steps(name, queue=QUEUES[number % 3]) for number, name in enumerate(members)], **called).dispatch()
    return {*links, *members, *(f"{n}-{name}" for name in CALLBACKS)}


@pytest.mark.parametrize("first", [1, 11, 21, 31])
def test_the_nth_reply_is_lost_and_each_step_runs_once(station: Station, proxy: Proxy, first: int) -> None:
    """All connections of the worker go through the proxy: supervisor, child, mover, relay, janitor."""
    steps = Steps(station)
    wanted: set[str] = set()
    with station.working(proxy.url, QUICK, queues=QUEUES, mover=True):
        for n in range(first, first + 10):
            proxy.cut(after=n - 1)
            wanted |= story(steps, n)
            steps.until(*wanted, timeout=30)
            proxy.heal()
        steps.quiet()
    assert proxy.lost >= 5, "most stories take more replies than that"
    assert steps.counts == dict.fromkeys(wanted, 1)
    assert all(fence.resent for fence in station.fences()), "what was fenced had been settled by an earlier try"
