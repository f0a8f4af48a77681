"""The requests."""

from __future__ import annotations

from typing import Any

from django.db import transaction
from django.http import HttpRequest, JsonResponse
from django.urls import path
from django.views.decorators.csrf import csrf_exempt
from django.views.decorators.http import require_POST

from consumers.django_service.jobs import CloseOrder
from consumers.django_service.shop import Order


def place(request: HttpRequest, order_id: int) -> Any:
    """The job is sent after the commit: a request that fails half-way leaves neither order nor job."""
    order, made = Order.objects.get_or_create(id=order_id)
    if made:
        CloseOrder.schedule(order_id)
    if request.GET.get("fail"):
        raise RuntimeError("somebody pulled the plug")
    return JsonResponse({"order": order_id, "state": order.state}, status=201)


def pay(request: HttpRequest, order_id: int) -> Any:
    """One conditional update decides between paid and closed; the job, when it comes, finds nothing to do."""
    paid = Order.turn(order_id, into="paid")
    return JsonResponse({"order": order_id, "state": "paid" if paid else "too late"}, status=200 if paid else 409)


def show(request: HttpRequest, order_id: int) -> Any:
    order = Order.objects.filter(id=order_id).first()
    return JsonResponse({"state": order.state}) if order else JsonResponse({"state": "unknown"}, status=404)


def order(request: HttpRequest, order_id: int) -> Any:
    return transaction.atomic(place)(request, order_id) if request.method == "POST" else show(request, order_id)


urlpatterns = [  # exempt for curl; a page of yours sends a token
    path("orders/<int:order_id>", csrf_exempt(order)),
    path("orders/<int:order_id>/payment", csrf_exempt(require_POST(pay))),
]
