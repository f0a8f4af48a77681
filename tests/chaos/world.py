"""What scenarios are made of: servers, and a crew at work on one of them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Any

from delayq.core.options import Options
from delayq.redis.client import Client
from delayq.redis.connect import Connector, Waits
from tests.chaos.engine import Lot, Tally
from tests.support.chaos_oracle import Verdict, judge
from tests.support.chaos_rig import Rig, Size
from tests.support.crew import Crew, Duty
from tests.support.flavours import default_flavour, require
from tests.support.servers import LocalServer, connect

NO_CAP = 1_000
"""Recoveries. Four kills may hit one job by chance; what is tried here is that nothing is lost, and the cap has a test
of its own."""
ALWAYS = {"appendfsync": "always"}
"""On the disk before it is answered."""


@contextmanager
def server(*, persistent: bool = False, options: dict[str, str] | None = None) -> Iterator[LocalServer]:
    """A started one, gone at the end."""
    with closing(LocalServer(require(default_flavour()), persistent=persistent, options=options)) as one:
        one.start()
        yield one


@contextmanager
def crew(lot: Lot, url: str, **duty: Any) -> Iterator[Crew]:
    """Nobody is hired yet. `duty` are words of `Duty`."""
    given = {"lease_ms": 1_000, "tidy_every_ms": 1_000, "max_recoveries": NO_CAP, **duty}
    with Crew(Duty(url=url, folder=lot.folder, **given)) as one:
        yield one


@contextmanager
def rig(lot: Lot, of: LocalServer, size: Size, *, url: str = "", **duty: Any) -> Iterator[Rig]:
    """Workers, movers and a producer at work; `url` is their way to the server if it is not ours."""
    with crew(lot, url or of.url, **duty) as members, connect(of.url) as client:
        yield Rig(members, client, lot.own_seed, size)


@contextmanager
def client_of(members: Crew, *, url: str = "", waits: Waits = Waits()) -> Iterator[Client]:  # noqa: B008
    """A client of the scenario's own, with the lease of its crew: the first client of a queue stores the lease.

    `url` is its way to the server if it is not the crew's.
    """
    with closing(Connector(url or members.duty.url, waits=waits)) as connector:
        yield Client(connector, Options(queue="orders", lease_ms=members.duty.lease_ms))


def verdict(run: Rig) -> Verdict:
    """What ledger, producer's log and Redis say together; nothing may be wrong, and nothing lost."""
    found = judge(run.client, run.keys, run.jobs(), run.log, run.crew.ledger)
    assert found.wrong == [], found.wrong[:10]
    assert found.lost == 0
    return found


def with_losses(run: Rig) -> Verdict:
    """The same where losses are counted and not forbidden: nothing else may be wrong."""
    found = judge(run.client, run.keys, run.jobs(), run.log, run.crew.ledger)
    others = [wrong for wrong in found.wrong if not wrong.endswith("was accepted and never ended")]
    assert others == [], others[:10]
    return found


def told(found: Verdict) -> Tally:
    """As counts."""
    return Tally().add(
        jobs=found.asked,
        taken=found.accepted,
        unknown=found.unknown,
        lost=found.lost,
        run_again=found.run_twice,
    )
