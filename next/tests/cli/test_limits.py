"""The commands `limit list` and `limit free`, on a real server."""

import json

import pytest
import redis

from delayq import DelayQ, RateLimit
from delayq.core.errors import LimitNotFound
from tests.cli.conftest import Run, Tell


@pytest.fixture
def client(url: str) -> DelayQ:
    return DelayQ(url)


def hold(client: DelayQ, *keys: str, name: str = "mail") -> None:
    for n, key in enumerate(keys):
        client.limits.acquire(name, 5, holder=f"orders {n}", key=key, expire_ms=70_000)


def test_no_limit(run: Run) -> None:
    end = run("limit", "list")
    assert (end.exit_code, end.stderr) == (0, "delayq: No worker has used a limit.\n")
    assert run("limit", "list", "--json").stdout == ""


def test_limits_are_listed(run: Run, client: DelayQ) -> None:
    hold(client, "ann", "ann", "bob")
    hold(client, "", "", name="api")
    client.limits.take("sms", RateLimit.per_day(1))
    head, *rows = [line.split() for line in run("limit", "list").stdout.splitlines()]
    assert head == ["LIMIT", "HELD", "GRANTED", "REFUSED"]
    assert (rows[:2], rows[4:]) == ([["api", "2", "2", "0"], ["mail", "3", "3", "0"]], [["sms", "0", "1", "0"]])
    assert sorted(rows[2:4]) == [["ann", "2"], ["bob", "1"]]
    api, mail, sms = map(json.loads, run("limit", "list", "--json").stdout.splitlines())
    assert api == {"name": "api", "held": 2, "granted": 2, "refused": 0, "places": [{"key": "", "held": 2}]}
    assert (mail["held"], sms["places"]) == (3, [])


def test_places_are_freed(run: Run, client: DelayQ) -> None:
    hold(client, "ann", "ann", "bob")
    end = run("limit", "free", "mail", "--key", "ann")
    assert (end.exit_code, end.stdout) == (0, "mail  2 places freed\n")
    assert json.loads(run("limit", "free", "mail", "--json").stdout) == {"name": "mail", "key": None, "freed": 1}
    again = run("limit", "free", "mail", "--key", "ann", "--json")
    assert json.loads(again.stdout) == {"name": "mail", "key": "ann", "freed": 0}


def test_an_unknown_limit_is_exit_code_3(tell: Tell) -> None:
    assert tell("limit", "free", "nail") == (
        3,
        "delayq: No limit has the name 'nail'. `delayq limit list` lists all limits.\n",
    )
    assert tell("limit", "free", "my mail")[0] == 2


def test_an_unknown_limit_is_told_as_json(run: Run) -> None:
    for key in (None, "ann"):
        end = run("limit", "free", "nail", *(["--key", key] if key else []), "--json")
        assert json.loads(end.stdout) == {"name": "nail", "key": key, "outcome": "unknown"}
        assert isinstance(end.exception, LimitNotFound)


def test_a_damaged_counter_does_not_stop_the_list(run: Run, client: DelayQ, server: redis.Redis) -> None:
    hold(client, "ann")
    server.hset("delayq:{limit:mail}:counters", "granted", "many")
    assert json.loads(run("limit", "list", "--json").stdout)["granted"] == 0


def test_names_that_are_not_utf8_do_not_stop_the_lists(run: Run, client: DelayQ, server: redis.Redis) -> None:
    hold(client, "ann")
    server.sadd("delayq:limits", b"\xff")
    server.zadd("delayq:{limit:mail}:places", {b"\xff": 2e15})
    server.zadd("delayq:batches", {b"\xff": 2e15})
    server.zadd("delayq:workers", {b"\xff": 2e15})
    lines = run("limit", "list", "--json").stdout.splitlines()
    assert [json.loads(line)["name"] for line in lines] == ["mail", "\N{REPLACEMENT CHARACTER}"]
    for words in (["batch", "list"], ["workers"]):
        assert run(*words).exit_code == 0
