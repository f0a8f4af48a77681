"""The jobs of the shop that the browser looks at."""

from __future__ import annotations

import os
from pathlib import Path

from delayq import job


@job("order.close", retention="1h")
def close_order(order_id: int) -> str:
    return f"order {order_id} closed"


@job("order.pay", tries=1, retention="1h")
def pay_order(order_id: int, card_number: str) -> str:
    """Fails until the bank is there."""
    if not Path(os.environ["SHOP_BANK"]).exists():
        raise ConnectionError(f"the bank did not take {card_number}")
    return f"order {order_id} paid"
