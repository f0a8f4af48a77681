"""Options for sending that the jobs of this program declare, by name.

Declaring a job writes it here. So a client that schedules by a name sends to the queue that the job declares.
"""

from collections.abc import Sequence
from typing import Any, Final

import msgspec

from delayq.core.job_spec import JobSpec, Limit
from delayq.core.times import Duration


class SendOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Options of a job that is sent, unless its call says otherwise."""

    queue: str | None = None
    delay: Duration | None = None
    deadline: Limit | None = None
    retry_until: Limit | None = None
    tags: Sequence[str] | None = None


_declared: Final[dict[str, SendOptions]] = {}


def declare(name: str, options: SendOptions) -> None:
    """Remember what a job declares."""
    _declared[name] = options


def with_declared(spec: JobSpec) -> JobSpec:
    """Return a spec with what its job declares, where the spec says nothing itself."""
    if not _declared:
        return spec
    options = _declared.get(spec.name) or _declared.get(spec.name.partition("@")[0])
    return spec if options is None else with_options(spec, options)


def with_options(spec: JobSpec, options: SendOptions) -> JobSpec:
    """Return a spec with these options, where it says nothing itself."""
    changes: dict[str, Any] = {
        field: value
        for field in options.__struct_fields__
        if (value := getattr(options, field)) is not None and getattr(spec, field) is None
    }
    if spec.at is not None:
        changes.pop("delay", None)
    return msgspec.structs.replace(spec, **changes)
