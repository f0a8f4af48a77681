"""Names of a package that are imported when they are first used: a program pays for what it needs."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module

Homes = Mapping[str, Sequence[str]]


def importer(package: str, homes: Homes) -> Callable[[str], object]:
    """The `__getattr__` of `package`. `homes`: the module that has them → names."""

    def get(name: str) -> object:
        for module, names in homes.items():
            if name in names:
                value = getattr(import_module(module), name)
                setattr(sys.modules[package], name, value)
                return value
        raise AttributeError(f"module {package!r} has no attribute {name!r}")

    return get


def lister(package: str) -> Callable[[], list[str]]:
    """The `__dir__` of `package`: what was used, and what `__all__` promises."""

    def names() -> list[str]:
        module = sys.modules[package]
        return sorted({*vars(module), *module.__all__})

    return names
