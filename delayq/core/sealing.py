"""Payloads that only the holder of a key can read, and nobody can change or move to another job unseen.

    "data":      "<base64 of salt (24) | ciphertext | tag (16)>"
    "encrypted": {"v":1,"key":"<id of the key>"}

                           HKDF-SHA-256                              AES-256-GCM
    key, salt, "delayq v1" --------------> 32 bytes key, 12 nonce --> ciphertext, tag
                                          "delayq v1 <what>\\n<id>\\n<name>" is authenticated with it

Every payload has a key of its own, so one key of a ring serves any number of jobs: the nonces of plain AES-GCM would
begin to repeat after some billions. `what` is data, result or partial: one cannot be passed off as another. The queue
is not bound: jobs are forwarded. docs/protocol.md has all of it with an example for other languages.
"""

from __future__ import annotations

import base64
import binascii
import os
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import cache
from typing import Any, Final, NamedTuple

import msgspec

from delayq.core.envelope import ABSENT, Envelope
from delayq.core.errors import BrokenSeal, ConfigError, UnknownKey
from delayq.core.keyring import Key, Keyring
from delayq.core.progress import Progress
from delayq.core.views import JobInfo

FORM: Final = 1
HIDDEN: Final = "(encrypted)"
"""What people are shown instead."""
_CONTEXT: Final = b"delayq v1"
_SALT: Final = 24
_TAG: Final = 16
_KEY, _NONCE = 32, 12


class What(StrEnum):
    """What is sealed."""

    DATA = "data"
    RESULT = "result"
    PARTIAL = "partial"


class Mark(msgspec.Struct, frozen=True):
    """The member `encrypted`: the form of the data, and the id of the key."""

    v: int
    key: str


class Sealed(msgspec.Struct, frozen=True):
    """A value that travels by itself: a result, a partial result."""

    encrypted: Mark
    data: str


class Members(NamedTuple):
    """The two members of an envelope."""

    data: msgspec.Raw
    encrypted: msgspec.Raw


_read_mark = msgspec.json.Decoder(Mark).decode
_read_text = msgspec.json.Decoder(str).decode
_read_sealed = msgspec.json.Decoder(Sealed).decode


@dataclass(frozen=True, slots=True)
class Place:
    """What a seal is bound to."""

    id: str
    name: str

    def sealed_with(self, what: What) -> bytes:
        """The bytes that are authenticated. No id and no name holds a line break."""
        return f"delayq v1 {what}\n{self.id}\n{self.name}".encode("utf-8", "surrogatepass")


def seal_data(keyring: Keyring, place: Place, data: bytes | msgspec.Raw) -> Members:
    """A payload, encrypted with the first key. Raises `ConfigError` without a key, or without cryptography."""
    mark, text = _sealed(keyring.first, place, What.DATA, bytes(data))
    return Members(msgspec.Raw(msgspec.json.encode(text)), msgspec.Raw(msgspec.json.encode(mark)))


def open_data(keyring: Keyring, envelope: Envelope, job_id: str) -> Envelope:
    """The envelope with the payload that was sealed for that job; one that is not encrypted as it is.

    Its member `encrypted` stays, so that what comes of the job is encrypted too. Raises `UnknownKey`, `BrokenSeal`.
    """
    if envelope.encrypted is ABSENT:
        return envelope
    place = Place(job_id, envelope.name)
    try:
        mark, text = _read_mark(envelope.encrypted), _read_text(envelope.data)
    except (msgspec.MsgspecError, UnicodeError):
        raise BrokenSeal(f"The job {job_id!r} says it is encrypted, in a form that nobody writes.") from None
    data = msgspec.Raw(_opened(keyring, place, What.DATA, mark, text))
    return msgspec.structs.replace(envelope, data=data)


def seal_value(keyring: Keyring, place: Place, what: What, value: bytes) -> bytes:
    """A result or partial result (JSON) of an encrypted job, as JSON that holds it encrypted."""
    mark, text = _sealed(keyring.first, place, what, value)
    return msgspec.json.encode(Sealed(mark, text))


def reveal(keyring: Keyring, info: JobInfo) -> JobInfo:
    """An encrypted job with what these keys can open: payload, result, partial result.

    A result that they cannot open is `HIDDEN`, a payload None.
    """
    if not info.encrypted or info.envelope is None:
        return info
    try:
        opened = open_data(keyring, info.envelope, info.id).data
    except (UnknownKey, BrokenSeal):
        opened = None
    place = Place(info.id, info.name)
    told = info.progress
    if told is not None and told.partial is not None:
        told = replace(told, partial=_value(keyring, place, What.PARTIAL, told.partial))
    result = None if info.result is None else _value(keyring, place, What.RESULT, info.result)
    return replace(info, opened=opened, result=result, progress=told)


def key_of(info: JobInfo) -> str:
    """The id of the key that an encrypted job needs; '' when it cannot be read."""
    try:
        return _read_mark(info.envelope.encrypted).key if info.envelope else ""
    except (msgspec.MsgspecError, UnicodeError):
        return ""


def hide(info: JobInfo) -> JobInfo:
    """An encrypted job as people are shown it: of what is encrypted, only that it is there."""
    if not info.encrypted:
        return info
    told: Progress | None = info.progress
    if told is not None and told.partial is not None:
        told = replace(told, partial=HIDDEN)
    return replace(info, opened=None, result=None if info.result is None else HIDDEN, progress=told)


def _value(keyring: Keyring, place: Place, what: What, value: Any) -> Any:
    """What was sealed; what nobody sealed (a consumer that knows no keys wrote it) as it is."""
    try:
        sealed = _read_sealed(msgspec.json.encode(value))
    except msgspec.MsgspecError:
        return value
    try:
        return msgspec.json.decode(_opened(keyring, place, what, sealed.encrypted, sealed.data))
    except (UnknownKey, BrokenSeal):
        return HIDDEN


def _sealed(key: Key, place: Place, what: What, plain: bytes) -> tuple[Mark, str]:
    salt = os.urandom(_SALT)
    cipher, nonce = _cipher(key.secret, salt)
    raw = salt + cipher.encrypt(nonce, plain, place.sealed_with(what))
    return Mark(FORM, key.id), base64.b64encode(raw).decode("ascii")


def _opened(keyring: Keyring, place: Place, what: What, mark: Mark, text: str) -> bytes:
    if mark.v != FORM:
        raise BrokenSeal(f"The job {place.id!r} is encrypted in form {mark.v}; this delayq reads form {FORM}.")
    key = keyring.find(mark.key)
    try:
        raw = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raw = b""
    if len(raw) < _SALT + _TAG:
        raise BrokenSeal(f"The encrypted {what} of the job {place.id!r} is cut off, or no base64.")
    cipher, nonce = _cipher(key.secret, raw[:_SALT])
    try:
        opened: bytes = cipher.decrypt(nonce, raw[_SALT:], place.sealed_with(what))
    except _tools().invalid:
        raise BrokenSeal(
            f"The encrypted {what} of the job {place.id!r} ({place.name}) does not fit the key {key.id!r}: it was "
            "changed, or made for another job, or with another key of that id."
        ) from None
    return opened


def _cipher(secret: bytes, salt: bytes) -> tuple[Any, bytes]:
    """The cipher of one payload, and its nonce."""
    tools = _tools()
    derived = tools.derive(secret, salt)
    return tools.cipher(derived[:_KEY]), derived[_KEY:]


class _Tools(NamedTuple):
    """What is taken from the package cryptography, imported with the first encrypted job."""

    cipher: Any
    derive: Any
    invalid: type[Exception]


@cache
def _tools() -> _Tools:
    try:
        from cryptography.exceptions import InvalidTag
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM
        from cryptography.hazmat.primitives.hashes import SHA256
        from cryptography.hazmat.primitives.kdf.hkdf import HKDF
    except ImportError as error:
        raise ConfigError(
            "Encryption needs the package cryptography, which is not installed.", hint="pip install 'delayq[crypto]'"
        ) from error

    def derive(secret: bytes, salt: bytes) -> bytes:
        return HKDF(algorithm=SHA256(), length=_KEY + _NONCE, salt=salt, info=_CONTEXT).derive(secret)

    return _Tools(AESGCM, derive, InvalidTag)
