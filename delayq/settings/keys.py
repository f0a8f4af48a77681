"""Where the keys of encrypted payloads come from: the setting itself, or a file that holds them."""

from __future__ import annotations

from pathlib import Path

from delayq.core.errors import ConfigError
from delayq.core.keyring import NO_KEYS, Keyring, parse_keys, read_lines


def keyring_of(keys: Keyring | None, file: Path | None) -> Keyring:
    """The keys in force. Raises `ConfigError`: both are set, or the file cannot be read, or holds no keys."""
    if file is None:
        return keys or NO_KEYS
    if keys:
        raise ConfigError("keys and keys_file are both set.", hint="Leave one of them out.")
    try:
        lines = read_lines(file.read_text(encoding="utf-8"))
    except (OSError, UnicodeError) as error:
        why = getattr(error, "strerror", None) or "it is no text"
        raise ConfigError(f"keys_file {file} cannot be read: {why}.", hint="It holds one id:base64 a line.") from None
    try:
        ring = parse_keys(lines)
    except ConfigError as error:
        raise ConfigError(f"keys_file {file}: {error.message}", hint=error.hint) from None
    if not ring:
        raise ConfigError(f"keys_file {file} holds no key.", hint="`delayq key new` makes one.")
    return ring
