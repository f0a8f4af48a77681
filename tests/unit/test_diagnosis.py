"""What `doctor` makes of the facts. Every finding alone, and nothing when all is well."""

from __future__ import annotations

from dataclasses import replace

import pytest

from delayq.core.control import Control
from delayq.core.diagnosis import Finding, Level, judge
from delayq.core.facts import Facts, ForeignKey, QueueFacts, ServerFacts
from delayq.core.known_bad import known_bad
from delayq.core.views import QueueStats, WorkerInfo

NOW = 1_800_000_000_000
GOOD = ServerFacts("Valkey", (9, 1, 2), "noeviction", persists=True, skew_ms=3)
STATS = QueueStats(
    queue="orders", scheduled=4, ready=1, reserved=2, failed=0, completed=0, paused_until_ms=None, overdue_oldest_ms=0,
    lease_ms=30_000, mover_tick_ms=NOW - 500, now_ms=NOW, counters={},
)  # fmt: skip
QUEUE = QueueFacts("orders", STATS, names=frozenset({"order.close"}))
WORKER = WorkerInfo("dq:h:1:a", ("orders", "mails"), {"jobs": ["order.close"]})
WELL = Facts("db:6379", "delayq", GOOD, (QUEUE,), (WORKER,))


def server(**changes: object) -> list[Finding]:
    return judge(replace(WELL, server=replace(GOOD, **changes)))  # type: ignore[arg-type]


def queue(stats: dict[str, object], **changes: object) -> list[Finding]:
    facts = replace(QUEUE, stats=replace(STATS, **stats))  # type: ignore[arg-type]
    workers = changes.pop("workers", (WORKER,))
    return judge(replace(WELL, queues=(replace(facts, **changes),), workers=workers))  # type: ignore[arg-type]


def codes(findings: list[Finding]) -> list[str]:
    return [found.code for found in findings]


def test_all_is_well() -> None:
    assert judge(WELL) == []
    assert judge(replace(WELL, queues=(), workers=())) == []


@pytest.mark.parametrize(("owed", "for_ms", "found"), [(0, 0, []), (3, 9_000, []), (3, 90_000, ["follow-ups"])])
def test_follow_ups_that_nobody_carries(owed: int, for_ms: int, found: list[str]) -> None:
    told = queue({}, owed=owed, owed_for_ms=for_ms)
    assert codes(told) == found
    assert [one.what for one in told] == ["Follow-ups of ended jobs wait: 3, the oldest for 1m 30s."] * len(found)


@pytest.mark.parametrize(
    ("count", "named", "next_step"),
    [
        (1, "queues: q0. Movers", "delayq queue set q0"),
        (5, "queues: q0, q1, q2, q3, q4. Movers", "delayq queue set q0; the same for each of the others."),
        (7, "queues: q0, q1, q2, q3, q4 and 2 more. Movers", "delayq queue set q0; the same for each of the others."),
    ],
)
def test_queues_that_are_not_on_the_list(count: int, named: str, next_step: str) -> None:
    [told] = judge(replace(WELL, unlisted=tuple(f"q{n}" for n in range(count))))
    assert (told.code, told.level, told.next) == ("unlisted", Level.PROBLEM, next_step)
    assert named in told.what


def test_a_due_time_out_of_range() -> None:
    [told] = queue({}, never=3, never_id="order-7", never_score="inf")
    assert (told.code, told.level, told.where) == ("never-due", Level.PROBLEM, "queue orders")
    assert "'order-7' has the score inf" in told.what
    assert "delayq reschedule order-7 --queue orders --in 0s" in told.next


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"replicas": 2, "needs_replicas": 1}, []),
        ({"replicas": 2, "needs_replicas": 0}, [("cut-off", Level.ADVICE)]),
        ({"replicas": 0, "needs_replicas": 0}, [("no-replica", Level.PROBLEM)]),
        ({"replicas": None, "needs_replicas": None}, []),
    ],
)
def test_what_a_failover_may_cost(changes: dict[str, object], expected: list[tuple[str, Level]]) -> None:
    one = replace(GOOD, **changes)  # type: ignore[arg-type]
    facts = replace(WELL, server=replace(GOOD, replicas=1, needs_replicas=1), more_servers=(replace(one, node="n:1"),))
    assert judge(facts) == [], "nobody expects replicas of a server that is alone"
    empty = judge(replace(facts, replicated=True, server=replace(facts.server, persists=False), more_servers=()))
    assert ["its replicas throw away what they have" in finding.what for finding in empty] == [True]
    found = judge(replace(facts, replicated=True))
    assert [(one.code, one.level) for one in found] == expected
    assert {one.where for one in found} <= {"db:6379, node n:1"}


@pytest.mark.parametrize(
    ("product", "version", "sync", "found"),
    [
        ("Valkey", (8, 1, 7), "everysec", ["synced-too-early"]),
        ("Valkey", (9, 1, 2), "no", ["synced-too-early"]),
        ("Valkey", (9, 1, 2), None, ["synced-too-early"]),
        ("Valkey", (9, 1, 2), "always", []),
        ("Redis", (8, 2, 6), "everysec", []),
        ("Redis", (7, 4, 9), "everysec", ["synced-too-early"]),
    ],
)
def test_a_server_that_says_synced_too_early(
    product: str, version: tuple[int, int, int], sync: str | None, found: list[str]
) -> None:
    one = replace(GOOD, product=product, version=version, appendfsync=sync)
    facts = replace(WELL, server=one)
    assert judge(facts) == [], "nobody asks for it"
    told = judge(replace(facts, on_disk=("orders", "mails")))
    assert codes(told) == found
    assert ["orders and others" in finding.what for finding in told] == [True] * len(found)


@pytest.mark.parametrize(
    ("changes", "expected", "piece"),
    [
        ({"product": "Redis", "version": (6, 0, 16)}, ["old-server"], "6.0.16"),
        ({"version": None, "eviction": None, "persists": None}, [], ""),
        ({"eviction": "allkeys-lru"}, ["eviction"], "allkeys-lru"),
        ({"eviction": None}, [], ""),
        ({"persists": False}, ["no-persistence"], "disk"),
        ({"persists": None}, [], ""),
        ({"skew_ms": 61_000}, ["clock"], "1m 1s ahead of"),
        ({"skew_ms": -5_000}, ["clock"], "5s behind"),
        ({"skew_ms": 1_999}, [], ""),
        ({"forbidden": ("CONFIG GET",)}, ["forbidden"], "CONFIG GET"),
    ],
)
def test_the_server(changes: dict[str, object], expected: list[str], piece: str) -> None:
    findings = server(**changes)
    assert codes(findings) == expected
    assert all(piece in found.what and found.where == "db:6379" and found.next for found in findings)


def test_what_may_not_be_asked_is_no_problem_of_the_queue() -> None:
    assert [found.level for found in server(forbidden=("CONFIG GET", "INFO"))] == [Level.ADVICE, Level.ADVICE]


@pytest.mark.parametrize(
    ("product", "version", "problems", "advice"),
    [
        ("Redis", (6, 2, 14), 0, 1),
        ("Redis", (6, 2, 20), 0, 0),
        ("Redis", (7, 0, 4), 1, 1),
        ("Redis", (7, 0, 15), 0, 1),
        ("Redis", (7, 2, 10), 0, 2),
        ("Redis", (7, 2, 11), 0, 1),
        ("Redis", (7, 2, 14), 0, 0),
        ("Redis", (7, 4, 5), 0, 2),
        ("Redis", (7, 4, 9), 0, 0),
        ("Redis", (8, 0, 5), 0, 1),
        ("Redis", (8, 2, 1), 1, 2),
        ("Redis", (8, 2, 2), 1, 1),
        ("Redis", (8, 2, 3), 0, 1),
        ("Redis", (8, 2, 6), 0, 0),
        ("Redis", (8, 4, 2), 0, 1),
        ("Redis", (8, 4, 3), 0, 0),
        ("Redis", (8, 6, 0), 0, 1),
        ("Redis", (8, 6, 3), 0, 0),
        ("Redis", (8, 8, 0), 0, 0),
        ("Valkey", (7, 2, 4), 0, 2),
        ("Valkey", (7, 2, 13), 0, 0),
        ("Valkey", (8, 0, 7), 0, 1),
        ("Valkey", (8, 1, 4), 0, 1),
        ("Valkey", (8, 1, 7), 0, 0),
        ("Valkey", (9, 0, 3), 0, 1),
        ("Valkey", (9, 0, 4), 0, 0),
        ("Valkey", (9, 1, 0), 0, 0),
        ("Valkey", (9, 1, 2), 0, 0),
    ],
)
def test_known_bad_versions(product: str, version: tuple[int, int, int], problems: int, advice: int) -> None:
    faults = list(known_bad(product, version))
    assert sum(fault.touches_delayq for fault in faults) == problems
    assert sum(not fault.touches_delayq for fault in faults) == advice
    levels = [found.level for found in server(product=product, version=version)]
    assert (levels.count(Level.PROBLEM), levels.count(Level.ADVICE)) == (problems, advice)


def test_a_wrong_prefix() -> None:
    [found] = judge(replace(WELL, prefix="shop", queues=(), workers=(), other_prefixes=("delayq", "test")))
    assert found.code == "prefix"
    assert "'shop'" in found.what
    assert "delayq, test" in found.what
    assert "DELAYQ_PREFIX=delayq" in found.next
    assert judge(replace(WELL, other_prefixes=("test",))) == []


STATES = ("scheduled", "ready", "reserved", "failed", "completed")


def test_a_prefix_with_queues_but_no_job_may_be_wrong() -> None:
    empty = replace(STATS, **dict.fromkeys(STATES, 0))  # type: ignore[arg-type]
    bare = replace(WELL, other_prefixes=("test",), queues=(QueueFacts("orders", empty),))
    [found] = judge(bare)
    assert (found.code, found.level) == ("prefix", Level.ADVICE)
    assert "DELAYQ_PREFIX=test" in found.next
    assert judge(replace(bare, other_prefixes=())) == []
    for state in STATES:
        mails = QueueFacts("mails", replace(empty, **{state: 1}))  # type: ignore[arg-type]
        used = replace(bare, queues=(QueueFacts("orders", empty), mails))
        assert "prefix" not in codes(judge(used)), state


@pytest.mark.parametrize(
    ("stats", "changes", "expected"),
    [
        ({"paused_until_ms": 0}, {"workers": ()}, ["paused"]),
        ({"paused_until_ms": NOW + 60_000, "overdue_oldest_ms": 99_000}, {}, ["paused"]),
        ({}, {"workers": ()}, ["no-worker"]),
        ({}, {"workers": (replace(WORKER, queues=("mails",)),)}, ["no-worker"]),
        ({}, {"workers": (), "outsiders": 1}, []),
        ({"scheduled": 0, "ready": 0}, {"workers": ()}, []),
        ({"mover_tick_ms": NOW - 11_000}, {}, ["no-mover"]),
        ({"mover_tick_ms": 0}, {"workers": ()}, ["no-mover", "no-worker"]),
        ({"mover_tick_ms": 0, "scheduled": 0}, {}, []),
        ({"overdue_oldest_ms": 10_000}, {}, ["overdue"]),
        ({"overdue_oldest_ms": 9_999}, {}, []),
        ({"overdue_oldest_ms": 90_000, "mover_tick_ms": 0}, {}, ["no-mover"]),
    ],
)
def test_the_flow_of_a_queue(stats: dict[str, object], changes: dict[str, object], expected: list[str]) -> None:
    findings = queue(stats, **changes)
    assert codes(findings) == expected
    assert all(found.where == "queue orders" and found.level is Level.PROBLEM for found in findings)


def test_how_long_a_pause_lasts() -> None:
    assert queue({"paused_until_ms": 0})[0].level is Level.PROBLEM
    assert queue({"paused_until_ms": 0, "scheduled": 0, "ready": 0})[0].level is Level.ADVICE
    waiting = STATS.scheduled + STATS.ready
    assert queue({"paused_until_ms": 0})[0].what == f"It is paused; jobs waiting: {waiting}."
    assert queue({"paused_until_ms": NOW + 60_000})[0].what == f"It is paused for another 1m; jobs waiting: {waiting}."


def test_a_damaged_queue() -> None:
    findings = judge(replace(WELL, queues=(QueueFacts("orders", broken="a key holds something else"),)))
    assert codes(findings) == ["damage"]


def test_a_foreign_key_is_named_and_can_be_put_aside() -> None:
    key = ForeignKey("delayq:{orders}:errors", "list", "hash")
    [found] = judge(replace(WELL, queues=(replace(QUEUE, foreign=(key,), broken="WRONGTYPE"),)))
    assert (found.code, found.where, found.level) == ("damage", "queue orders", Level.PROBLEM)
    assert all(word in found.what for word in ("delayq:{orders}:errors", "list", "hash"))
    assert found.next.endswith("redis-cli RENAMENX 'delayq:{orders}:errors' 'delayq:{orders}:errors.foreign'")


def test_a_foreign_key_of_no_queue_stays_in_its_slot() -> None:
    [found] = judge(replace(WELL, foreign=(ForeignKey("delayq:workers", "list", "zset"),), workers=None))
    assert (found.code, found.where) == ("damage", "db:6379")
    assert found.next.endswith("redis-cli RENAMENX 'delayq:workers' '{delayq:workers}.foreign'")


@pytest.mark.parametrize(
    ("names", "unknown", "announced", "handlers", "expected"),
    [
        ({"a"}, set(), ["a"], None, []),
        ({"a", "b"}, set(), ["a"], None, ["'b'"]),
        ({"a", "b"}, set(), None, None, []),
        (set(), {"b"}, None, None, ["'b'"]),
        (set(), {"b"}, ["b"], None, []),
        ({"a", "b"}, {"b"}, ["b"], {"a"}, ["'b'"]),
        ({"a", "b"}, {"b"}, ["a"], {"a", "b"}, []),
        ({"a", "delayq.lost"}, set(), ["a"], None, []),
    ],
)
def test_names_without_a_handler(
    names: set[str], unknown: set[str], announced: list[str] | None, handlers: set[str] | None, expected: list[str]
) -> None:
    worker = replace(WORKER, about={} if announced is None else {"jobs": announced})
    facts = replace(QUEUE, names=frozenset(names), unknown=frozenset(unknown))
    known = None if handlers is None else frozenset(handlers)
    findings = judge(replace(WELL, queues=(facts,), workers=(worker,), handlers=known, app="shop"))
    assert codes(findings) == ["unregistered"] * len(expected)
    assert all(name in found.what for name, found in zip(expected, findings, strict=True))
    assert all(("in shop" in found.what) == (handlers is not None) for found in findings)


@pytest.mark.parametrize(
    ("used", "limit", "said"),
    [
        (1_050_000, 1_100_000, "It uses 95 % of its maxmemory of 1 MiB; at the limit it refuses new jobs."),
        (1_950_000_000, 2 << 30, "It uses 90 % of its maxmemory (1.8 GiB of 2 GiB); at the limit it refuses new jobs."),
    ],
)
def test_memory_that_is_nearly_used_up_is_told_as_a_share(used: int, limit: int, said: str) -> None:
    [found] = server(state=replace(GOOD.state, memory_bytes=used, memory_limit_bytes=limit))
    assert (found.code, found.what) == ("memory", said)


def test_what_holds_for_all_workers() -> None:
    control = Control(NOW, paused_until_ms=NOW + 60_000, maintenance_until_ms=0, reason="new schema")
    late = replace(WELL, control=control, queues=(replace(QUEUE, stats=replace(STATS, overdue_oldest_ms=99_000)),))
    paused, maintenance = judge(late)
    assert (paused.code, paused.level, paused.where) == ("all-paused", Level.PROBLEM, "all queues")
    assert "for another 1m" in paused.what
    assert (maintenance.code, maintenance.next) == ("maintenance", "delayq maintenance off")
    assert maintenance.what.startswith("Maintenance is on: workers fetch nothing")
    assert "new schema" in maintenance.what


def test_what_is_over_holds_no_more() -> None:
    assert judge(replace(WELL, control=Control(NOW, paused_until_ms=NOW, maintenance_until_ms=NOW - 1))) == []
