"""The settings of Django."""

import os

SECRET_KEY = os.environ.get("SHOP_SECRET", "only for a try on this machine")
ALLOWED_HOSTS = ["localhost", "shop"]
ROOT_URLCONF = "shop.urls"
INSTALLED_APPS = ["shop"]
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
DATABASES = {
    "default": {
        "ENGINE": "django.db.backends.sqlite3",
        "NAME": os.environ.get("SHOP_DB", "shop.db"),
        "OPTIONS": {"transaction_mode": "IMMEDIATE"},
    }
}
