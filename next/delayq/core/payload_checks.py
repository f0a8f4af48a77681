"""Checks of payloads whose members are unknown at the declaration: payloads for methods of a class with `@handles`.

The declaration of such a class stores its check here. A client that schedules a job by its name can then refuse a
payload with which each attempt would fail.
"""

from collections.abc import Callable
from typing import Final

import msgspec

Check = Callable[[str, msgspec.Raw], None]
"""Takes the name of a job and the JSON of its payload. Raises InvalidInput if the payload does not fit."""

checks: Final[dict[str, Check]] = {}
"""The checks by class name."""


def add_check(class_name: str, check: Check) -> None:
    """Store the check for all methods of a class. An earlier check for the class is replaced."""
    checks[class_name] = check


def check_payload(name: str, data: msgspec.Raw) -> None:
    """Raise InvalidInput if a payload does not fit the declaration of its job in this program."""
    if (check := checks.get(name.partition("@")[0])) is not None:
        check(name, data)
