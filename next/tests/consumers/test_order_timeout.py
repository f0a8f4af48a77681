"""order_timeout: the program of the README, and the cases that the README does not show."""

import shutil
import sys
from pathlib import Path

import pytest

from delayq import DelayQ
from tests.consumers.programs import CONSUMERS, Programs
from tests.docs.pages import run_page

pytestmark = pytest.mark.processes

README = CONSUMERS / "order_timeout" / "README.md"


@pytest.fixture
def shop(programs: Programs) -> Programs:
    shutil.copy(CONSUMERS / "order_timeout" / "shop.py", programs.folder)
    return programs


def run(shop: Programs, *words: str) -> str:
    return shop.run(sys.executable, "shop.py", *words)


def run_timeout(shop: Programs, q: DelayQ) -> None:
    q.run_now("close-42")
    shop.run(sys.executable, "-m", "delayq", "work", "--app", "shop", "--stop-when-empty")


def test_the_readme_does_what_it_says(project: Path) -> None:
    shutil.copy(CONSUMERS / "order_timeout" / "shop.py", project)
    run_page(README, project)


def test_an_order_stays_paid_though_its_process_died_before_it_cancelled_the_job(shop: Programs, q: DelayQ) -> None:
    run(shop, "place", "42")
    shop.run(sys.executable, "-c", "import os, shop; shop.CloseOrder.cancel = lambda id: os._exit(0); shop.pay(42)")
    assert q.get("close-42") is not None
    run_timeout(shop, q)
    assert (run(shop, "show", "42"), run(shop, "pay", "42")) == ("paid", "paid")


def test_a_placed_order_is_not_placed_again(shop: Programs, q: DelayQ) -> None:
    run(shop, "place", "42")
    before = q.get("close-42")
    run(shop, "place", "42")
    assert q.get("close-42") == before
    run_timeout(shop, q)
    run(shop, "place", "42")
    assert (run(shop, "show", "42"), q.get("close-42")) == ("closed", None)


def test_an_order_gets_the_full_time_though_an_old_job_is_nearly_due(shop: Programs, q: DelayQ) -> None:
    """An earlier process scheduled the job, and died before it stored the order."""
    old = q.schedule("order.close", {"order_id": 42}, id="close-42", delay="1s")
    run(shop, "place", "42")
    job = q.get("close-42")
    assert job is not None
    assert job.due_ms is not None
    assert old.due_ms is not None
    assert job.due_ms - old.due_ms > 800_000


def test_a_payment_of_an_unknown_order_is_refused(shop: Programs, q: DelayQ) -> None:
    q.schedule("order.close", {"order_id": 42}, id="close-42", delay="15m")
    assert run(shop, "pay", "42") == "refused"
    assert q.get("close-42") is not None
