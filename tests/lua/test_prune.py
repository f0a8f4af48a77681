"""prune: what was kept long enough is forgotten."""

from __future__ import annotations

from delayq.redis.calls import deliver
from delayq.redis.calls.deliver import Pruned
from tests.support.engine import HOUR, START, Engine

DAY = 24 * HOUR


def test_prune_forgets_what_is_old_enough(each_engine: Engine) -> None:
    engine = each_engine
    engine.failed("f1")
    engine.completed("c1", retention_ms=DAY)
    engine.now += 1
    engine.failed("f2")
    engine.completed("c2", retention_ms=DAY)
    engine.schedule([engine.job("s", f"+{2 * DAY}")])
    engine.now = START + DAY
    pruned, names = engine.changes(deliver.prune(engine.scope, DAY))
    assert pruned == Pruned(1, 1)
    assert names == {"failed", "completed", "jobs", "errors", "results"}
    assert (list(engine.scores("failed")), list(engine.scores("completed"))) == (["f2"], ["c2"])
    engine.now += 1
    assert engine.run(deliver.prune(engine.scope, DAY)) == Pruned(1, 1)
    assert engine.rows("jobs").keys() == {"s"}


def test_prune_in_batches(engine: Engine) -> None:
    engine.failed("f1", "f2", "f3")
    engine.completed("c1", "c2", retention_ms=1)
    engine.now += 1
    counts = [engine.run(deliver.prune(engine.scope, 0, 2)) for _ in range(3)]
    assert counts == [Pruned(2, 2), Pruned(0, 1), Pruned(0, 0)]


def test_prune_with_nothing_old(engine: Engine) -> None:
    engine.failed("f")
    engine.completed("c")
    assert engine.unchanged(deliver.prune(engine.scope, DAY)) == Pruned(0, 0)


def test_prune_of_an_empty_database(engine: Engine) -> None:
    assert engine.unchanged(deliver.prune(engine.scope, 0)) == Pruned(0, 0)
