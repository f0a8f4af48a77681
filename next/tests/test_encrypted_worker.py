"""Encrypted jobs in a real worker."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import redis
from pydantic import SecretStr

from delayq import DelayQ, JobHasFailed, JobRef, Manager, NotDecrypted, Settings, batch, chain, set_manager
from delayq.core.encryption import new_key
from delayq.core.errors import UnreadableEnvelope
from delayq.jobs.dispatch import Sendable, _by_name
from tests.support.dump import dump
from tests.support.topologies import lines
from tests.support.waiting import wait_until
from tests.support.workers import Start, start_fixture, workers_of

pytestmark = pytest.mark.processes

APP = """
import os
from delayq import JobContext, job

log = os.open("log", os.O_WRONLY | os.O_APPEND | os.O_CREAT)

@job("pay", queue="q", encrypted=True, retention="1h", tries=2, backoff="100ms")
def pay(context: JobContext, iban: str, fails: bool = False) -> dict[str, str]:
    os.write(log, f"{iban} {context.attempt}\\n".encode())
    if fails and context.attempt == 1:
        raise ValueError("bank closed")
    return {"paid": iban}

@job("apay", queue="q", encrypted=True, retention="1h")
async def apay(iban: str) -> dict[str, str]:
    return {"paid": iban}

@job("grow", queue="q")
def grow(context: JobContext) -> None:
    context.chain.append(pay.job(iban="DE:last"))
"""

KEY, NEWER, OTHER = new_key(), new_key(), new_key()


@pytest.fixture
def client(url: str, server: redis.Redis) -> Iterator[DelayQ]:
    manager = Manager(Settings(url=SecretStr(url), queue="q", keys=SecretStr(KEY)))
    set_manager(manager)
    yield manager.connection().client
    set_manager(None)
    manager.close()


start = start_fixture(APP, DELAYQ_KEYS=f"{NEWER},{KEY}")


@pytest.mark.parametrize("words", [["pay"], ["pay", "--threads", "2"], ["apay"]], ids=["inline", "threads", "loop"])
def test_payload_and_result_are_encrypted(
    client: DelayQ, start: Start, server: redis.Redis, url: str, words: list[str]
) -> None:
    name, *options = words
    ref = client.schedule(name, {"iban": "DE:02"}, encrypted=True)
    assert "DE:02" not in repr(dump(server))
    start(*options)
    with pytest.raises(NotDecrypted, match="The result of the job"):  # the worker encrypts with its newer key
        ref.result(timeout="30s")
    assert "DE:02" not in repr(dump(server))
    with DelayQ(settings=Settings(url=SecretStr(url), queue="q", keys=SecretStr(NEWER))) as newer:
        found = newer.get(ref.id)
        assert found is not None
        assert found.result == JobRef(newer, ref.id, "q", "ready", None, "created").result() == {"paid": "DE:02"}
        with pytest.raises(NotDecrypted, match="The payload of the job"):
            _ = found.data


def test_a_retried_attempt_reads_the_same_payload(client: DelayQ, start: Start, tmp_path: Path) -> None:
    start()
    ref = client.schedule("pay", {"iban": "DE:02", "fails": True}, encrypted=True)
    wait_until(lambda: lines(tmp_path / "log") == ["DE:02 1", "DE:02 2"])
    info = ref.wait("30s")
    assert info is not None and info.state == "completed"


def test_a_payload_that_no_key_decrypts_is_retried_and_runs_with_the_key(
    client: DelayQ, url: str, tmp_path: Path
) -> None:
    ref = client.schedule("pay", {"iban": "DE:02"}, encrypted=True, tries=3, backoff="1s")
    with workers_of(APP, tmp_path, url, DELAYQ_KEYS=OTHER) as start:
        start()
        wait_until(lambda: bool((info := ref.refresh()) and info.attempts))
    info = ref.refresh()
    assert info is not None and info.failure is not None
    assert info.failure.type.endswith("NotDecrypted")
    assert "cannot be decrypted with the 1 key of this program" in info.failure.message
    assert not lines(tmp_path / "log")
    with workers_of(APP, tmp_path, url, DELAYQ_KEYS=KEY) as start:
        start()
        assert ref.result(timeout="30s") == {"paid": "DE:02"}


def test_after_its_tries_a_job_without_key_fails_and_can_be_retried(client: DelayQ, start: Start, url: str) -> None:
    start()
    with DelayQ(settings=Settings(url=SecretStr(url), queue="q", keys=SecretStr(OTHER))) as stranger:
        ref = stranger.schedule("pay", {"iban": "DE:02"}, encrypted=True, tries=2, backoff="0s")
        with pytest.raises(JobHasFailed, match="NotDecrypted"):
            ref.result(timeout="30s")
        info = ref.refresh()
        assert info is not None and info.attempts == 2
    client.retry(ref.id, data={"iban": "DE:03"})
    info = client.wait(ref.id, timeout="30s")
    assert info is not None and info.state == "completed"


def test_a_payload_of_another_job_fails_at_once(
    client: DelayQ, start: Start, server: redis.Redis, tmp_path: Path
) -> None:
    one, other = (client.schedule("pay", {"iban": n}, delay="1h", encrypted=True) for n in ("DE:01", "DE:02"))
    jobs: Any = server.hgetall("delayq:{q}:jobs")
    swapped = str(jobs[one.id]).replace(f'"id":"{one.id}"', f'"id":"{other.id}"')
    server.hset("delayq:{q}:jobs", other.id, swapped)
    start()
    client.run_now(other.id)
    with pytest.raises(JobHasFailed, match="was encrypted for another use"):
        other.result(timeout="30s")
    assert not lines(tmp_path / "log")
    info = client.get(other.id)
    assert info is not None and info.failure is not None
    assert info.failure.type.endswith(UnreadableEnvelope.__name__)


def test_chains_and_batches(client: DelayQ, start: Start, server: redis.Redis, tmp_path: Path) -> None:
    def pay(iban: str) -> Sendable:
        return _by_name("pay", {"iban": iban})

    hidden = [pay(f"DE:{n}")._with(encrypted=True, queue="q") for n in range(4)]
    chain(hidden[0], _by_name("grow", {})._with(queue="q"), batch(hidden[1:3], then=hidden[3])).dispatch()
    assert "DE:" not in repr(dump(server))
    start()
    wait_until(lambda: len(lines(tmp_path / "log")) == 5)
    ran = lines(tmp_path / "log")
    assert (ran[0], set(ran[1:3])) == ("DE:0 1", {"DE:1 1", "DE:2 1"})
    assert set(ran[3:]) == {"DE:3 1", "DE:last 1"}
    assert "DE:" not in repr(dump(server))
