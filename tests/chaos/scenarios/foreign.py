"""Workers that are not delayq's settle jobs that something follows, and are killed while they do."""

from __future__ import annotations

import time
from typing import Any

import msgspec

from delayq.core.followups import Callbacks, Chain, Link, Plan, Send, encode_chain, encode_membership
from delayq.redis.callbacks import Bound
from delayq.redis.client import Client
from delayq.redis.follow_verbs import FollowVerbs
from delayq.redis.keys import GROUP, Keys
from tests.chaos.engine import Lot, Tally
from tests.chaos.world import client_of, crew, server
from tests.support.chaos_rig import QUEUE, is_idle
from tests.support.engine import envelope
from tests.support.foreign import carry, settle_as_a_stranger
from tests.support.servers import connect
from tests.support.snapshot import word
from tests.support.waiting import wait_until

LEASE_MS, WORKERS, CARRIERS, LINKS, MEMBERS = 5_000, 4, 2, 4, 4
EVERY_S, FAILING = 0.1, 0.3


def foreign_settle(lot: Lot) -> Tally:
    """Foreign workers that hold jobs, and the carriers of what follows, are killed and replaced at once."""
    rand, held, expected, failing = lot.rand, 0, set[str](), set[str]()
    with (
        server() as one,
        crew(lot, one.url, lease_ms=LEASE_MS, tidy_every_ms=500) as members,
        client_of(members) as q,
        connect(one.url) as plain,
    ):
        keys = Keys("delayq", QUEUE)
        q.schedule("order.close", {}, id="first")  # the group is made
        lives = [settle_as_a_stranger] * WORKERS + [carry] * CARRIERS
        duties = [members.duty_with({"name": f"foreign-{n}"}) for n in range(len(lives))]
        posts = [members.hire(duty, life) for duty, life in zip(duties, lives, strict=True)]
        batches: list[str] = []

        def feed() -> None:
            """One chain and one batch more."""
            n, fails = len(batches), rand.random() < FAILING
            batches.append(f"b{n}")
            expected.update(_chain(q, n, fails=fails), _batch(q, n, fails=fails))
            failing.update({f"c{n}-1", f"b{n}-0"} if fails else ())

        for _ in range(lot.units):
            feed()
            time.sleep(rand.expovariate(1 / EVERY_S))
            at = rand.randrange(len(posts))
            while lives[at] is settle_as_a_stranger and not _held_by(plain, keys, f"foreign-{at}"):
                feed()
                time.sleep(EVERY_S)
            assert posts[at].is_alive(), members.logs()[-2_000:]
            members.kill_all([posts[at]])
            held += _held_by(plain, keys, f"foreign-{at}")
            posts[at] = members.hire(duties[at], lives[at])
        wait_until(
            lambda: is_idle(plain, keys) and plain.xlen(keys.of("outbox")) == 0 and _all_closed(q, batches),
            timeout=120,
            what="every chain and every batch has ended",
        )
        ended, failed = members.ledger.counted("end"), members.ledger.counted("fail")
        starts = members.ledger.counted("start")
        infos = [q.batches.get(batch) for batch in batches]
    assert set(failed) == failing, f"failed: {set(failed) ^ failing}"
    assert set(ended) == {"first", *expected} - failing, f"lost or made up: {set(ended) ^ (expected - failing)}"
    again = sum(times - 1 for times in starts.values())
    assert again <= held, f"{again} ran again, {held} were held by the killed"
    wrong = [info for info in infos if (info.pending, info.done + info.failed) != (0, MEMBERS)]
    assert wrong == [], wrong[:3]
    callbacks = [job for job in starts if "then" in job or "catch" in job or "finally" in job]
    return Tally().add(
        kills=lot.units,
        chains=len(batches),
        batches=len(batches),
        jobs=len(starts),
        lost=0,
        callbacks=len(callbacks),
        run_again=again,
        held_by_the_killed=held,
    )


def _all_closed(q: Client, batches: list[str]) -> bool:
    return all(q.batches.get(batch).finished_ms is not None for batch in batches)


def _held_by(plain: Any, keys: Keys, name: str) -> int:
    """What a foreign worker left pending; 0 for a carrier, which has no consumer."""
    rows = plain.xinfo_consumers(keys.stream, GROUP)
    return sum(row["pending"] for row in rows if word(row["name"]) == name)


def _link(job_id: str, fails: bool = False, **members: Any) -> Link:
    data = b'{"fails":true}' if fails else b"{}"
    return Link(job=msgspec.Raw(envelope(job_id, data=data, **members)))


def _chain(q: Client, n: int, *, fails: bool) -> set[str]:
    """Send a chain whose second link may fail; the jobs that are to start."""
    names = [f"c{n}-{k}" for k in range(LINKS)]
    rest = [_link(name, fails and k == 1) for k, name in enumerate(names)][1:]
    chain = Chain(id=f"c{n}", next=rest, catch=[_link(f"c{n}-catch")])
    first = Send(QUEUE, names[0], _link(names[0], chain=encode_chain(chain)).job)
    q.run(FollowVerbs(q.verbs).send([Bound(names[0], first)]))
    return {*names[:2], f"c{n}-catch"} if fails else set(names)


def _batch(q: Client, n: int, *, fails: bool) -> set[str]:
    """Send a batch whose first member may fail; the jobs that are to start."""
    names, batch = [f"b{n}-{k}" for k in range(MEMBERS)], encode_membership(f"b{n}")
    members = [_link(name, fails and k == 0, batch=batch) for k, name in enumerate(names)]
    callbacks = Callbacks(then=[_link(f"b{n}-then")], catch=[_link(f"b{n}-catch")], finally_=[_link(f"b{n}-finally")])
    q.run(FollowVerbs(q.verbs).open(Plan(id=f"b{n}", members=members, allow_failures=True, callbacks=callbacks)))
    return {*names, f"b{n}-finally", f"b{n}-catch" if fails else f"b{n}-then"}
