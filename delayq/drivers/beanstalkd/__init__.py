"""beanstalkd: `driver = "beanstalkd"`, extra `beanstalkd`.

    [connections.tubes]
    driver = "beanstalkd"
    url = "beanstalkd://127.0.0.1:11300"  or unix:///run/beanstalkd.sock
    prefix = "shop-"                      before the name of every queue; without one, a queue is the tube of its name
    lease = "90s"                         the TTR of jobs put over it: how long a frozen worker keeps one
    priority = 1024                       0 goes first
    priorities = { "order.*" = 10 }       by patterns of job names; the first match counts
    failed = "/var/lib/shop/failed"       see delayq.drivers.failed.choosing
    laravel = "beanstalkd"                what the config/queue.php of a Laravel application that uses the tubes calls
                                          this connection: jobs are Laravel's payloads then (delayq.drivers.bodies)

`tubes` has the numbers and names, `session` one connection, `line` what that has reserved, `desk` the thread that talks
on it, `settling` how reservations end, `looking` what the server tells; `broker` puts them together.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Final

from delayq.core.options import Options
from delayq.drivers.beanstalkd.broker import BeanstalkdBroker
from delayq.drivers.beanstalkd.tubes import COUNTS, MAX_JOB, Tubes, read
from delayq.drivers.capabilities import Capabilities, Keeper
from delayq.drivers.failed.choosing import choose
from delayq.drivers.serving.backend import Backend
from delayq.drivers.serving.given import Given
from delayq.settings.tables import ConnectionSettings

CAPABILITIES: Final = Capabilities(
    delay=True,
    counts=True,
    clear=True,
    chains=True,
    max_bytes=MAX_JOB - COUNTS,
    resolution_ms=1000,
    recoveries=True,
    keeper=Keeper.HOLDER,
)


def backend(name: str, given: ConnectionSettings, options: Options) -> Backend:
    """What the settings describe. Raises `ConfigError` for what cannot be used; opens nothing."""
    words = Given(name, given)
    tubes = read(name, given, words)
    failed = choose(name, words, options, laravel=tubes.laravel)
    words.no_more()
    # How large a job may be this server says itself, because it may be told another number (-z).
    can = replace(CAPABILITIES, max_bytes=None, chains=not tubes.laravel)
    return Backend(can, partial(_make, tubes), f"beanstalkd at {tubes.place}", failed)


def _make(tubes: Tubes, *, answer_ms: int | None = None) -> BeanstalkdBroker:
    return BeanstalkdBroker(tubes, answer_ms)
