"""The envelope keeps what it does not know, and refuses what would not come back."""

import math
from collections import OrderedDict
from dataclasses import dataclass
from typing import Any

import msgspec
import pytest

from delayq.core import envelope as envelopes
from delayq.core.envelope import REFUSED, UNKNOWN_SINCE, Envelope, Refusals
from delayq.core.errors import InvalidInput, UnreadableEnvelope

LIMIT = 256 * 1024
ODD_MEMBERS = b'"future":{"b":1.0,"a":[]},"big":123456789012345678901234567890,"note":"\\u00e4"'
RAW = (
    b'{"v":1,"id":"order-42","name":"order.close","queue":"orders","data":{"n":1e2,"empty":[]},"attempts":2,'
    b'"created_ms":5,"exceptions":1,"chain":[{"x":1}],' + ODD_MEMBERS + b"}"
)


def read(*changes: bytes) -> Envelope:
    return envelopes.decode(with_members(*changes))


def with_members(*members: bytes) -> bytes:
    """Return an envelope whose last members are these; of two with one name the last counts."""
    return RAW[:-1] + b"".join(b"," + member for member in members) + b"}"


@dataclass
class Reading:
    value: float


def test_only_members_that_differ_from_their_default_are_written() -> None:
    job = Envelope(v=1, id="a", name="n", queue="q", data=msgspec.Raw(b'{"n":1e2}'), attempts=0, created_ms=5)
    raw = envelopes.encode(job)
    assert raw == b'{"v":1,"id":"a","name":"n","queue":"q","data":{"n":1e2},"attempts":0,"created_ms":5}'
    assert envelopes.encode(envelopes.decode(raw)) == raw


def test_the_payload_stays_out_of_the_repr() -> None:
    assert "1e2" not in repr(read())


def test_a_recount_changes_the_counts_and_no_other_byte() -> None:
    again = envelopes.recount(RAW, attempts=3, exceptions=2)
    assert again == RAW.replace(b'"attempts":2', b'"attempts":3').replace(b'"exceptions":1', b'"exceptions":2')
    assert b'"exceptions"' not in envelopes.recount(RAW, attempts=3, exceptions=0)


def test_the_header_of_a_job_that_cannot_be_read_comes_and_goes() -> None:
    raw = with_members(b'"headers":{"trace":"7"}')
    waiting = envelopes.recount(raw, attempts=2, exceptions=1, unknown_since_ms=99)
    assert envelopes.decode(waiting).headers == {"trace": "7", UNKNOWN_SINCE: "99"}
    assert envelopes.recount(waiting, attempts=2, exceptions=1) == raw
    alone = envelopes.recount(RAW, attempts=2, exceptions=1, unknown_since_ms=99)
    assert envelopes.recount(alone, attempts=2, exceptions=1) == RAW


def test_a_refresh_begins_anew_and_drops_limits_that_have_passed() -> None:
    raw = with_members(b'"retry_until_ms":100', b'"deadline_ms":100', b'"headers":{"%b":"9"}' % UNKNOWN_SINCE.encode())
    fresh = envelopes.refresh(raw, envelopes.decode(raw), 100)
    assert fresh == RAW.replace(b'"attempts":2', b'"attempts":0').replace(b'"exceptions":1,', b"")
    later = envelopes.decode(envelopes.refresh(raw, envelopes.decode(raw), 99))
    assert (later.retry_until_ms, later.deadline_ms) == (100, 100)


def test_a_rewrite_keeps_the_bytes_of_members_that_it_does_not_know() -> None:
    moved = envelopes.rewrite(RAW, queue="mail", chain=None)
    assert moved == RAW.replace(b'"orders"', b'"mail"').replace(b'"chain":[{"x":1}],', b"")


@pytest.mark.parametrize("raw", [b"", b"null", b"[]", b"{", b"\xff", b'{"v":1}', b"[" * 100_000, b'{"v":"1"}'])
def test_bytes_that_are_no_envelope_are_refused_with_the_reason(raw: bytes) -> None:
    with pytest.raises(UnreadableEnvelope, match=r"The envelope of [0-9]+ bytes cannot be read: .+\."):
        envelopes.decode(raw)


@pytest.mark.parametrize("raw", [b"", b"[]", b"{", b"[" * 100_000])
def test_bytes_that_are_no_envelope_are_not_rewritten(raw: bytes) -> None:
    with pytest.raises(UnreadableEnvelope):
        envelopes.rewrite(raw, attempts=1)


@pytest.mark.parametrize(
    ("member", "reason"),
    [
        (b'"v":2', "has version 2; this release reads version 1"),
        (b'"attempts":-1', ">= 0"),
        (b'"attempts":1.0', "Expected `int`"),
        (b'"attempts":true', "Expected `int`"),
        (b'"created_ms":9007199254740992', "<= 9007199254740991"),
        (b'"tries":99999999999999999999999', "cannot be read"),
        (b'"timeout_ms":2251799813685249', "<= 2251799813685248"),
        (b'"retention_ms":-1', ">= 0"),
        (b'"headers":{"a":1}', "Expected `str`"),
        (b'"tags":"urgent"', "Expected `array"),
        (b'"name":"%b"' % (b"n" * 256), "a name of more than 255 characters"),
        (b'"id":"%b"' % (b"i" * 256), "id has more than 255 bytes"),
        (b'"id":"%b"' % ("ü" * 128).encode(), "id has more than 255 bytes"),
    ],
)
def test_a_member_out_of_bounds_makes_an_envelope_unreadable(member: bytes, reason: str) -> None:
    with pytest.raises(UnreadableEnvelope, match=reason):
        read(member)


def test_the_largest_numbers_are_read() -> None:
    job = read(b'"created_ms":9007199254740991', b'"timeout_ms":2251799813685248')
    assert (job.created_ms, job.timeout_ms) == (2**53 - 1, 2**51)


def test_something_follows_a_job_with_a_chain_or_a_batch() -> None:
    assert read().is_followed
    assert envelopes.decode(envelopes.rewrite(RAW, chain=None, batch={})).is_followed
    assert not envelopes.decode(envelopes.rewrite(RAW, chain=None)).is_followed


@pytest.mark.parametrize(
    "data", [None, True, 0, -1.5, "ü🙂", [], {}, {"a": [1, {"b": None}]}, (1, 2), 2**64, OrderedDict(a=1)]
)
def test_a_payload_comes_back_equal(data: Any) -> None:
    back = msgspec.json.decode(envelopes.encode_data(data, LIMIT))
    assert back == (list(data) if isinstance(data, tuple) else data)


def test_a_part_of_a_payload_may_be_json_already() -> None:
    assert bytes(envelopes.encode_data({"a": msgspec.Raw(b"null"), "b": [1]}, LIMIT)) == b'{"a":null,"b":[1]}'


def test_bytes_are_json_already_and_stay_as_they_are() -> None:
    assert bytes(envelopes.encode_data(b' {"n": 1e2}', LIMIT)) == b' {"n": 1e2}'
    for wrong in (b"", b"{", b"NaN", b"\xff", b'"\\ud800"', b"1 2"):
        with pytest.raises(InvalidInput, match="The payload is not JSON"):
            envelopes.encode_data(wrong, LIMIT)


@pytest.mark.parametrize(
    "data",
    [
        math.nan,
        [math.inf],
        {"a": ({"b": -math.inf},)},
        {math.nan: 1},
        Reading(math.nan),
        {"a": [Reading(math.inf)]},
        {math.nan},
    ],
)
def test_a_number_that_json_lacks_is_refused_wherever_it_is(data: Any) -> None:
    with pytest.raises(InvalidInput, match="which JSON cannot express") as refused:
        envelopes.encode_data(data, LIMIT)
    assert refused.value.field == "data"


@pytest.mark.parametrize("data", ["\ud800", {"\udfff": 1}, ["a", {"b": "\ud83d"}]])
def test_half_of_a_surrogate_pair_is_refused(data: Any) -> None:
    with pytest.raises(InvalidInput, match="surrogates not allowed"):
        envelopes.encode_data(data, LIMIT)


@pytest.mark.parametrize("data", [{1: "a", "1": "b"}, {"x": [{1.0: "a", "1.0": "b"}]}])
def test_two_keys_that_are_one_text_are_refused(data: Any) -> None:
    with pytest.raises(InvalidInput, match="which equals another key in JSON"):
        envelopes.encode_data(data, LIMIT)


def test_what_json_has_no_form_for_is_refused() -> None:
    circle: list[Any] = []
    circle.append(circle)
    for data in (object(), {"a": object()}, {None: 1}, {(1, 2): 3}, circle):
        with pytest.raises(InvalidInput, match=r"The payload is not JSON: .* An example:"):
            envelopes.encode_data(data, LIMIT)


@pytest.mark.parametrize("data", ["x" * 8, b'"xxxxxxxx"'])
def test_a_payload_has_a_limit_in_bytes(data: Any) -> None:
    envelopes.encode_data(data, 10)
    with pytest.raises(InvalidInput, match=r"has 10 bytes; the limit is 9\..* or raise DELAYQ_MAX_PAYLOAD"):
        envelopes.encode_data(data, 9)


def test_the_refusals_in_a_row_are_a_header_until_another_end() -> None:
    raw = with_members(b'"headers":{"trace":"7"}')
    refused = envelopes.recount(raw, attempts=0, exceptions=0, refusals=Refusals(3, "mail"))
    assert envelopes.decode(refused).headers == {"trace": "7", REFUSED: "3 mail"}
    assert envelopes.refusals_of(envelopes.decode(refused)) == Refusals(3, "mail")
    again = envelopes.recount(refused, attempts=0, exceptions=0, refusals=Refusals(4, "sms"))
    assert envelopes.decode(again).headers == {"trace": "7", REFUSED: "4 sms"}
    tried = envelopes.recount(again, attempts=1, exceptions=1)
    assert envelopes.decode(tried).headers == {"trace": "7"}
    assert envelopes.refusals_of(envelopes.decode(tried)) is None
    retried = envelopes.refresh(again, envelopes.decode(again), 0)
    assert envelopes.decode(retried).headers == {"trace": "7"}
