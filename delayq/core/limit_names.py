"""What limits and their keys may be called.

limit   [A-Za-z0-9][A-Za-z0-9._:@/%-]{0,127}   it stands inside a key's hash tag, so no braces
key     up to 255 characters                   whose limit it is: a user, an account, a host
"""

from __future__ import annotations

import re
from hashlib import sha256
from typing import Final

from delayq.core.errors import InvalidInput, InvalidName
from delayq.core.shown import shown

_OTHER: Final = re.compile(r"[^A-Za-z0-9._:@/-]")
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:@/%-]{0,127}")
MAX_KEY: Final = 255


def check_limit(name: object) -> str:
    """`name` if it can name a limit; raises `InvalidName` otherwise."""
    if isinstance(name, str) and _NAME.fullmatch(name):
        return str.__str__(name)
    raise InvalidName(
        f"{shown(name)} cannot name a limit.",
        hint="Use 1 to 128 of A-Z a-z 0-9 . _ : @ / - and start with a letter or a digit.",
    )


def limit_of_job(kind: str, job_name: str) -> str:
    """The name of a limit that belongs to all jobs of a name, whatever characters that has."""
    name = f"{kind}:{_OTHER.sub(_percent, job_name)}"
    return name if len(name) <= 128 else f"{kind}:{sha256(job_name.encode()).hexdigest()}"


def _percent(found: re.Match[str]) -> str:
    return "".join(f"%{byte:02X}" for byte in found[0].encode())


def check_key(key: object) -> str:
    """What a limit is kept for, as text; raises `InvalidInput` for what is neither text nor a number, or too long."""
    if isinstance(key, str | int) and not isinstance(key, bool) and len(text := str(key)) <= MAX_KEY:
        return text
    raise InvalidInput(
        f"{shown(key)} cannot be the key of a limit.", hint=f"Give text or a number of at most {MAX_KEY} characters."
    )
