"""`schedule --app` sends a job as the application that declares it would."""

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import redis

from delayq import DelayQ
from delayq.core.declared import declarations
from delayq.jobs.registry import registry
from delayq.manager import set_manager
from tests.cli.conftest import Run, Tell

APPLICATION = """
from delayq import job

@job("app.close", queue="orders", delay="15m", tags=["shop"])
def close(order_id: int) -> None:
    raise AssertionError("it is only scheduled")
"""
SETTINGS = """
[connections.reports]
prefix = "reports"

[routes]
"app.report" = { connection = "reports", queue = "slow" }
"""
REPORT = """
@job("app.report")
def report() -> None: ...
"""
MODELS = """
from delayq import job
from tests.support.sqlalchemy_shop import Order

@job("app.ship")
def ship(order: Order, also: list[Order] | None = None) -> None: ...
"""


@pytest.fixture(autouse=True)
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, server: redis.Redis) -> Iterator[None]:
    (tmp_path / "app_jobs.py").write_text(APPLICATION + REPORT)
    (tmp_path / "delayq.toml").write_text(SETTINGS)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(registry, "_handlers", dict(registry._handlers))
    monkeypatch.delitem(sys.modules, "app_jobs", raising=False)
    set_manager(None)
    known = dict(declarations)
    yield
    declarations.clear()
    declarations.update(known)


def scheduled(run: Run, *words: str) -> dict[str, Any]:
    ended = run("schedule", *words, "--app", "app_jobs", "--json")
    assert ended.exit_code == 0, ended.output
    told: dict[str, Any] = json.loads(ended.stdout)
    return told


def test_the_declared_options_count(run: Run, url: str) -> None:
    told = scheduled(run, "app.close", "--data", '{"order_id": 42}', "--id", "one")
    assert (told["queue"], told["state"]) == ("orders", "scheduled")
    with DelayQ(url) as client:
        job = client.get("one", queue="orders")
    assert job is not None
    assert job.envelope is not None
    assert job.envelope.tags == ["shop"]


def test_an_option_goes_before_the_declared_one(run: Run) -> None:
    told = scheduled(run, "app.close", "--data", '{"order_id": 42}', "--queue", "vip", "--in", "0s")
    assert (told["queue"], told["state"]) == ("vip", "ready")


def test_a_route_counts(run: Run, server: redis.Redis) -> None:
    assert scheduled(run, "app.report", "--in", "1h")["queue"] == "slow"
    assert server.exists("reports:{slow}:scheduled")


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("app.clos",), "The application app_jobs declares no job 'app.clos'. Did you mean app.close?"),
        (("app.close",), "The payload does not fit 'app.close': Object missing required field `order_id`."),
        (("app.close", "--data", '{"order_id": "x"}'), "The payload does not fit 'app.close': Expected `int`"),
        (("app.close", "--data", '{"order_id": 1, "n": 2}'), "'app.close': Object contains unknown field `n`."),
    ],
)
def test_a_refusal_sends_nothing(tell: Tell, server: redis.Redis, words: tuple[str, ...], told: str) -> None:
    ended, said = tell("schedule", *words, "--app", "app_jobs")
    assert (ended, told in said) == (2, True), said
    assert server.keys("*") == []


def test_a_reference_to_another_model_is_refused(
    tell: Tell, server: redis.Redis, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "app_models.py").write_text(MODELS)
    monkeypatch.delitem(sys.modules, "app_models", raising=False)
    order, buyer = (f'{{"model": "tests.support.sqlalchemy_shop.{name}", "key": 1}}' for name in ("Order", "Buyer"))
    for data, field in ((f'{{"order": {buyer}}}', "order"), (f'{{"order": {order}, "also": [{buyer}]}}', "also")):
        ended, said = tell("schedule", "app.ship", "--data", data, "--app", "app_models")
        assert (ended, said) == (
            2,
            "delayq: The payload does not fit 'app.ship': Expected the model tests.support.sqlalchemy_shop.Order, got "
            f"tests.support.sqlalchemy_shop.Buyer - at `$.{field}`. Correct --data.\n",
        )
    unknown = f'{{"order": {order[:-1]}, "table": "orders"}}}}'
    assert tell("schedule", "app.ship", "--data", unknown, "--app", "app_models") == (
        2,
        "delayq: The payload does not fit 'app.ship': Object contains unknown field `table` - at `$.order`. Correct "
        "--data.\n",
    )
    assert server.keys("*") == []
    assert tell("schedule", "app.ship", "--data", f'{{"order": {order}}}', "--app", "app_models")[0] == 0


def test_routes_count_for_a_job_that_is_sent_by_name_alone(run: Run, url: str) -> None:
    def sent(*words: str) -> tuple[str, str]:
        told = json.loads(run(*words, "--json").stdout)
        prefix = next(prefix for prefix in ("delayq", "reports") if found(prefix, told))
        return prefix, told["queue"]

    def found(prefix: str, told: dict[str, Any]) -> bool:
        with DelayQ(url, prefix=prefix) as client:
            return client.get(told["id"], queue=told["queue"]) is not None

    assert sent("schedule", "app.report", "--in", "1h") == ("reports", "slow")
    assert sent("schedule", "app.report", "--in", "1h", "--queue", "q") == ("reports", "q")
    assert sent("schedule", "app.close", "--in", "1h") == ("delayq", "default")
    assert sent("--url", url, "schedule", "app.report", "--in", "1h") == ("delayq", "slow")
