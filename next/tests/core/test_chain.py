"""Links: their times count from their turn, and the same turn always gives the same job."""

import msgspec
import pytest

from delayq import InvalidInput, JobSpec, Unique
from delayq.core.chain import Chain, Link, check_size, id_of, job_of, link_of, name_of, read_chain, read_membership
from delayq.core.envelope import ABSENT, decode
from delayq.core.errors import UnreadableEnvelope
from delayq.core.follow_up import follow_ups
from delayq.core.ids import derived_id
from delayq.core.options import Options

NOW = 1_800_000_000_000
TURN = NOW + 60_000
HOUR = 3_600_000


def link(**more: object) -> Link:
    return link_of(JobSpec(name="order.close", **more), Options(), NOW)  # type: ignore[arg-type]


def test_durations_count_from_the_turn_and_points_in_time_stay() -> None:
    made = link(delay="1h", deadline="2h", retry_until="2030-01-01T00:00:00Z")
    assert (made.delay_ms, made.deadline_ms, made.retry_until_ms) == (HOUR, 2 * HOUR, None)
    job = job_of(made, now_ms=TURN)
    envelope = decode(job.envelope)
    assert (job.when, envelope.created_ms, envelope.deadline_ms) == (str(TURN + HOUR), TURN, TURN + 3 * HOUR)
    assert envelope.retry_until_ms == 1_893_456_000_000


def test_the_same_turn_gives_the_same_job() -> None:
    made = link(data={"order_id": 42}, unique=Unique(key=["order_id"]), tags=["a"])
    rest = Chain([link()])
    one, two = (job_of(made, now_ms=TURN, chain=rest) for _ in range(2))
    assert (one.envelope, one.when, one.id) == (two.envelope, two.when, two.id)
    assert len(one.lock) == 32


def test_an_envelope_without_a_chain_or_batch_has_none() -> None:
    assert (read_chain(ABSENT), read_membership(ABSENT)) == (Chain(), None)
    assert follow_ups("done", b'{"id":"a","data":{"chain":[]}}', b"", queue="q", now_ms=NOW).jobs == []


@pytest.mark.parametrize("raw", [b"", b"{", b'{"chain":[1]}', b'{"chain":{"links":[{"job":{}}]}}', b'{"batch":1}'])
def test_a_damaged_envelope_raises(raw: bytes) -> None:
    with pytest.raises((msgspec.MsgspecError, UnreadableEnvelope)):
        follow_ups("done", raw, b"", queue="q", now_ms=NOW)


def test_a_chain_that_is_too_long_is_refused() -> None:
    assert check_size(Chain([link(data="x" * 200_000)] * 4))
    with pytest.raises(InvalidInput, match="1,000,000"):
        check_size(Chain([link(data="x" * 200_000)] * 5))


def test_derived_ids_depend_on_the_job_and_the_position() -> None:
    ids = {derived_id(job, position) for job in ("a", "b") for position in range(3)}
    assert len(ids) == 6
    assert derived_id("a", 1) in ids
    assert (id_of(link()) != id_of(link()), name_of(link())) == (True, "order.close")
