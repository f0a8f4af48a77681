"""Sizes are held by a test, not by habit: a file that wants to grow wants to be two files.

The limits only ever go down. There is no list of exceptions, and no line to add one.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

MAX_FILE_LINES = 300
MAX_TEST_FILE_LINES = 400
MAX_FUNCTION_LINES = 40
MAX_PARAMETERS = 7
MAX_LUA_CODE_LINES = 80
ROOMLESS_NAMES = {"utils", "util", "common", "misc"}

FOLDERS = ("delayq", "scripts", "consumers", "benchmarks", "tests")

Function = ast.FunctionDef | ast.AsyncFunctionDef


def files(suffix: str) -> list[Path]:
    return [
        path
        for folder in FOLDERS
        for path in sorted((ROOT / folder).rglob(f"*{suffix}"))
        if "__pycache__" not in path.parts and "node_modules" not in path.parts
    ]


def functions(source: str) -> Iterator[Function]:
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, Function):
            yield node


def long_functions(source: str) -> list[str]:
    """`line name: n lines`, from `def` to the last line of the body, docstring included."""
    return [
        f"{node.lineno} {node.name}: {lines} lines"
        for node in functions(source)
        if (lines := (node.end_lineno or node.lineno) - node.lineno + 1) > MAX_FUNCTION_LINES
    ]


def is_command(node: Function) -> bool:
    """True for a command or the root of the command line: it takes typer's context, and each parameter is an option."""
    return bool(node.args.args) and ast.unparse(node.args.args[0].annotation or ast.Constant("")) == "typer.Context"


def crowded_functions(source: str) -> list[str]:
    """`line name: n parameters`; self and cls are not counted, nor are the options of a command."""
    found = []
    for node in functions(source):
        spec = node.args
        names = [item.arg for item in (*spec.posonlyargs, *spec.args, *spec.kwonlyargs)]
        names += [item.arg for item in (spec.vararg, spec.kwarg) if item is not None]
        count = len(names) - (names[:1] in (["self"], ["cls"]))
        if count > MAX_PARAMETERS and not is_command(node):
            found.append(f"{node.lineno} {node.name}: {count} parameters")
    return found


def lua_code_lines(source: str) -> int:
    """Lines that are neither blank nor a `--` comment."""
    lines = (line.strip() for line in source.splitlines())
    return sum(1 for line in lines if line and not line.startswith("--"))


def assert_none(found: list[str], advice: str) -> None:
    assert not found, "\n".join([advice, *found])


def located(path: Path, rows: list[str]) -> list[str]:
    return [f"{path.relative_to(ROOT)}:{row}" for row in rows]


def test_files_stay_short() -> None:
    found = []
    for path in files(".py"):
        limit = MAX_TEST_FILE_LINES if path.is_relative_to(ROOT / "tests") else MAX_FILE_LINES
        lines = len(path.read_text(encoding="utf-8").splitlines())
        if lines > limit:
            found.append(f"{path.relative_to(ROOT)}: {lines} lines, at most {limit}")
    assert_none(found, "Split these by role:")


def test_functions_stay_short() -> None:
    found = [row for path in files(".py") for row in located(path, long_functions(path.read_text(encoding="utf-8")))]
    assert_none(found, f"At most {MAX_FUNCTION_LINES} lines; take a step out and name it:")


def test_functions_take_few_parameters() -> None:
    found = [row for path in files(".py") for row in located(path, crowded_functions(path.read_text(encoding="utf-8")))]
    assert_none(found, f"At most {MAX_PARAMETERS} parameters; beyond that pass a frozen options dataclass:")


def test_lua_scripts_stay_short() -> None:
    counts = {path: lua_code_lines(path.read_text(encoding="utf-8")) for path in files(".lua")}
    found = [f"{path.relative_to(ROOT)}: {count} lines" for path, count in counts.items() if count > MAX_LUA_CODE_LINES]
    assert_none(found, f"At most {MAX_LUA_CODE_LINES} lines of code; one script is one move:")


def test_every_file_has_a_role() -> None:
    found = [str(path.relative_to(ROOT)) for path in files(".py") if path.stem in ROOMLESS_NAMES]
    assert_none(found, "Name these after what they do:")


def test_the_package_is_measured_at_all() -> None:
    assert ROOT / "delayq" / "__init__.py" in files(".py")
    assert Path(__file__).resolve() in files(".py")


def test_the_ruler_sees_a_long_function() -> None:
    body = "    x = 1\n"
    assert long_functions("def f():\n" + body * (MAX_FUNCTION_LINES - 1)) == []
    assert long_functions("def f():\n" + body * MAX_FUNCTION_LINES) == [f"1 f: {MAX_FUNCTION_LINES + 1} lines"]
    nested = "class A:\n  async def f(self):\n" + body * MAX_FUNCTION_LINES
    assert long_functions(nested) == [f"2 f: {MAX_FUNCTION_LINES + 1} lines"]


@pytest.mark.parametrize(
    ("source", "seen"),
    [
        ("def f(a, b, c, d, e, f, g): ...", []),
        ("def f(a, b, c, d, e, f, g, h): ...", ["1 f: 8 parameters"]),
        ("def f(a, /, b, *c, d, e, f, g, **h): ...", ["1 f: 8 parameters"]),
        ("class A:\n  def f(self, a, b, c, d, e, f, g): ...", []),
        ("class A:\n  def f(self, a, b, c, d, e, f, g, h): ...", ["2 f: 8 parameters"]),
        ("def f(ctx: typer.Context, a, b, c, d, e, f, g, h): ...", []),
        ("def f(ctx: typer.Context, *, a, b, c, d, e, f, g, h): ...", []),
        ("@wraps(x)\ndef f(a, b, c, d, e, f, g, h): ...", ["2 f: 8 parameters"]),
    ],
)
def test_the_ruler_counts_parameters(source: str, seen: list[str]) -> None:
    assert crowded_functions(source) == seen


def test_the_ruler_counts_lua_code_only() -> None:
    assert lua_code_lines("-- manual\n\nlocal a = 1 -- why\n  -- more\nreturn a\n") == 2
