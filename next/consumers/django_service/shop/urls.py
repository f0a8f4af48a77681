"""The URLs of the shop."""

from django.http import HttpRequest, HttpResponseBase
from django.urls import path

from . import views


def order(request: HttpRequest, order_id: int) -> HttpResponseBase:
    """Place an order (PUT) or show it (GET)."""
    return (views.place if request.method == "PUT" else views.show)(request, order_id)


urlpatterns = [
    path("orders/<int:order_id>", order),
    path("orders/<int:order_id>/payment", views.pay),
]
