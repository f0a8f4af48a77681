"""The keys among the settings: from a variable, a list or a file, and shown by their ids only."""

from __future__ import annotations

from pathlib import Path

import pytest

from delayq.core.errors import ConfigError
from delayq.settings import Settings, origins
from tests.support.keys import key, ring

SECRETS = [key(name).partition(":")[2] for name in ("new", "old")]


@pytest.fixture(autouse=True)
def empty_place(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("KEYS", "KEYS_FILE", "ENCRYPT"):
        monkeypatch.delenv(f"DELAYQ_{name}", raising=False)


def test_none() -> None:
    assert not Settings().options().keyring


def test_from_a_variable_a_flag_and_a_settings_file(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "delayq.toml").write_text(f'keys = ["{key("new")}", "{key("old")}"]\n')
    assert Settings().keyring() == ring("new", "old")
    monkeypatch.setenv("DELAYQ_KEYS", f"{key('old')}, {key('new')}")
    assert Settings().keyring() == ring("old", "new")
    assert Settings(keys=[key("new")]).keyring() == ring("new")


def test_from_a_file_that_stands_beside_the_settings(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text(f"# the newest first\n{key('new')}\n\n{key('old')}\n")
    (tmp_path / "delayq.toml").write_text('keys_file = "secret"\n')
    settings = Settings()
    assert settings.options().keyring == ring("new", "old")
    (tmp_path / "secret").unlink()
    assert settings.keyring() == ring("new", "old")


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (None, "keys_file .*secret cannot be read: No such file"),
        (b"\xff", "cannot be read: it is no text"),
        (b"# nothing\n", "holds no key"),
        (b"k:c2hvcnQ=\n", "keys_file .*secret: The key 'k' has 5 bytes; it must have 32"),
    ],
)
def test_a_file_without_keys(tmp_path: Path, text: bytes | None, says: str) -> None:
    if text is not None:
        (tmp_path / "secret").write_bytes(text)
    with pytest.raises(ConfigError, match=says):
        Settings(keys_file="secret").options()


def test_one_of_the_two(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text(key("old"))
    with pytest.raises(ConfigError, match="keys and keys_file are both set"):
        Settings(keys_file="secret", keys=key("new")).options()


def test_keys_show_nowhere(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DELAYQ_KEYS", f"{key('new')},{key('old')}")
    settings = Settings()
    rows = {row.name: row.value for row in origins(settings)}
    assert rows["keys"] == "new, old"
    shown = [settings, repr(settings), settings.model_dump(), settings.model_dump_json(), rows, settings.options()]
    for secret in SECRETS:
        assert secret not in str(shown)


@pytest.mark.parametrize(
    "given", [f"{SECRETS[0]}", f"new:{SECRETS[0]}x", f"{key('new')},{key('new')}", f"ä:{SECRETS[0]}"]
)
def test_keys_that_are_refused_show_nowhere(monkeypatch: pytest.MonkeyPatch, given: str) -> None:
    monkeypatch.setenv("DELAYQ_KEYS", given)
    with pytest.raises(ConfigError, match=r"^DELAYQ_KEYS cannot be used: ") as refused:
        Settings()
    assert SECRETS[0][:8] not in str(refused.value)
    assert refused.value.__cause__ is None


@pytest.mark.parametrize("given", [5, [5], [b"x"]])
def test_what_is_no_text_is_no_key(given: object) -> None:
    with pytest.raises(ConfigError, match="--keys cannot be used: that is no list of keys"):
        Settings(keys=given)


def test_patterns() -> None:
    assert Settings(encrypt=["a.*", "b"]).encrypt == ("a.*", "b")
    assert {row.name: row.value for row in origins(Settings(encrypt="*, b"))}["encrypt"] == "*,b"
    with pytest.raises(ConfigError, match="--encrypt cannot be used: 'a,,b' is no list of patterns"):
        Settings(encrypt="a,,b")
