"""No settings but the test's own; a registry and a manager of its own, whose Redis must never be asked."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from delayq.jobs.current import make_manager, using_manager
from delayq.jobs.registry import Registry, using
from delayq.manager import Manager
from delayq.settings import Settings


@pytest.fixture(autouse=True)
def manager(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Manager]:
    """The current manager. At its own URL there is nobody."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("DELAYQ_URL", raising=False)
    manager = make_manager(Settings(url=f"unix://{tmp_path}/nobody.sock", queue="orders"))
    with using(Registry()), using_manager(manager):
        yield manager
    manager.close()
