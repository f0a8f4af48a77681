"""The shop of the pictures: jobs that run, wait for places, fail as banks do."""

from __future__ import annotations

import time

from delayq import Concurrency, JobContext, RateLimit, RateLimited, job


@job("order.close", retention="1h", tries=3, backoff="2s", middleware=[Concurrency("warehouse", 4)])
def close_order(context: JobContext, order_id: int) -> str:
    """The first attempt of every seventh finds the warehouse busy."""
    if order_id % 7 == 0 and context.attempt == 1:
        raise TimeoutError(f"the warehouse did not answer for order {order_id}")
    return f"order {order_id} closed"


@job("order.pay", tries=2, backoff="1s")
def pay_order(order_id: int, card_number: str) -> None:
    raise ConnectionError(f"the bank refused {card_number} for order {order_id}: 503 Service Unavailable")


@job("report.build", timeout="1h", middleware=[Concurrency("reports", 1, key="eu")])
def build_report(context: JobContext, month: str, api_key: str = "") -> None:
    """Runs until somebody stops it, and says how far it is."""
    context.progress(412, 900, f"reading the orders of {month}")
    while not context.stop_asked():
        time.sleep(0.2)


@job("sms.send", middleware=[RateLimited("sms", RateLimit.per_hour(5))])
def send_sms(to: str) -> None:
    return


@job("mail.send")
def send_mail(order_id: int) -> None:
    return


@job("invoice.remind")
def remind() -> None:
    return
