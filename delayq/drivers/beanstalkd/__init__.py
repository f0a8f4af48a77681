"""beanstalkd: `driver = "beanstalkd"`, extra `beanstalkd`.

    [connections.tubes]
    driver = "beanstalkd"
    url = "beanstalkd://127.0.0.1:11300"  or unix:///run/beanstalkd.sock
    prefix = "shop-"                      before the name of every queue; without one, a queue is the tube of its name
    ttr = "90s"                           the lease of the jobs put over it: how long a frozen worker keeps one
    priority = 1024                       0 goes first
    priorities = { "order.*" = 10 }       by patterns of job names; the first match counts

`tubes` has the numbers and names, `session` one connection, `line` what that has reserved, `desk` the thread that talks
on it, `settling` how reservations end, `looking` what the server tells; `broker` puts them together.
"""

from __future__ import annotations

from functools import partial
from typing import Final

from delayq.core.options import Options
from delayq.drivers.beanstalkd.broker import BeanstalkdBroker
from delayq.drivers.beanstalkd.tubes import MAX_DELAY_MS, Tubes, read
from delayq.drivers.capabilities import Capabilities, Keeper
from delayq.drivers.serving.backend import Backend
from delayq.settings.tables import ConnectionSettings

CAPABILITIES: Final = Capabilities(
    delay=True,
    max_delay_ms=MAX_DELAY_MS,
    counts=True,
    clear=True,
    chains=True,
    keeper=Keeper.HOLDER,
)


def backend(name: str, given: ConnectionSettings, options: Options) -> Backend:
    """What the settings describe. Raises `ConfigError` for what cannot be used; opens nothing."""
    tubes = read(name, given)
    return Backend(CAPABILITIES, partial(_make, tubes), f"beanstalkd at {tubes.place}")


def _make(tubes: Tubes, *, answer_ms: int | None = None) -> BeanstalkdBroker:
    return BeanstalkdBroker(tubes, answer_ms)
