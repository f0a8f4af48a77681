"""Encrypted jobs: clients with and without keys, on a real server."""

from collections.abc import Iterator
from typing import Any

import msgspec
import pytest
import redis
from pydantic import SecretStr

from delayq import ConfigError, DelayQ, InvalidInput, JobSearch, JobSpec, NotDecrypted, Settings, Unique
from delayq.core.chain import job_of, link_of
from delayq.core.encryption import KeyRing, new_key, payload_of, seal
from delayq.core.errors import UnreadableEnvelope
from delayq.core.follow_up import FollowUps
from delayq.core.options import Options
from delayq.redis.connection.leaf import drive
from delayq.redis.follow_up_sender import WAIT_FOR_KEY, FollowUpSender, Step
from tests.support.dump import dump

KEY, OTHER = new_key(), new_key()
DATA = {"iban": "DE:02"}
QUEUE = "money"


def settings(url: str, *keys: str, **more: Any) -> Settings:
    return Settings(url=SecretStr(url), queue=QUEUE, keys=SecretStr(",".join(keys)) if keys else None, **more)


@pytest.fixture
def client(url: str, server: redis.Redis) -> Iterator[DelayQ]:
    with DelayQ(settings=settings(url, KEY)) as client:
        yield client


@pytest.fixture
def without_keys(url: str, server: redis.Redis) -> Iterator[DelayQ]:
    with DelayQ(settings=settings(url)) as client:
        yield client


def stored(server: redis.Redis, job_id: str) -> str:
    raw: Any = server.hget(f"delayq:{{{QUEUE}}}:jobs", job_id)
    return str(raw)


def test_redis_has_no_payload_and_a_client_with_keys_reads_it(client: DelayQ, server: redis.Redis) -> None:
    ref = client.schedule("pay", DATA, delay="1h", encrypted=True, tags=["readable"])
    assert "DE:02" not in stored(server, ref.id)
    assert '"encrypted":{"v":2}' in stored(server, ref.id)
    info = ref.refresh()
    assert info is not None
    assert (info.data, info.is_encrypted, info.envelope and info.envelope.tags) == (DATA, True, ["readable"])
    assert "DE:02" not in repr(info) + repr(ref)
    for page in (client.list_jobs("scheduled").jobs, client.search(JobSearch(queues=[QUEUE])).jobs):
        assert [job.data for job in page] == [DATA]


def test_a_client_without_the_key_sees_all_but_the_payload(client: DelayQ, without_keys: DelayQ, url: str) -> None:
    client.schedule("pay", DATA, delay="1h", id="a", encrypted=True)
    with DelayQ(settings=settings(url, OTHER)) as stranger:
        for reader, reason in ((without_keys, "no keys are set"), (stranger, "with the 1 key of this program")):
            info = reader.get("a")
            assert info is not None
            assert (info.name, info.state, info.result) == ("pay", "scheduled", None)
            with pytest.raises(NotDecrypted, match=reason) as refused:
                _ = info.data
            assert "DELAYQ_KEYS" in refused.value.hint
            assert reader.run_now("a").outcome in ("scheduled", "ready")
            assert reader.reschedule("a", delay="1h").outcome == "rescheduled"


def test_without_keys_nothing_is_sent(without_keys: DelayQ, server: redis.Redis) -> None:
    with pytest.raises(ConfigError, match="must be encrypted, but no keys are set"):
        without_keys.schedule("pay", DATA, encrypted=True)
    with pytest.raises(ConfigError, match="must be encrypted, but no keys are set"):
        without_keys.schedule_many([JobSpec("plain"), JobSpec("pay", DATA, encrypted=True)])
    with pytest.raises(InvalidInput, match=r"specs\[1\]: encrypted is 1\. Use True or False\."):
        without_keys.schedule_many([JobSpec("plain"), JobSpec("pay", DATA, encrypted=1)])  # type: ignore[arg-type]
    assert not server.keys("*")


def test_the_setting_encrypts_all_jobs_that_do_not_choose(url: str, server: redis.Redis) -> None:
    with DelayQ(settings=settings(url, KEY, encrypt=True)) as client:
        refs = client.schedule_many([JobSpec("a", DATA), JobSpec("b", DATA, encrypted=False)])
        infos = [ref.refresh() for ref in refs]
        assert [info and info.is_encrypted for info in infos] == [True, False]
        assert [info and info.data for info in infos] == [DATA, DATA]


@pytest.mark.parametrize("shards", [1, 4])
def test_conflicts_and_unique_keys(client: DelayQ, shards: int) -> None:
    client.queue_set(QUEUE, shards=shards)
    client.schedule("pay", DATA, delay="1h", id="a", encrypted=True)
    assert client.schedule("pay", {"iban": "FR76"}, id="a", encrypted=True).outcome == "kept"
    postponed = client.schedule("pay", {}, delay="2h", id="a", encrypted=True, on_conflict="postpone")
    assert (postponed.outcome, data_of(client, "a")) == ("postponed", DATA)
    replaced = client.schedule("pay", {"iban": "FR76"}, delay="1h", id="a", encrypted=True, on_conflict="replace")
    assert (replaced.outcome, data_of(client, "a")) == ("replaced", {"iban": "FR76"})
    unique = Unique(key=["iban"])
    owner = client.schedule("pay", DATA, delay="1h", unique=unique, encrypted=True)
    assert client.schedule("pay", {**DATA, "note": 1}, unique=unique, encrypted=True).id == owner.id
    assert client.schedule("pay", DATA, unique=unique).id == owner.id


def test_a_unique_key_may_change_the_id_in_a_queue_with_shards(client: DelayQ) -> None:
    client.queue_set(QUEUE, shards=8)
    for n in range(20):
        ref = client.schedule("pay", {"n": n}, delay="1h", unique=Unique(), encrypted=True)
        assert data_of(client, ref.id) == {"n": n}


def test_a_relay_needs_the_keys_for_such_a_job(client: DelayQ, caplog: pytest.LogCaptureFixture) -> None:
    client.queue_set(QUEUE, shards=8)
    session, with_keys = client._operations._session, Options(key_ring=KeyRing([KEY]))
    specs = [JobSpec("pay", {"n": n}, queue=QUEUE, unique=Unique(), encrypted=True) for n in range(20)]
    jobs = [job_of(link_of(spec, with_keys, 0), now_ms=0) for spec in specs]

    def send(options: Options) -> list[Step]:
        steps = [Step("1-0", 0, FollowUps()) for _ in jobs]
        for n, (step, job) in enumerate(zip(steps, jobs, strict=True)):
            step.add([job], f"token-{n}")
        drive(FollowUpSender(session.executor, session.keys, options, session.shards).send(steps))
        return steps

    waiting = [step for step in send(Options()) if not step.is_over]
    assert waiting and {step.again_in for step in waiting} == {WAIT_FOR_KEY}
    assert "job pay (queue money) is not sent: The payload of the job" in caplog.text
    assert len(list(client.iter_jobs("ready", queue=QUEUE))) == 20 - len(waiting)
    assert not [step for step in send(with_keys) if not step.is_over]
    datas = [job.data["n"] for job in client.iter_jobs("ready", queue=QUEUE)]
    assert sorted(datas) == list(range(20))


def test_a_retry_encrypts_the_new_payload(client: DelayQ, without_keys: DelayQ, server: redis.Redis, url: str) -> None:
    client.schedule("pay", DATA, delay="1h", id="a", encrypted=True)
    client.archive("a")
    before = dump(server)
    with pytest.raises(ConfigError, match="must be encrypted, but no keys are set"):
        without_keys.retry("a", data={"iban": "FR76"})
    assert dump(server) == before
    with DelayQ(settings=settings(url, OTHER, KEY)) as newer:
        newer.retry("a", data={"iban": "FR76"})
        assert "FR76" not in stored(server, "a")
        assert data_of(newer, "a") == {"iban": "FR76"}
    with pytest.raises(NotDecrypted):
        data_of(client, "a")
    client.archive("a")
    assert without_keys.retry("a").outcome == "scheduled"  # the payload stays as it is


def test_an_envelope_is_pushed_as_it_is(client: DelayQ, without_keys: DelayQ) -> None:
    client.schedule("pay", DATA, delay="1h", id="a", encrypted=True)
    raw = (without_keys.get("a") or pytest.fail()).raw
    without_keys.push_raw(raw, queue="other", delay="1h")
    info = client.get("a", queue="other")
    assert info is not None and info.data == DATA


def test_a_payload_of_another_job_is_detected(client: DelayQ, server: redis.Redis) -> None:
    client.schedule_many([JobSpec("pay", DATA, id=id, delay="1h", encrypted=True) for id in "ab"])
    moved = stored(server, "a").replace('"id":"a"', '"id":"b"')
    server.hset(f"delayq:{{{QUEUE}}}:jobs", "b", moved)
    with pytest.raises(UnreadableEnvelope, match=r"job 'b' \(pay\) was encrypted for another use: for the job 'a'"):
        data_of(client, "b")


def test_a_result_is_read_with_the_keys(client: DelayQ, without_keys: DelayQ, server: redis.Redis) -> None:
    ref = client.schedule("pay", DATA, delay="1h", id="a", encrypted=True)
    info = ref.refresh()
    assert info is not None
    ring = KeyRing([KEY])
    token = seal(ring, "result", msgspec.Raw(b'{"paid":true}'), job_id="a", name="pay")
    of_payload = msgspec.structs.replace(info, stored_result=msgspec.json.decode(info.envelope.data))  # type: ignore[union-attr]
    done = msgspec.structs.replace(info, stored_result=msgspec.json.decode(token))
    assert done.result == {"paid": True}
    with pytest.raises(UnreadableEnvelope, match="or not as a result"):
        _ = of_payload.result
    with pytest.raises(NotDecrypted, match=r"^The result of the job 'a' is encrypted, and no keys are set"):
        _ = msgspec.structs.replace(done, key_ring=None).result
    with pytest.raises(NotDecrypted):
        _ = msgspec.structs.replace(info, stored_result={"paid": False}).result
    assert info.envelope is not None and bytes(payload_of(info.envelope, ring)) == b'{"iban":"DE:02"}'


def data_of(client: DelayQ, job_id: str) -> Any:
    info = client.get(job_id)
    assert info is not None
    return info.data
