"""The samples of this folder, as the checkers of our users see them: mypy --strict, and pyright, which `make install`
brings. At a desk without it its half is skipped; in CI that half fails.

`must_not_check.py` holds one `type: ignore` for each mistake it makes, and both checkers report an ignore that nothing
needs. So a mistake that is no longer found fails here, as does a mistake nobody meant to make.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.flavours import in_ci

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
SAMPLES = [HERE / "must_check.py", HERE / "must_not_check.py"]

Check = Callable[[list[Path], Path], list[str]]

BLIND = """
from delayq import Job

class Close(Job):
    order_id: int

    def handle(self) -> None: ...

Close(order_id="1")
Close(order_id=1)  # type: ignore[call-arg]
"""


def mypy(files: list[Path], scratch: Path) -> list[str]:
    """Lines that tell of an error."""
    config = scratch / "mypy.ini"
    config.write_text("[mypy]\nstrict = true\n")
    words = ["--config-file", str(config), "--cache-dir", str(ROOT / ".mypy_cache" / "samples"), "--no-error-summary"]
    done = _run([sys.executable, "-m", "mypy", *words, *map(str, files)])
    return [line for line in done.splitlines() if ": error:" in line]


def pyright(files: list[Path], scratch: Path) -> list[str]:
    """As `mypy`."""
    program = _program("basedpyright") or _program("pyright")
    if program is None:
        missing = "neither basedpyright nor pyright is installed; next: make install"
        assert not in_ci(), missing
        pytest.skip(missing)
    rules = {
        "include": [str(file) for file in files],
        "extraPaths": [str(ROOT)],
        "typeCheckingMode": "strict",
        "enableTypeIgnoreComments": True,
        "reportUnnecessaryTypeIgnoreComment": "error",
    }
    config = scratch / "pyrightconfig.json"
    config.write_text(json.dumps(rules))
    done = _run([program, "-p", str(config), "--pythonpath", sys.executable])
    assert "No source files found" not in done, done
    return [line for line in done.splitlines() if " error: " in line or " - error" in line]


def _program(name: str) -> str | None:
    """Beside the interpreter first: a venv that nobody activated is not on the PATH."""
    return shutil.which(name, path=os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")]))


def _run(words: list[str]) -> str:
    done = subprocess.run(words, capture_output=True, text=True, cwd=ROOT, check=False)
    assert done.returncode in (0, 1), done.stdout + done.stderr
    return done.stdout + done.stderr


@pytest.mark.slow
@pytest.mark.timeout(180)
@pytest.mark.parametrize("check", [mypy, pyright])
def test_the_samples_are_seen_as_they_are_meant(check: Check, tmp_path: Path) -> None:
    assert check(SAMPLES, tmp_path) == []


@pytest.mark.slow
@pytest.mark.timeout(180)
@pytest.mark.parametrize("check", [mypy, pyright])
def test_the_checker_is_not_blind(check: Check, tmp_path: Path) -> None:
    sample = tmp_path / "blind.py"
    sample.write_text(BLIND)
    found = check([sample], tmp_path)
    assert [line.split("blind.py:")[1].split(":")[0] for line in found] == ["9", "10"]
