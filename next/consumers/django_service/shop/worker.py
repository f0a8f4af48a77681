"""The module for `delayq work --app shop.worker`: it sets up Django, and then imports the jobs."""

import os

import django

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "shop.settings")
django.setup()

from . import jobs  # noqa: E402, F401
