"""The handler of `rq_program`: RQ imports it by its module."""

from __future__ import annotations

import roles


def note(data: dict[str, float]) -> None:
    roles.record(data["at"])
