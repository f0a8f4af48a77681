"""`import delayq` is cheap, and every name it offers is the one a type checker sees."""

from __future__ import annotations

import ast
import importlib
import sys
from pathlib import Path

import pytest

import delayq
from delayq.core.public_names import HOMES
from tests.support.processor import processor_s

SOURCE = Path(str(delayq.__file__))
HEAVY = {"redis", "msgspec", "pydantic", "pydantic_settings", "typer", "asyncio", "zoneinfo"}


def imports_for_the_type_checker() -> dict[str, set[str]]:
    """Module and names of every import under `if typing.TYPE_CHECKING:`."""
    [block] = [node for node in ast.parse(SOURCE.read_text(encoding="utf-8")).body if isinstance(node, ast.If)][:1]
    imports = [node for node in block.body if isinstance(node, ast.ImportFrom)]
    return {str(node.module): {name.name for name in node.names} for node in imports}


def test_both_lists_of_names_agree() -> None:
    assert {module: set(names) for module, names in HOMES.items()} == imports_for_the_type_checker()


def test_everything_offered_has_a_home() -> None:
    homes = [name for names in HOMES.values() for name in names]
    assert sorted([*homes, "__version__"]) == delayq.__all__


@pytest.mark.parametrize("name", delayq.__all__)
def test_every_name_can_be_imported(name: str) -> None:
    assert getattr(delayq, name) is not None
    assert name in dir(delayq)


def test_a_name_is_the_one_of_its_home() -> None:
    for module, names in HOMES.items():
        for name in names:
            assert getattr(delayq, name) is getattr(importlib.import_module(module), name)


def test_an_unknown_name() -> None:
    with pytest.raises(AttributeError, match="'delayq' has no attribute 'Delay'"):
        delayq.__getattr__("Delay")


def test_the_import_loads_nothing_heavy_and_is_fast() -> None:
    script = f"import sys, delayq; sys.exit(len({HEAVY} & set(sys.modules)))"
    times = [processor_s([sys.executable, "-c", script], cwd=SOURCE.parents[1]) for _ in range(5)]
    assert min(times) < 0.150
