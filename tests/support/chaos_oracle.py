"""The oracle of the chaos tests: what the ledger, the producer's log and Redis must say together in the end.

Written from the invariants alone; it asks no code of delayq but the spelling of its keys.

    I1   every job Redis said yes to was run to its end, and nothing was run that nobody asked for
    I2-5 the queue is sound: one place a job, every place a payload, nothing pending, both sums
    I4   the result that is kept is that of the last owner, whoever came back late
    I6   nothing started before it was due
    I8   attempts are the failures the handlers wrote down; a vanished worker costs none
    I9   nothing is left but what is kept on purpose
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from delayq.redis.keys import GROUP, Keys
from tests.support.chaos_producer import Planned, ProducerLog
from tests.support.ledger import Ledger
from tests.support.rule_one import broken
from tests.support.snapshot import word


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a run came to. `wrong` is empty when every invariant holds."""

    asked: int
    accepted: int
    unknown: int
    done: int
    lost: int
    run_twice: int
    ended_twice: int
    wrong: list[str]


def judge(client: Any, keys: Keys, jobs: Iterable[Planned], log: ProducerLog, ledger: Ledger) -> Verdict:
    """Check everything there is to check once all work is done."""
    planned = {job.id: job for job in jobs}
    asked, dues = log.asked(), log.dues()
    accepted, refused = set(dues), log.refused()
    unknown = set(asked) - accepted - refused
    ended = set(ledger.jobs("end"))
    lost = accepted - ended
    wrong = [f"{job} was accepted and never ended" for job in sorted(lost)]
    wrong += [f"{job} was run, and nobody asked for it" for job in sorted(ended - accepted - unknown)]
    wrong += [f"{job} was run, and Redis had said no" for job in sorted(ended & refused)]
    wrong += [
        f"{line.job} started {dues[line.job] - line.at_ms} ms early"
        for line in ledger.lines("start")
        if line.at_ms < dues.get(line.job, 0)
    ]
    wrong += [
        f"{line.job} ended in attempt {line.attempt} and was told to fail {planned[line.job].fails} times"
        for line in ledger.lines("end")
        if line.attempt != planned[line.job].fails + 1
    ]
    kept = {job for job in ended if planned[job].fails}
    wrong += broken(client, keys) + _left(client, keys, kept, planned) + _results(client, keys, kept, ledger)
    return Verdict(
        asked=len(asked),
        accepted=len(accepted),
        unknown=len(unknown),
        done=len(ended),
        lost=len(lost),
        run_twice=_again((line.job, line.attempt) for line in ledger.lines("start")),
        ended_twice=_again((line.job, line.attempt) for line in ledger.lines() if line.phase != "start"),
        wrong=wrong,
    )


def _again(attempts: Iterable[tuple[str, int]]) -> int:
    """How many were not the first of their job and attempt."""
    return sum(times - 1 for times in Counter(attempts).values())


def _left(client: Any, keys: Keys, kept: set[str], planned: dict[str, Planned]) -> list[str]:
    """What is left in Redis: only the jobs that are kept for an hour, each with its true number of attempts."""
    found: list[str] = []
    completed = {word(job) for job in client.zrange(keys.of("completed"), 0, -1)}
    if completed != kept:
        found.append(f"kept are {len(completed)} jobs, and should be {len(kept)}: {sorted(completed ^ kept)[:5]}")
    for name in ("scheduled", "failed"):
        found += [f"{word(job)} is left in {name}" for job in client.zrange(keys.of(name), 0, 9)]
    if client.xlen(keys.stream):
        found.append(f"{client.xlen(keys.stream)} entries are left")
    if pending := client.xpending(keys.stream, GROUP)["pending"]:
        found.append(f"{pending} are pending")
    for job in sorted(kept):
        raw = client.hget(keys.of("jobs"), job) or b""
        if f'"attempts":{planned[job].fails},'.encode() not in raw:
            found.append(f"{job} shows other attempts than its {planned[job].fails} failures: {raw[:200]!r}")
    return found


def _results(client: Any, keys: Keys, kept: set[str], ledger: Ledger) -> list[str]:
    """A job's token grows with each delivery, so its last owner is the one with the greatest."""
    tokens: dict[str, list[str]] = {}
    for line in ledger.lines("end"):
        tokens.setdefault(line.job, []).append(line.token)
    last = {job: max(tokens[job], key=lambda token: [int(part) for part in token.split("-")]) for job in kept}
    found = {word(job): json.loads(result) for job, result in client.hgetall(keys.of("results")).items()}
    return [
        f"{job} kept the result of {found.get(job)}, not of {last[job]}" for job in kept if found.get(job) != last[job]
    ]
