"""The programs on docs/testing.md are a suite of somebody else: pytest runs them, in a process of its own."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

from tests.docs.manuals import ROOT

HEAD = """
from delayq import AsyncDelayQ, DelayQ, Job
from delayq.testing import Fake, Travel

class CloseOrder(Job, name="order.close"):
    order_id: int
    def handle(self) -> None: ...
"""


def test_the_programs_of_the_page_pass(tmp_path: Path) -> None:
    programs = re.findall(r"^```python\n(.*?)^```$", (ROOT / "docs/testing.md").read_text(), re.DOTALL | re.MULTILINE)
    assert len(programs) == 3
    (tmp_path / "test_page.py").write_text(HEAD + "\n".join(programs))
    ini = "[pytest]\nasyncio_mode = auto\nasyncio_default_fixture_loop_scope = function\n"
    (tmp_path / "pytest.ini").write_text(ini)
    words = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-W",
        "error",
        "-p",
        "no:cacheprovider",
        "-p",
        "pytest_asyncio.plugin",
    ]
    done = subprocess.run(
        [*words, "-p", "delayq.testing.plugin"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=50,
        check=False,
        env={
            "PATH": os.environ["PATH"],
            "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
            "DELAYQ_URL": f"unix://{tmp_path}/nobody.sock",
        },
    )
    assert "3 passed" in done.stdout, done.stdout + done.stderr
