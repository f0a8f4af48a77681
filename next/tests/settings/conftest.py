"""No setting comes from outside a test."""

from pathlib import Path

import pytest

from delayq.settings.model import Settings


@pytest.fixture(autouse=True)
def no_settings_outside(no_embedded_server: None, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in Settings.model_fields:
        monkeypatch.delenv(f"DELAYQ_{name.upper()}", raising=False)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working directory: shop, inside of another one."""
    folder = tmp_path / "shop"
    folder.mkdir()
    monkeypatch.chdir(folder)
    return folder
