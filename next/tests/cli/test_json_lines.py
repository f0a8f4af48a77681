"""The JSON of every command, byte for byte. Times and other values that differ from run to run are masked."""

import re
import time
from pathlib import Path
from typing import Any

import pytest
import redis

from delayq.core.options import DEFAULTS
from delayq.redis.connection.blocking import BlockingLeaf
from delayq.redis.connection.server import ServerExecutor
from delayq.redis.connection.url import Address
from delayq.redis.keys import Keys
from delayq.redis.worker.queue_keeper import RedisQueueKeeper
from delayq.redis.worker.worker_registry import RedisWorkerRegistry
from tests.cli.conftest import Run
from tests.support.proxy import LOGIN, server_that_answers
from tests.support.queue import QueueOnServer

MASKS = [
    (r'(_ms":)\d{13}', r"\1MS"),
    (r'"\d{4}-\d\d-\d\dT[\d:.]{12}Z"', '"TIME"'),
    (r'"day":"[\d-]{10}"', '"day":"DAY"'),
    (r'"runtime_ms":\d+', '"runtime_ms":N'),
    (r'"(what|error)":"[^"]+"', r'"\1":"SENTENCE"'),
]


@pytest.fixture
def orders(url: str, server: redis.Redis) -> QueueOnServer:
    """The queue `orders`, as a worker uses it."""
    server.sadd("delayq:queues", "orders")
    return QueueOnServer(url, server, Keys("delayq"))


def printed(run: Run, *words: str) -> str:
    text = run(*words, "--json").stdout
    for pattern, mask in MASKS:
        text = re.sub(pattern, mask, text)
    return text


LISTED = (
    '"due_ms":{due_ms},"due":{due},"attempts":0,"tries":null,"data":{data},"tags":[],"encrypted":false,'
    '"created_ms":MS,"created":"TIME","failed_ms":{failed_ms},"failed":{failed},"forget_ms":null,"forget":null'
)
SHOWN = (
    '"result":null,"retention_ms":null,"timeout_ms":null,"deadline_ms":null,"deadline":null,"unique":null,'
    '"headers":{},"recoveries":0,"entry":null,"consumer":null,"idle_ms":null,"cancel_asked_ms":null,'
    '"cancel_asked":null,"progress":null,"shard":null,"limit":null'
)
CONTROL = (
    '"paused":{paused},"paused_until_ms":{until_ms},"paused_until":{until},"paused_reason":"{reason}",'
    '"maintenance":false,"maintenance_until_ms":null,"maintenance_until":null,"maintenance_since_ms":null,'
    '"maintenance_since":null,"reason":"","restart_ms":{restart_ms},"restart":{restart}'
)
COUNTS = '"scheduled":{},"ready":{},"reserved":{},"failed":0,"completed":0,"paused":false,"overdue_oldest_ms":0'


def test_a_job_that_is_scheduled(run: Run, server: redis.Redis) -> None:
    schedule = ("schedule", "order.close", "--in", "1h", "--id", "order-42", "--data", '{"order_id":42}')
    place = '"queue":"default","state":"scheduled","due_ms":MS,"due":"TIME"'
    assert printed(run, *schedule) == f'{{"id":"order-42","name":"order.close",{place},"outcome":"created"}}\n'
    assert printed(run, *schedule) == f'{{"id":"order-42","name":"order.close",{place},"outcome":"kept"}}\n'
    listed = LISTED.format(due_ms="MS", due='"TIME"', data='{"order_id":42}', failed_ms="null", failed="null")
    head = '"id":"order-42","name":"order.close","queue":"default","state":"scheduled"'
    assert printed(run, "list") == f"{{{head},{listed}}}\n"
    assert printed(run, "show", "order-42") == f'{{{head},{listed},"error":null,{SHOWN}}}\n'
    assert printed(run, "upcoming", "--spans", "2") == (
        '{"queue":"default","now_ms":MS,"now":"TIME","span_ms":60000,"overdue":0,"counts":[0,0],"later":1}\n'
    )
    assert printed(run, "reschedule", "order-42", "--in", "2h") == (
        f'{{"id":"order-42",{place},"outcome":"rescheduled"}}\n'
    )
    assert printed(run, "run-now", "order-42") == (
        '{"id":"order-42","queue":"default","state":"ready","due_ms":MS,"due":"TIME","outcome":"ready"}\n'
    )


def test_a_job_that_is_kept_and_no_longer_scheduled(run: Run, server: redis.Redis) -> None:
    schedule = ("schedule", "order.close", "--id", "order-42")
    place = '"id":"order-42","name":"order.close","queue":"default","state":"ready"'
    assert printed(run, *schedule) == f'{{{place},"due_ms":MS,"due":"TIME","outcome":"created"}}\n'
    assert printed(run, *schedule) == f'{{{place},"due_ms":null,"due":null,"outcome":"kept"}}\n'
    assert '"due_ms":MS' in printed(run, "show", "order-42")


def test_commands_that_are_refused(run: Run, server: redis.Redis) -> None:
    assert run("schedule", "n", "--id", "taken", "--queue", "other", "--in", "1h", "--unique", "k").exit_code == 0
    refused = ("schedule", "n", "--queue", "other", "--on-conflict", "error")
    assert printed(run, *refused, "--id", "taken") == '{"id":"taken","queue":"other","outcome":"conflict"}\n'
    assert printed(run, *refused, "--unique", "k") == '{"id":"","queue":"other","outcome":"conflict"}\n'
    assert printed(run, "failed", "show", "taken") == '{"id":"taken","queue":"other","outcome":"refused"}\n'
    for words in (["cancel"], ["archive"], ["run-now"], ["reschedule", "--in", "1h"]):
        assert printed(run, *words, "taken") == '{"id":"taken","queue":"default","outcome":"unknown"}\n'
    for command in ("show", "why"):
        assert printed(run, command, "taken") == '{"id":"taken","queue":"default","state":"unknown"}\n'
    line = '{"id":"nope","queue":"other","outcome":"unknown"}\n'
    assert printed(run, "failed", "retry", "nope", "--queue", "other") == line
    assert printed(run, "failed", "show", "nope", "--queue", "other") == line.replace("outcome", "state")


def test_the_reasons_why_a_job_has_not_run(run: Run, orders: QueueOnServer) -> None:
    orders.reserve("order-42")
    assert printed(run, "why", "order-42", "--queue", "orders") == (
        '{"id":"order-42","name":"name","queue":"orders","state":"reserved","reasons":[{"code":"running",'
        '"what":"SENTENCE","next":""}]}\n'
    )


def test_a_job_that_failed(run: Run, server: redis.Redis) -> None:
    run("schedule", "order.close", "--in", "1h", "--id", "order-43", "--queue", "orders")
    archived = printed(run, "archive", "order-43", "--queue", "orders", "--reason", "closed")
    assert archived == '{"id":"order-43","queue":"orders","outcome":"archived"}\n'
    listed = LISTED.format(due_ms="null", due="null", data="null", failed_ms="MS", failed='"TIME"')
    head = '"id":"order-43","name":"order.close","queue":"orders","state":"failed"'
    error = '"error":{"type":"Archived","message":"closed","at_ms":MS}'
    assert printed(run, "failed", "list") == f"{{{head},{listed},{error}}}\n"
    shown = f"{{{head},{listed},{error},{SHOWN}}}\n"
    assert printed(run, "failed", "show", "order-43") == shown
    assert printed(run, "show", "order-43", "--queue", "orders") == shown
    assert printed(run, "failed", "groups") == (
        '{"signature":"0cd9bb14ffd8a1ec","name":"order.close","type":"Archived","message":"closed","count":1,'
        '"first_ms":MS,"first":"TIME","last_ms":MS,"last":"TIME","queues":["orders"],'
        '"sample":{"id":"order-43","queue":"orders"}}\n'
    )
    retried = printed(run, "failed", "retry", "order-43")
    assert retried == '{"id":"order-43","queue":"orders","outcome":"scheduled"}\n'
    for outcome in ("cancelled", "unknown"):
        cancelled = printed(run, "cancel", "order-43", "--queue", "orders")
        assert cancelled == f'{{"id":"order-43","queue":"orders","outcome":"{outcome}"}}\n'


def test_failed_jobs_that_are_dropped(run: Run, server: redis.Redis) -> None:
    for id in ("order-42", "order-43"):
        run("schedule", "n", "--in", "1h", "--id", id)
        run("archive", id)
    forgotten = printed(run, "failed", "forget", "order-42")
    assert forgotten == '{"id":"order-42","queue":"default","outcome":"forgotten"}\n'
    assert printed(run, "failed", "prune", "--older", "30d", "--yes") == '{"queue":"default","deleted":0}\n'
    assert printed(run, "failed", "flush", "--yes") == '{"queue":"default","deleted":1}\n'


def test_a_lost_answer(run: Run, impatient: None) -> None:
    one_shard = b"$-1\r\n"
    for words, answers, line in (
        (("cancel", "order-42"), LOGIN, '{"id":"order-42","queue":"default","outcome":"uncertain"}\n'),
        (("queue", "set", "q", "--lease", "1m"), [*LOGIN, one_shard], '{"queue":"q","outcome":"uncertain"}\n'),
    ):
        with server_that_answers(*answers, b"") as silent:
            assert printed(run, "--url", silent, *words) == line


def test_the_counts_of_queues(run: Run, orders: QueueOnServer, url: str) -> None:
    run("schedule", "n", "--in", "1h")
    whole = f'"queue":"default",{COUNTS.format(1, 0, 0)}'
    empty = f'"queue":"orders",{COUNTS.format(0, 0, 0)}'
    assert printed(run, "stats") == f'{{"queues":[{{{whole}}},{{{empty}}}]}}\n'
    RedisQueueKeeper(ServerExecutor(BlockingLeaf(Address(url))), Keys(), DEFAULTS, name="dq:a:1:x").repair("default")
    assert printed(run, "stats", "--days", "7") == (
        f'{{"queues":[{{{whole},"days":[{{"day":"DAY","scheduled":1}}]}},{{{empty},"days":[]}}]}}\n'
    )
    orders.server.set("delayq:{orders}:scheduled", "no sorted set")
    null = ",".join(
        f'"{member}":null'
        for member in ("scheduled", "ready", "reserved", "failed", "completed", "paused", "overdue_oldest_ms")
    )
    for words in ((), ("--days", "7")):
        assert f'{{"queue":"orders",{null},"error":"SENTENCE"}}]}}\n' in printed(run, "stats", *words)


def test_a_pause(run: Run, orders: QueueOnServer) -> None:
    pause = '"queue":"orders","paused":true,"paused_until_ms":{},"paused_until":{}'
    ended = '{"queue":"orders","paused":false,"paused_until_ms":null,"paused_until":null}\n'
    assert printed(run, "pause", "orders") == f"{{{pause.format(0, 'null')}}}\n"
    assert printed(run, "resume", "orders") == ended
    for_an_hour = pause.format("MS", '"TIME"')
    assert printed(run, "pause", "orders", "--for", "1h") == f"{{{for_an_hour}}}\n"
    idle = printed(run, "pause", "orders", "--for", "1h", "--wait", "1m")
    assert idle == f'{{{for_an_hour},"running":[]}}\n'
    run("resume", "orders")
    orders.reserve("order-42")
    running = '"running":[{"id":"order-42","queue":"orders"}]'
    busy = printed(run, "pause", "orders", "--wait", "0s")
    assert busy == f"{{{pause.format(0, 'null')},{running}}}\n"
    control = CONTROL.format(
        paused="true", until_ms="MS", until='"TIME"', reason="fire", restart_ms="null", restart="null"
    )
    pause_all = ("pause", "--all", "--for", "1h", "--reason", "fire")
    assert printed(run, *pause_all) == f"{{{control}}}\n"
    assert printed(run, *pause_all, "--wait", "0s") == f"{{{control},{running}}}\n"


def test_what_holds_for_all_workers(run: Run, server: redis.Redis) -> None:
    control = CONTROL.format(
        paused="false", until_ms="null", until="null", reason="", restart_ms="null", restart="null"
    )
    assert printed(run, "resume", "--all") == f"{{{control}}}\n"
    assert printed(run, "maintenance", "off") == f"{{{control}}}\n"
    begun = control.replace('"maintenance":false', '"maintenance":true').replace('"reason":""', '"reason":"disks"')
    begun = begun.replace('"maintenance_until_ms":null', '"maintenance_until_ms":0')
    begun = begun.replace('"maintenance_since_ms":null', '"maintenance_since_ms":MS')
    begun = begun.replace('"maintenance_since":null', '"maintenance_since":"TIME"')
    assert printed(run, "maintenance", "on", "--reason", "disks") == f"{{{begun}}}\n"
    run("maintenance", "off")
    restarting = CONTROL.format(
        paused="false", until_ms="null", until="null", reason="", restart_ms="MS", restart='"TIME"'
    )
    assert printed(run, "restart") == f"{{{restarting}}}\n"


def test_queues_that_are_changed(run: Run, server: redis.Redis) -> None:
    run("schedule", "n", "--in", "1h", "--queue", "orders")
    view = (
        '{{"queue":"orders","lease_ms":{},"lease":"{}","shards":1,"paused":false,"paused_until_ms":null,'
        '"paused_until":null,"holds":{{"scheduled":1,"ready_or_reserved":0,"failed":0,"completed":0,"other":0,'
        '"outbox":0}}}}\n'
    )
    assert printed(run, "queue", "show", "orders") == view.format(30_000, "30s")
    assert printed(run, "queue", "set", "orders", "--lease", "2m") == view.format(120_000, "2m")
    assert printed(run, "clear", "--queue", "orders", "--yes") == '{"queue":"orders","deleted":1}\n'
    server.delete("delayq:{orders}:outbox")
    assert printed(run, "queue", "remove", "orders") == '{"queue":"orders","outcome":"removed"}\n'


WORKER: dict[str, Any] = {
    "queues": ["orders"],
    "host": "shop-1",
    "pid": 42,
    "supervisor": 41,
    "started_ms": 1_795_790_900_508,
    "state": "working",
    "done": 7,
    "held": 2,
    "running": [{"id": "order-42", "name": "order.close", "queue": "orders", "started_ms": 1_795_790_901_508}],
    "runs": 1,
}


def test_workers_of_this_release_and_of_others(run: Run, url: str, server: redis.Redis) -> None:
    registry = RedisWorkerRegistry(ServerExecutor(BlockingLeaf(Address(url))), Keys())
    others = {"of-another-release": {**WORKER, "memory_bytes": 1}, "of-another-program": {"queues": [], "pid": "?"}}
    registry.announce({"dq:shop-1:42:x": WORKER, **others}, time.time_ns() // 1_000_000)
    known = (
        '"queues":["orders"],"host":"shop-1","pid":42,"supervisor":41,"started_ms":MS{},"state":"working","done":7,'
        '"held":2,"running":[{{"id":"order-42","name":"order.close","queue":"orders","started_ms":MS{}}}],"runs":1'
    )
    twin = ',"started":"TIME"'
    shown = known.format(twin, twin + ',"runtime_ms":N')
    assert sorted(printed(run, "workers").splitlines()) == [
        f'{{"name":"dq:shop-1:42:x",{shown}}}',
        '{"name":"of-another-program","queues":[],"pid":"?"}',
        f'{{"name":"of-another-release",{known.format("", "")},"memory_bytes":1}}',
    ]


def test_a_mover_that_runs_once(run: Run, server: redis.Redis) -> None:
    assert printed(run, "move", "--once") == '{"moved":0}\n'


def test_the_embedded_server_that_is_stopped(run: Run, project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DELAYQ_DATA_DIR", str(project / "data"))
    assert printed(run, "down") == f'{{"stopped":false,"data_dir":"{project / "data"}"}}\n'


def test_settings(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DELAYQ_TRIES", "3")
    lines = printed(run, "config", "show").splitlines()
    assert '{"name":"tries","value":3}' in lines
    assert '{"name":"timeout","value":"1m"}' in lines
    assert '{"name":"config","value":null}' in lines
    lines = printed(run, "config", "show", "--origin").splitlines()
    assert '{"name":"tries","value":3,"source":"environment","place":"DELAYQ_TRIES"}' in lines
    assert '{"name":"timeout","value":"1m","source":"default","place":null}' in lines
