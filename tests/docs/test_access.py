"""The users of docs/protocol.md: each can do its work on a real server, nothing else, and is given nothing more."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import msgspec
import pytest
from redis.exceptions import NoPermissionError

from delayq.core.backoff import Fixed
from delayq.core.envelope import UNKNOWN_SINCE
from delayq.core.errors import ConfigError
from delayq.core.followups import Chain, Link, encode_chain
from delayq.core.options import Options
from delayq.core.outcome import Policy
from delayq.core.signals import Fail, Retry
from delayq.core.spec import Prepared
from delayq.core.states import OnConflict, State
from delayq.drivers.redis_streams import RedisStreams, RedisStreamsFactory
from delayq.jobs.function import job
from delayq.jobs.registry import Registry, using
from delayq.redis.calls import produce
from delayq.redis.calls.call import Scope
from delayq.redis.checkup import eviction_policy
from delayq.redis.client import Client
from delayq.redis.connect import Connector
from delayq.redis.send import through
from delayq.worker.options import StopReason, WorkerOptions
from delayq.worker.plan import Plan
from tests.consumers.programs import running
from tests.docs.pages import blocks, page, section
from tests.support.engine import envelope
from tests.support.flavours import Flavour
from tests.support.running import run
from tests.support.servers import LocalServer, OwnServer, connect
from tests.support.waiting import wait_until

ACCESS = section(page("docs/protocol.md"), "Access")
USERS = {block.text.split()[2]: " ".join(block.text.split()) for block in blocks(ACCESS) if block.language == "acl"}
CONSUMER = "consumers/plain_stream/consumer.py"

UserUrl = Callable[[str], str]


@pytest.fixture
def server(own_server: OwnServer, each_flavour: Flavour) -> LocalServer:
    """A server of its own with the users of the page."""
    server = own_server(flavour=each_flavour)
    with connect(server.url) as admin:
        for line in USERS.values():
            admin.execute_command(*line.replace("PASSWORD", "secret").split())
            admin.execute_command(*narrowed(line).replace("PASSWORD", "secret").split())
    return server


@pytest.fixture
def user_url(server: LocalServer) -> UserUrl:
    return lambda user: server.url.replace("unix://", f"unix://{user}:secret@")


@pytest.fixture
def connector(server: LocalServer) -> Iterator[Connector]:
    with closing(Connector(server.url)) as connector:
        yield connector


@pytest.fixture
def client(connector: Connector) -> Client:
    """For the test itself, as the user who may do anything."""
    return Client(connector, Options(queue="orders"))


def narrowed(line: str) -> str:
    """The same user for one queue, under another name, as the page says."""
    words = line.split()
    keys = "~delayq:{orders}:* ~delayq:queues" + (" ~delayq:worker*" if words[2] == "shop-worker" else "")
    assert keys.partition(" ~delayq:worker*")[0] in ACCESS
    return " ".join([*words[:2], f"{words[2]}-narrow", *words[3:]]).replace("~delayq:*", keys)


def test_the_page_has_the_users_that_are_tried_here() -> None:
    assert list(USERS) == ["shop-producer", "shop-worker", "shop-all", "shop-reader", "shop-acker"]


def test_nothing_but_what_is_sent_is_granted() -> None:
    """The page's lines are made from the scripts (see `access`); this holds a few of them against what people know."""
    granted = {user: set(line.split("-@all ")[1].split()) for user, line in USERS.items()}
    assert granted["shop-reader"] == {"+select", "+xreadgroup", "+xack", "+xclaim", "+hget"}
    assert "+xreadgroup" not in granted["shop-producer"]
    assert {"+xclaim", "+xgroup|delconsumer"} <= granted["shop-worker"]
    assert not {word for words in granted.values() for word in words if word.startswith(("+@", "+flush", "+config"))}


@pytest.mark.parametrize("user", ["shop-producer", "shop-producer-narrow"])
def test_a_producer(user_url: UserUrl, user: str) -> None:
    with closing(Connector(user_url(user))) as own:
        q = Client(own, Options(queue="orders"))
        q.schedule("order.close", {"order_id": 1}, id="o-1", delay="15m", unique="order:1")
        q.schedule("order.close", id="o-1", delay="20m", on_conflict="postpone")
        q.schedule("order.close", id="o-1", delay="25m", on_conflict="replace", retention="1h")
        q.reschedule("o-1", delay="30m")
        q.schedule("order.close", id="o-2")
        assert q.cancel("o-2") == "cancelled"
        assert q.run_now("o-1").state is State.READY
        assert q.cancel("o-1") == "cancelled"
        assert q.get("o-1") is None
    _forbidden(user_url(user), ["XREADGROUP", "GROUP", "delayq", "me", "STREAMS", "delayq:{orders}:stream", ">"])


@pytest.mark.parametrize("user", ["shop-worker", "shop-worker-narrow"])
def test_a_worker(client: Client, user_url: UserUrl, connector: Connector, user: str) -> None:
    client.schedule_many([{"name": f"order.{word}", "id": word} for word in ("close", "again", "lost")])
    client.schedule("order.odd", id="odd", headers={UNKNOWN_SINCE: "0"})  # unknown for more than an hour
    connector.commands().xadd("delayq:{orders}:stream", {"garbage": "yes"})
    with closing(Connector(user_url(user))) as own:
        assert eviction_policy(own) == "noeviction", "a worker looks before it starts"
        engine = Options(queue="orders")
        driver = RedisStreams(own, engine)
        fallback = Policy(tries=2, backoff=Fixed(0))
        with using(Registry()) as registry:
            register_handlers()
            options = WorkerOptions(queues=("orders",), fallback=fallback, stop_when_empty=True, tidy_every_ms=100)
            plan = Plan(RedisStreamsFactory(user_url(user), engine), registry, options)
            # More than one run: a job may become ready between a worker's last look and its end.
            wait_until(
                lambda: run(plan) is StopReason.EMPTY and given_up(client) == {"lost", "odd"},
                timeout=20.0,
                what="all jobs are done or given up",
            )
        connector.commands().hset("delayq:{orders}:jobs", "stray", b'{"v":1}')
        assert driver.tidy("orders").mended == 1
        driver.reclaim("orders")
    [stats] = client.stats("orders")
    assert (stats.counters["acked_total"], stats.failed, stats.scheduled) == (2, 3, 1)
    client.clear()
    _forbidden(user_url(user), ["FLUSHALL"], ["KEYS", "*"], ["CONFIG", "GET", "*"], ["GET", "other"])


def given_up(client: Client) -> set[str]:
    """The jobs that failed; garbage, which is kept as failed too, left out."""
    return {job.id for job in client.iter_jobs("failed") if not job.id.startswith("x-")}


def holder_of(client: Client, job_id: str) -> str:
    """The consumer that has it pending; '' for none."""
    job = client.get(job_id)
    return job.consumer if job else ""


def register_handlers() -> None:
    """For `using`: done, tried again, given up; nobody answers to order.odd."""

    @job("order.close", retention="1h")
    def close() -> None:
        """Nothing to do."""

    @job("order.again")
    def again() -> None:
        if not seen:
            seen.append("once")
            raise Retry("0s")

    @job("order.lost")
    def lost() -> None:
        raise Fail("no such order")

    seen: list[str] = []


@pytest.mark.parametrize(("user", "settle"), [("shop-reader", "xack"), ("shop-acker", "ack")])
def test_a_plain_consumer(
    client: Client, connector: Connector, user_url: UserUrl, tmp_path: Path, user: str, settle: str
) -> None:
    client.schedule("order.close", {"order_id": 1}, id="o-1")
    command = [CONSUMER, "--url", user_url(user), "--queue", "orders", "--name", "plain", "--settle", settle]
    with running(command, tmp_path) as consumer:
        consumer.wait_for_ids("o-1")
        wait_until(lambda: not holder_of(client, "o-1"), what="it is acknowledged")
        assert consumer.complaints == ""
    RedisStreams(connector, client.options).tidy("orders")
    assert client.get("o-1") is None
    writes = ["XADD", "delayq:{orders}:stream", "*", "id", "x"] if settle == "xack" else ["DEL", "delayq:{orders}:jobs"]
    _forbidden(user_url(user), writes, ["HSET", "delayq:{mail}:jobs", "a", "b"])


def test_a_plain_consumer_with_ack_lua_leaves_what_follows(
    client: Client, connector: Connector, user_url: UserUrl, tmp_path: Path
) -> None:
    chain = Chain(id="c", next=[Link(job=msgspec.Raw(envelope("o-2")))])
    first = Prepared("o-1", envelope("o-1", chain=encode_chain(chain)), "+0", "", "order.close", "orders", True)
    through(connector, produce.schedule(Scope(client.options, "orders"), [first], OnConflict.KEEP, "t"))
    command = [CONSUMER, "--url", user_url("shop-acker"), "--queue", "orders", "--name", "plain", "--settle", "ack"]
    with running(command, tmp_path) as consumer:
        wait_until(lambda: client.get("o-1") is None, what="the first link is settled")
        assert consumer.complaints == ""
        RedisStreams(connector, client.options).relay("orders")
        consumer.wait_for_ids("o-1", "o-2")


def test_what_is_not_granted_is_said_in_one_sentence(user_url: UserUrl) -> None:
    with closing(Connector(user_url("shop-reader"))) as own, pytest.raises(ConfigError):
        Client(own, Options(queue="orders")).schedule("order.close")


def _forbidden(url: str, *commands: list[str]) -> None:
    with connect(url) as plain:
        for words in commands:
            with pytest.raises(NoPermissionError):
                plain.execute_command(*words)
