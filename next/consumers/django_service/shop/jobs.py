"""The jobs of the shop. Workers import this module through worker.py."""

from delayq import job

from .models import Order


@job("order.close", queue="orders", after_commit=True, on_missing="discard")
def close_order(order: Order) -> None:
    """Close an order unless it is paid. A second run changes nothing."""
    Order.objects.filter(pk=order.pk, state="open").update(state="closed")
