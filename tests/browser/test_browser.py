"""The dashboard in Chromium: `walk` does what people do, `examine` looks for what keeps people out.

Without Chromium these are skipped aloud; they fail when DELAYQ_TEST_CHROMIUM=1 says that it was installed for them.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from delayq import DelayQ
from delayq.core.audit import Deed
from delayq.core.followups import Plan
from delayq.http.dashboard.limit_pages import LISTED
from delayq.http.dashboard.rendering import NAVIGATION
from tests.browser.chromium import program
from tests.support.announcing import announce
from tests.support.cli import ROOT, Cli, environment
from tests.support.failing import fail_job
from tests.support.flavours import missing
from tests.support.job_types import report

PATIENCE_S = 360
pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]


@pytest.fixture
def shop(redis_url: str, tmp_path: Path) -> Iterator[Cli]:
    """Commands on this test's Redis."""
    if program() is None:
        wanted = os.environ.get("DELAYQ_TEST_CHROMIUM", "") == "1"
        missing("no chromium on this machine: apt-get install chromium", allowed=not wanted)
    more = {"DELAYQ_URL": redis_url, "SHOP_BANK": str(tmp_path / "bank"), "HOME": str(tmp_path)}
    with closing(Cli(tmp_path, environment(**more))) as cli:
        yield cli


def serve(shop: Cli) -> str:
    """The dashboard; where it is."""
    process = shop.start("serve", "--port", "0", "--json")
    assert process.stdout is not None
    line = process.stdout.readline()
    assert line, process.stderr and process.stderr.read()
    return str(json.loads(line)["url"])


def run(shop: Cli, module: str, *words: str) -> str:
    """A program of this folder, which must end well; what it says."""
    env = {name: value for name, value in shop.env.items() if name != "PYTHONWARNINGS"}
    done = subprocess.run(
        [sys.executable, "-m", f"tests.browser.{module}", *words],
        cwd=ROOT,
        env=env,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    return done.stdout


def test_a_walk_through_the_dashboard(shop: Cli, redis_url: str) -> None:
    shop.start("work", "--app", "tests.browser.shop", "--queue", "orders", "--quiet")
    said = run(shop, "walk", serve(shop), redis_url)
    assert said.splitlines()[-1] == "finds_it_all_in_the_log"


PATHS = [
    *(path for path, _ in NAVIGATION),
    "/queues/orders",
    "/jobs?state=failed",
    "/failed/all?act=forget",
    "/failed/groups",
    "/job-types?window=90d",
    "/batch?id=spring",
    *(f"/job?queue=orders&id={name}" for name in ("broken", "soon", "absent")),
]


def some_of_each(redis_url: str) -> None:
    """Something on each page."""
    with DelayQ(redis_url) as q:
        fail_job(q, "broken", "no customer")
        q.batches.open(Plan(id="spring", name="spring"))
        q.schedule("order.close", {"order_id": 1}, delay="10m", id="soon", queue="orders", unique="1", tags=["vip"])
        q.pause("mail")
        q.pause_all(reason="the bank is away")
        for queue, name, ms in (
            ("orders", "order.close", 900.0),
            ("mail", "App\\Jobs\\SendTheMonthlyNewsletter", 20.0),
        ):
            report(q, queue, name, [ms] * 90 + [70_000.0] * 10, done=80, released=15, failed=5)
    announce(redis_url, "dq:web-1:2:b", ["orders"], worker="dq:web-1:1:a")
    announce(redis_url, "dq:web-1:3:c", ["orders"], worker="dq:web-1:1:a", state="quiet")


def test_a_phone_reaches_every_button_and_column(shop: Cli, redis_url: str) -> None:
    some_of_each(redis_url)
    with DelayQ(redis_url) as q:
        q.schedule_many([{"name": "invoice.remind", "data": {}, "delay": "1h", "queue": "orders"}] * 3)
        q.cancel("soon", queue="orders")
        q.schedule("order.close", delay="10m", id="soon", queue="orders", unique="1")
    assert run(shop, "reach", serve(shop), *PATHS) == f"{len(PATHS)} pages reached\n"


def test_an_operator_has_each_answer_within_four_clicks(shop: Cli, redis_url: str) -> None:
    with DelayQ(redis_url) as q:
        for n in (1, 2, 3):
            fail_job(q, f"pay-{n}", f"no customer {n}", name="order.pay")
        fail_job(q, "broken", "out of paper")
        q.schedule("order.close", delay="1h", id="order-4711", queue="orders")
        q.schedule("mail.send", at="2026-01-01T00:00:00Z", id="late", queue="mail")
    shop.ok("cancel", "order-4711", "--queue", "orders")
    with DelayQ(redis_url) as q:
        for n in range(LISTED):
            q.audit_log.record(Deed("pause", f"other-{n}"))
    said = run(shop, "flows", serve(shop), redis_url)
    clicks = dict(line.split() for line in said.splitlines())
    assert clicks == {
        "finds_the_error_that_hurts_most": "1",
        "finds_the_late_queue": "1",
        "finds_the_person_who_cancelled": "2",
        "mends_one_job_of_the_group": "4",
        "retries_the_rest_of_the_group": "3",
    }


def test_no_page_keeps_anybody_out(shop: Cli, redis_url: str) -> None:
    some_of_each(redis_url)
    said = run(shop, "examine", serve(shop), *PATHS)
    assert said == f"{2 * len(PATHS)} pages examined\n"
