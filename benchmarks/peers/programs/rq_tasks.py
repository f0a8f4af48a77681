"""The handler of `rq_program`: RQ imports it by its module."""

from __future__ import annotations

import common


def note(data: dict[str, float]) -> None:
    common.record(data["at"])
