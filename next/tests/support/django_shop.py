"""A Django project with two databases, for tests. Its import configures Django for the whole process."""

import atexit
import shutil
import tempfile
from typing import Any

import django
from django.conf import settings

FOLDER = tempfile.mkdtemp(prefix="delayq-django-")
atexit.register(shutil.rmtree, FOLDER, ignore_errors=True)


class Router:
    """Read orders from a copy, and write invoices to the archive."""

    def db_for_read(self, model: Any, **hints: Any) -> str | None:
        return "copy" if model.__name__ == "Order" else None

    def db_for_write(self, model: Any, **hints: Any) -> str | None:
        if model.__name__ == "Invoice":
            return "archive"
        stored = getattr(hints.get("instance"), "_state", None)
        return "default" if stored is not None and stored.db == "copy" else None


def database(name: str) -> dict[str, Any]:
    return {"ENGINE": "django.db.backends.sqlite3", "NAME": f"{FOLDER}/{name}.db"}


settings.configure(
    DATABASES={"default": database("default"), "copy": database("default"), "archive": database("archive")},
    DATABASE_ROUTERS=[Router()],
    DEFAULT_AUTO_FIELD="django.db.models.BigAutoField",
)
django.setup()

from django.db import connections, models  # noqa: E402


class Open(models.Manager):  # type: ignore[misc]
    """Hides closed orders."""

    def get_queryset(self) -> Any:
        return super().get_queryset().filter(is_closed=False)


class Order(models.Model):  # type: ignore[misc]
    is_closed = models.BooleanField(default=False)
    objects = Open()

    class Meta:
        app_label = "shop"


class Buyer(models.Model):  # type: ignore[misc]
    id = models.UUIDField(primary_key=True)

    class Meta:
        app_label = "shop"


class Tag(models.Model):  # type: ignore[misc]
    name = models.CharField(max_length=20, primary_key=True, db_collation="NOCASE")

    class Meta:
        app_label = "shop"


class Invoice(models.Model):  # type: ignore[misc]
    order = models.OneToOneField(Order, models.CASCADE, primary_key=True, db_constraint=False)

    class Meta:
        app_label = "shop"


class Base(models.Model):  # type: ignore[misc]
    class Meta:
        app_label = "shop"
        abstract = True


for alias in ("default", "archive"):
    with connections[alias].schema_editor() as editor:
        for kind in (Order, Buyer, Tag, Invoice):
            editor.create_model(kind)
