"""A call of every script of some families, made without any server; the others stand in `script_calls`."""

from __future__ import annotations

from typing import Any

from delayq.core.control import WorkerOrder
from delayq.core.followups import End, Word
from delayq.redis.calls import activity, follow, operate
from delayq.redis.calls.call import Call, Scope
from delayq.redis.calls.deliver import Held
from delayq.redis.calls.follow import Finished, Standing, Told
from delayq.redis.calls.operate import Switch, Telling


def operating(scope: Scope, lease: Held) -> list[Call[Any]]:
    return [
        operate.progress(scope, [Telling(lease, b'{"done":1')]),
        operate.switch(scope, Switch.PAUSE, 0),
        operate.restart(scope),
        operate.control(scope),
        activity.tally(scope, {"took_ms": 1.5}, {"close": {"done": 1}}),
        operate.order(scope, "w", WorkerOrder.QUIET),
        activity.activity(scope, 1),
        activity.weigh(scope),
    ]


def following(scope: Scope, lease: Held) -> list[Call[Any]]:
    place = follow.place(scope, "b")
    return [
        follow.finish(scope, [Finished(lease, End.DONE, [])]),
        follow.owed(scope, "r", "-"),
        follow.carried(scope, ["1-1"]),
        follow.batch_open(place, b"{}", [("j", "orders")]),
        follow.batch_note(place, [Told("j", Word.DONE)]),
        follow.batch_told(place, ["then"], Standing(b"{}", 0, 1, 0, 0, 0, 0, None, None, ("then",))),
    ]
