"""Encrypts payloads and results of jobs, so that Redis stores only tokens, which are unreadable without a key.

A token is made by Fernet of the package cryptography. Fernet also detects changed tokens. Before encryption, the text
of a token is the JSON `{"id":…,"name":…,"data":…}` for a payload, or `{"id":…,"name":…,"result":…}` for a result. So a
token that was moved to another job is detected when it is decrypted.
"""

import base64
import os
import re
from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Final, Literal

import msgspec

from delayq.core.display import several
from delayq.core.envelope import ABSENT, Envelope
from delayq.core.errors import ConfigError, InvalidInput, NotDecrypted, UnreadableEnvelope

if TYPE_CHECKING:
    from cryptography.fernet import MultiFernet

FORMAT: Final = msgspec.Raw(b'{"v":2}')
"""The member `encrypted` of an envelope whose `data` is a token."""

Part = Literal["data", "result"]

_KEY: Final = re.compile(r"[A-Za-z0-9_-]{43}=")
_ABSENT_MARKS: Final = (b"", b"null")
_SET_KEYS: Final = "Set the keys of the producers in DELAYQ_KEYS or DELAYQ_KEYS_FILE."


class _Content(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """The text of a token before its encryption."""

    id: str
    name: str
    data: msgspec.Raw = ABSENT
    result: msgspec.Raw = ABSENT


_encode: Final = msgspec.json.Encoder().encode
_decode_content: Final = msgspec.json.Decoder(_Content).decode
_decode_token: Final = msgspec.json.Decoder(str).decode


class KeyRing:
    """The keys of a program. The first key encrypts, and all keys decrypt.

    The package cryptography is imported when a key is first used.
    """

    def __init__(self, keys: Sequence[str]) -> None:
        """Raises InvalidInput without keys, and for a malformed key. The message has only the number of the key."""
        if not keys:
            raise InvalidInput("No keys are given.", hint="`delayq key new` makes a key.", field="keys")
        for number, key in enumerate(keys, 1):
            if not _KEY.fullmatch(key):
                hint = "`delayq key new` makes a key."
                raise InvalidInput(f"Key {number} of {len(keys)} is malformed.", hint=hint, field="keys")
        self._keys = tuple(keys)

    def __len__(self) -> int:
        return len(self._keys)

    def __repr__(self) -> str:
        """Leave the keys out, because they are secret."""
        return f"KeyRing({several(len(self), 'key')})"

    @cached_property
    def fernet(self) -> "MultiFernet":
        """The cipher with these keys. Raises ConfigError if the package cryptography is not installed."""
        try:
            from cryptography.fernet import Fernet, MultiFernet
        except ImportError:
            raise ConfigError(
                "Encryption needs the package cryptography, which is not installed.",
                hint="Install it: pip install 'delayq[encryption]'.",
                field="keys",
            ) from None
        return MultiFernet([Fernet(key) for key in self._keys])


def new_key() -> str:
    """Return a new random key, in the form of Fernet: 32 bytes as URL-safe base64."""
    return base64.urlsafe_b64encode(os.urandom(32)).decode()


def longest_token(size: int) -> int:
    """Return the maximum length of a token whose payload has up to `size` bytes, with any id and name."""
    return size * 4 // 3 + 4_096


def is_encrypted(envelope: Envelope) -> bool:
    """Return True if the payload of an envelope is a token."""
    return envelope.encrypted is not ABSENT and bytes(envelope.encrypted) not in _ABSENT_MARKS


def seal(key_ring: KeyRing | None, part: Part, value: msgspec.Raw, *, job_id: str, name: str) -> msgspec.Raw:
    """Encrypt JSON for the job with this id and name, and return the token as JSON.

    Raises ConfigError without keys, and if the package cryptography is not installed.
    """
    if key_ring is None:
        raise ConfigError(
            f"The job {name!r} must be encrypted, but no keys are set.",
            hint="Make a key with `delayq key new`, and set DELAYQ_KEYS or DELAYQ_KEYS_FILE.",
            field="keys",
        )
    content = _encode({"id": job_id, "name": name, part: value})
    return msgspec.Raw(_encode(key_ring.fernet.encrypt(content).decode()))


def unseal(key_ring: KeyRing | None, part: Part, token: msgspec.Raw, *, job_id: str, name: str) -> msgspec.Raw:
    """Return the JSON that `seal` has encrypted.

    Raises NotDecrypted if no key decrypts the token, UnreadableEnvelope if the token belongs to another id, name or
    part, and ConfigError if the package cryptography is not installed.
    """
    what = "payload" if part == "data" else "result"
    if key_ring is None:
        raise NotDecrypted(f"The {what} of the job {job_id!r} is encrypted, and no keys are set.", hint=_SET_KEYS)
    fernet = key_ring.fernet
    from cryptography.fernet import InvalidToken

    try:
        content = _decode_content(fernet.decrypt(_decode_token(token)))
    except (InvalidToken, msgspec.MsgspecError, UnicodeError):
        keys = several(len(key_ring), "key")
        raise NotDecrypted(
            f"The {what} of the job {job_id!r} cannot be decrypted with the {keys} of this program.", hint=_SET_KEYS
        ) from None
    value = content.data if part == "data" else content.result
    if (content.id, content.name) != (job_id, name) or value is ABSENT:
        raise UnreadableEnvelope(
            f"The {what} of the job {job_id!r} ({name}) was encrypted for another use: for the job {content.id!r} "
            f"({content.name}), or not as a {what}."
        )
    return value


def payload_of(envelope: Envelope, key_ring: KeyRing | None) -> msgspec.Raw:
    """Return the payload of an envelope as JSON, decrypted if it is encrypted. Raises the errors of `unseal`."""
    if not is_encrypted(envelope):
        return envelope.data
    return unseal(key_ring, "data", envelope.data, job_id=envelope.id, name=envelope.name)
