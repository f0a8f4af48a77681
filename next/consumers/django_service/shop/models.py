"""The orders of the shop."""

from django.db import models


class Order(models.Model):
    """An order. `state` is open, paid or closed."""

    state = models.CharField(max_length=10, default="open")

    class Meta:
        db_table = "orders"
