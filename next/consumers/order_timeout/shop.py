"""Close an order that is not paid within 15 minutes.

delayq work --app shop     close unpaid orders
python shop.py place 42    place an order
python shop.py pay 42      pay an order, and print `paid` or `refused`
python shop.py show 42     print the state of an order
"""

import logging
import sqlite3
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager

from delayq import DelayqError, Job

logger = logging.getLogger("shop")

TIME_TO_PAY = "15m"


class CloseOrder(Job, name="order.close", queue="orders"):
    """Close an order unless it is paid. A second run changes nothing."""

    order_id: int

    def handle(self) -> None:
        """Close the order if it is open."""
        with database() as db:
            update = "UPDATE orders SET state = 'closed' WHERE id = ? AND state = 'open'"
            is_closed = db.execute(update, (self.order_id,)).rowcount == 1
        if is_closed:
            print(f"order {self.order_id} is closed", flush=True)


def place(order_id: int) -> None:
    """Place an order. If the order exists, change nothing.

    The job is scheduled before the order is stored. If the process dies in between, the job finds no order. A later
    call then replaces this job, so that the customer has the full time to pay. If the old job is running at this
    moment, the call raises JobRunning and can be repeated.
    """
    if state(order_id) == "unknown":
        CloseOrder(order_id=order_id).dispatch(delay=TIME_TO_PAY, id=f"close-{order_id}", on_conflict="replace")
        with database() as db:
            db.execute("INSERT OR IGNORE INTO orders VALUES (?, 'open')", (order_id,))


def pay(order_id: int) -> bool:
    """Return True if the order is paid, by this call or by an earlier one, and False if it is closed or unknown.

    The database decides between the payment and the timeout. The payment is committed before the job is cancelled. If
    the process dies in between, the job runs and changes nothing.
    """
    with database() as db:
        db.execute("UPDATE orders SET state = 'paid' WHERE id = ? AND state = 'open'", (order_id,))
    if state(order_id) != "paid":
        return False
    try:
        CloseOrder.cancel(f"close-{order_id}")  # only cleans up; the answer does not matter
    except DelayqError as error:
        logger.warning("the job of order %d was not cancelled: %s", order_id, error)
    return True


def state(order_id: int) -> str:
    """Return `open`, `paid`, `closed` or `unknown`."""
    with database() as db:
        row = db.execute("SELECT state FROM orders WHERE id = ?", (order_id,)).fetchone()
    return row[0] if row else "unknown"


@contextmanager
def database() -> Iterator[sqlite3.Connection]:
    """Open the database of the shop for one transaction, which is committed at the end of the block."""
    with closing(sqlite3.connect("shop.db")) as db, db:
        db.execute("CREATE TABLE IF NOT EXISTS orders (id INTEGER PRIMARY KEY, state TEXT NOT NULL)")
        yield db


if __name__ == "__main__":
    command, number = sys.argv[1], int(sys.argv[2])
    if command == "place":
        place(number)
    elif command == "pay":
        print("paid" if pay(number) else "refused")
    else:
        print(state(number))
