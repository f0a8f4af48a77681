"""Checks of the payloads of jobs whose declarations name no members, such as the methods of a class with `@handles`.

Each declaration that needs a check stores it here. So a client that schedules a job by its name refuses a payload that
no attempt could use.
"""

from collections.abc import Callable
from typing import Final

import msgspec

Check = Callable[[str, msgspec.Raw], None]
"""Gets the name of a job and the JSON of its payload. Raises InvalidInput."""

checks: Final[dict[str, Check]] = {}
"""The checks by class name."""


def add_check(class_name: str, check: Check) -> None:
    """Store the check for all methods of a class. An earlier check for the class is replaced."""
    checks[class_name] = check


def check_payload(name: str, data: msgspec.Raw) -> None:
    """Raise InvalidInput if a payload does not fit the declaration of its job in this program."""
    if (check := checks.get(name.partition("@")[0])) is not None:
        check(name, data)
