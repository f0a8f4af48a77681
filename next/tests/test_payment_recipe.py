"""The first program of the tutorial: a payment and its timeout compete, and calls and processes fail in between.

The rule in all cases: a paid order is never closed, an unpaid order is closed, and no order stays open.
"""

import os
import re
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
import redis

from delayq import DelayQ, JobNotFound
from tests.docs.pages import DOCS
from tests.support.proxy import proxy_to
from tests.support.waiting import wait_until
from tests.support.workers import end_worker

pytestmark = pytest.mark.processes

DIE = "lambda *_: os.kill(os.getpid(), signal.SIGKILL)"

BEFORE_CANCEL = """
import os, signal, subprocess, sys
import shop
from delayq import DelayQ, DelayqError

cancel = shop.CloseOrder.cancel

def work():
    with DelayQ() as client:
        client.run_now("close-42", queue="orders")
    subprocess.run([sys.executable, "-m", "delayq", "work", "--app", "app", "--stop-when-empty"], check=True)

def archive():
    with DelayQ() as client:
        client.archive("close-42", queue="orders")

def watched(job_id):
    {before}
    try:
        answer = cancel(job_id)
    except DelayqError as error:
        print(type(error).__name__)
        raise
    print(answer)
    return answer

shop.CloseOrder.cancel = watched
"""

NAIVE = """
def naive_pay(order_id):
    if shop.CloseOrder.cancel(f"close-{order_id}") != "cancelled":
        return False
    with closing(shop.database()) as db, db:
        db.execute("UPDATE orders SET state = 'paid' WHERE id = ?", (order_id,))
    return True
"""

APP = """
import time
from pathlib import Path
from delayq import Retry
import shop

handle = shop.CloseOrder.handle

def slow(self):
    Path("started").touch()
    while not Path("go").exists():
        time.sleep(0.01)
    handle(self)

def broken(self):
    handle(self)
    raise Retry("1h")
"""


class Shop:
    """The program of the tutorial in a folder of its own, with its database."""

    def __init__(self, folder: Path, url: str, client: DelayQ) -> None:
        self._folder = folder
        self._url = url
        self.client = client
        self.errors = ""
        page = (DOCS / "tutorial.md").read_text()
        found = re.search(r"^```python\n(# shop\.py\n.*?)^```", page, re.M | re.S)
        assert found is not None
        (folder / "shop.py").write_text(found[1])
        self.write_app("")

    def write_app(self, more: str) -> None:
        (self._folder / "app.py").write_text(APP + more)

    def run(self, program: str, *, url: str = "", code: int = 0) -> list[str]:
        """Run a program of the shop, and return the lines that it printed. `errors` has its stderr."""
        words = [sys.executable, "-c", f"import os, signal\nfrom contextlib import closing\nimport shop\n{program}"]
        done = subprocess.run(
            words, cwd=self._folder, env=self._environment(url), capture_output=True, text=True, check=False
        )
        assert done.returncode == code, done.stderr
        self.errors = done.stderr
        return done.stdout.splitlines()

    def pay(self, *, before_cancel: str = "pass", url: str = "", code: int = 0) -> list[str]:
        """Pay order 42. Return the answer of `cancel`, or the name of its error, and the return value of `pay`.

        A refused payment cancels nothing, so its answer is missing.
        """
        program = BEFORE_CANCEL.format(before=before_cancel)
        return self.run(f"{program}\nprint(shop.pay(42))", url=url, code=code)[-2:]

    def start_worker(self) -> "subprocess.Popen[bytes]":
        words = [sys.executable, "-m", "delayq", "work", "--app", "app", "--queue", "orders", "--stop-when-empty"]
        return subprocess.Popen(words, cwd=self._folder, env=self._environment())

    def run_timeout(self) -> None:
        """Run the job of order 42 as after its 15 minutes, if there is one."""
        try:
            self.client.run_now("close-42", queue="orders")
        except JobNotFound:
            return
        assert self.start_worker().wait() == 0

    def forget_order(self) -> None:
        """Remove order 42 and its job, as before the first call of `place`."""
        self.run("with closing(shop.database()) as db, db: db.execute('DELETE FROM orders')")
        self.client.cancel("close-42", queue="orders")

    def state(self) -> str | None:
        """Return the state of order 42; None = unknown order."""
        with closing(sqlite3.connect(self._folder / "shop.db")) as db:
            row = db.execute("SELECT state FROM orders WHERE id = 42").fetchone()
            return None if row is None else row[0]

    def state_after_timeout(self) -> str | None:
        self.run_timeout()
        return self.state()

    def _environment(self, url: str = "") -> dict[str, str]:
        return {**os.environ, "DELAYQ_URL": url or self._url, "PYTHONPATH": str(Path(__file__).parents[1])}


@pytest.fixture
def shop(url: str, server: redis.Redis, tmp_path: Path) -> Iterator[Shop]:
    with DelayQ(url) as client:
        client.cancel("some", queue="orders")  # the server knows the script from here on
        shop = Shop(tmp_path, url, client)
        shop.run("shop.place(42)")
        assert shop.state() == "open"
        yield shop


def test_an_unpaid_order_is_closed_and_cannot_be_paid_afterwards(shop: Shop) -> None:
    assert shop.state_after_timeout() == "closed"
    assert shop.pay() == ["False"]
    assert shop.state() == "closed"


@pytest.mark.parametrize(
    ("before_cancel", "answer"), [("pass", "cancelled"), ("work()", "unknown"), ("archive()", "failed")]
)
def test_a_paid_order_stays_paid_after_each_answer_of_cancel(shop: Shop, before_cancel: str, answer: str) -> None:
    assert shop.pay(before_cancel=before_cancel) == [answer, "True"]
    if answer == "failed":
        shop.client.retry("close-42", queue="orders")
    assert shop.state_after_timeout() == "paid"


def test_a_paid_order_stays_paid_though_its_job_finished_before_cancel(shop: Shop) -> None:
    job = {"order_id": 42}
    shop.client.schedule(
        "order.close", job, id="close-42", queue="orders", delay="15m", retention="1h", on_conflict="replace"
    )
    assert shop.pay(before_cancel="work()") == ["finished", "True"]
    assert shop.state() == "paid"


def test_a_paid_order_stays_paid_though_its_job_was_running(shop: Shop, tmp_path: Path) -> None:
    shop.write_app("shop.CloseOrder.handle = slow")
    shop.client.run_now("close-42", queue="orders")
    worker = shop.start_worker()
    try:
        wait_until((tmp_path / "started").exists)
        assert shop.pay() == ["running", "True"]
        (tmp_path / "go").touch()
        assert worker.wait() == 0
    finally:
        end_worker(worker)
    assert shop.client.get("close-42", queue="orders") is None
    assert shop.state() == "paid"


def test_cancelled_does_not_mean_that_the_order_is_open(shop: Shop) -> None:
    shop.write_app("shop.CloseOrder.handle = broken")
    assert shop.state_after_timeout() == "closed"
    assert shop.pay() == ["False"]
    assert shop.client.cancel("close-42", queue="orders") == "cancelled"
    assert shop.state() == "closed"


def test_one_lost_reply_of_cancel_does_not_show(shop: Shop, url: str) -> None:
    with proxy_to(url) as proxy:
        proxy.lose(1)
        assert shop.pay(url=proxy.url) == ["cancelled", "True"]
        assert proxy.replies > 1
    assert shop.client.get("close-42", queue="orders") is None
    assert shop.state_after_timeout() == "paid"


def test_a_payment_is_repeated_after_an_unknown_outcome(shop: Shop, url: str) -> None:
    with proxy_to(url) as proxy:
        proxy.lose_all()
        assert shop.pay(url=proxy.url) == ["OutcomeUnknown", "True"]
    assert shop.client.get("close-42", queue="orders") is None
    assert shop.pay() == ["unknown", "True"]
    assert shop.state_after_timeout() == "paid"


def test_a_payment_while_redis_is_away(shop: Shop, tmp_path: Path) -> None:
    assert shop.pay(url=f"unix://{tmp_path}/none.sock") == ["BackendUnavailable", "True"]
    assert shop.client.get("close-42", queue="orders") is not None
    assert shop.state_after_timeout() == "paid"


@pytest.mark.parametrize(
    ("wrong", "said"), [("redis", "is not the address"), ("unix://:wrong@", "refused")], ids=["address", "password"]
)
def test_a_wrong_setting_is_told_and_the_payment_is_valid(shop: Shop, url: str, wrong: str, said: str) -> None:
    answer = shop.pay(url=url.replace("unix://", wrong))
    assert (answer[-1], shop.state()) == ("True", "paid")
    assert "the job of order 42 was not cancelled" in shop.errors and said in shop.errors
    assert shop.state_after_timeout() == "paid"


def test_a_process_dies_between_the_payment_and_cancel(shop: Shop) -> None:
    shop.pay(before_cancel=f"({DIE})()", code=-signal.SIGKILL)
    assert shop.client.get("close-42", queue="orders") is not None
    assert shop.state_after_timeout() == "paid"
    assert shop.pay() == ["unknown", "True"]


def test_a_process_dies_before_the_payment(shop: Shop) -> None:
    shop.run(f"shop.database = {DIE}\nshop.pay(42)", code=-signal.SIGKILL)
    assert shop.state_after_timeout() == "closed"


PLACE_AND_DIE = f"shop.state_of = lambda _: None\nshop.database = {DIE}\nshop.place(42)"


def test_a_process_dies_between_the_job_and_the_order(shop: Shop) -> None:
    shop.forget_order()
    shop.run(PLACE_AND_DIE, code=-signal.SIGKILL)
    assert shop.client.get("close-42", queue="orders") is not None
    assert shop.state_after_timeout() is None
    shop.run("shop.place(42)")
    assert shop.state_after_timeout() == "closed"


def test_an_order_that_is_placed_again_gets_the_full_time(shop: Shop) -> None:
    shop.forget_order()
    shop.run(PLACE_AND_DIE, code=-signal.SIGKILL)
    shop.client.reschedule("close-42", queue="orders", delay="1s")
    shop.run("shop.place(42)")
    job = shop.client.get("close-42", queue="orders")
    assert job is not None and job.due_ms is not None and job.envelope is not None
    assert job.due_ms - job.envelope.created_ms >= 899_000  # 15 min; the second time is that of this machine


def test_a_placed_order_is_not_changed_by_a_second_call(shop: Shop) -> None:
    due = shop.client.reschedule("close-42", queue="orders", delay="1h").due_ms
    shop.run("shop.place(42)")
    job = shop.client.get("close-42", queue="orders")
    assert job is not None and job.due_ms == due
    assert shop.pay() == ["cancelled", "True"]
    shop.run("shop.place(42)")
    assert (shop.state(), shop.client.get("close-42", queue="orders")) == ("paid", None)


def test_a_payment_that_cancels_first_leaves_an_order_open_when_its_process_dies(shop: Shop) -> None:
    shop.run(f"{NAIVE}\nshop.database = {DIE}\nnaive_pay(42)", code=-signal.SIGKILL)
    assert shop.state_after_timeout() == "open"
    assert shop.run(f"{NAIVE}\nprint(naive_pay(42))") == ["False"]
    assert shop.state() == "open"
    assert shop.pay() == ["unknown", "True"]
    assert shop.state_after_timeout() == "paid"


def test_a_payment_that_cancels_first_is_refused_when_it_is_repeated(shop: Shop, url: str) -> None:
    with proxy_to(url) as proxy:
        proxy.lose_all()
        shop.run(f"{NAIVE}\nnaive_pay(42)", url=proxy.url, code=1)
    assert shop.run(f"{NAIVE}\nprint(naive_pay(42))") == ["False"]
    assert shop.state_after_timeout() == "open"
