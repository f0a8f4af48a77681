"""The package: what it offers, and what importing it costs."""

import ast
import importlib
import subprocess
import sys
from pathlib import Path

import pytest

import delayq

ROOT = Path(delayq.__file__).parent


def imports_for_type_checkers() -> dict[str, str]:
    """Return the module of each name that stands below `if TYPE_CHECKING:`."""
    tree = ast.parse((ROOT / "__init__.py").read_text())
    (block,) = [node for node in tree.body if isinstance(node, ast.If)]
    lines = [node for node in block.body if isinstance(node, ast.ImportFrom)]
    return {alias.asname or alias.name: line.module or "" for line in lines for alias in line.names}


def test_the_public_names_are_those_that_type_checkers_see() -> None:
    assert sorted(imports_for_type_checkers()) == sorted(delayq.__all__)


def test_a_public_name_comes_from_where_type_checkers_see_it() -> None:
    for name, module in imports_for_type_checkers().items():
        assert getattr(delayq, name) is getattr(importlib.import_module(module), name)


def test_the_public_names_are_listed_before_they_are_imported() -> None:
    assert set(delayq.__all__) <= set(dir(delayq))


def test_other_names_are_refused() -> None:
    with pytest.raises(AttributeError, match="module 'delayq' has no attribute 'Delayed'"):
        delayq.Delayed  # noqa: B018


def modules_after(program: str) -> set[str]:
    """Return the modules that a new Python has loaded after a program."""
    words = [sys.executable, "-c", f"{program}\nimport sys; print(*sys.modules)"]
    return set(subprocess.run(words, check=True, capture_output=True, text=True).stdout.split())


def test_importing_delayq_imports_none_of_what_it_stands_on() -> None:
    loaded = modules_after("import delayq")
    assert "delayq" in loaded
    assert not {"redis", "hiredis", "msgspec", "pydantic", "typer", "asyncio"} & loaded


def test_a_program_that_only_declares_jobs_does_not_import_redis() -> None:
    loaded = modules_after(
        """
from delayq import Job, JobContext, Manager, Retry, dispatch, handles, job, set_manager
@job("order.close")
def close_order(order_id: int) -> None: ...
class SendMail(Job, name="mail.send"):
    def handle(self) -> None: ...
set_manager(Manager())
"""
    )
    assert "delayq.jobs.function" in loaded
    assert not {"redis", "hiredis", "delayq.redis", "delayq.client"} & loaded
