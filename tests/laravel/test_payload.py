"""Laravel's payload and our envelope, both ways, without a server."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from delayq.core import envelope as envelopes
from delayq.core.envelope import Envelope
from delayq.core.errors import BadEnvelope, InvalidPayload
from delayq.drivers.laravel.payload import KEPT, MAX_BYTES, label, read_payload
from delayq.drivers.laravel.writing import MAX_NESTING, payload_of, refuse_nesting

UUID = "8a1f0e0c-6b0e-4d35-9a58-0c1d2e3f4a5b"
STRING = {
    "uuid": UUID,
    "displayName": "Mailer",
    "job": "Mailer@send",
    "maxTries": None,
    "maxExceptions": None,
    "failOnTimeout": False,
    "backoff": None,
    "timeout": None,
    "data": {"to": "ann@example.org", "many": [], "big": 130775545883395173},
    "horizon": {"odd": [1]},
    "id": "Z" * 32,
    "attempts": 2,
}


def php(**changes: Any) -> bytes:
    return json.dumps(STRING | changes, separators=(",", ":")).encode()


def an_object(fields: str, count: int, **changes: Any) -> bytes:
    command = f'O:14:"App\\CloseOrder":{count}:{{{fields}}}'
    data = {"commandName": "App\\CloseOrder", "command": command} | changes.pop("data", {})
    said = {"displayName": "App\\CloseOrder", "job": "Illuminate\\Queue\\CallQueuedHandler@call", "data": data}
    return php(**said | changes)


def opened(raw: bytes, attempts: int = 0) -> Envelope:
    return envelopes.decode(read_payload(raw).envelope(queue="orders", attempts=attempts))


# -- from Laravel ----------------------------------------------------------------------------------------------------


def test_a_string_job_is_a_job_of_that_name() -> None:
    envelope = opened(php(), attempts=1)
    assert (envelope.id, envelope.name, envelope.queue, envelope.attempts) == (UUID, "Mailer@send", "orders", 1)
    assert bytes(envelope.data) == b'{"to":"ann@example.org","many":[],"big":130775545883395173}'
    assert (envelope.tries, envelope.backoff, envelope.timeout_ms, envelope.retry_until_ms) == (None,) * 4


def test_seconds_become_milliseconds() -> None:
    envelope = opened(
        php(maxTries=3, maxExceptions=2, backoff="1,5,10", timeout=90, retryUntil=1795286400, createdAt=1795280000)
    )
    assert (envelope.tries, envelope.max_exceptions, envelope.backoff) == (3, 2, [1000, 5000, 10000])
    assert (envelope.timeout_ms, envelope.retry_until_ms) == (90_000, 1_795_286_400_000)
    assert envelope.created_ms == 1_795_280_000_000


@pytest.mark.parametrize(("said", "means"), [(5, 5000), ("7", 7000), ([1, 2], [1000, 2000]), ("", None), ({}, None)])
def test_backoff_has_many_forms(said: Any, means: Any) -> None:
    assert opened(php(backoff=said)).backoff == means


@pytest.mark.parametrize(("said", "means"), [("", b"null"), ([], b"{}"), ({}, b"{}"), ([0], b"[0]"), ("x", b'"x"')])
def test_no_data_is_no_data_whatever_php_calls_it(said: Any, means: bytes) -> None:
    raw = php(data=said)
    envelope = read_payload(raw).envelope(queue="orders", attempts=0)
    assert bytes(envelopes.decode(envelope).data) == means
    assert json.loads(payload_of(envelope, attempts=2)) == json.loads(raw)


def test_what_scripts_of_redis_do_to_empty_lists_is_borne() -> None:
    assert opened(php(tags={}, backoff={})).tags is None


@pytest.mark.parametrize(
    ("changes", "id_"),
    [({}, UUID), ({"uuid": None}, "Z" * 32), ({"uuid": "not an id"}, "Z" * 32), ({"uuid": None, "id": 7}, "7")],
)
def test_the_id_is_the_uuid_or_else_what_there_is(changes: dict[str, Any], id_: str) -> None:
    assert read_payload(php(**changes)).id == id_


def test_a_payload_without_any_id_gets_one_of_its_own() -> None:
    one, other = read_payload(php(uuid=None, id=None)), read_payload(php(uuid=None, id=None, job="Other"))
    assert one.id.startswith("x-")
    assert one.id != other.id


@pytest.mark.parametrize("attempts", [None, 3])
@pytest.mark.parametrize("changes", [{}, {"data": ""}, {"data": [1, {"é": None}]}, {"maxExceptions": 2}])
def test_such_an_id_is_the_same_in_every_attempt(changes: dict[str, Any], attempts: int | None) -> None:
    """What is written back has another order, another count, and what failed so far."""
    first = read_payload(php(uuid=None, id=None, **changes))
    tried = envelopes.rewrite(first.envelope(queue="orders", attempts=1), attempts=2, exceptions=1)
    again = read_payload(payload_of(tried, attempts=attempts))
    assert (again.id, envelopes.decode(again.envelope(queue="orders", attempts=2)).id) == (first.id, first.id)


# -- objects of PHP --------------------------------------------------------------------------------------------------


def test_an_object_is_a_job_of_its_display_name_with_its_plain_fields() -> None:
    model = (
        's:7:"podcast";O:45:"Illuminate\\Contracts\\Database\\ModelIdentifier":4:{s:5:"class";s:11:"App\\Podcast";'
        's:2:"id";i:7;s:9:"relations";a:0:{}s:10:"connection";s:5:"mysql";}'
    )
    fields = (
        's:8:"order_id";i:42;s:7:"\0*\0note";s:2:"\u00e9";s:5:"lines";a:1:{i:0;a:1:{s:3:"sku";s:1:"x";}}'
        's:4:"when";O:8:"DateTime":0:{}s:5:"queue";s:6:"orders";s:5:"tries";i:3;s:7:"chained";a:0:{}' + model
    )
    envelope = opened(an_object(fields, 8, maxTries=3))
    assert (envelope.name, envelope.tries) == ("App\\CloseOrder", 3)
    assert json.loads(bytes(envelope.data)) == {
        "order_id": 42,
        "note": "\u00e9",
        "lines": [{"sku": "x"}],
        "podcast": {"class": "App\\Podcast", "id": 7, "connection": "mysql"},
    }


def test_an_object_comes_back_as_it_was() -> None:
    raw = an_object('s:2:"id";i:7;', 1)
    envelope = read_payload(raw).envelope(queue="orders", attempts=0)
    assert json.loads(payload_of(envelope, attempts=2)) == json.loads(raw)


def test_a_display_name_that_is_no_name_gives_way_to_the_class() -> None:
    assert opened(an_object("", 0, displayName="Closure (web.php:7)")).name == "App\\CloseOrder"


@pytest.mark.parametrize(
    ("raw", "why"),
    [
        (an_object("", 0, data={"command": "eyJpdiI6Ik1"}), "App\\CloseOrder is encrypted with its application's key"),
        (an_object('s:7:"chained";a:2:{i:0;N;i:1;N;}', 1), "goes before a chain of 2"),
        (an_object('s:7:"batchId";s:1:"b";', 1), "belongs to a batch"),
        (an_object("", 1), "App\\CloseOrder cannot be read. PHP's serialised data"),
        (an_object("", 0, data={"command": 'C:3:"Foo":1:{x}'}), "in a form of its own"),
        (an_object("", 0, data={"command": None}), "there is none in data.command"),
        (an_object("", 0, data={"command": "O:1:\ud800"}), "are no payload of Laravel's"),
        (php(job="no name"), "'no name', which cannot name a job"),
        (php(job=7), "are no payload of Laravel's"),
        (php(backoff="soon"), "the backoff 'soon', which is no list of seconds"),
        (b"\x00\x01igbinary", "are no payload of Laravel's"),
        (b"[]", "are no payload of Laravel's"),
        (b"{}", "are no payload of Laravel's"),
        (b"", "are no payload of Laravel's"),
        (b'{"job":"x","data":' + b"[" * 100_000, "Laravel"),
        (b'{"job":"x","data":' + b"[" * 100_000 + b"]" * 100_000 + b"}", "nested too deeply"),
        (b'{"job":"x","data":"' + b"x" * MAX_BYTES + b'"}', f"at most {MAX_BYTES:,} are read"),
    ],
)
def test_what_cannot_be_run_here_is_refused_in_one_sentence(raw: bytes, why: str) -> None:
    with pytest.raises(BadEnvelope) as refused:
        read_payload(raw).envelope(queue="orders", attempts=0)
    assert why in str(refused.value)
    assert "\n" not in str(refused.value)
    id_, _ = label(raw)
    assert 0 < len(id_) < 256


ANY_JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats(-1e300, 1e300) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=6,
)


@settings(max_examples=50)
@given(st.dictionaries(st.sampled_from([*STRING, "delayq", "tags"]), ANY_JSON))
def test_members_of_wrong_types_are_read_or_refused(changes: dict[str, Any]) -> None:
    raw, said = json.dumps(STRING | changes).encode(), ""
    try:
        payload_of(read_payload(raw).envelope(queue="orders", attempts=0), attempts=1)
    except BadEnvelope as error:
        said = str(error)
    assert "\n" not in said


# -- to Laravel ------------------------------------------------------------------------------------------------------


def ours(**members: Any) -> bytes:
    return msgspec.json.encode(
        {"v": 1, "id": "o1", "name": "Mailer@send", "queue": "orders", "data": {"a": 1}, "attempts": 0}
        | {"created_ms": 1_795_280_000_123}
        | members
    )


def test_what_laravel_reads_of_a_job_of_ours() -> None:
    raw = ours(tries=3, backoff=[1500, 5000], timeout_ms=1500, retry_until_ms=1_795_286_400_001, max_exceptions=2)
    assert json.loads(payload_of(raw, attempts=0)) == {
        "uuid": "o1",
        "displayName": "Mailer",
        "job": "Mailer@send",
        "maxTries": 3,
        "maxExceptions": 2,
        "failOnTimeout": False,
        "backoff": "2,5",
        "timeout": 2,
        "retryUntil": 1_795_286_401,
        "data": {"a": 1},
        "createdAt": 1_795_280_000,
        "delayq": {
            "v": 1,
            "created_ms": 1_795_280_000_123,
            "tries": 3,
            "backoff": [1500, 5000],
            "timeout_ms": 1500,
            "retry_until_ms": 1_795_286_400_001,
            "max_exceptions": 2,
        },
        "id": "o1",
        "attempts": 0,
    }


def test_a_database_counts_for_itself() -> None:
    payload = json.loads(payload_of(ours(), attempts=None))
    assert not {"id", "attempts"} & set(payload)


def test_an_exponential_backoff_is_told_in_steps_and_kept_as_it_is() -> None:
    grows = {"base_ms": 5000, "factor": 2.0, "cap_ms": 60_000, "jitter": True}
    payload = payload_of(ours(backoff=grows), attempts=0)
    assert json.loads(payload)["backoff"] == "5,10,20,40,60,60,60,60,60,60,60,60"
    assert opened(payload).backoff == grows


@pytest.mark.parametrize(
    "members",
    [
        {},
        {"headers": {"trace": "1"}, "tags": ["a"], "deadline_ms": 5, "from_the_future": {"x": [1.5]}},
        {"tries": 0, "timeout_ms": 1, "backoff": 1, "exceptions": 2, "max_exceptions": 3},
        {"data": None},
        {"data": [], "encrypted": {"key": "k"}},
    ],
)
def test_a_job_of_ours_comes_back_word_for_word(members: dict[str, Any]) -> None:
    raw = ours(**members)
    back = read_payload(payload_of(raw, attempts=0)).envelope(queue="orders", attempts=0)
    assert json.loads(back) == json.loads(raw)


def test_failures_are_counted_beside_what_php_wrote() -> None:
    raw = php(maxExceptions=2)
    first = read_payload(raw).envelope(queue="orders", attempts=2)
    again = envelopes.rewrite(first, attempts=3, exceptions=1)
    payload = payload_of(again, attempts=3)
    assert json.loads(payload) == json.loads(raw) | {"attempts": 3, "delayq": {"exceptions": 1}}
    assert opened(payload, 3).exceptions == 1
    assert KEPT.encode() not in payload


def test_a_count_that_nobody_asks_for_is_not_written() -> None:
    again = envelopes.rewrite(read_payload(php()).envelope(queue="orders", attempts=2), attempts=3, exceptions=1)
    assert json.loads(payload_of(again, attempts=3)) == json.loads(php(attempts=3))


def test_data_that_php_could_not_read_is_refused() -> None:
    deep = MAX_NESTING + 1
    refuse_nesting(msgspec.Raw(b"[" * MAX_NESTING + b"]" * MAX_NESTING))
    refuse_nesting(msgspec.Raw(b'"' + b"[" * deep + b'\\""'))
    refuse_nesting(msgspec.Raw(b"[" + b"[]," * deep + b"[]]"))
    with pytest.raises(InvalidPayload, match=f"nested {deep} deep, and Laravel reads {MAX_NESTING}"):
        refuse_nesting(msgspec.Raw(b'{"a":' * deep + b"1" + b"}" * deep))
