"""A Django project in one file: settings, one model, two views. Its jobs stand in `jobs.py`."""

from __future__ import annotations

import os
from typing import Any

import django
from django.conf import settings

if not settings.configured:
    settings.configure(
        DEBUG=False,
        SECRET_KEY=os.environ.get("SECRET_KEY", "only-for-this-example"),
        ALLOWED_HOSTS=["localhost", "127.0.0.1"],
        ROOT_URLCONF="consumers.django_service.urls",
        DATABASES={
            "default": {
                "ENGINE": "django.db.backends.sqlite3",
                "NAME": os.environ.get("ORDERS_DB", "orders.sqlite3"),
                "OPTIONS": {"timeout": 10, "transaction_mode": "IMMEDIATE"} if django.VERSION >= (5, 1) else {},
            }
        },
        DEFAULT_AUTO_FIELD="django.db.models.BigAutoField",
        USE_TZ=True,
    )
    django.setup()

from django.db import connection, models

from delayq.contrib.django_commits import DjangoCommits
from delayq.jobs.current import current_manager

current_manager().on_commit(DjangoCommits())  # in a project: in AppConfig.ready


class Order(models.Model):  # type: ignore[misc]  # Django comes without types
    """An order that somebody has to pay in time."""

    id = models.BigIntegerField(primary_key=True)
    state = models.CharField(max_length=10, default="open")

    class Meta:
        app_label = "shop"

    @classmethod
    def turn(cls, order_id: int, *, into: str) -> bool:
        """Conditional, so that a job which comes twice changes nothing the second time."""
        changed: Any = cls.objects.filter(id=order_id, state="open").update(state=into)
        return bool(changed == 1)


def make_table() -> None:
    """What `manage.py migrate` does in a project."""
    if Order._meta.db_table not in connection.introspection.table_names():
        with connection.schema_editor() as editor:
            editor.create_model(Order)
