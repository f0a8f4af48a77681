"""What a caller says about a job, and what is made of it before anything is sent."""

from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest

from delayq.core import envelope as envelopes
from delayq.core.backoff import Exponential
from delayq.core.errors import InvalidInput
from delayq.core.job_spec import JobSpec, prepare, prepare_raw, when_of
from delayq.core.options import Options, parse_durability

NOW = 1_800_000_000_000  # 2027-01-15T08:00:00Z
MINUTE = 60_000


def made(options: Options | None = None, **said: Any) -> dict[str, Any]:
    """Return the members of the envelope that a spec becomes."""
    job = prepare(JobSpec(name="n", **said), options or Options(), NOW)
    members: dict[str, Any] = msgspec.json.decode(job.envelope)
    return members


def refusal(**said: Any) -> InvalidInput:
    with pytest.raises(InvalidInput) as refused:
        made(**said)
    return refused.value


def test_a_job_about_which_nothing_is_said() -> None:
    job = prepare(JobSpec(name="n"), Options(), NOW)
    assert (job.queue, job.when, job.has_own_id, len(job.id)) == ("default", "+0", False, 26)
    assert msgspec.json.decode(job.envelope) == {
        "v": 1,
        "id": job.id,
        "name": "n",
        "queue": "default",
        "data": None,
        "attempts": 0,
        "created_ms": NOW,
    }


def test_what_is_said_travels_in_milliseconds() -> None:
    members = made(
        id="a",
        queue="orders",
        tries=0,
        backoff=Exponential(base="1s"),
        timeout="0s",
        max_exceptions=3,
        retention="1h",
        headers={"trace": "7"},
        tags=("urgent", "eu"),
    )
    assert members["tries"] == members["timeout_ms"] == 0
    assert (members["max_exceptions"], members["retention_ms"]) == (3, 3_600_000)
    assert members["backoff"] == {"base_ms": 1_000, "factor": 2.0, "cap_ms": 3_600_000, "jitter": True}
    assert (members["headers"], members["tags"]) == ({"trace": "7"}, ["urgent", "eu"])


def test_a_retention_of_zero_goes_before_that_of_the_settings_and_the_handler() -> None:
    keeping = Options(retention_ms=5_000)
    assert "retention_ms" not in made(keeping)
    assert made(keeping, retention="0s")["retention_ms"] == 0


def test_empty_headers_and_tags_are_not_written() -> None:
    assert made(headers={}, tags=[]).keys() == made().keys()


@pytest.mark.parametrize(
    ("due", "limit", "ms"),
    [
        ({}, "10m", NOW + 10 * MINUTE),
        ({"delay": "1h"}, "10m", NOW + 70 * MINUTE),
        ({"delay": "1h"}, timedelta(minutes=10), NOW + 70 * MINUTE),
        ({"at": "2027-01-15T09:00Z"}, "10m", NOW + 70 * MINUTE),
        ({"at": "2020-01-15T09:00Z"}, "10m", NOW + 10 * MINUTE),
        ({"delay": "1h"}, "2027-01-15T09:00:00Z", NOW + 60 * MINUTE),
        ({}, datetime(2027, 1, 15, 9, tzinfo=UTC), NOW + 60 * MINUTE),
    ],
)
@pytest.mark.parametrize("field", ["deadline", "retry_until"])
def test_a_limit_counts_from_when_the_job_is_due(field: str, due: dict[str, Any], limit: Any, ms: int) -> None:
    assert made(**due, **{field: limit})[f"{field}_ms"] == ms


@pytest.mark.parametrize("field", ["deadline", "retry_until"])
def test_a_limit_before_the_job_is_due_is_refused(field: str) -> None:
    error = refusal(delay="1h", **{field: "2027-01-15T08:59:59Z"})
    assert error.field == field
    assert error.message == f"The {field} 2027-01-15T08:59:59Z is before the due time of the job."


def test_a_time_may_name_its_zone_and_fold() -> None:
    job = prepare(JobSpec(name="n", at="2027-10-31 02:30", tz="Europe/Berlin", fold=1), Options(), NOW)
    assert job.when == str(round(datetime(2027, 10, 31, 1, 30, tzinfo=UTC).timestamp() * 1000))


@pytest.mark.parametrize(
    ("said", "field", "sentence"),
    [
        ({"delay": "1h", "at": "2027-01-15T09:00Z"}, "at", "at= and delay= are both given."),
        ({"tz": "Europe/Berlin"}, "tz", "tz= and fold= need at=, which is not given."),
        ({"delay": "1h", "fold": 0}, "tz", "tz= and fold= need at=, which is not given."),
        ({"tries": -1}, "tries", "tries is -1."),
        ({"tries": True}, "tries", "tries is True."),
        ({"tries": "5"}, "tries", "tries is '5'."),
        ({"tries": 1_000_001}, "tries", "tries is 1000001."),
        ({"max_exceptions": 0}, "max_exceptions", "max_exceptions is 0."),
        ({"timeout": 5}, "timeout", "timeout 5 is not a duration."),
        ({"retention": "-5s"}, "retention", "retention '-5s' is not a duration."),
        ({"deadline": "soon"}, "deadline", "deadline 'soon' is not a duration."),
        ({"retry_until": 5}, "retry_until", "retry_until 5 is not a duration."),
        ({"backoff": lambda attempt, error: "5s"}, "backoff", "A backoff function cannot travel with a job."),
        ({"headers": {"a": 1}}, "headers", "headers is a value of type dict, not a mapping of texts to texts."),
        ({"headers": {"\udfff": ""}}, "headers", "headers is a value of type dict, not a mapping of texts to texts."),
        ({"headers": "a=1"}, "headers", "headers is 'a=1', not a mapping of texts to texts."),
        ({"tags": "urgent"}, "tags", "tags is 'urgent', not a list of texts."),
        ({"tags": ["a", 1]}, "tags", "tags is a value of type list, not a list of texts."),
        ({"tags": 5}, "tags", "tags is 5, not a list of texts."),
    ],
)
def test_what_breaks_a_rule_is_refused_with_a_sentence(said: dict[str, Any], field: str, sentence: str) -> None:
    error = refusal(**said)
    assert (error.field, error.message) == (field, sentence)
    assert str(error) == f"{sentence} {error.hint}"


def test_only_limits_need_the_clock_of_the_server() -> None:
    assert not JobSpec(name="n", delay="1h", timeout="1m").needs_server_time
    assert JobSpec(name="n", deadline="1h").needs_server_time
    assert JobSpec(name="n", retry_until="1h").needs_server_time


def test_an_envelope_that_is_made_already_keeps_its_bytes() -> None:
    raw = b'{"v":1,"id":"a","name":"n","queue":"orders","data":{"x":1e2},"attempts":0,"created_ms":5,"future":1}'
    job = prepare_raw(raw, Options(), queue=None, delay="1m")
    assert (job.id, job.queue, job.envelope, job.when, job.has_own_id) == ("a", "orders", raw, "+60000", True)
    moved = prepare_raw(raw, Options(), queue="mail", delay=None)
    assert (moved.queue, moved.envelope) == ("mail", raw.replace(b"orders", b"mail"))


@pytest.mark.parametrize(
    "change",
    [
        (b'"a"', b'"two words"'),
        (b'"n"', b'"two words"'),
        (b"orders", b"{orders}"),
        (b"1e2", b'"%b"' % (b"x" * 300_000)),
        (b'"v":1', b'"v":9'),
        (b'"attempts":0', b'"attempts":-1'),
        (b'{"v"', b'"v"'),
    ],
)
def test_an_envelope_that_is_made_already_keeps_the_rules(change: tuple[bytes, bytes]) -> None:
    raw = b'{"v":1,"id":"a","name":"n","queue":"orders","data":{"x":1e2},"attempts":0,"created_ms":5}'
    with pytest.raises(InvalidInput):
        prepare_raw(raw.replace(*change, 1), Options(), queue=None, delay=None)


def test_a_due_time_is_a_delay_for_the_server_or_an_instant() -> None:
    assert when_of(None, None, now_ms=NOW) == "+0"
    assert when_of("15m", None, now_ms=NOW) == "+900000"
    assert when_of(None, "2027-01-15T08:00:00.0001Z", now_ms=NOW) == str(NOW + 1)


def test_name_and_data_may_be_given_by_position_and_nothing_else() -> None:
    spec = JobSpec("order.close", {"order_id": 42}, delay="15m")
    assert spec == JobSpec(name="order.close", data={"order_id": 42}, delay="15m")
    wrong: Any = JobSpec
    with pytest.raises(TypeError):
        wrong("order.close", {"order_id": 42}, "15m")


def test_a_job_that_is_prepared_reads_back_as_an_envelope() -> None:
    job = prepare(JobSpec(name="Größe", data={"ü": [1]}), Options(), NOW)
    assert envelopes.decode(job.envelope).name == "Größe"


def test_durability_is_memory_fsync_or_replicas() -> None:
    assert not parse_durability("memory").waits
    assert parse_durability("fsync").fsync
    assert parse_durability("replicas:2").replicas == 2
    for wrong in ("", "replicas:0", "replicas:100", "disk"):
        with pytest.raises(InvalidInput, match=r"Use memory, fsync or replicas:1\."):
            parse_durability(wrong)
