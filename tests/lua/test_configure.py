"""configure: what a queue keeps for itself, and every script and worker reads from there."""

from __future__ import annotations

import pytest
from redis.exceptions import ResponseError

from delayq.redis.calls import deliver, inspect
from tests.support.engine import Engine


def test_configure_sets_the_lease(each_engine: Engine) -> None:
    engine = each_engine
    assert engine.changes(inspect.configure(engine.scope, 5_000)) == (5_000, {"meta"})
    assert engine.rows("meta") == {"schema": "1", "shards": "1", "lease_ms": "5000"}
    assert engine.unchanged(inspect.configure(engine.scope, None)) == 5_000
    assert engine.run(deliver.tidy(engine.with_options(lease_ms=9_000).scope)).lease_ms == 5_000


def test_configure_of_an_unknown_queue_gives_it_the_default(engine: Engine) -> None:
    assert engine.run(inspect.configure(engine.scope, None)) == 30_000


@pytest.mark.parametrize("lease", [0, -1])
def test_a_lease_is_above_nothing(engine: Engine, lease: int) -> None:
    with pytest.raises(ResponseError, match="a lease is a number of milliseconds above 0"):
        engine.unchanged(inspect.configure(engine.scope, lease))
