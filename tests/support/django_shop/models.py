"""Its models."""

from __future__ import annotations

import uuid

from django.db import models


class Customer(models.Model):  # type: ignore[misc]  # Django comes without types
    id = models.UUIDField(primary_key=True, default=uuid.uuid4)
    name = models.CharField(max_length=50)


class Order(models.Model):  # type: ignore[misc]
    customer = models.ForeignKey(Customer, on_delete=models.CASCADE)
    status = models.CharField(max_length=20, default="open")
