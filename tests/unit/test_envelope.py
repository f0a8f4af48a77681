"""The envelope codec: bytes out are bytes in, unknown members survive, and nothing that is no JSON gets in."""

from __future__ import annotations

import json
import math
import os
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from delayq.core import envelope as envelopes
from delayq.core import followups
from delayq.core.envelope import Envelope
from delayq.core.errors import BadEnvelope, InvalidPayload
from delayq.core.options import Options
from delayq.core.spec import JobSpec, prepare

LIMIT = 256 * 1024
PLAIN = b'{"v":1,"id":"o1","name":"close","queue":"orders","data":null,"attempts":0,"created_ms":5}'


def with_data(data: bytes) -> bytes:
    return PLAIN.replace(b'"data":null', b'"data":' + data)


# -- reading and writing ---------------------------------------------------------------------------------------------


def test_only_what_differs_from_the_default_is_written() -> None:
    envelope = Envelope(v=1, id="o1", name="close", queue="orders", data=envelopes.NO_DATA, attempts=0, created_ms=5)
    assert envelopes.encode(envelope) == PLAIN


def test_every_member_comes_back() -> None:
    raw = (
        b'{"v":1,"id":"o1","name":"close","queue":"orders","data":[1],"attempts":2,"created_ms":5,"tries":3,'
        b'"backoff":[1000,2000],"timeout_ms":4,"deadline_ms":5,"retry_until_ms":6,"max_exceptions":7,"exceptions":8,'
        b'"unique":"u","retention_ms":9,"headers":{"trace":"t"},"chain":[{}],"batch":{"id":"b"},"encrypted":true,'
        b'"tags":["a"]}'
    )
    assert envelopes.encode(envelopes.decode(raw)) == raw


def test_a_payload_never_shows_in_a_log() -> None:
    assert "secret" not in repr(envelopes.decode(with_data(b'{"card":"secret"}')))


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"null",
        b"[]",
        b"not json",
        b"\xff\xfe\x00",
        PLAIN[:-1],
        PLAIN + b"x",
        PLAIN.replace(b'"id":"o1",', b""),
        PLAIN.replace(b'"attempts":0', b'"attempts":"0"'),
        PLAIN.replace(b'"attempts":0', b'"attempts":1.5'),
        PLAIN.replace(b'"close"', b'"clo\xc3se"'),
        with_data(b"NaN"),
        with_data(b"[" * 100_000 + b"]" * 100_000),
        b"[" * 1_000_000,
        b'{"v":' * 100_000,
    ],
    ids=lambda raw: f"{raw[:24]!r}..{len(raw)}",
)
def test_what_is_no_envelope_is_refused_with_a_reason(raw: bytes) -> None:
    with pytest.raises(BadEnvelope) as caught:
        envelopes.decode(raw)
    assert len(str(caught.value)) < 400


def test_a_later_version_is_refused_by_its_number() -> None:
    with pytest.raises(BadEnvelope, match="version 2"):
        envelopes.decode(PLAIN.replace(b'"v":1', b'"v":2'))


def test_unknown_members_are_read_over() -> None:
    assert envelopes.decode(PLAIN[:-1] + b',"priority":9}').name == "close"


# -- rewriting -------------------------------------------------------------------------------------------------------


def test_a_rewrite_keeps_unknown_members_and_every_byte_of_the_data() -> None:
    odd = b'{ "b":1.0, "a" : [ ], "n":123456789012345678901234567890, "e":1e5, "z":-0.0, "u":"\\u00e9" }'
    raw = with_data(odd)[:-1] + b',"shard":{"k" : [1, 2]}}'
    new = envelopes.rewrite(raw, attempts=4, exceptions=2)
    assert odd in new
    assert b'"shard":{"k" : [1, 2]}' in new
    assert (envelopes.decode(new).attempts, envelopes.decode(new).exceptions) == (4, 2)


def test_a_rewrite_to_none_takes_a_member_out() -> None:
    raw = PLAIN[:-1] + b',"exceptions":3}'
    assert envelopes.rewrite(raw, exceptions=None) == PLAIN
    assert envelopes.rewrite(PLAIN, exceptions=None) == PLAIN


@pytest.mark.parametrize("raw", [b"", b"[]", b"\xff", b"{" * 100_000])
def test_what_is_no_envelope_cannot_be_rewritten(raw: bytes) -> None:
    with pytest.raises(BadEnvelope):
        envelopes.rewrite(raw, attempts=1)


def test_a_fingerprint_tells_two_envelopes_apart() -> None:
    assert envelopes.fingerprint(PLAIN) != envelopes.fingerprint(PLAIN + b" ")


# -- payloads at the door --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize(
    "where",
    [lambda x: x, lambda x: [x], lambda x: {"a": [None, {"b": x}]}, lambda x: (1, x), lambda x: {"a": None, "b": x}],
    ids=["bare", "list", "deep", "tuple", "beside null"],
)
def test_no_number_of_json_is_refused(value: float, where: Any) -> None:
    with pytest.raises(InvalidPayload, match="no number"):
        envelopes.encode_data(where(value), LIMIT)


@pytest.mark.parametrize("key", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("where", [lambda x: x, lambda x: [1, {"a": (x,)}]], ids=["bare", "deep"])
def test_a_key_that_is_no_number_is_refused(key: float, where: Any) -> None:
    with pytest.raises(InvalidPayload, match="no number"):
        envelopes.encode_data(where({key: 1}), LIMIT)


@pytest.mark.parametrize(
    "data", [{1: "a", "1": "b"}, [{1: "a", "1": "b"}], [{"x": {"1": "b", 1: "a"}}], {b"k": 1, "aw==": 2}]
)
def test_keys_of_which_one_would_be_lost_are_refused(data: Any) -> None:
    with pytest.raises(InvalidPayload, match="the same text in JSON"):
        envelopes.encode_data(data, LIMIT)


def test_numbers_as_keys_become_text() -> None:
    assert bytes(envelopes.encode_data({1: {2.5: [{3: None}]}}, LIMIT)) == b'{"1":{"2.5":[{"3":null}]}}'


@pytest.mark.parametrize("data", ["\ud800", ["a\udfff"], {"\udc80": 1}])
def test_a_lone_surrogate_is_refused(data: Any) -> None:
    with pytest.raises(InvalidPayload, match="surrogate"):
        envelopes.encode_data(data, LIMIT)


def nested(levels: int) -> list[Any]:
    data: list[Any] = []
    for _ in range(levels):
        data = [data]
    return data


@pytest.mark.parametrize(
    "data",
    [object(), lambda: None, {(1, 2): 3}, 1j, nested(100_000)],
    ids=["object", "function", "tuple as key", "complex", "deep"],
)
def test_what_json_cannot_carry_is_refused(data: Any) -> None:
    with pytest.raises(InvalidPayload):
        envelopes.encode_data(data, LIMIT)


@pytest.mark.parametrize(
    "raw", [b"", b"{", b"nul", b"NaN", b"[1,]", b"\xff", b'"\xed\xa0\x80"', b"1 2", b"[" * 100_000 + b"]" * 100_000]
)
def test_bytes_that_are_no_json_are_refused(raw: bytes) -> None:
    with pytest.raises(InvalidPayload):
        envelopes.check_data(raw, LIMIT)


def test_bytes_that_are_json_pass_byte_for_byte() -> None:
    raw = b' { "a" : 1.0 , "b":[ ] , "n":123456789012345678901234567890 } '
    assert bytes(envelopes.check_data(raw, LIMIT)) == raw


def test_the_limit_is_counted_in_bytes_as_sent() -> None:
    fits = "é" * 10
    assert len(bytes(envelopes.encode_data(fits, 22))) == 22
    with pytest.raises(InvalidPayload, match="22 bytes; the limit is 21"):
        envelopes.encode_data(fits, 21)
    with pytest.raises(InvalidPayload, match="22 bytes; the limit is 21"):
        envelopes.check_data(b'"' + b"x" * 20 + b'"', 21)


FULL = os.environ.get("DELAYQ_CHAOS") == "full"
TEXT = st.text(st.characters(exclude_categories=["Cs"]))
JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | TEXT,
    lambda children: st.lists(children, max_size=4) | st.dictionaries(TEXT, children, max_size=4),
    max_leaves=20,
)


@pytest.mark.timeout(600 if FULL else 60)
@settings(max_examples=10_000 if FULL else 100, deadline=None)
@given(JSON)
def test_what_goes_in_comes_out_through_every_rewrite(data: Any) -> None:
    raw = envelopes.encode_data(data, LIMIT)
    envelope = Envelope(v=1, id="o1", name="n", queue="q", data=raw, attempts=0, created_ms=0)
    wire = envelopes.encode(envelope)
    for attempts in range(1, 4):
        wire = envelopes.rewrite(wire, attempts=attempts, exceptions=attempts)
    read = envelopes.decode(wire)
    assert bytes(read.data) == bytes(raw)
    assert msgspec.json.decode(read.data) == data
    assert json.loads(bytes(read.data)) == data


def test_a_job_that_is_larger_than_a_worker_reads_is_refused_at_the_door() -> None:
    options = Options(max_payload=1)
    spec = JobSpec(name="n", headers={"h": "x" * options.max_envelope})
    with pytest.raises(InvalidPayload, match="The job, with its chain and headers, has"):
        prepare(spec, options, 0)


@pytest.mark.parametrize("member", ["id", "name"])
def test_a_name_or_an_id_that_nobody_could_have_scheduled_is_not_believed(member: str) -> None:
    body = {"v": 1, "id": "i", "name": "n", "queue": "q", "data": None, "attempts": 0, "created_ms": 0}
    with pytest.raises(BadEnvelope, match="over 255 characters"):
        envelopes.decode(json.dumps({**body, member: "x" * 256}).encode())
    assert envelopes.decode(json.dumps({**body, member: "x" * 255}).encode()).queue == "q"


NUMBERS = (
    "attempts", "created_ms", "tries", "timeout_ms", "deadline_ms", "retry_until_ms", "max_exceptions", "exceptions",
    "retention_ms",
)  # fmt: skip


@pytest.mark.parametrize("member", NUMBERS)
def test_a_number_that_a_script_would_refuse_is_not_believed(member: str) -> None:
    body = {**json.loads(PLAIN), member: 0}
    assert envelopes.decode(json.dumps(body).encode()).id == "o1"
    for number in (-1, 2**53, 10**30):
        with pytest.raises(BadEnvelope, match=member):
            envelopes.decode(json.dumps({**body, member: number}).encode())


@pytest.mark.parametrize(
    ("link", "said"),
    [
        ("{}", "A link of this chain has neither a job nor a batch."),
        ('{"job":{}}', "A link of this chain cannot be read: these 2 bytes are no envelope: "),
    ],
)
def test_a_link_that_cannot_be_read_is_told_in_one_sentence(link: str, said: str) -> None:
    with pytest.raises(BadEnvelope) as raised:
        followups.decode_chain(f'{{"id":"c","next":[{link}]}}'.encode())
    assert raised.value.message.startswith(said)
