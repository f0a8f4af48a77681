"""Its label is what payloads name its models by."""

from django.apps import AppConfig


class ShopConfig(AppConfig):  # type: ignore[misc]  # Django comes without types
    name = "tests.support.django_shop"
    label = "shop"
    default_auto_field = "django.db.models.BigAutoField"
