"""pause: promotion, direct append and fetching stop, for a time or until resumed."""

from __future__ import annotations

from delayq.redis.calls import inspect
from tests.support.engine import START, Engine


def test_a_pause_for_a_time(each_engine: Engine) -> None:
    engine = each_engine
    assert engine.changes(inspect.pause(engine.scope, 5_000)) == (START + 5_000, {"meta"})
    meta = {"paused_until_ms": str(START + 5_000), "schema": "1", "lease_ms": "30000", "shards": "1"}
    assert engine.rows("meta") == meta


def test_a_pause_until_resumed(engine: Engine) -> None:
    assert engine.run(inspect.pause(engine.scope, 0)) == 0
    assert engine.rows("meta")["paused_until_ms"] == "0"
    assert engine.changes(inspect.resume(engine.scope)) == (-1, {"meta"})
    assert "paused_until_ms" not in engine.rows("meta")


def test_resuming_what_runs_changes_nothing(engine: Engine) -> None:
    engine.schedule([engine.job("a")])
    assert engine.unchanged(inspect.resume(engine.scope)) == -1


def test_a_pause_changes_no_lease(engine: Engine) -> None:
    engine.with_options(lease_ms=5_000).schedule([engine.job("a")])
    engine.run(inspect.pause(engine.scope, 0))
    assert engine.rows("meta")["lease_ms"] == "5000"


def test_a_full_server_can_be_paused_and_resumed(each_engine: Engine) -> None:
    engine = each_engine
    engine.schedule([engine.job("a")])
    with engine.full():
        assert engine.changes(inspect.pause(engine.scope, 0)) == (0, {"meta"})
        assert engine.rows("meta")["paused_until_ms"] == "0"
        assert engine.changes(inspect.resume(engine.scope)) == (-1, {"meta"})
        assert "paused_until_ms" not in engine.rows("meta")
        assert engine.run(inspect.pause(engine.with_options(lease_ms=5_000).scope, 7_000)) == START + 7_000
    assert engine.rows("meta")["lease_ms"] == "30000"


def test_a_full_server_can_be_paused_before_its_first_job(each_engine: Engine) -> None:
    with each_engine.full():
        assert each_engine.run(inspect.pause(each_engine.scope, 0)) == 0
    assert each_engine.rows("meta")["schema"] == "1"
