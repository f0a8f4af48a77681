"""Runs a verb: sends what it yields, gives it the answers, returns what it returns. Blocking and awaited."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Any, TypeVar

from delayq.core.errors import DelayqError
from delayq.redis import interception
from delayq.redis.calls.call import Call, Command
from delayq.redis.confirm import Confirm
from delayq.redis.connect import Connector
from delayq.redis.send import asend, send, send_every
from delayq.redis.verbs import Flow

T = TypeVar("T")
FEW = 16
"""So many reads are awaited over connections of their own; more go in one round trip, which a thread sends."""


def drive(connector: Connector, flow: Flow[T]) -> T:
    """Run a verb over these connections, blocking."""
    try:
        step = next(flow)
        while True:
            try:
                answer: Any
                if isinstance(step, Confirm):
                    answer = connector.confirm(step)
                elif isinstance(step, tuple):
                    answer = connector.call(partial(send_every, calls=step), safe=True)
                else:
                    once = partial(send, call=step)
                    answer = connector.call(once, safe=step.resend, reads=step.reads, hasty=step.hasty)
            except DelayqError as error:
                step = flow.throw(error)  # which raises it, unless the verb goes on without an answer
            else:
                step = flow.send(answer)
    except StopIteration as done:
        value: T = done.value
        return value


async def adrive(connector: Connector, flow: Flow[T]) -> T:
    """Run a verb over these connections, awaited.

    Inside of a test's fake or virtual clock it blocks for the blink it takes: no connection outlives a test's loop.
    """
    if interception.active:
        return drive(connector, flow)

    async def ask(call: Call[Any] | Command[Any]) -> Any:
        once = partial(asend, call=call)
        return await connector.acall(once, safe=call.resend, reads=call.reads, hasty=call.hasty)

    try:
        step = next(flow)
        while True:
            try:
                answer: Any
                if isinstance(step, Confirm):
                    answer = await connector.aconfirm(step)
                elif isinstance(step, tuple) and len(step) > FEW and all(call.reads for call in step):
                    every = partial(send_every, calls=step)
                    answer = await asyncio.to_thread(connector.call, every, safe=True, reads=True)
                elif isinstance(step, tuple) and all(call.reads for call in step):
                    answer = await asyncio.gather(*map(ask, step))
                elif isinstance(step, tuple):
                    answer = [await ask(call) for call in step]
                else:
                    answer = await ask(step)
            except DelayqError as error:
                step = flow.throw(error)
            else:
                step = flow.send(answer)
    except StopIteration as done:
        value: T = done.value
        return value
