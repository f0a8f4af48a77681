"""What the tutorial takes for granted: no settings of the machine, and the command line."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from delayq import Settings, make_manager, using_manager
from delayq.testing import Travel
from tests.docs.manuals import ROOT


@pytest.fixture(autouse=True)
def own_settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Defaults, whatever this machine says."""
    monkeypatch.chdir(tmp_path)
    for name in [name for name in os.environ if name.startswith("DELAYQ_") and not name.startswith("DELAYQ_TEST")]:
        monkeypatch.delenv(name)
    with using_manager(make_manager(Settings())) as manager:
        yield
    manager.close()


@pytest.fixture
def delayq(delayq_travel: Travel) -> Callable[..., str]:
    """`delayq("failed", "list")` runs the command line on the test's server; what it prints."""

    def run(*words: str) -> str:
        command = [sys.executable, "-m", "delayq", *words]
        environment = {**os.environ, "DELAYQ_URL": delayq_travel.url, "PYTHONPATH": str(ROOT)}
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=30, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout

    return run
