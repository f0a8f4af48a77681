"""`delayq doctor` on real servers: each thing that keeps jobs from running is named."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from contextlib import closing

import pytest
import redis

from delayq import DelayQ
from delayq.core.options import Options
from delayq.redis.client import Client
from delayq.redis.connect import Connector
from delayq.redis.unlisted import UnlistedWalk
from tests.cli.conftest import Inline
from tests.support.cli import Cli, environment
from tests.support.flavours import Flavour
from tests.support.key_contract import OF_A_QUEUE
from tests.support.servers import LocalServer, OwnServer, connect
from tests.support.waiting import wait_until


@pytest.fixture
def good(own_server: OwnServer) -> LocalServer:
    """A server with nothing wrong about it."""
    return own_server(persistent=True, flavour=Flavour.VALKEY)


@pytest.fixture
def sick(cli: Cli, inline: Inline, good: LocalServer, monkeypatch: pytest.MonkeyPatch) -> Inline:
    """`delayq` on that server."""
    cli.env["DELAYQ_URL"] = good.url
    monkeypatch.setenv("DELAYQ_URL", good.url)
    return inline


@pytest.fixture
def q(good: LocalServer) -> Iterator[DelayQ]:
    with DelayQ(good.url) as q:
        yield q


def codes(inline: Inline, *words: str) -> list[str]:
    """What it finds, and that its exit code says so."""
    done = inline("doctor", *words, "--json")
    problems = [found["code"] for found in done.json["findings"] if found["level"] == "problem"]
    assert (done.code, done.json["ok"]) == ((1, False) if problems else (0, True))
    assert all(found["what"] and found["where"] and found["next"] for found in done.json["findings"])
    return [found["code"] for found in done.json["findings"]]


def test_all_is_well(sick: Inline) -> None:
    assert codes(sick) == []
    assert sick("doctor").out == "All is well.\n"


def test_for_people(sick: Inline, q: DelayQ) -> None:
    q.schedule("x", delay="1h", queue="orders")
    done = sick("doctor")
    assert done.code == 1
    assert done.lines[0].startswith("problem: queue orders: No mover was seen yet; jobs scheduled: 1.")
    assert "  next: delayq work --queue orders" in done.lines
    assert done.lines[-1] == "2 problems"


def test_no_mover_no_worker_and_then_both(sick: Inline, cli: Cli, q: DelayQ) -> None:
    q.schedule("slow", delay="1h")
    assert codes(sick) == ["no-mover", "no-worker"]
    worker = cli.start("work", "--app", "shop")
    wait_until(lambda: q.workers() and q.stats("default")[0].mover_tick_ms, what="both are there")
    assert codes(sick) == []
    q.schedule("nobody.knows", delay="1h")
    assert codes(sick) == ["unregistered"]
    worker.terminate()
    worker.communicate(timeout=30)
    assert "no-worker" in codes(sick)


def test_follow_ups_that_nobody_carries(sick: Inline, q: DelayQ, good: LocalServer) -> None:
    q.schedule("x", queue="orders")
    with connect(good.url) as client:
        client.xadd("delayq:{orders}:outbox", {"ended": "cancelled", "job": "{}"}, id="1-1")
    assert codes(sick) == ["no-worker", "follow-ups"]


@pytest.mark.foreign_keys("delayq:{no queue}:jobs")
@pytest.mark.parametrize("shards", [1, 3])
def test_queues_that_are_not_on_the_list(sick: Inline, q: DelayQ, good: LocalServer, shards: int) -> None:
    q.queue_set("orders", shards=shards)
    q.schedule_many([{"name": "x", "id": f"j{n}", "delay": "1h", "queue": "orders"} for n in range(20)])
    with connect(good.url) as client:
        listed = client.smembers("delayq:queues")
        client.delete("delayq:queues")
        client.xadd("delayq:{mails}:outbox", {"ended": "cancelled", "job": "{}"}, id="1-1")
        client.xadd("delayq:{over}:outbox", {"ended": "cancelled", "job": "{}"}, id="1-1")
        client.xdel("delayq:{over}:outbox", "1-1")
        client.hset("delayq:{no queue}:jobs", "j1", "{}")
        [found] = sick("doctor", "--json").json["findings"]
        assert (found["code"], found["level"]) == ("unlisted", "problem")
        assert "not on the list of queues: mails, orders. Movers" in found["what"]
        assert found["next"].startswith("delayq queue set mails; ")
        assert sick("queue", "set", "mails").code == sick("queue", "set", "orders").code == 0
        assert client.smembers("delayq:queues") == listed | {b"mails"}
    assert "unlisted" not in codes(sick)


@pytest.mark.parametrize("shards", [1, 3])
def test_a_mover_puts_them_on_the_list_again(cli: Cli, sick: Inline, q: DelayQ, good: LocalServer, shards: int) -> None:
    q.queue_set("orders", shards=shards)
    q.schedule_many([{"name": "x", "id": f"j{n}", "delay": "1s", "queue": "orders"} for n in range(20)])
    with connect(good.url) as client:
        listed = client.smembers("delayq:queues")
        client.delete("delayq:queues")
        cli.start("move")
        wait_until(lambda: q.stats("orders")[0].ready == 20, what="all are promoted")
        assert client.smembers("delayq:queues") == listed


@pytest.mark.redis_prefix("s[h]op", "shop")
def test_a_prefix_is_no_pattern(good: LocalServer) -> None:
    with closing(Connector(good.url)) as connector, connect(good.url) as plain:
        for prefix, queue in (("s[h]op", "mine"), ("shop", "theirs")):
            Client(connector, Options(prefix=prefix)).schedule("x", delay="1h", queue=queue)
            plain.delete(f"{prefix}:queues")
        walk = UnlistedWalk(Client(connector, Options(prefix="s[h]op")), lambda node, error: None)
        assert (walk.step(), walk.over) == (["mine"], True)


def test_one_step_looks_at_a_page_of_keys(good: LocalServer) -> None:
    with closing(Connector(good.url)) as connector, connect(good.url) as plain:
        client = Client(connector, Options())
        for n in range(20):
            client.schedule("x", delay="1h", queue=f"q{n}")
        plain.mset({f"other:{n}": "" for n in range(5_000)})
        plain.delete("delayq:queues")
        walk, found = UnlistedWalk(client, lambda node, error: None), list[str]()
        steps = 0
        while not walk.over:
            found += walk.step()
            steps += 1
        plain.delete(*(f"other:{n}" for n in range(5_000)))
    assert set(found) == {f"q{n}" for n in range(20)}
    assert steps >= 5


def test_a_user_who_may_not_scan_is_told(
    cli: Cli, inline: Inline, q: DelayQ, good: LocalServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    with connect(good.url) as plain:
        plain.execute_command("ACL", "SETUSER", "worker", "on", ">pw", "~*", "&*", "+@all", "-scan")
    monkeypatch.setenv("DELAYQ_URL", good.url.replace("unix://", "unix://worker:pw@"))
    q.schedule("x", delay="1h", queue="orders")
    found = inline("doctor", "--json").json["findings"]
    assert [one["code"] for one in found] == ["forbidden", "no-mover", "no-worker"]
    assert "+scan" in found[0]["next"]


def test_an_application_names_what_it_lacks(sick: Inline, cli: Cli, q: DelayQ) -> None:
    q.schedule("slow", delay="1h")
    q.schedule("nobody.knows", delay="1h")
    done = cli("doctor", "--app", "shop", "--json")
    assert [found["what"] for found in done.json["findings"] if found["code"] == "unregistered"] == [
        "No handler is registered for 'nobody.knows' in shop."
    ]


def test_a_name_that_workers_met_is_known_when_they_are_gone(sick: Inline, cli: Cli, q: DelayQ) -> None:
    q.schedule("nobody.knows")
    cli.ok("work", "--app", "shop", "--stop-when-empty")
    assert "unregistered" in codes(sick)


def test_a_paused_queue(sick: Inline, q: DelayQ) -> None:
    q.schedule("x", delay="1h")
    q.pause()
    assert codes(sick) == ["paused"]


def test_a_plain_consumer_serves_a_queue(sick: Inline, cli: Cli, q: DelayQ, good: LocalServer) -> None:
    q.schedule("x")
    assert codes(sick) == ["no-worker"]
    with connect(good.url) as plain:
        plain.xreadgroup("delayq", "somebody", {"delayq:{default}:stream": ">"}, count=1)
    assert codes(sick) == []


@pytest.mark.redis_prefix("delayq", "shop")
def test_a_wrong_prefix(sick: Inline, q: DelayQ) -> None:
    q.schedule("x", delay="1h")
    done = sick("--prefix", "shop", "doctor", "--json")
    assert [found["code"] for found in done.json["findings"]] == ["prefix"]
    assert "DELAYQ_PREFIX=delayq" in done.json["findings"][0]["next"]


@pytest.mark.redis_prefix("delayq", "shop")
def test_a_prefix_under_which_only_a_worker_ever_was(sick: Inline, cli: Cli, q: DelayQ) -> None:
    q.schedule("x", delay="1h")
    cli.ok("--prefix", "shop", "work", "--app", "shop", "--stop-when-empty")
    done = sick("--prefix", "shop", "doctor", "--json")
    assert [(found["code"], found["level"]) for found in done.json["findings"]] == [("prefix", "advice")]
    assert codes(sick) == ["no-mover", "no-worker"]


def test_eviction_and_persistence(sick: Inline, good: LocalServer) -> None:
    with connect(good.url) as plain:
        plain.config_set("maxmemory-policy", "allkeys-lru")
        plain.config_set("appendonly", "no")
    assert codes(sick) == ["eviction", "no-persistence"]
    with connect(good.url) as plain:
        plain.config_set("save", "3600 1")
    assert codes(sick) == ["eviction"]


def test_a_disk_that_is_waited_for_and_a_server_that_does_not_tell_the_truth(
    sick: Inline, q: DelayQ, good: LocalServer
) -> None:
    q.queue_set("orders", durability="fsync")
    assert "synced-too-early" in codes(sick)
    with connect(good.url) as plain:
        plain.config_set("appendfsync", "always")
    assert "synced-too-early" not in codes(sick)


def test_a_user_who_may_not_ask(cli: Cli, inline: Inline, good: LocalServer, monkeypatch: pytest.MonkeyPatch) -> None:
    with connect(good.url) as plain:
        plain.execute_command("ACL", "SETUSER", "worker", "on", ">pw", "~*", "&*", "+@all", "-info", "-config")
    monkeypatch.setenv("DELAYQ_URL", good.url.replace("unix://", "unix://worker:pw@"))
    done = inline("doctor", "--json")
    assert done.code == 0
    assert [(found["code"], found["level"]) for found in done.json["findings"]] == [("forbidden", "advice")] * 2
    assert "pw" not in done.out


@pytest.mark.foreign_keys("delayq:{default}:scheduled")
def test_a_damaged_queue_hides_no_other(sick: Inline, q: DelayQ, good: LocalServer) -> None:
    q.schedule("x", delay="1h", queue="orders")
    q.schedule("x", delay="1h")
    with connect(good.url) as plain:
        plain.delete("delayq:{default}:scheduled")
        plain.set("delayq:{default}:scheduled", "not a sorted set")
    assert codes(sick) == ["damage", "no-mover", "no-worker"]


def a_foreign(plain: redis.Redis, key: str, kind: str) -> str:
    """Something of another type in the place of `key`; answers which."""
    plain.delete(key)
    if kind == "string":
        plain.rpush(key, "not a string")
        return "list"
    plain.set(key, f"not a {kind}")
    return "string"


def damage(inline: Inline) -> list[dict[str, str]]:
    done = inline("doctor", "--json")
    assert done.code == 1
    return [found for found in done.json["findings"] if found["code"] == "damage"]


@pytest.mark.foreign_keys("delayq:{default}:*")
@pytest.mark.parametrize(("name", "kind"), OF_A_QUEUE.items())
def test_a_foreign_key_is_named(sick: Inline, q: DelayQ, good: LocalServer, name: str, kind: str) -> None:
    q.schedule("x", delay="1h")
    key = f"delayq:{{default}}:{name}"
    with connect(good.url) as plain:
        held = a_foreign(plain, key, kind)
    [found] = damage(sick)
    assert found["where"] == "queue default"
    assert found["what"] == f"The key {key} holds a {held} of somebody else; delayq keeps a {kind} there."
    carry_out(found["next"], good)
    assert damage_is_gone(sick)


@pytest.mark.foreign_keys("delayq:*", "{delayq:*}.foreign")
@pytest.mark.parametrize(
    ("name", "kind"), [("queues", "set"), ("workers", "zset"), ("control", "hash"), ("worker:w1", "string")]
)
def test_a_foreign_key_of_no_queue_is_named(sick: Inline, q: DelayQ, good: LocalServer, name: str, kind: str) -> None:
    q.schedule("x", delay="1h")
    with connect(good.url) as plain:
        plain.zadd("delayq:workers", {"w1": 4e12})
        held = a_foreign(plain, f"delayq:{name}", kind)
    [found] = damage(sick)
    assert found["what"] == f"The key delayq:{name} holds a {held} of somebody else; delayq keeps a {kind} there."
    assert ("no-worker" in codes(sick)) == (name == "control"), "who serves a queue cannot be told without the others"
    carry_out(found["next"], good)
    assert damage_is_gone(sick)


@pytest.mark.foreign_keys("delayq:{default}:scheduled")
def test_damage_is_told_without_a_name_to_a_user_who_may_not_ask(
    sick: Inline, q: DelayQ, good: LocalServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    q.schedule("x", delay="1h")
    with connect(good.url) as plain:
        a_foreign(plain, "delayq:{default}:scheduled", "zset")
        plain.execute_command("ACL", "SETUSER", "worker", "on", ">pw", "~*", "&*", "+@all", "-type")
    monkeypatch.setenv("DELAYQ_URL", good.url.replace("unix://", "unix://worker:pw@"))
    assert codes(sick) == ["forbidden", "damage"]


def carry_out(advice: str, server: LocalServer) -> None:
    """The command that the advice ends with, as a shell would take it apart."""
    program, *words = shlex.split(advice.partition(": ")[2])
    assert program == "redis-cli"
    with connect(server.url) as plain:
        assert plain.execute_command(*words)


def damage_is_gone(inline: Inline) -> bool:
    return "damage" not in codes(inline)


def test_an_old_server_with_a_known_fault(own_server: OwnServer, cli: Cli) -> None:
    old = own_server(persistent=True, flavour=Flavour.REDIS62)
    done = cli("doctor", "--json", env={"DELAYQ_URL": old.url})
    assert (done.code, [found["code"] for found in done.json["findings"]]) == (0, ["bad-server"])
    assert "6.2.14" in done.json["findings"][0]["what"]


def test_a_server_that_is_not_there(cli: Cli) -> None:
    done = cli("doctor", "--json", env={"DELAYQ_URL": f"unix://{cli.folder}/none.sock"})
    assert (done.code, [found["code"] for found in done.json["findings"]]) == (1, ["server"])
    assert "none.sock" in done.json["findings"][0]["what"]


def test_looking_changes_nothing(sick: Inline, q: DelayQ, good: LocalServer) -> None:
    q.schedule("x", delay="1h", id="o1")
    with connect(good.url) as plain:
        before = dump(plain)
        sick("doctor")
        assert dump(plain) == before


def dump(plain: redis.Redis) -> dict[bytes, bytes | None]:
    return {name: plain.dump(name) for name in plain.scan_iter()}


def test_a_password_is_never_shown(tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = tmp_path_factory.mktemp("bare")
    cli = Cli(folder, environment(DELAYQ_URL="redis://ann:hunter2@127.0.0.1:1/0"))
    for words in (("doctor",), ("config", "show", "--json")):
        done = cli(*words)
        assert "hunter2" not in done.out + done.err


@pytest.mark.parametrize("score", ["+inf", "1800000000000000000"])
def test_a_score_out_of_range_is_named_and_every_view_shows_the_job(
    sick: Inline, good: LocalServer, q: DelayQ, score: str
) -> None:
    q.schedule("x", id="odd-1", delay="1h", queue="orders")
    q.schedule("x", id="even", delay="1h", queue="orders")
    with connect(good.url) as plain:
        plain.execute_command("ZADD", "delayq:{orders}:scheduled", "XX", score, "odd-1")
    assert "never-due" in codes(sick)
    [found] = [one for one in sick("doctor", "--json").json["findings"] if one["code"] == "never-due"]
    assert "'odd-1'" in found["what"]
    for words in ("show odd-1 --queue orders", "list --queue orders", "stats", "upcoming --queue orders"):
        for kind in ((), ("--json",)):
            assert sick(*words.split(), *kind).code == 0, words
    advised = found["next"].partition(", or ")[0].split()[1:]
    assert sick(*advised).code == 0
    assert "never-due" not in codes(sick)
