"""Programs with exactly the Redis users of docs/redis.md, on one server and on a cluster.

A user can do all of its work: afterwards, the server has logged no refusal, not even one that delayq tolerates. And it
can do nothing else: the server refuses every other command, and every other key and channel.
"""

import os
import re
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, suppress
from pathlib import Path
from typing import Any, Final

import pytest
import redis
from redis.exceptions import MovedError, ResponseError
from typer.testing import CliRunner, Result

from delayq import BatchInfo, DelayQ, FoundElsewhere, JobRef
from delayq.backends.values import Acked, Failed, Released
from delayq.cli import main as cli
from delayq.core.chain import BatchPlan, Chain, Link, link_of
from delayq.core.errors import CallRefused, LoginRefused
from delayq.core.job_spec import JobSpec
from delayq.core.options import Options
from delayq.redis import repair
from delayq.redis.backend import RedisBackend
from delayq.redis.calls import delivery
from delayq.redis.calls.call import Call
from delayq.redis.connection.errors import code_of
from delayq.redis.connection.factory import make_executor, parse_address
from delayq.redis.connection.leaf import drive
from delayq.redis.keys import Keys
from delayq.settings.model import load_settings
from tests.consumers.programs import CONSUMERS, Programs
from tests.docs import acl_lines
from tests.docs.acl_lines import USERS
from tests.docs.pages import DOCS
from tests.support.dump import dump
from tests.support.servers import private_server, version_of
from tests.support.topologies import cluster_group, sentinel_group
from tests.support.waiting import wait_until
from tests.support.workers import end_worker

pytestmark = pytest.mark.processes

ROOT = Path(__file__).parents[2]

QUEUES = ("orders", "mail", "parcels", "bills")
"""On a cluster, each primary has some of them."""

OPEN_TO_ALL = {"auth", "hello", "quit", "reset"}
"""Commands that Redis permits before the login."""

APP = """
import os, time
from delayq import Concurrency, Fail, JobContext, RateLimit, RateLimited, batch, job

@job("done", retention="1h")
def done(context: JobContext) -> str:
    context.progress(1, 2, "half")
    time.sleep(0.3)
    return "result"

@job("flaky", tries=3, backoff="100ms", retention="1h")
def flaky(context: JobContext) -> None:
    if context.attempt == 1:
        raise ValueError("first attempt")

LIMITS = [Concurrency("few", 20), RateLimited("slow", RateLimit.per_day(40))]  # a crash costs a place and a token

@job("limited", retention="1h", middleware=LIMITS)
def limited() -> None: ...

@job("hopeless", tries=1)
def hopeless() -> None:
    raise Fail("no")

@job("crash", retention="1h")
def crash(context: JobContext) -> None:
    if not context.recoveries:
        os._exit(1)

@job("slow", timeout="60s")
def slow() -> None:
    while True:
        time.sleep(0.01)

@job("late", timeout="100ms", tries=1)
def late() -> None:
    time.sleep(60)

@job("parent", retention="1h")
def parent() -> None:
    done.job().dispatch(queue="mail", id="child")
    batch([done.job().on_queue("mail")], id="of-handler").dispatch()
"""


class Place:
    """Servers with the users of the page. `url`: their address, with a `{}` for user and password."""

    def __init__(self, url: str, servers: list[redis.Redis], extra: list[str]) -> None:
        self._url = url
        self.servers = servers
        for user in USERS:
            for server in servers:
                server.execute_command(*user.words, *extra)
        self.extra = {rule[1:] for rule in extra}

    @property
    def is_cluster(self) -> bool:
        return len(self.servers) > 1

    def url(self, user: str = "") -> str:
        return self._url.replace("{}", f"{user}:PASSWORD@" if user else "")

    def primaries(self) -> list[redis.Redis]:
        about: list[Any] = [server.info("replication") for server in self.servers]
        return [server for server, one in zip(self.servers, about, strict=True) if one["role"] == "master"]

    def owner(self, queue: str) -> Any:
        """Return a client of the primary that has the keys of a queue."""
        for server in self.primaries():
            with suppress(MovedError):
                server.exists(f"delayq:{{{queue}}}:meta")
                return server
        raise AssertionError(queue)

    def empty(self) -> None:
        for server in self.primaries():
            server.flushall()
        for server in self.servers:
            server.acl_log_reset()

    def refusals(self) -> list[tuple[str, str]]:
        """Return the user and the object of each refusal since `empty`."""
        logs: list[Any] = [row for server in self.servers for row in server.acl_log()]
        return [(row["username"], row["object"]) for row in logs]


@pytest.fixture(scope="module", params=["server", "cluster"])
def places(request: pytest.FixtureRequest) -> Iterator[Place]:
    extras = acl_lines.additions()
    if request.param == "server":
        port = free_port()
        with private_server(["--appendonly", "yes", "--port", str(port), "--bind", "127.0.0.1"]):
            server = redis.Redis(port=port, decode_responses=True, protocol=2)
            can_fsync = version_of(server) >= (7, 2)
            extra = extras["`DELAYQ_DURABILITY=fsync`"] if can_fsync else []
            yield Place(f"redis://{{}}127.0.0.1:{port}/0", [server], extra)
            server.close()
        return
    with cluster_group() as group:
        clients = [redis.Redis(port=one.port, decode_responses=True, protocol=2) for one in group.servers]
        extra = [*extras["Redis Cluster"], *extras["`DELAYQ_DURABILITY=replicas:N`"]]
        yield Place(group.url.replace("://", "://{}"), clients, extra)
        for client in clients:
            client.close()


@pytest.fixture
def place(places: Place) -> Iterator[Place]:
    places.empty()
    yield places
    places.empty()


@pytest.fixture
def admin(place: Place) -> Iterator[DelayQ]:
    """A client of the user `default`, who may do everything."""
    with DelayQ(place.url(), queue="orders") as client:
        yield client


@pytest.fixture
def client_of(place: Place) -> Iterator[Callable[[str], DelayQ]]:
    made: list[DelayQ] = []

    def client_of(user: str) -> DelayQ:
        made.append(DelayQ(place.url(user), queue="orders"))
        return made[-1]

    yield client_of
    for client in made:
        client.close()


@pytest.fixture
def run(place: Place, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Result]:
    """Run a command as a user; it must succeed."""

    def run(user: str, *words: str) -> Result:
        monkeypatch.setenv("DELAYQ_URL", place.url(user))
        result = CliRunner().invoke(cli.app, words)
        assert result.exit_code == 0, (words, result.output, result.stderr, result.exception)
        return result

    return run


@pytest.fixture
def worker(place: Place, tmp_path: Path) -> Iterator["subprocess.Popen[bytes]"]:
    (tmp_path / "app.py").write_text(APP)
    environment = {
        **os.environ,
        "PYTHONPATH": str(ROOT),
        "DELAYQ_URL": place.url("delayq-worker"),
        "DELAYQ_LEASE": "1s",
        "DELAYQ_TIDY_EVERY": "300ms",
    }
    words = [sys.executable, "-m", "delayq", "work", "--app", "app", "--processes", "2", "--queue", ",".join(QUEUES)]
    with (tmp_path / "log").open("wb") as log:
        process = subprocess.Popen(words, cwd=tmp_path, env=environment, stderr=log)
    yield process
    end_worker(process)


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as found:
        port: int = found.getsockname()[1]
        return port


def port_of(server: redis.Redis) -> int:
    port: int = server.connection_pool.connection_kwargs["port"]
    return port


def raw_of(place: Place, user: str) -> redis.Redis:
    """Return a plain client of a user, on the server with the queue `orders`."""
    port = port_of(place.owner("orders"))
    return redis.Redis(port=port, username=user, password="PASSWORD", decode_responses=True, protocol=2)


def announce_worker(place: Place) -> None:
    """Put a worker on the list of workers."""
    registry = RedisBackend(load_settings(url=place.url())).worker_registry()
    registry.announce({"dq:host:1:abc": {"queues": ["orders"]}}, int(time.time() * 1000))


def send(client: redis.Redis, *words: str) -> Any:
    """Send a command, and return its reply as the server gave it."""
    connection = client.connection_pool.get_connection()
    try:
        connection.send_command(*words)
        return connection.read_response()
    finally:
        client.connection_pool.release(connection)


def link(queue: str, job_id: str | None = None) -> Link:
    return link_of(JobSpec(name="job", queue=queue, delay="1h"), Options(), 0, job_id=job_id)


def send_batch(client: DelayQ, batch_id: str) -> BatchInfo:
    members = [Chain([link(queue, job_id=f"{batch_id}.{n}")]) for n, queue in enumerate(QUEUES)]
    return client.batches.send(BatchPlan(batch_id, members=members))


def state_of(client: DelayQ, queue: str, job_id: str) -> str:
    info = client.get(job_id, queue=queue)
    return info.state if info else "absent"


def test_a_producer_can_do_its_work(place: Place, admin: DelayQ, client_of: Callable[[str], DelayQ]) -> None:
    producer = client_of("delayq-producer")
    for queue in QUEUES:
        assert producer.schedule("job", id="a", queue=queue, delay="1h").outcome == "created"
        assert producer.schedule("job", id="a", queue=queue, delay="2h").outcome == "kept"
        for conflict, outcome in (("replace", "replaced"), ("postpone", "postponed")):
            ref = producer.schedule("job", id="a", queue=queue, delay="1h", on_conflict=conflict)  # type: ignore[arg-type]
            assert ref.outcome == outcome
        producer.schedule_many([JobSpec(name="job", id=f"many-{n}", queue=queue) for n in range(3)])
        assert producer.schedule("job", id="soon", queue=queue, on_conflict="error", retention="1h").state == "ready"
        ref = producer.schedule("job", id="later", queue=queue, delay="1h")
        ref.reschedule(delay="2h")
        ref.run_now()
        assert producer.cancel("many-0", queue=queue) == "cancelled"
        assert producer.cancel("a", queue=queue) == "cancelled"
        assert producer.cancel("a", queue=queue) == "unknown"
        with pytest.raises(TimeoutError):
            producer.wait("later", queue=queue, timeout="10ms")
    first = producer.send_chain(Chain([link("orders"), link("mail")]))
    assert isinstance(first, JobRef) and first.cancel() == "cancelled"
    assert send_batch(producer, "b1").pending == len(QUEUES)
    assert producer.batches.cancel("b1").is_cancelled
    producer.schedule("job", id="only", queue="mail", delay="1h")
    with pytest.raises(FoundElsewhere):
        producer.get("only")
    assert place.refusals() == []
    assert sorted(admin.queues()) == sorted(QUEUES)


def test_a_lost_stream_is_created_again(place: Place, admin: DelayQ, client_of: Callable[[str], DelayQ]) -> None:
    for user in ("delayq-producer", "delayq-operator"):
        for queue in QUEUES:
            admin.schedule("job", id="a", queue=queue)
            place.owner(queue).delete(f"delayq:{{{queue}}}:stream")
            assert client_of(user).schedule("job", id=user, queue=queue).outcome == "created"
    assert place.refusals() == []


def test_messages_of_a_producer_arrive(place: Place, client_of: Callable[[str], DelayQ]) -> None:
    producer = client_of("delayq-producer")
    with closing(place.servers[-1].pubsub()) as heard:
        heard.subscribe("delayq:wake", "delayq:cancel")
        wait_until(lambda: (heard.get_message(timeout=1) or {}).get("data") == 2)
        producer.schedule("job", id="a", queue="mail", delay="1h")
        wait_until(lambda: (heard.get_message(timeout=1) or {}).get("channel") == "delayq:wake")
        producer.schedule("job", id="b", queue="mail")
        place.owner("mail").xreadgroup("delayq", "plain", {"delayq:{mail}:stream": ">"})
        assert producer.cancel("b", queue="mail", running=True) == "running"
        wait_until(lambda: (heard.get_message(timeout=1) or {}).get("channel") == "delayq:cancel")
    assert place.refusals() == []


def test_a_producer_can_wait_for_durability(place: Place) -> None:
    durability = "replicas:1" if place.is_cluster else "fsync"
    if not place.is_cluster and version_of(place.servers[0]) < (7, 2):
        pytest.skip("this server has no WAITAOF")
    settings = load_settings(url=place.url("delayq-producer"), durability=durability, queue="orders")
    with DelayQ(settings=settings) as producer:
        assert producer.schedule("job", id="a", delay="1h").outcome == "created"
        assert producer.cancel("a") == "cancelled"
    assert place.refusals() == []


def test_a_worker_can_do_its_work(
    place: Place, admin: DelayQ, worker: "subprocess.Popen[bytes]", client_of: Callable[[str], DelayQ], tmp_path: Path
) -> None:
    producer = client_of("delayq-producer")
    with_retention = ("done", "flaky", "crash", "parent", "limited")
    for queue in QUEUES:
        for name in (*with_retention, "hopeless", "late"):
            producer.schedule(name, id=name, queue=queue, delay="10ms", retention=None)
        producer.schedule("done", {"chain": 1}, id="odd", queue=queue, tries=1)
    slow = producer.schedule("slow", id="slow", queue="parcels")
    wait_until(lambda: "slow" in [row["id"] for one in admin.workers() for row in one.about["running"]])
    assert slow.cancel(running=True) == "running"
    wait_until(lambda: admin.get("slow", queue="parcels") is None)
    for queue in QUEUES:
        for name in with_retention:
            info = producer.wait(name, queue=queue, timeout="30s")
            assert info is not None and info.state == "completed", (queue, name, (tmp_path / "log").read_text())
        for name in ("hopeless", "late"):
            assert (info := producer.wait(name, queue=queue, timeout="30s")) and info.state == "failed", (queue, name)
    assert (info := producer.wait("child", queue="mail", timeout="20s")) and info.result == "result"
    wait_until(lambda: (info := admin.batches.get("of-handler")) is not None and info.state == "finished")
    wait_until(admin.workers)
    worker.terminate()
    assert worker.wait(timeout=30) == 0
    assert admin.workers() == []
    assert place.refusals() == []
    assert "NOPERM" not in (tmp_path / "log").read_text()


def test_a_worker_that_ends_when_its_queues_are_empty(place: Place, admin: DelayQ, tmp_path: Path) -> None:
    (tmp_path / "app.py").write_text(APP)
    admin.schedule("parent", id="parent", delay="100ms")
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "DELAYQ_URL": place.url("delayq-worker")}
    words = [sys.executable, "-m", "delayq", "work", "--app", "app", "--queue", "orders,mail", "--stop-when-empty"]
    subprocess.run(words, cwd=tmp_path, env=environment, check=True, timeout=30)
    assert state_of(admin, "mail", "child") == "completed"
    assert place.refusals() == []


def test_a_mover_repairs_all_damage(place: Place, admin: DelayQ, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(repair, "MIN_IDLE_MS", 0)
    keeper = RedisBackend(load_settings(url=place.url("delayq-worker"), lease="100ms")).queue_keeper(
        [], name="dq:a:1:b"
    )
    for queue in QUEUES:
        keys = {role: f"delayq:{{{queue}}}:{role}" for role in ("stream", "entries", "jobs", "unique")}
        owner = place.owner(queue)
        keeper.repair(queue)  # creates the queue with a short lease
        for n in range(6):
            admin.schedule("job", id=f"j{n}", queue=queue, retention="1ms" if n == 5 else None)
        admin.schedule("job", {"chain": [1]}, id="chained", queue=queue)
        keeper.repair(queue)
        owner.xreadgroup("delayq", "dq:host:1:abc", {keys["stream"]: ">"}, count=2)
        owner.xreadgroup("delayq", "plain", {keys["stream"]: ">"}, count=2)
        owner.xack(keys["stream"], "delayq", owner.hget(keys["entries"], "j2"))  # a plain acknowledgement
        keeper.repair(queue)
        wait_until(lambda: keeper.reclaim(queue).reclaimed)  # noqa: B023
        owner.hdel(keys["entries"], "j4")  # an entry without a job
        owner.hdel(keys["jobs"], "j1")  # a job without an envelope
        owner.xadd(keys["stream"], {"foreign": "entry"})
        owner.hset(keys["unique"], "w.1", "j5")
        keeper.repair(queue)
        owner.xgroup_destroy(keys["stream"], "delayq")
        keeper.repair(queue)
        owner.delete(keys["stream"])
        keeper.repair(queue)
        keeper.promote(queue)
        keeper.follow_up(queue)
        assert keeper.repair(queue).mended == 0
        owner.xgroup_createconsumer(keys["stream"], "delayq", "dq:gone:1:abc")
        wait_until(lambda: keeper.repair(queue) and not owner.xinfo_consumers(keys["stream"], "delayq"))  # noqa: B023
    assert sorted(keeper.queues()) == sorted(QUEUES)
    assert place.refusals() == []


def test_the_health_check_of_the_image_works_with_the_user_of_a_worker(
    place: Place, admin: DelayQ, run: Callable[..., Result]
) -> None:
    admin.schedule("job", delay="1h")
    run("delayq-worker", "-q", "stats")
    assert place.refusals() == []


def test_an_operator_can_use_each_family_of_commands(
    place: Place, run: Callable[..., Result], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "users_app.py").write_text('from delayq import job\n\n\n@job("job")\ndef handle() -> None: ...\n')
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])

    def command(*words: str) -> str:
        return run("delayq-operator", *words).stdout

    for n, queue in enumerate(QUEUES):
        command("schedule", "job", "--id", f"a{n}", "--queue", queue, "--in", "1h")
        command("schedule", "job", "--id", f"b{n}", "--queue", queue, "--in", "1h")
        command("reschedule", f"a{n}", "--queue", queue, "--in", "2h")
        command("run-now", f"a{n}", "--queue", queue)
        command("show", f"a{n}", "--queue", queue)
        command("why", f"a{n}", "--queue", queue)
        for state in ("scheduled", "ready", "reserved", "failed", "completed"):
            command("list", "--state", state, "--queue", queue)
        command("upcoming", "--queue", queue)
        command("archive", f"a{n}", "--queue", queue)
        command("failed", "retry", f"a{n}", "--here", "--app", "users_app")
        command("schedule", "job", "--id", f"a{n}", "--queue", queue, "--in", "1h")
        command("archive", f"a{n}", "--queue", queue)
        command("archive", f"b{n}", "--queue", queue)
        for words in (("list",), ("groups",), ("show", f"a{n}"), ("retry", f"a{n}"), ("forget", f"b{n}", "--yes")):
            command("failed", *words)
        command("cancel", f"a{n}", "--queue", queue)
        command("pause", queue)
        command("resume", queue)
        command("schedule", "job", "--id", f"c{n}", "--queue", queue, "--in", "1h")
        command("clear", "--queue", queue, "--yes")
        command("queue", "set", queue, "--lease", "20s")
        command("queue", "show", queue)
        command("stats", "--days", "7", "--queue", queue)
        command("schedule", "job", "--id", f"d{n}", "--queue", queue, "--in", "1h")
        command("archive", f"d{n}", "--queue", queue)
    command("stats")
    command("failed", "prune", "--older", "1d", "--yes")
    command("failed", "flush", "--yes")
    command("pause", "--all")
    command("resume", "--all")
    command("schedule", "job", "--id", "running", "--queue", "spare")
    place.owner("spare").xreadgroup("delayq", "plain", {"delayq:{spare}:stream": ">"})
    monkeypatch.setenv("DELAYQ_URL", place.url("delayq-operator"))
    assert CliRunner().invoke(cli.app, ["cancel", "running", "--queue", "spare", "--running"]).exit_code == 0
    place.owner("spare").xgroup_delconsumer("delayq:{spare}:stream", "delayq", "plain")
    announce_worker(place)
    assert "orders" in command("workers")
    command("restart")
    command("pause", "--all", "--wait", "1s")
    command("resume", "--all")
    command("maintenance", "on")
    command("maintenance", "off")
    command("config", "show")
    for queue in QUEUES:
        command("queue", "remove", queue)
    assert place.refusals() == []


def test_an_operator_can_use_the_commands_of_batches(
    place: Place, run: Callable[..., Result], client_of: Callable[[str], DelayQ]
) -> None:
    send_batch(client_of("delayq-operator"), "b1")
    for words in (("list",), ("show", "b1"), ("retry", "b1"), ("cancel", "b1", "--yes")):
        run("delayq-operator", "batch", *words)


def test_an_operator_can_free_places(place: Place, admin: DelayQ, run: Callable[..., Result]) -> None:
    names = ("few", "mail", "three")
    for name in names:
        admin.limits.acquire(name, 1, holder="orders a", expire_ms=60_000)
        assert run("delayq-operator", "limit", "free", name).stdout == f"{name}  1 place freed\n"
    assert len(run("delayq-operator", "limit", "list").stdout.splitlines()) == 1 + len(names)
    assert place.refusals() == []


def test_a_reader_can_read(place: Place, admin: DelayQ, run: Callable[..., Result]) -> None:
    for queue in QUEUES:
        admin.schedule("job", id="scheduled", queue=queue, delay="1h")
        admin.schedule("job", id="ready", queue=queue)
        admin.schedule("job", id=f"failed-{queue}", queue=queue, delay="1h")
        admin.archive(f"failed-{queue}", queue=queue)
        admin.pause(queue)
        admin.limits.acquire(f"limit-of-{queue}", 1, holder="orders a", expire_ms=60_000)

    def command(*words: str) -> str:
        return run("delayq-reader", *words).stdout

    assert len(command("limit", "list").splitlines()) == 1 + len(QUEUES)

    for queue in QUEUES:
        for state in ("scheduled", "ready", "reserved", "failed", "completed"):
            command("list", "--state", state, "--queue", queue)
        for job in ("scheduled", "ready"):
            assert queue in command("show", job, "--queue", queue)
            assert job in command("why", job, "--queue", queue)
        command("failed", "show", f"failed-{queue}")
        command("upcoming", "--queue", queue)
        command("queue", "show", queue)
        command("stats", "--days", "7", "--queue", queue)
    command("failed", "list")
    command("failed", "groups")
    send_batch(admin, "b1")
    assert all("b1" in command("batch", *words) for words in (("list",), ("show", "b1")))
    announce_worker(place)
    assert "orders" in command("workers")
    assert all(queue in command("stats") for queue in QUEUES)
    assert place.refusals() == []


def test_a_reader_changes_nothing(place: Place, admin: DelayQ, client_of: Callable[[str], DelayQ]) -> None:
    reader = client_of("delayq-reader")
    admin.schedule("job", id="a", delay="1h")
    admin.schedule("job", id="ready")
    admin.schedule("job", id="b", delay="1h")
    admin.archive("b")
    send_batch(admin, "b1")
    before = [dump(server) for server in place.primaries()]
    writes: list[Callable[[], object]] = [
        lambda: reader.schedule("job"),
        lambda: reader.schedule("job", id="a", on_conflict="replace"),
        lambda: reader.cancel("a"),
        lambda: reader.cancel("ready"),
        lambda: reader.archive("a"),
        lambda: reader.reschedule("a", delay="2h"),
        lambda: reader.run_now("a"),
        lambda: reader.retry("b"),
        lambda: reader.forget(["b"]),
        reader.pause,
        reader.resume,
        reader.pause_all,
        reader.start_maintenance,
        reader.restart_workers,
        reader.clear,
        lambda: reader.queue_set("orders", lease="20s"),
        lambda: reader.queue_remove("new"),
        lambda: reader.prune_failed(older="0s"),
        lambda: reader.batches.cancel("b1"),
    ]
    for write in writes:
        with pytest.raises(CallRefused):
            write()
    assert [dump(server) for server in place.primaries()] == before


def test_a_consumer_in_another_language_can_settle_jobs(place: Place, admin: DelayQ) -> None:
    keys, executor = Keys(), make_executor(parse_address(place.url("delayq-consumer")))
    for queue in QUEUES:
        for n in range(5):
            admin.schedule("job", id=f"j{n}", queue=queue)
        taken = drive(executor.run(delivery.wait_new(keys, [queue], "plain", 100)))
        taken += drive(executor.run(delivery.read_new(keys, queue, "plain", 10)))
        assert len(drive(executor.run(delivery.read_pending(keys, queue, "plain")))) == len(taken) == 5
        refs = [job.ref for job in taken]
        assert drive(executor.run(delivery.renew(keys, queue, "plain", refs))).lease_ms == 30_000
        settled: list[Call[Any]] = [
            delivery.progress(keys, queue, [(refs[0], b'{"done":1}')]),
            delivery.ack(keys, queue, [Acked(queue, taken[0].id, taken[0].entry)]),
            delivery.release(keys, queue, [Released(queue, taken[1].id, taken[1].entry, 10, taken[1].envelope, b"{}")]),
            delivery.fail(keys, queue, [Failed(queue, taken[2].id, taken[2].entry, taken[2].envelope, b"{}")]),
            delivery.hand_back(keys, queue, refs[3:]),
        ]
        answers = [[int(answer) for answer in drive(executor.run(call))] for call in settled]
        assert answers == [[1], [1], [1], [1], [1, 1]]
    drive(executor.close())
    assert place.refusals() == []


@pytest.mark.parametrize("options", [[], ["--scripts", "lua"]], ids=["XACK", "ack.lua"])
def test_the_example_of_a_consumer_runs_jobs(place: Place, admin: DelayQ, tmp_path: Path, options: list[str]) -> None:
    assert CliRunner().invoke(cli.app, ["scripts", "export", str(tmp_path / "lua")]).exit_code == 0
    admin.schedule("job", {"seconds": 0.5}, id="a")
    for server in place.servers:
        send(server, "SCRIPT", "FLUSH")
    port = port_of(place.owner("orders"))
    with ExitStack() as stack:
        programs = Programs(tmp_path, f"redis://delayq-consumer:PASSWORD@127.0.0.1:{port}/0", stack)
        consumer = str(CONSUMERS / "plain_stream" / "consumer.py")
        program = programs.start(sys.executable, consumer, "orders", *options, log="log")
        wait_until(lambda: "job a" in program.lines)
        admin.schedule("job", {}, id="b")
        wait_until(lambda: "job b" in program.lines)
        assert program.errors == ""
    assert {command.partition("|")[0] for _, command in place.refusals()} <= {"client"}  # optional for redis-py


@pytest.mark.parametrize("user", USERS, ids=lambda user: user.name)
def test_a_user_can_use_no_other_command(place: Place, user: acl_lines.User) -> None:
    allowed = {rule[1:] for rule in user.words if rule[0] == "+"} | place.extra | OPEN_TO_ALL
    raw = raw_of(place, user.name)
    refused = 0
    for words, arity in all_commands(place.servers[0]):
        if "|".join(words) not in allowed:
            with pytest.raises(ResponseError, match=r"permission|not allowed"):
                pytest.fail(f"{words}: {send(raw, *words, *['x'] * (abs(arity) - len(words)))}")
            refused += 1
    assert refused > 100
    raw.close()


def all_commands(server: redis.Redis) -> Iterator[tuple[list[str], int]]:
    """Yield the words of each command of a server, and its arity. A container has one row for each subcommand."""
    for row in send(server, "COMMAND"):
        name, arity = row[0], row[1]
        inner = row[9] if len(row) > 9 else []
        for one in inner:
            yield one[0].split("|"), one[1]
        if not inner:
            yield [name], arity


WRITE: Final = "return redis.call('HSET', KEYS[1], 'a', 'b')"

REFUSED: Final[dict[str, list[tuple[str, ...]]]] = {
    "delayq-producer": [
        ("GET", "foreign"),
        ("HGET", "delayq:control", "restart_ms"),
        ("GET", "delayq:worker:a"),
        ("ZRANGE", "delayq:workers", "0", "-1"),
        ("HGET", "other:{orders}:jobs", "a"),
        ("PUBLISH", "foreign", "x"),
        ("EVAL", "return redis.call('HGET', 'foreign', 'a')", "0"),
        ("EVAL", "return redis.call('FLUSHALL')", "0"),
        ("EVAL", "return redis.call('KEYS', '*')", "0"),
    ],
    "delayq-worker": [
        ("GET", "foreign"),
        ("HSET", "other:{orders}:jobs", "a", "b"),
        ("SUBSCRIBE", "foreign"),
        ("EVAL", WRITE, "1", "foreign"),
    ],
    "delayq-consumer": [
        ("HGET", "foreign", "a"),
        ("HGET", "delayq:control", "restart_ms"),
        ("PUBLISH", "delayq:cancel", "x"),
        ("EVAL", "return redis.call('HDEL', 'delayq:control', 'a')", "0"),
    ],
    "delayq-operator": [
        ("GET", "foreign"),
        ("DEL", "foreign"),
        ("PUBLISH", "foreign", "x"),
        ("EVAL", "return redis.call('XREADGROUP', 'GROUP', 'delayq', 'a', 'STREAMS', KEYS[1], '>')", "1", "a"),
    ],
    "delayq-reader": [
        ("GET", "foreign"),
        ("EVAL", WRITE, "1", "delayq:{orders}:jobs"),
        ("EVAL", "return redis.call('PUBLISH', 'delayq:wake', 'x')", "0"),
        ("EVAL", "return redis.call('XADD', KEYS[1], '*', 'a', 'b')", "1", "delayq:{orders}:stream"),
    ],
}


@pytest.mark.parametrize("user", USERS, ids=lambda user: user.name)
def test_a_user_can_use_no_other_key_or_channel(place: Place, user: acl_lines.User) -> None:
    raw = raw_of(place, user.name)
    for words in REFUSED[user.name]:
        with pytest.raises(ResponseError) as refusal:
            pytest.fail(f"{words}: {send(raw, *words)}")
        assert code_of(refusal.value) == "NOPERM"
    raw.close()


def test_a_user_without_writes_has_no_command_that_writes(place: Place) -> None:
    listed: Any = send(place.servers[0], "ACL", "CAT", "write")
    writes = {name.upper() for name in listed}
    used = {command for user in USERS for command in user.needs.commands}
    assert {name for name in used if writes & {name, name.partition("|")[0]}} <= acl_lines.WRITES


def test_a_user_of_one_queue_works_with_this_queue_only(place: Place, client_of: Callable[[str], DelayQ]) -> None:
    words = [word.replace("{*}", "{mail}") for word in USERS[0].words]
    words[2] = "narrow"
    for server in place.servers:
        server.execute_command(*words, *[f"+{rule}" for rule in place.extra])
    producer = client_of("narrow")
    assert producer.schedule("job", id="a", queue="mail", delay="1h").outcome == "created"
    with pytest.raises(CallRefused):
        producer.schedule("job", id="a", queue="orders", delay="1h")


def test_the_users_of_sentinels_find_the_primary() -> None:
    with sentinel_group() as group:
        for sentinel in group.sentinels:
            sentinel.client.execute_command(*acl_lines.sentinel_words())
        for server in group.servers:
            server.client.execute_command(*USERS[0].words)
        options = "?sentinel_username=delayq-sentinel&sentinel_password=PASSWORD"
        url = group.url.replace("://", "://delayq-producer:PASSWORD@") + options
        with DelayQ(url) as client:
            assert client.schedule("job", delay="1h").outcome == "created"
        assert [row for one in group.sentinels for row in one.client.acl_log()] == []
        with DelayQ(url.replace("_password=PASSWORD", "_password=wrong")) as client, pytest.raises(LoginRefused):
            client.schedule("job")


def test_a_reader_may_send_the_commands_of_the_page_that_only_look() -> None:
    (reader,) = [user for user in USERS if not user.writes]
    page = (DOCS / "redis-cli.md").read_text()
    for section in re.findall(r"^## Look at .*?(?=^## )", page, re.M | re.S):
        for command, second in re.findall(r"^\$ redis-cli (\w+) (\S+)", section, re.M):
            name = f"{command}|{second}" if command == "XINFO" else command
            assert name in {*reader.needs.commands, "XINFO|CONSUMERS"}, name
