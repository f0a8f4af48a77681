"""The words that models share: how durations, times, names and ids are written.

The patterns go to OpenAPI alone. Requests are checked by the same functions as everywhere in delayq, whose refusals
say more than that a pattern does not match.
"""

from __future__ import annotations

from typing import Annotated, TypeAlias

from msgspec import Meta

JobId: TypeAlias = Annotated[
    str,
    Meta(
        description="1 to 255 printable ASCII characters without spaces.",
        examples=["order-42"],
        extra_json_schema={"pattern": r"^[\x21-\x7e]{1,255}$"},
    ),
]
JobName: TypeAlias = Annotated[
    str,
    Meta(
        description="1 to 255 printable characters without white space.",
        examples=["order.close"],
        extra_json_schema={"pattern": r"^\S{1,255}$"},
    ),
]
Queue: TypeAlias = Annotated[
    str,
    Meta(
        description="1 to 128 of A-Z a-z 0-9 . _ : - that start with a letter or a digit.",
        examples=["orders"],
        extra_json_schema={"pattern": r"^[A-Za-z0-9][A-Za-z0-9._:-]{0,127}$"},
    ),
]
Duration: TypeAlias = Annotated[
    str,
    Meta(
        description="How long: 500ms, 90s, 15m, 1h30m, 2d, 1w or PT15M; at most ten years.",
        examples=["15m"],
        extra_json_schema={"pattern": r"^([0-9]+(\.[0-9]+)?(ms|[wdhms]))+$|^P[0-9WDTHMS.]+$"},
    ),
]
Instant: TypeAlias = Annotated[
    str,
    Meta(
        description="RFC 3339 with an offset, or local with `tz`; at most ten years ahead; past means now.",
        examples=["2026-11-21T15:00:00Z"],
        extra_json_schema={"format": "date-time"},
    ),
]
Limit: TypeAlias = Annotated[
    str, Meta(description="A duration counted from when the job is due, or a point in time.", examples=["30m"])
]
Signature: TypeAlias = Annotated[
    str,
    Meta(
        description="The name of a group of failed jobs: 16 hex digits.",
        examples=["3f2a91c04be7d815"],
        extra_json_schema={"pattern": r"^[0-9a-f]{16}$"},
    ),
]
Epoch: TypeAlias = Annotated[int, Meta(description="Milliseconds since 1970.", examples=[1795273200000])]
Reason: TypeAlias = Annotated[
    str, Meta(description="Why; it goes to the audit log.", max_length=500, examples=["the bank asked for it"])
]
