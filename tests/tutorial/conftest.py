"""What the tutorial takes for granted: no settings of the machine. It brings nothing else, as the page says."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from delayq import Settings, make_manager, using_manager
from tests.docs.manuals import ROOT


@pytest.fixture(autouse=True)
def own_settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Defaults, whatever this machine says."""
    monkeypatch.chdir(tmp_path)
    for name in [name for name in os.environ if name.startswith("DELAYQ_") and not name.startswith("DELAYQ_TEST")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("PYTHONPATH", str(ROOT))  # for the command line
    with using_manager(make_manager(Settings())) as manager:
        yield
    manager.close()
