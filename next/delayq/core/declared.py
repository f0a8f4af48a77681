"""The declared send options of the jobs of this program, by job name.

Each declaration of a job stores its options here. So a client that schedules a job by its name uses the queue and the
other options that the job declares.
"""

from collections.abc import Sequence
from typing import Any, Final

import msgspec

from delayq.core.job_spec import JobSpec, Limit
from delayq.core.times import Duration
from delayq.core.unique import Unique


class SendOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Options that apply when a job is dispatched, unless the call gives others."""

    queue: str | None = None
    connection: str | None = None
    delay: Duration | None = None
    deadline: Limit | None = None
    retry_until: Limit | None = None
    tags: Sequence[str] | None = None
    unique: str | Unique | None = None
    encrypted: bool | None = None


_NOTHING: Final = SendOptions()

_OF_SPEC: Final = tuple(field for field in SendOptions.__struct_fields__ if field != "connection")
"""The options that a JobSpec has too."""

declarations: Final[dict[str, SendOptions]] = {}
"""The declared options by job name."""


def declare(name: str, options: SendOptions) -> None:
    """Store the options that a job declares."""
    declarations[name] = options


def declared_options(name: str) -> SendOptions:
    """Return the options that a job of this name declares.

    A name such as `Mailer@send` falls back to the declaration of `Mailer`. Without a declaration, all options are None.
    """
    return declarations.get(name) or declarations.get(name.partition("@")[0]) or _NOTHING


def with_options(spec: JobSpec, options: SendOptions) -> JobSpec:
    """Return a spec whose missing options come from `options`. A spec with `at` gets no delay."""
    changes: dict[str, Any] = {
        field: value
        for field in _OF_SPEC
        if (value := getattr(options, field)) is not None and getattr(spec, field) is None
    }
    if spec.at is not None:
        changes.pop("delay", None)
    return msgspec.structs.replace(spec, **changes)
