"""`delayq schedule NAME --app MODULE`: the job is sent with what the application declares for that name."""

from __future__ import annotations

import pytest

from delayq import DelayQ
from tests.support.cli import Cli

DECLARED = """
from delayq import Job, Unique, job

print("imported")

class CloseOrder(Job, name="order.close", queue="orders", delay="15m", tags=["shop"], unique=Unique(key=["order_id"])):
    order_id: int

    def handle(self) -> None: ...

@job("report.make", queue="reports", deadline="1h")
def make(number: int) -> None: ...

@job("ping", tries=2)
def ping() -> None: ...
"""


@pytest.fixture
def shop(cli: Cli) -> Cli:
    (cli.folder / "declared.py").write_text(DECLARED)
    return cli


def test_a_declared_job_gets_its_queue_and_options(shop: Cli, q: DelayQ) -> None:
    words = ("schedule", "order.close", "--data", '{"order_id": 42}', "--app", "declared", "--json")
    done = shop.ok(*words)
    assert (done.json["queue"], done.json["state"]) == ("orders", "scheduled")
    info = q.get(done.json["id"], queue="orders")
    assert info is not None
    assert info.envelope is not None
    assert info.envelope.tags == ["shop"]
    again = shop.ok(*words)
    assert (again.json["id"], again.json["outcome"]) == (done.json["id"], "kept")
    assert "imported" in done.err, "what the application prints is no part of the answer"


def test_what_the_command_says_goes_first(shop: Cli, q: DelayQ) -> None:
    words = ("--data", '{"order_id": 1}', "--app", "declared", "--queue", "vip", "--in", "2h", "--unique", "mine")
    answer = shop.ok("schedule", "order.close", *words, "--json").json
    info = q.get(answer["id"], queue="vip")
    assert info is not None
    assert info.due_ms is not None
    assert info.due_ms - (info.created_ms or 0) >= 7_100_000
    other = shop.ok("schedule", "other", "--unique", "mine", "--queue", "vip", "--json").json
    assert (other["id"], other["outcome"]) == (answer["id"], "kept")


def test_the_application_of_the_settings_counts_too(shop: Cli) -> None:
    """As it does for `work` and `doctor`."""
    shop.env["DELAYQ_APP"] = "declared"
    assert shop.ok("schedule", "report.make", "--data", '{"number": 1}', "--json").json["queue"] == "reports"
    assert shop.ok("schedule", "ping", "--json").json["queue"] == "default"
    assert shop.ok("schedule", "unheard.of", "--json").json["queue"] == "default"


def test_without_an_application_a_name_is_only_a_name(shop: Cli) -> None:
    assert shop.ok("schedule", "report.make", "--json").json["queue"] == "default"


def test_an_application_that_cannot_be_loaded_is_refused(shop: Cli, q: DelayQ) -> None:
    done = shop("schedule", "report.make", "--app", "absent")
    assert (done.code, done.out) == (2, "")
    assert "there is no module 'absent'" in done.err
    assert q.queues() == []


def test_the_jobs_of_another_backend_have_what_is_declared(shop: Cli) -> None:
    (shop.folder / "delayq.toml").write_text(
        '[connections.safe]\ndriver = "database"\nurl = "sqlite:///jobs.db"\n[connections.now]\ndriver = "sync"\n'
    )
    shop.ok("--connection", "safe", "database", "migrate")
    words = ("schedule", "report.make", "--data", '{"number": 1}', "--app", "declared", "--json")
    assert shop.ok("--connection", "safe", *words).json["queue"] == "reports"
    assert shop.ok("--connection", "now", *words).json["queue"] == "reports"
