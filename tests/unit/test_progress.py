"""What a job may tell, and how it is read again."""

from __future__ import annotations

import math

import msgspec
import pytest

from delayq.core.errors import InvalidInput, InvalidPayload
from delayq.core.progress import Progress, Told, check_number, decode, encode_partial
from delayq.redis.calls.deliver import Held
from delayq.redis.calls.operate import MOST_BYTES, MOST_LINES, Telling, batches


@pytest.mark.parametrize(
    ("told", "read"),
    [
        (Told(done=3), Progress(7, done=3)),
        (Told(done=0.5, total=1.5, note="half \u00e4"), Progress(7, 0.5, 1.5, "half ä")),
        (Told(partial=b'{"a":[]}'), Progress(7, partial={"a": []})),
        (Told(), Progress(7)),
    ],
)
def test_there_and_back(told: Told, read: Progress) -> None:
    assert decode(told.encode() + b',"at_ms":7}') == read


@pytest.mark.parametrize("raw", [b"", b"[]", b"{}", b"\xff", b'{"at_ms":"x"}', b"[" * 5_000])
def test_what_is_no_progress_reads_as_none(raw: bytes) -> None:
    assert decode(raw) is None


@pytest.mark.parametrize(
    ("done", "total", "fraction"), [(3, 10, 0.3), (12, 10, 1.0), (3, None, None), (None, 10, None), (3, 0, None)]
)
def test_the_fraction(done: int | None, total: int | None, fraction: float | None) -> None:
    assert Progress(1, done, total).fraction == fraction


@pytest.mark.parametrize("value", [-1, math.nan, math.inf, True, "3", None])
def test_no_count(value: object) -> None:
    with pytest.raises(InvalidInput, match="done="):
        check_number("done", value)


def test_a_partial_result_is_json_and_not_too_large() -> None:
    assert encode_partial({"a": 1}, 100) == b'{"a":1}'
    with pytest.raises(InvalidPayload, match="object"):
        encode_partial(object(), 100)
    with pytest.raises(InvalidPayload, match=r"102 bytes .* at most 100"):
        encode_partial("x" * 100, 100)


def test_batches_are_bounded() -> None:
    held = Held("j", "1-1")
    many = [Telling(held, b"{")] * (MOST_LINES + 1)
    assert [len(some) for some in batches(many)] == [MOST_LINES, 1]
    large = [Telling(held, b"x" * (MOST_BYTES // 2 + 1))] * 3
    assert [len(some) for some in batches(large)] == [1, 1, 1]
    assert list(batches([])) == []
    assert b"".join(line.document for some in batches(many) for line in some) == b"{" * len(many)


def test_a_document_is_json_but_for_its_end() -> None:
    assert msgspec.json.decode(Told(done=1, partial=b"null").encode() + b"}") == {"done": 1, "partial": None}
