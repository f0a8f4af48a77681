"""The core does no I/O. The import contract names whole modules; this looks at what is taken from the rest."""

from __future__ import annotations

import ast
from pathlib import Path

CORE = Path(__file__).resolve().parents[2] / "delayq" / "core"
# Random bytes, and the hook that keeps a forked child from drawing the same ones; neither is I/O.
FROM_OS = {"urandom", "register_at_fork"}
DOORS = {"open", "print", "input", "breakpoint", "exec", "eval", "__import__"}


def impurities(source: str) -> list[str]:
    """`line what` for each use of `os` beyond those two and each builtin that reaches outside."""
    found = []
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.ImportFrom(module="os", names=names):
                found += [f"{node.lineno} os.{item.name}" for item in names if item.name not in FROM_OS]
            case ast.ImportFrom(module=str(name)) if name.partition(".")[0] == "urllib" and name != "urllib.parse":
                found.append(f"{node.lineno} {name}")
            case ast.Import(names=names):
                found += [f"{node.lineno} {item.name}" for item in names if item.name.partition(".")[0] == "urllib"]
            case ast.Attribute(value=ast.Name(id="os"), attr=attr) if attr not in FROM_OS:
                found.append(f"{node.lineno} os.{attr}")
            case ast.Call(func=ast.Name(id=name)) if name in DOORS:
                found.append(f"{node.lineno} {name}()")
    return found


def test_the_core_reaches_nothing_outside() -> None:
    paths = sorted(CORE.rglob("*.py"))
    assert CORE / "errors.py" in paths
    found = [f"{path.name}:{row}" for path in paths for row in impurities(path.read_text(encoding="utf-8"))]
    assert found == [], "move these below the core, or pass their result in"


def test_an_impurity_is_seen() -> None:
    source = "import os\nfrom os import environ, urandom\nos.urandom(1)\nos.getenv('A')\nopen('x')\n"
    source += "from urllib.request import urlopen\nimport urllib.request\nfrom urllib.parse import urlsplit\n"
    assert sorted(impurities(source)) == [
        "2 os.environ",
        "4 os.getenv",
        "5 open()",
        "6 urllib.request",
        "7 urllib.request",
    ]
