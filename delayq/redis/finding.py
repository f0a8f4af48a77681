"""Verbs on one job that may lie in any shard of its queue. Generators like those of `verbs`, which they are given.

A job stays in the shard it was made in, so asking every listed shard finds it, all of them in one round trip. Whoever
changes a job looks first where it is, and asks for the change there alone: said to every shard it could meet two jobs,
when one has ended and another was made under the same id in the meantime. An answer of "unknown" counts only when the
first shard's layout is no newer than the one that was asked by: the job may have been made in a shard that this client
did not know of.

A queue that is forwarded stands for two: its jobs are sent to the other one now, and those from before are still in it.
Both are asked, since processes that disagree about the forward may have made the same id in each.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from delayq.core.shards import PLAIN, SIGN, queue_of
from delayq.core.spec import Prepared
from delayq.redis.calls.call import Call, Command, Scope, pages

if TYPE_CHECKING:
    from delayq.redis.verbs import Flow, Verbs

T = TypeVar("T")
Ask = Callable[[Scope], Call[T] | Command[T]]
Act = Callable[[Scope], "Flow[T]"]
Known = Callable[[T], bool]
FEW = 100
"""Of more queues than that, the list of queues says which shards they have: one command and not one for each."""


def look(verbs: Verbs, queues: Sequence[str], ask: Ask[T], known: Known[T]) -> Flow[list[tuple[Scope, T]]]:
    """Ask for a job in each of these queues; the shard and the answer of each queue."""
    return (yield from _in_each(verbs, queues, lambda scopes: _everywhere(scopes, ask, known), known))


def find(verbs: Verbs, queues: Sequence[str], job_id: str, act: Act[T], known: Known[T]) -> Flow[list[tuple[Scope, T]]]:
    """As `look`, for what changes a job: done in the one shard of each queue that has it."""
    return (yield from _in_each(verbs, queues, lambda scopes: _in_one(scopes, job_id, act), known))


def _in_each(
    verbs: Verbs, queues: Sequence[str], ask: Callable[[list[Scope]], Flow[tuple[Scope, T]]], known: Known[T]
) -> Flow[list[tuple[Scope, T]]]:
    found: list[tuple[Scope, T]] = []
    for queue in queues:
        while True:
            layout = verbs.layouts.of(queue)
            scope, answer = yield from ask([verbs.shard(shard, layout) for shard in layout.shards(queue)])
            if known(answer) or (yield from verbs.layouts.read(queue)) == layout:
                break
        found.append((scope, answer))
    return found


def _everywhere(scopes: list[Scope], ask: Ask[T], known: Known[T]) -> Flow[tuple[Scope, T]]:
    pairs = list(zip(scopes, (yield from ask_every(scopes, ask)), strict=True))
    return next((pair for pair in pairs if known(pair[1])), pairs[0])


def _in_one(scopes: list[Scope], job_id: str, act: Act[T]) -> Flow[tuple[Scope, T]]:
    scope = scopes[0] if len(scopes) == 1 else (yield from _where(scopes, job_id))
    return scope, (yield from act(scope))


def _where(scopes: list[Scope], job_id: str) -> Flow[Scope]:
    """The one of them that has the job; else the first."""
    found: list[int] = yield tuple(Command(("HEXISTS", scope.keys.of("jobs"), job_id), int, True) for scope in scopes)
    return next((scope for scope, there in zip(scopes, found, strict=True) if there), scopes[0])


def every_shard(verbs: Verbs, queue: str) -> Flow[list[Scope]]:
    """All shards of a queue that may hold jobs, by the layout its first shard has now."""
    layout = yield from verbs.layouts.read(queue)
    return [verbs.shard(shard, layout) for shard in layout.shards(queue)]


def taken(verbs: Verbs, queue: str, jobs: Sequence[Prepared]) -> Flow[list[int]]:
    """Which of `jobs`, by their numbers, a queue may hold: the id or the unique key of each is taken there.

    It only reads, so a queue that does not exist is not made.
    """
    found: set[int] = set()
    for scope in (yield from every_shard(verbs, queue)):
        asked = [(n, scope.keys.of("jobs"), job.id) for n, job in enumerate(jobs)]
        asked += [(n, scope.keys.of("unique"), job.digest) for n, job in enumerate(jobs) if job.digest]
        for some in pages(asked, 500):
            there: list[int] = yield tuple(Command(("HEXISTS", key, field), int, True) for _, key, field in some)
            found.update(n for (n, _, _), is_there in zip(some, there, strict=True) if is_there)
    return sorted(found)


def ask_all(verbs: Verbs, queue: str, ask: Ask[T]) -> Flow[list[tuple[Scope, T]]]:
    """One reading call to each shard of a queue: the first is asked together with the layout, then all others."""
    home = verbs.shard(queue)
    answer, layout = yield ask(home), verbs.layouts.question(queue)
    verbs.layouts.learn(queue, layout)
    layout = verbs.layouts.of(queue)
    others = [verbs.shard(shard, layout) for shard in layout.shards(queue)[1:]]
    answers = yield from ask_every(others, ask)
    return [(verbs.shard(queue, layout), answer), *zip(others, answers, strict=True)]


def shards_of_each(verbs: Verbs, queues: Sequence[str]) -> Flow[list[list[Scope]]]:
    """Return the shards of each of these queues; one round trip.

    Of a few queues by the layouts they have now; of many by the list of queues, which holds the name of every shard.
    """
    listed: dict[str, list[str]] = {}
    if len(queues) > FEW:
        for shard in (yield from verbs.shards()):
            if SIGN in shard:
                listed.setdefault(queue_of(shard), []).append(shard)
    elif queues:
        layouts = yield tuple(map(verbs.layouts.question, queues))
        for queue, layout in zip(queues, layouts, strict=True):
            verbs.layouts.learn(queue, layout)
    found = []
    for queue in queues:
        layout = verbs.layouts.of(queue)
        if layout is PLAIN and queue not in listed:
            found.append([verbs.shard(queue)])
            continue
        shards = dict.fromkeys([*layout.shards(queue), *listed.get(queue, ())])
        found.append([verbs.shard(shard, layout) for shard in shards])
    return found


def ask_in_each(verbs: Verbs, queues: Sequence[str], ask: Ask[T]) -> Flow[list[list[T]]]:
    """Send one reading call to every shard of these queues, as few round trips as can be; the answers of each queue."""
    if not queues:
        return []
    if len(queues) == 1:
        return [[answer for _, answer in (yield from ask_all(verbs, queues[0], ask))]]
    shards = yield from shards_of_each(verbs, queues)
    answers = iter((yield from ask_every([scope for scopes in shards for scope in scopes], ask)))
    return [[next(answers) for _ in scopes] for scopes in shards]


def together(flows: Sequence[Flow[T]]) -> Flow[list[T]]:
    """Run reading flows in step, so that each of their round trips is one for all; their results in order.

    The flows may yield single calls only.
    """
    results: dict[int, T] = {}
    answers: dict[int, object] = dict.fromkeys(range(len(flows)))
    while answers:
        steps: dict[int, Any] = {}
        for number, answer in answers.items():
            try:
                steps[number] = flows[number].send(answer)
            except StopIteration as done:
                results[number] = done.value
        answers = dict(zip(steps, (yield tuple(steps.values())), strict=True)) if steps else {}
    return [results[number] for number in range(len(flows))]


def ask_every(scopes: Sequence[Scope], ask: Ask[T]) -> Flow[list[T]]:
    """One call to each shard, all under way together."""
    if len(scopes) == 1:
        return [(yield ask(scopes[0]))]
    if not scopes:
        return []
    answers: list[T] = yield tuple(map(ask, scopes))
    return answers


def while_any(scopes: Sequence[Scope], ask: Ask[int], enough: int = 1) -> Flow[int]:
    """Repeat a call in each shard until it does less than `enough`; the sum."""
    total = 0
    for scope in scopes:
        while True:
            done: int = yield ask(scope)
            total += done
            if done < enough:
                break
    return total
