"""The programs that docs/tutorial.md shows are those of tests/tutorial. `python -m tests.docs.tutorial` writes them."""

from __future__ import annotations

import re
from pathlib import Path

from tests.docs.manuals import ROOT

PAGE = ROOT / "docs" / "tutorial.md"
FOLDER = ROOT / "tests" / "tutorial"
_FUTURE = "from __future__ import annotations\n"
_SHOWN = re.compile(r"^\[`tests/tutorial/(\w+\.py)`\]\([^)]+\)\n\n```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def program(name: str) -> str:
    """A file of the folder from its imports on."""
    _, _, rest = (FOLDER / name).read_text(encoding="utf-8").partition(_FUTURE)
    return f"{rest.strip()}\n"


def shown(page: str) -> dict[str, str]:
    """What the page shows, by the file's name."""
    return {found[1]: found[2] for found in _SHOWN.finditer(page)}


def rewritten(page: str) -> str:
    """The page with its programs as they are."""
    return _SHOWN.sub(lambda found: found[0][: found.start(2) - found.start()] + program(found[1]) + "```", page)


def write(path: Path = PAGE) -> None:
    """Write the programs into the page."""
    path.write_text(rewritten(path.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    write()
