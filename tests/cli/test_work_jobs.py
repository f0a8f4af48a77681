"""`delayq work` with job classes: what a handler dispatches goes to the Redis of its worker."""

from __future__ import annotations

from delayq import DelayQ
from tests.support.cli import Cli

APP = """
from pathlib import Path
from delayq import Job, JobContext, handles, job

def write(line: str) -> None:
    with Path("ran.txt").open("a") as file:
        file.write(line + "\\n")

class PlaceOrder(Job, name="order.place", queue="orders"):
    order_id: int

    def handle(self) -> None:
        CloseOrder(order_id=self.order_id).dispatch()

class CloseOrder(Job, name="order.close", queue="closing", tries=1):
    order_id: int

    async def handle(self, context: JobContext) -> None:
        write(f"closing {self.order_id} attempt {context.attempt}")
        note.job("seen").dispatch()
        await note.job("awaited").adispatch()
        raise ValueError("no stock")

    async def failed(self, error: BaseException) -> None:
        write(f"failed {self.order_id}: {error}")

@job("note", queue="notes")
def note(text: str) -> None:
    write(text)

@handles("Mailer", queue="mail")
class Mailer:
    def send(self, context: JobContext, data: object) -> None:
        write(f"mail {data}")
"""


def test_a_chain_of_dispatches_over_plain_and_async_handlers(cli: Cli, q: DelayQ) -> None:
    (cli.folder / "classes.py").write_text(APP)
    q.schedule("order.place", {"order_id": 7}, queue="orders")
    q.schedule("Mailer@send", {"to": "ann"}, queue="mail")
    done = cli.ok("work", "--app", "classes", "--stop-when-empty")
    assert "default, orders, closing, notes, mail" in done.err
    lines = (cli.folder / "ran.txt").read_text().splitlines()
    assert sorted(lines) == sorted(
        ["closing 7 attempt 1", "failed 7: no stock", "seen", "awaited", "mail {'to': 'ann'}"]
    )
    assert [stats.failed for stats in q.stats("closing")] == [1]
