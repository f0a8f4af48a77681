"""Producers that wait until a job is as safe as they asked. The tests start the replica, or the AOF, themselves."""

import socket
from collections.abc import Callable
from typing import Any

import pytest
import redis

from delayq import DelayQ, FoundElsewhere, JobNotFound, JobRef, JobSpec, NotConfirmed, Settings
from delayq.redis import session
from tests.support.servers import private_server, version_of
from tests.support.waiting import wait_until


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wait 50 ms for a confirmation that does not come."""
    monkeypatch.setattr(session, "CONFIRM_MS", 50)


def client_of(url: str, durability: str) -> DelayQ:
    return DelayQ(settings=Settings(url=url, prefix="test", durability=durability))  # type: ignore[arg-type]


def free_port() -> str:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return str(probe.getsockname()[1])


def test_a_replica_confirms_what_is_stored() -> None:
    port = free_port()  # a replica does not follow a unix socket
    options = ["--port", port, "--bind", "127.0.0.1", "--repl-diskless-sync-delay", "0"]
    with private_server(options) as url, private_server() as replica_url, client_of(url, "replicas:1") as client:
        replica = redis.Redis.from_url(replica_url, decode_responses=True)
        replica.replicaof("127.0.0.1", port)
        wait_until(lambda: replica.info("replication")["master_link_status"] == "up")
        assert client.schedule("n", id="one", queue="orders", delay="1h").outcome == "created"
        assert replica.zcard("test:{orders}:scheduled") == 1
        assert client.schedule("n", id="one", queue="orders", delay="1h").outcome == "kept"
        assert client.cancel("one", queue="orders") == "cancelled"
        replica.close()


def test_without_a_replica_a_job_is_stored_and_not_confirmed(url: str, server: redis.Redis, impatient: None) -> None:
    with client_of(url, "replicas:1") as client:
        with pytest.raises(NotConfirmed, match=r"did not confirm that it is durable: 0 of 1 replicas") as error:
            client.schedule("n", queue="orders", delay="1h")
        (ref,) = error.value.done
        assert (ref.outcome, ref.refresh().state) == ("created", "scheduled")


def test_what_is_not_confirmed_holds_what_the_operation_returns(url: str, server: redis.Redis, impatient: None) -> None:
    with DelayQ(url, prefix="test") as setup:
        setup.schedule_many([JobSpec(name="n", id=id, queue="orders", delay="1h") for id in ("a", "b", "c")])
        setup.archive("b", queue="orders")
        setup.archive("c", queue="orders")

    def done(operation: Callable[[DelayQ], Any]) -> Any:
        with client_of(url, "replicas:1") as client, pytest.raises(NotConfirmed) as error:
            operation(client)
        (value,) = error.value.done
        return value

    ref = done(lambda client: client.reschedule("a", queue="orders", delay="2h"))
    assert (type(ref), ref.id, ref.outcome) == (JobRef, "a", "rescheduled")
    ref = done(lambda client: client.run_now("a", queue="orders"))
    assert (type(ref), ref.id, ref.state) == (JobRef, "a", "ready")
    ref = done(lambda client: client.retry("b", queue="orders"))
    assert (type(ref), ref.id, ref.outcome, ref.name) == (JobRef, "b", "scheduled", "n")
    assert done(lambda client: client.cancel("b", queue="orders")) == "cancelled"
    assert done(lambda client: client.forget(["c", "x"], queue="orders")) == ["forgotten", "unknown"]
    assert done(lambda client: client.queue_set("orders", lease="2m")).lease_ms == 120_000


def test_all_trips_are_sent_before_jobs_are_told_as_unconfirmed(url: str, server: redis.Redis, impatient: None) -> None:
    specs = [JobSpec(name="n", id=f"{n}", queue=queue, delay="1h") for n, queue in enumerate("aba")]
    with client_of(url, "replicas:1") as client, pytest.raises(NotConfirmed) as error:
        client.schedule_many(specs)
    assert [(ref.id, ref.queue, ref.outcome) for ref in error.value.done] == [
        ("0", "a", "created"),
        ("1", "b", "created"),
        ("2", "a", "created"),
    ]


def test_what_was_refused_is_not_unconfirmed(url: str, server: redis.Redis, impatient: None) -> None:
    with client_of(url, "replicas:1") as client:
        with pytest.raises(JobNotFound):
            client.reschedule("a", queue="orders", delay="2h")
        with pytest.raises(FoundElsewhere), DelayQ(url, prefix="test") as setup:
            setup.schedule("n", id="a", queue="orders", delay="1h")
            client.cancel("a")


def test_an_aof_confirms_what_is_stored() -> None:
    with private_server(["--appendonly", "yes", "--appendfsync", "always"]) as url:
        with redis.Redis.from_url(url) as server:
            if version_of(server) < (7, 2):
                pytest.skip("this server has no WAITAOF")
        with client_of(url, "fsync") as client:
            assert client.schedule("n", queue="orders", delay="1h").outcome == "created"


def test_a_server_without_an_aof_stores_the_job_and_confirms_nothing(url: str, server: redis.Redis) -> None:
    with client_of(url, "fsync") as client:
        with pytest.raises(NotConfirmed, match="made the change, but did not confirm that it is durable") as error:
            client.schedule("n", id="one", queue="orders", delay="1h")
        (ref,) = error.value.done
        assert ref.id == "one"
        assert client.queues() == ["orders"]
