"""The rows of the contract suite, one module for each kind of server."""

from __future__ import annotations

import pkgutil
from importlib import import_module

from tests.contract.backend import Backend


def all_backends() -> list[Backend]:
    """Every row of every module here, by name of the module."""
    found: list[Backend] = []
    for module in sorted(pkgutil.iter_modules(__path__), key=lambda module: module.name):
        rows = import_module(f"{__name__}.{module.name}").BACKENDS
        found += rows
    return found
