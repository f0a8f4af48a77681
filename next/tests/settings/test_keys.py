"""Settings of encryption: where keys come from, and that they are never shown."""

from pathlib import Path

import msgspec
import pytest

from delayq.core.encryption import KeyRing, new_key, seal, unseal
from delayq.core.errors import ConfigError
from delayq.settings.model import Settings, load_settings

DATA = b'"x"'


def opens(ring: KeyRing | None, *keys: str) -> None:
    """Check that each key is in the ring, and that the first one encrypts."""
    assert ring is not None
    assert len(ring) == len(keys)
    for key in keys:
        token = seal(KeyRing([key]), "data", msgspec.Raw(DATA), job_id="a", name="n")
        assert bytes(unseal(ring, "data", token, job_id="a", name="n")) == DATA
    token = seal(ring, "data", msgspec.Raw(DATA), job_id="a", name="n")
    assert bytes(unseal(KeyRing([keys[0]]), "data", token, job_id="a", name="n")) == DATA


def test_keys_are_separated_by_commas(monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = new_key(), new_key()
    monkeypatch.setenv("DELAYQ_KEYS", f"{first}, {second},")
    opens(load_settings().options().key_ring, first, second)


def test_a_file_has_a_key_per_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = new_key(), new_key()
    (tmp_path / "keys").write_text(f"# since May\n{first}\n\n{second}\n")
    monkeypatch.setenv("DELAYQ_KEYS_FILE", str(tmp_path / "keys"))
    settings = load_settings()
    opens(settings.options().key_ring, first, second)
    assert settings.options().key_ring is settings.options().key_ring


def test_a_file_named_in_the_settings_file_is_beside_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "keys").write_text(key := new_key())
    (tmp_path / "delayq.toml").write_text('keys_file = "keys"\nencrypt = true\n')
    settings = load_settings(config=str(tmp_path / "delayq.toml"))
    opens(settings.options().key_ring, key)
    assert settings.options().encrypt


@pytest.mark.parametrize("text", ["", " "])
def test_an_empty_variable_means_no_keys(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setenv("DELAYQ_KEYS", text)
    assert load_settings().options().key_ring is None


@pytest.mark.parametrize("text", [",", " , ", "# a key"])
def test_a_variable_without_a_key_is_refused(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setenv("DELAYQ_KEYS", text)
    with pytest.raises(ConfigError) as refused:
        load_settings()
    assert str(refused.value) == (
        "The value of DELAYQ_KEYS is not valid: No keys are given. `delayq key new` makes a key."
    )


def test_keys_are_not_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    key = new_key()
    monkeypatch.setenv("DELAYQ_KEYS", key)
    settings = load_settings()
    assert settings.key_ring is not None
    assert key not in repr(settings) + str(settings.model_dump()) + repr(settings.options())
    assert set(settings.model_dump()) == set(Settings.model_fields)
    assert settings == load_settings()


@pytest.mark.parametrize("broken", ["s3cret", "KEY,s3cret", "KEY s3cret"])
def test_a_malformed_key_is_refused_without_the_key(monkeypatch: pytest.MonkeyPatch, broken: str) -> None:
    broken = broken.replace("KEY", new_key())
    monkeypatch.setenv("DELAYQ_KEYS", broken)
    with pytest.raises(ConfigError) as refused:
        load_settings()
    number = broken.count(",") + 1
    assert str(refused.value) == (
        f"The value of DELAYQ_KEYS is not valid: Key {number} of {number} is malformed. `delayq key new` makes a key."
    )
    assert refused.value.field == "keys"


def test_a_number_in_the_settings_file_is_refused_without_it(tmp_path: Path) -> None:
    (tmp_path / "delayq.toml").write_text("keys = 31415\n")
    with pytest.raises(ConfigError, match=r"The value of keys in .* is not valid") as refused:
        load_settings(config=str(tmp_path / "delayq.toml"))
    assert "31415" not in str(refused.value)


def test_a_file_that_cannot_be_used_is_refused_by_its_path(tmp_path: Path) -> None:
    for name, content, reason in [
        ("missing", None, "cannot be read: No such file or directory. Correct DELAYQ_KEYS_FILE."),
        ("binary", b"\xff\xfe", "cannot be read: it is not a text file. Correct DELAYQ_KEYS_FILE."),
        ("empty", b"# none\n", "is not valid: No keys are given. `delayq key new` makes a key."),
        ("broken", b"s3cret\n", "is not valid: Key 1 of 1 is malformed. `delayq key new` makes a key."),
    ]:
        path = tmp_path / name
        if content is not None:
            path.write_bytes(content)
        with pytest.raises(ConfigError) as refused:
            Settings(keys_file=str(path)).options()
        assert str(refused.value) == f"The file of keys {str(path)!r} {reason}"
        assert refused.value.field == "keys_file"


def test_both_sources_at_once_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DELAYQ_KEYS", new_key())
    monkeypatch.setenv("DELAYQ_KEYS_FILE", "keys")
    with pytest.raises(ConfigError, match=r"DELAYQ_KEYS and DELAYQ_KEYS_FILE are both set\. Unset one of them."):
        load_settings().options()
