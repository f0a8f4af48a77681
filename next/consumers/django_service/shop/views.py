"""The views of the shop."""

import logging

from django.db import transaction
from django.http import HttpRequest, JsonResponse
from django.views.decorators.http import require_GET, require_http_methods

from delayq import CommittedUnsent, DelayqError

from .jobs import close_order
from .models import Order

logger = logging.getLogger("shop")

TIME_TO_PAY = "15m"


@require_http_methods(["PUT"])
def place(request: HttpRequest, order_id: int) -> JsonResponse:
    """Store an order. Its job is sent right after the commit. Repeat the request to send the job again."""
    try:
        with transaction.atomic():
            order, is_new = Order.objects.get_or_create(pk=order_id)
            if order.state == "open":
                close_order.job(order=order).dispatch(delay=TIME_TO_PAY, id=f"close-{order.pk}")
    except CommittedUnsent as error:
        logger.warning("%s", error)
        return JsonResponse({"detail": "The order has no job yet. Repeat the request."}, status=503)
    return _shown(order, 201 if is_new else 200)


@require_http_methods(["POST"])
def pay(request: HttpRequest, order_id: int) -> JsonResponse:
    """Store the payment, then cancel the job. The database decides, so the answer of `cancel` does not matter."""
    Order.objects.filter(pk=order_id, state="open").update(state="paid")
    order = Order.objects.filter(pk=order_id).first()
    if order is None:
        return _missing()
    if order.state == "closed":
        return JsonResponse({"detail": "The order is closed."}, status=409)
    try:
        close_order.cancel(f"close-{order_id}")
    except DelayqError as error:
        logger.warning("the job of order %d was not cancelled: %s", order_id, error)
    return _shown(order)


@require_GET
def show(request: HttpRequest, order_id: int) -> JsonResponse:
    """Return an order. This request needs no Redis."""
    order = Order.objects.filter(pk=order_id).first()
    return _missing() if order is None else _shown(order)


def _shown(order: Order, status: int = 200) -> JsonResponse:
    return JsonResponse({"id": order.pk, "state": order.state}, status=status)


def _missing() -> JsonResponse:
    return JsonResponse({"detail": "There is no such order."}, status=404)
