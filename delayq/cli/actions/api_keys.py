"""api-key create, list, revoke. The file is written whole, beside the old one, and takes its place at once."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from delayq.cli.actions.look import local_ms
from delayq.cli.session import Session
from delayq.core.api_keys import MAX_LABEL, ApiKey, ApiKeys, Scope, format_line, new_key, parse_lines
from delayq.core.errors import ApiKeyNotFound, ConfigError, InvalidInput
from delayq.core.shown import shown
from delayq.core.when import format_instant


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a new key shall be; `queues` () = all, `rate` '' = without limit, `new_queues` None = any number."""

    scopes: tuple[str, ...]
    queues: tuple[str, ...]
    label: str
    rate: str
    new_queues: int | None = None

    def checked(self) -> tuple[Scope, ...]:
        """The scopes. Raises `InvalidInput`."""
        if len(self.label) > MAX_LABEL or not self.label.isprintable():
            raise InvalidInput(f"--label has more than {MAX_LABEL} characters, or some that cannot be printed.")
        for word in self.scopes:
            if word not in set(Scope):
                raise InvalidInput(f"--scope {shown(word)} is not known.", hint=f"Use one of: {', '.join(Scope)}.")
        return tuple(dict.fromkeys(map(Scope, self.scopes)))


def create(session: Session, wanted: Wanted, *, as_json: bool) -> None:
    """A key that was not there before. Its token is printed once and kept nowhere."""
    path = _path(session)
    scopes = wanted.checked()
    key, token = new_key(
        local_ms(),
        scopes,
        label=wanted.label,
        queues=wanted.queues,
        rate=wanted.rate,
        new_queues=wanted.new_queues,
    )
    _write(path, [*_read(path), key])
    if as_json:
        session.out.json({"token": token, **_shape(key)})
        return
    session.out.line(token)
    session.out.note(f"Keep it: it is not shown again. {path} holds a hash of it.")


def list_keys(session: Session, *, as_json: bool) -> None:
    """All of them, the oldest first."""
    keys = list(_read(_path(session)))
    if as_json:
        for key in keys:
            session.out.json(_shape(key))
        return
    rows = [
        (
            key.id,
            key.label,
            ", ".join(key.scopes),
            ", ".join(key.queues) or "all",
            key.rate,
            "any" if key.new_queues is None else str(key.new_queues),
            format_instant(key.created_ms),
            format_instant(key.revoked_ms) if key.revoked_ms else "",
        )
        for key in keys
    ]
    session.out.table(("id", "label", "scopes", "queues", "rate", "new queues", "created", "revoked"), rows)


def revoke(session: Session, key_id: str, *, as_json: bool) -> None:
    """Refuse a key from now on; it stays on the list."""
    path = _path(session)
    keys = list(_read(path))
    found = next((key for key in keys if key.id == key_id), None)
    if found is None:
        raise ApiKeyNotFound(f"{path} has no API key {shown(key_id)}.", hint="`delayq api-key list` shows them.")
    gone = msgspec.structs.replace(found, revoked_ms=found.revoked_ms or local_ms())
    _write(path, [gone if key is found else key for key in keys])
    if as_json:
        session.out.json(_shape(gone))
        return
    session.out.line("revoked")


def _shape(key: ApiKey) -> dict[str, Any]:
    return {
        "id": key.id,
        "label": key.label,
        "scopes": key.scopes,
        "queues": key.queues,
        "rate": key.rate or None,
        "new_queues": key.new_queues,
        "created_ms": key.created_ms,
        "revoked_ms": key.revoked_ms or None,
    }


def _path(session: Session) -> Path:
    path = session.settings().api_keys_file
    if path is None:
        raise ConfigError(
            "No file of API keys is set.", hint="Say --api-keys-file FILE before the command, or DELAYQ_API_KEYS_FILE."
        )
    return path


def _read(path: Path) -> ApiKeys:
    try:
        return parse_lines(path.read_text(encoding="utf-8").splitlines())
    except FileNotFoundError:
        return ApiKeys()
    except (OSError, UnicodeError) as error:
        raise _cannot(path, "read", error) from error


def _write(path: Path, keys: Iterable[ApiKey]) -> None:
    """Nobody ever sees half a file, and nobody else may read it."""
    beside = ""
    try:
        number, beside = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}-")  # mode 0600
        with open(number, "w", encoding="utf-8") as file:  # noqa: PTH123  (a descriptor has no path)
            file.writelines(f"{format_line(key)}\n" for key in keys)
            file.flush()
            os.fsync(number)
        Path(beside).replace(path)
    except OSError as error:
        if beside:
            Path(beside).unlink(missing_ok=True)
        raise _cannot(path, "written", error) from error


def _cannot(path: Path, what: str, error: Exception) -> ConfigError:
    why = getattr(error, "strerror", None) or "it is no text"
    return ConfigError(f"api_keys_file {path} cannot be {what}: {why}.", hint="Name another with --api-keys-file.")
