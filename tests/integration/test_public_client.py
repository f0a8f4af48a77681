"""`DelayQ` and `AsyncDelayQ` as programs make them."""

from __future__ import annotations

from pathlib import Path

import pytest

from delayq import AsyncDelayQ, ConfigError, DelayQ, JobSpec, Settings


@pytest.fixture(autouse=True)
def bare(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No settings but the test's own."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("DELAYQ_URL", raising=False)
    monkeypatch.setenv("DELAYQ_DATA_DIR", str(tmp_path / "data"))


def test_a_job_there_and_back(redis_url: str) -> None:
    with DelayQ(redis_url) as q:
        ref = q.schedule("order.close", {"order_id": 42}, delay="15m", id="order-42", queue="orders")
        assert (ref.outcome, ref.id, ref.queue) == ("created", "order-42", "orders")
        info = q.get("order-42", queue="orders")
        assert info is not None
        assert info.data == {"order_id": 42}
        assert q.schedule_many([JobSpec(name="x"), {"name": "x", "delay": "1h"}])[1].state == "scheduled"
        assert q.cancel("order-42", queue="orders") == "cancelled"
        assert q.prune_failed("orders", older="0s") == 0
        assert q.workers() == []


async def test_the_same_awaited(redis_url: str) -> None:
    async with AsyncDelayQ(redis_url) as q:
        ref = await q.schedule("order.close", {"order_id": 42}, delay="15m", id="order-42")
        assert ref.outcome == "created"
        assert [info.id async for info in q.iter_jobs("scheduled")] == ["order-42"]
        assert await q.cancel("order-42") == "cancelled"
        assert await q.prune_failed(older="0s") == 0
        assert await q.workers() == []


def test_the_url_may_come_from_the_settings(redis_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "delayq.toml").write_text(f'url = "{redis_url}"\nqueue = "orders"\n')
    with DelayQ() as q:
        assert q.schedule("x", delay="1h").queue == "orders"
    monkeypatch.setenv("DELAYQ_QUEUE", "mails")
    with DelayQ() as q:
        assert q.schedule("x", delay="1h").queue == "mails"
    with DelayQ(queue="vip") as q:
        assert q.schedule("x", delay="1h").queue == "vip"


@pytest.mark.redis_prefix("shop")
def test_another_prefix(redis_url: str) -> None:
    with DelayQ(redis_url, prefix="shop") as q:
        q.schedule("x", delay="1h")
    with DelayQ(redis_url) as q:
        assert q.queues() == []


def test_settings_stand_for_all(redis_url: str) -> None:
    settings = Settings(url=redis_url, queue="orders")
    with DelayQ(settings=settings) as q:
        assert q.options.queue == "orders"
    with pytest.raises(TypeError, match="settings="):
        DelayQ(redis_url, settings=settings)


def test_a_bad_url_is_refused_at_once() -> None:
    with pytest.raises(ConfigError, match="scheme"):
        DelayQ("localhost:6379")


def test_verbs_come_in_the_same_names() -> None:
    def verbs(kind: type) -> set[str]:
        return {name for name in dir(kind) if not name.startswith("_")}

    assert verbs(DelayQ) == verbs(AsyncDelayQ)
