"""What a module says it offers is what it offers."""

from __future__ import annotations

import importlib
import pkgutil
from types import ModuleType
from typing import Any

import pytest

import delayq


def public_modules() -> list[str]:
    """Every module of the package but the private ones and `__main__`, which runs on import."""
    found = pkgutil.walk_packages(delayq.__path__, "delayq.")
    names = ["delayq", *(module.name for module in found)]
    return [name for name in names if not any(part.startswith("_") for part in name.split("."))]


def public_attributes(module: ModuleType) -> set[str]:
    """Names a user could import: neither private, nor submodules, nor `from __future__` leftovers."""
    future = type(importlib.import_module("__future__").annotations)
    return {
        name
        for name, value in vars(module).items()
        if not name.startswith("_") and not isinstance(value, (ModuleType, future))
    }


def faults(module: ModuleType) -> list[str]:
    """What is wrong with a module's `__all__`; nothing for a module without one."""
    declared: Any = getattr(module, "__all__", None)
    if declared is None:
        return []
    names = list(declared)
    found = [f"{name} is in __all__ but cannot be imported" for name in names if not hasattr(module, name)]
    if names != sorted(names):
        found.append(f"__all__ is not sorted; it should read {sorted(names)}")
    if len(names) != len(set(names)):
        found.append("__all__ names something twice")
    return found


@pytest.mark.parametrize("name", public_modules())
def test_all_is_sorted_and_true(name: str) -> None:
    assert faults(importlib.import_module(name)) == []


def test_the_package_offers_exactly_what_it_names() -> None:
    unnamed = public_attributes(delayq) - set(getattr(delayq, "__all__", []))
    assert unnamed == set(), f"add these to __all__ in delayq/__init__.py, or start them with an underscore: {unnamed}"


def test_the_version_is_importable() -> None:
    assert isinstance(delayq.__version__, str)


def test_a_false_all_is_seen() -> None:
    module = ModuleType("sample")
    module.__dict__.update(__all__=["b", "a", "a"], a=1)
    assert faults(module) == [
        "b is in __all__ but cannot be imported",
        "__all__ is not sorted; it should read ['a', 'a', 'b']",
        "__all__ names something twice",
    ]
    assert public_attributes(module) == {"a"}
