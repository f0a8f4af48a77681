"""The show: a worker in a process of its own, six orders, two paid in time, one too late.

python -m consumers.order_timeout [TIME_TO_PAY]
"""

from __future__ import annotations

import signal
import subprocess
import sys
import time

from consumers.order_timeout.jobs import pay_order, place_order
from consumers.order_timeout.shop import Shop
from delayq import DelayQ

WORK = [sys.executable, "-m", "delayq", "work", "--app", "consumers.order_timeout.jobs", "--queue", "orders", "--quiet"]
PATIENCE_S = 30.0


def main(time_to_pay: str = "2s") -> int:
    """0 when every order ended as it should."""
    shop, first = Shop(), time.time_ns() // 1_000_000  # new numbers with every run
    orders = range(first, first + 6)
    paid, late = orders[:2], orders[2]
    with DelayQ() as q:
        worker = subprocess.Popen(WORK)
        try:
            for order_id in orders:
                place_order(q, shop, order_id, time_to_pay=time_to_pay)
            for order_id in paid:
                print(f"order {order_id}: paid {'in time' if pay_order(q, shop, order_id) else 'too late'}", flush=True)
            end = time.monotonic() + PATIENCE_S
            while any(shop.state(order_id) == "open" for order_id in orders) and time.monotonic() < end:
                time.sleep(0.05)
            print(f"order {late}: paid {'in time' if pay_order(q, shop, late) else 'too late'}", flush=True)
        finally:
            worker.send_signal(signal.SIGTERM)
            worker.wait(timeout=PATIENCE_S)
    wanted = {order_id: "paid" if order_id in paid else "closed" for order_id in orders}
    found = {order_id: state for order_id, state in shop.orders() if order_id in orders}
    return 0 if found == wanted and worker.returncode == 0 else 1


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
