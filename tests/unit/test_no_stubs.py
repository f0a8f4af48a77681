"""Nothing in the package stands for code that is still to be written."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

PACKAGE = Path(__file__).resolve().parents[2] / "delayq"


def stubs(source: str) -> list[str]:
    """`line what` for each: a `NotImplementedError` that is raised (a library's may be caught), a function or a handler
    of errors that is all `pass`, and a body of dots outside of protocols and overloads."""
    tree = ast.parse(source)
    spoken = set(_of_protocols(tree))
    found = []
    for node in ast.walk(tree):
        match node:
            case ast.Raise(exc=ast.AST() as raised) if "NotImplementedError" in ast.unparse(raised):
                found.append(f"{node.lineno} NotImplementedError")
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ExceptHandler() if isinstance(
                node.body[-1], ast.Pass
            ):
                found.append(f"{node.body[-1].lineno} pass")
            case ast.FunctionDef() | ast.AsyncFunctionDef() if node not in spoken and _is_dots(node):
                found.append(f"{node.lineno} {node.name}")
    return sorted(found)


def _of_protocols(tree: ast.AST) -> Iterator[ast.AST]:
    for node in ast.walk(tree):
        match node:
            case ast.ClassDef() if any("Protocol" in ast.unparse(base) for base in node.bases):
                yield from node.body
            case ast.FunctionDef() if any(ast.unparse(mark).endswith("overload") for mark in node.decorator_list):
                yield node


def _is_dots(function: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    last = function.body[-1]
    return isinstance(last, ast.Expr) and isinstance(last.value, ast.Constant) and last.value.value is ...


def test_the_package_holds_no_stubs() -> None:
    paths = sorted(PACKAGE.rglob("*.py"))
    assert PACKAGE / "jobs" / "dispatch.py" in paths
    found = [f"{path.relative_to(PACKAGE)}:{stub}" for path in paths for stub in stubs(path.read_text("utf-8"))]
    assert found == [], "write them, make them abstract (abc), or leave them out"


def test_a_stub_is_seen() -> None:
    source = """
class A:
    def a(self): raise NotImplementedError
    async def b(self): ...
    def c(self):
        "Something."
        ...
    def d(self):
        "Nothing is open."

class B(Protocol[T]):
    def a(self): ...

@overload
def e(): ...
def f(): pass
try:
    while f(): pass
except ValueError:
    pass
"""
    assert stubs(source) == ["16 pass", "20 pass", "3 NotImplementedError", "4 b", "5 c"]
