"""Laravel's queues in Redis as a `Broker`.

A reservation of Laravel's is the payload itself, in a sorted set. Ours is a token beside it (`held`), so that whoever
keeps the lease need not know the payload, and an old token settles nothing.

    list ──reserve──▶ reserved (+ held) ──forget──▶ gone
      ▲                  │  │
      │                  │  └─release──▶ delayed ──reserve, when due──▶ list
      └───give_back──────┘     also what nobody renewed for retry_after: by whoever looks next, PHP or Python
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, TypeVar

from delayq.core import envelope as envelopes
from delayq.core.errors import BadEnvelope, DelayqError, OutcomeUnknown
from delayq.core.names import new_id
from delayq.core.states import OnConflict
from delayq.core.views import JobRef
from delayq.drivers.base import Claim, Delivery
from delayq.drivers.broker import Act, Again, Depth, Item, Waiting, WaitingPage
from delayq.drivers.laravel.aside import LaravelSource
from delayq.drivers.laravel.payload import carried, label, read_payload
from delayq.drivers.laravel.showing import LaravelLook
from delayq.drivers.laravel.waking import Bell
from delayq.drivers.laravel.writing import payload_of, refuse_nesting
from delayq.drivers.migrating.ends import Source
from delayq.redis.calls import laravel as calls
from delayq.redis.calls.call import Call
from delayq.redis.calls.laravel import Pushed, Released, Shown
from delayq.redis.connect import Connector
from delayq.redis.laravel_keys import LaravelKeys
from delayq.redis.send import send, through

T = TypeVar("T")

CLOCK_AGAIN_S: Final = 60.0
DEFAULT_QUEUE: Final = "default"


class LaravelRedis:
    """One process's way to the queues of one Laravel application."""

    def __init__(self, connector: Connector, *, prefix: str, lease_ms: int) -> None:
        self._connector = connector
        self._prefix = prefix
        self._lease_ms = lease_ms
        self._look = LaravelLook(connector, prefix)
        self._bell = Bell(connector)
        self._offset_ms: float | None = None
        self._seen_s = 0.0
        self._asked: dict[str, tuple[str, int]] = {}
        self._unsure: set[str] = set()

    # -- producing ---------------------------------------------------------------------------------------------------

    def push(self, items: Sequence[Item], on_conflict: OnConflict) -> list[JobRef]:
        """One script call for up to 500 jobs or 1 MB of a queue."""
        payloads = [self._payload(item) for item in items]
        sent = 0
        for queue, some in _by(zip(items, payloads, strict=True), lambda pair: pair[0].queue).items():
            jobs = (Pushed(item.delay_ms, payload) for item, payload in some)
            for batch in calls.split(jobs, lambda job: len(job.payload)):
                try:
                    self._see(self._once(calls.push(self._keys(queue), batch)))
                except DelayqError as error:
                    if sent == 0:
                        raise
                    raise OutcomeUnknown(
                        f"{sent:,} of {len(items):,} jobs were sent, then: {error.message}",
                        hint="See which of them are there before sending the rest.",
                    ) from error
                sent += len(batch)
        return [item.created() for item in items]

    def fit(self, items: Sequence[Item]) -> None:
        """Raises `InvalidPayload` for data that PHP could not read."""
        for item in items:
            self._payload(item)

    def _payload(self, item: Item) -> bytes:
        refuse_nesting(envelopes.decode(item.envelope).data)
        return payload_of(item.envelope, attempts=envelopes.decode(item.envelope).attempts)

    # -- working -----------------------------------------------------------------------------------------------------

    def ready(self, queues: Sequence[str]) -> None:
        """Whether the server answers; a queue of Laravel's is there as soon as something is in it."""
        self._clock(fresh=True)

    def reserve(self, queue: str, count: int) -> list[Delivery]:
        """One script call. Called again after a lost reply, it answers what that one reserved."""
        return self._reserve(queue, count)

    def wait(self, queues: Sequence[str], seconds: float) -> list[Delivery]:
        """Block until one of the queues has a token, or something in one falls due."""
        heard = self._bell.wait([self._keys(queue) for queue in queues], seconds, self._ms_now)
        for queue in queues:
            if found := self._reserve(queue, 1, heard=int(queue == heard)):
                return found
        return []

    def _reserve(self, queue: str, count: int, heard: int = 0) -> list[Delivery]:
        seed, most = self._asked.setdefault(queue, (new_id(), count))
        call = calls.reserve(self._keys(queue), lease_ms=self._lease_ms, count=most, seed=seed, heard=heard)
        reserved = through(self._connector, call)
        self._asked.pop(queue, None)
        self._see(reserved.now_ms)
        self._bell.expect(queue, reserved.next_ms)
        found = [self._delivery(queue, token, payload, reserved.now_ms) for token, payload in reserved.jobs]
        if len(found) > count:  # an earlier call, whose reply was lost, asked for more
            self.give_back([Claim(queue, one.id, one.entry) for one in found[count:]], vanished=False)
        return found[:count]

    def _delivery(self, queue: str, token: str, raw: bytes, now_ms: int) -> Delivery:
        try:
            payload = read_payload(raw)
            if payload.attempts is None:
                raise BadEnvelope("The Laravel payload does not count its attempts, as one in Redis does.")
            envelope = payload.envelope(queue=queue, attempts=max(0, payload.attempts - 1), seen_ms=now_ms)
        except BadEnvelope as error:
            return Delivery(queue, label(raw)[0], token, raw, now_ms, 0, unreadable=str(error))
        return Delivery(queue, payload.id, token, envelope, now_ms, 0)

    def settle(self, acts: Sequence[Act]) -> list[bool]:
        """What follows is pushed first; then one call for each queue and kind of end."""
        follow = [item for act in acts if not isinstance(act, Again) for item in act.then]
        if follow:
            self.push(follow, OnConflict.KEEP)
        answers = [False] * len(acts)
        for queue, some in _by(enumerate(acts), lambda pair: pair[1].claim.queue).items():
            keys = self._keys(queue)
            done = [(n, act.claim.entry) for n, act in some if not isinstance(act, Again)]
            for page in calls.split(done, lambda _: 0):
                self._settled(calls.forget(keys, [token for _, token in page]), page, answers)
            again = [(n, _released(act)) for n, act in some if isinstance(act, Again)]
            for batch in calls.split(again, lambda pair: len(pair[1].payload)):
                tokens = [(n, job.token) for n, job in batch]
                self._settled(calls.release(keys, [job for _, job in batch]), tokens, answers)
        return answers

    def _settled(self, call: Call[list[bool]], tokens: Sequence[tuple[int, str]], answers: list[bool]) -> None:
        """Send it. What an earlier try may have settled unseen counts as settled when it is not there any more."""
        try:
            said = self._once(call)
        except OutcomeUnknown:
            self._unsure.update(token for _, token in tokens)
            raise
        for (n, token), ours in zip(tokens, said, strict=True):
            answers[n] = ours or token in self._unsure
            self._unsure.discard(token)

    def give_back(self, claims: Sequence[Claim], *, vanished: bool) -> None:
        """The attempt of a vanished worker counts, as in Laravel; what was not started costs nothing."""
        for queue, some in _by(claims, lambda claim: claim.queue).items():
            for page in calls.split(some, lambda _: 0):
                tokens = [claim.entry for claim in page]
                through(self._connector, calls.give_back(self._keys(queue), tokens, counted=vanished))

    def renew(self, claims: Sequence[Claim]) -> list[bool]:
        """Laravel has no renewal, and does not mind one."""
        answers = dict.fromkeys(((claim.queue, claim.entry) for claim in claims), False)
        for queue, some in _by(claims, lambda claim: claim.queue).items():
            for page in calls.split(some, lambda _: 0):
                tokens = [claim.entry for claim in page]
                said = through(self._connector, calls.renew(self._keys(queue), tokens, lease_ms=self._lease_ms))
                answers |= {(queue, token): ours for token, ours in zip(tokens, said, strict=True)}
        return [answers[claim.queue, claim.entry] for claim in claims]

    def envelope(self, claim: Claim) -> bytes:
        """The envelope of a reservation; of one that is no job, what was there."""
        command = calls.held(self._keys(claim.queue), claim.entry)
        raw = self._connector.call(lambda client: send(client, command), safe=True, reads=True)
        return self._delivery(claim.queue, claim.entry, raw, 0).raw if raw else b""

    def dump(self, envelope: bytes) -> bytes:
        """The payload, as `artisan queue:retry` takes it too; what is no envelope came from PHP as it is."""
        try:
            return payload_of(envelope, attempts=envelopes.decode(envelope).attempts)
        except BadEnvelope:
            return envelope

    def load(self, payload: bytes) -> bytes:
        """The envelope of a payload that failed; its queue is written where it is pushed.

        One that only Laravel can run is carried as it is: put back, a worker of Laravel's may find it.
        """
        try:
            read = read_payload(payload)
        except BadEnvelope:
            return carried(payload, queue=DEFAULT_QUEUE)
        return read.envelope(queue=DEFAULT_QUEUE, attempts=read.attempts or 0)

    def lease_s(self, queue: str) -> float:
        """Laravel's `retry_after`."""
        return self._lease_ms / 1000

    def now_ms(self) -> int:
        """The server's time, asked for once a minute and carried on."""
        return self._clock()

    # -- looking and removing ----------------------------------------------------------------------------------------

    def queues(self) -> list[str]:
        """Every queue that holds something."""
        return self._look.queues()

    def depth(self, queue: str) -> Depth:
        """How long its three parts are."""
        return self._look.depth(queue)

    def page(self, queue: str, *, cursor: str, count: int) -> WaitingPage:
        """What is ready, in its order, then what waits for its time, in its order."""
        return self._look.page(queue, self.now_ms(), cursor=cursor, count=count)

    def remove(self, jobs: Sequence[Waiting]) -> list[bool]:
        """By the payload as it was shown."""
        answers = [False] * len(jobs)
        for queue, some in _by(enumerate(jobs), lambda pair: pair[1].queue).items():
            shown = [(n, _shown(job)) for n, job in some]
            for batch in calls.split(shown, lambda pair: len(pair[1].payload)):
                said = self._once(calls.remove(self._keys(queue), [job for _, job in batch]))
                for (n, _), gone in zip(batch, said, strict=True):
                    answers[n] = gone
        return answers

    def clear(self, queue: str) -> int:
        """Everything that waits; what runs goes on."""
        return self._once(calls.clear(self._keys(queue)))

    def source(self) -> Source:
        """Where a migration takes jobs from."""
        return LaravelSource(self._connector, self._prefix, self._look)

    def close(self) -> None:
        """Close the connections."""
        self._bell.close()
        self._connector.close()

    # -- one call ----------------------------------------------------------------------------------------------------

    def _keys(self, queue: str) -> LaravelKeys:
        return LaravelKeys(self._prefix, queue)

    def _once(self, call: Call[T]) -> T:
        """Send a call that must not be sent again when its reply is lost."""
        return through(self._connector, call)

    def _see(self, now_ms: int) -> None:
        self._seen_s = time.monotonic()
        self._offset_ms = now_ms - self._seen_s * 1000

    def _ms_now(self) -> int:
        return int(time.monotonic() * 1000 + (self._offset_ms or 0.0))

    def _clock(self, *, fresh: bool = False) -> int:
        if fresh or self._offset_ms is None or time.monotonic() - self._seen_s > CLOCK_AGAIN_S:
            self._see(self._look.server_ms())
        return self._ms_now()


def _released(act: Again) -> Released:
    payload = payload_of(act.envelope, attempts=act.attempts) if act.envelope else b""
    return Released(act.claim.entry, act.delay_ms, act.attempts, payload)


def _shown(job: Waiting) -> Shown:
    role, _, payload = job.entry.partition(" ")
    return Shown(role, payload.encode("utf-8", "surrogateescape"))


def _by(items: Iterable[T], queue_of: Callable[[T], Any]) -> dict[str, list[T]]:
    found: dict[str, list[T]] = {}
    for item in items:
        found.setdefault(queue_of(item), []).append(item)
    return found
