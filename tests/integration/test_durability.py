"""Durability by name: an answer is given when it is as safe as was asked, or says that it is not. Never a lie."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from delayq.core.durability import MEMORY, Durability, parse_durability, strictest
from delayq.core.errors import InvalidInput, NotConfirmed
from delayq.core.options import Options
from delayq.core.outcome import DONE
from delayq.core.views import JobRef
from delayq.drivers.base import Delivery, Settlement
from delayq.drivers.redis_consumer import RedisConsumer
from delayq.drivers.redis_streams import RedisStreams
from delayq.redis.aio import AsyncClient
from delayq.redis.client import Client
from delayq.redis.confirm import Confirm
from delayq.redis.connect import Connector
from tests.support.durable import JOBS, PATIENT, SHORT, Open, has, opened
from tests.support.flavours import Flavour
from tests.support.machine import fair_clock
from tests.support.proxy import Proxy
from tests.support.replicas import Replicated, replicated
from tests.support.servers import LocalServer, OwnServer, connect

__all__ = ["opened"]


@pytest.fixture(scope="module")
def group() -> Iterator[Replicated]:
    with replicated() as made:
        yield made


@pytest.fixture
def together(group: Replicated) -> Iterator[Replicated]:
    """A primary and two replicas, empty and in step."""
    group.anew()
    yield group
    for one in group.replicas:
        one.cont()


def calls_of(server: LocalServer, command: str) -> int:
    with connect(server.url) as client:
        return int(client.info("commandstats").get(f"cmdstat_{command}", {}).get("calls", 0))


def due_on(server: LocalServer, job_id: str) -> float | None:
    with connect(server.url) as client:
        score = client.zscore("delayq:{default}:scheduled", job_id)
        return None if score is None else float(score)


# -- replicas --------------------------------------------------------------------------------------------------------


def test_with_the_answer_the_replicas_have_it(together: Replicated, opened: Open) -> None:
    """Looked at once, without waiting: that is what was promised."""
    q = opened(together.url)
    for n in range(20):
        ref = q.schedule("close", id=f"j{n}", delay="1h", durability="replicas:2")
        assert ref.outcome == "created"
        assert [has(one, f"j{n}") for one in together.replicas] == [True, True]
    moved = q.reschedule("j0", delay="2h", durability="replicas:2")
    assert [due_on(one, "j0") for one in together.replicas] == [moved.due_ms, moved.due_ms]
    assert q.cancel("j1", durability="replicas:2") == "cancelled"
    assert [has(one, "j1") for one in together.replicas] == [False, False]


@pytest.mark.timed
@pytest.mark.parametrize("pause_s", [3.0, 4.2])
def test_a_primary_that_stands_still_answers_a_waiting_call_within_the_same_time(
    together: Replicated, pause_s: float
) -> None:
    """What is left of the five seconds is for the confirmation: one answer, and no unknown outcome."""
    with closing(Connector(together.url)) as connector:
        q = Client(connector, Options(durability=parse_durability("replicas:2")))
        q.schedule("close", id="before", delay="1h")
        together.primary.stop()
        try:
            with ThreadPoolExecutor(1) as pool:
                started = fair_clock()
                call = pool.submit(q.schedule, "close", id="j0", delay="1h")
                time.sleep(pause_s)  # how long the pause lasts
                together.primary.cont()
                ref, took_s = call.result(), fair_clock() - started
        finally:
            together.primary.cont()
    assert ref.outcome in ("created", "kept")
    assert [has(one, "j0") for one in together.replicas] == [True, True]
    assert took_s < 5.0


async def test_the_same_awaited(together: Replicated) -> None:
    q, hasty = (AsyncClient(Connector(together.url, waits=waits), Options()) for waits in (PATIENT, SHORT))
    try:
        await q.schedule("close", id="j0", delay="1h", durability="replicas:2")
        assert [has(one, "j0") for one in together.replicas] == [True, True]
        await q.schedule_many([{"name": "close", "id": f"m{n}", "delay": "1h"} for n in range(600)])
        assert await q.cancel("j0", durability="replicas:2") == "cancelled"
        assert [has(one, "j0") for one in together.replicas] == [False, False]
        for one in together.replicas:
            one.stop()
        with pytest.raises(NotConfirmed, match="0 of 1 replicas"):
            await hasty.schedule("close", id="j1", delay="1h", durability="replicas:1")
        assert has(together.primary, "j1")
    finally:
        await q.close()
        await hasty.close()


def test_a_short_answer_says_so_and_the_job_is_there_once(together: Replicated, opened: Open) -> None:
    q = opened(together.url)
    together.replicas[0].stop()
    q.schedule("close", id="one", delay="1h", durability="replicas:1")
    with pytest.raises(NotConfirmed) as caught:
        opened(together.url, SHORT).schedule("close", id="two", delay="1h", durability="replicas:2")
    assert "1 of 2 replicas had it within 200ms" in caught.value.message
    assert "delayq show two --queue default" in caught.value.hint
    [ref] = caught.value.done
    assert isinstance(ref, JobRef)
    assert (ref.id, ref.outcome) == ("two", "created")
    assert has(together.primary, "two")
    together.replicas[0].cont()
    again = opened(together.url).schedule("close", id="two", delay="1h", durability="replicas:2")
    assert again.outcome == "kept"
    assert has(together.replicas[0], "two")
    assert q.stats("default")[0].scheduled == 2


def test_kept_is_no_confirmation_by_itself(together: Replicated, opened: Open) -> None:
    """The second client's connection wrote nothing: a plain WAIT on it would answer at once, and lie."""
    for one in together.replicas:
        one.stop()
    opened(together.url).schedule("close", id="j", delay="1h")
    with pytest.raises(NotConfirmed, match="0 of 1"):
        opened(together.url, SHORT).schedule("close", id="j", delay="1h", durability="replicas:1")


def test_what_changes_a_job_is_confirmed_too(together: Replicated, opened: Open) -> None:
    q = opened(together.url, SHORT)
    q.schedule_many([{"name": "close", "id": job_id, "delay": "1h"} for job_id in ("a", "b")])
    for one in together.replicas:
        one.stop()
    with pytest.raises(NotConfirmed, match="is cancelled, but") as caught:
        q.cancel("a", durability="replicas:1")
    assert caught.value.done == ("cancelled",)
    with pytest.raises(NotConfirmed, match="'b' in queue 'default' is stored") as caught_again:
        q.reschedule("b", delay="2h", durability="replicas:1")
    [ref] = caught_again.value.done
    assert isinstance(ref, JobRef)
    assert due_on(together.primary, "b") == ref.due_ms
    assert q.cancel("nobody", durability="replicas:1") == "unknown", "nothing was changed, so nothing is waited for"


def test_many_are_all_stored_before_it_is_said(together: Replicated, opened: Open) -> None:
    q = opened(together.url)
    items = [{"name": "close", "id": f"j{n}", "delay": "1h"} for n in range(2_500)]
    assert len(q.schedule_many(items, durability="replicas:2")) == len(items)
    with connect(together.replicas[1].url) as replica:
        assert replica.hlen(JOBS) == len(items)
    together.replicas[1].stop()
    with pytest.raises(NotConfirmed, match="The 2500 jobs are stored") as caught:
        opened(together.url, SHORT).schedule_many(
            [{**item, "id": f"m{item['id']}"} for item in items], durability="replicas:2"
        )
    assert [ref.outcome for ref in caught.value.done if isinstance(ref, JobRef)] == ["created"] * len(items)
    assert q.stats("default")[0].scheduled == 2 * len(items)


# -- replies that get lost -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("lost", "sent", "confirmed"), [("probe", 1, True), ("script", 2, True), ("mark", 1, False), ("wait", 1, False)]
)
def test_a_lost_reply_makes_no_second_job(
    together: Replicated, opened: Open, lost: str, sent: int, confirmed: bool
) -> None:
    """What may be sent again is, under the same token; what was answered is not, however the wait for it ends."""
    order = ["probe", "script", "mark", "wait"]
    with Proxy(together.primary.socket) as proxy:
        q = opened(proxy.url)
        q.schedule("close", id="first", delay="1h")  # it is connected, the queue and the script are known
        q.schedule("close", id="warm", delay="1h")
        q.connector.call(lambda client: [client.ping() for _ in range(3)], safe=True)
        before = calls_of(together.primary, "evalsha")
        q.connector.confirm(Confirm((), MEMORY, "", bool))  # the pool's next connection is open as well
        proxy.cut(after=order.index(lost))
        if confirmed:
            assert q.schedule("close", id="j", durability="replicas:2").outcome == "created"
        else:
            with pytest.raises(NotConfirmed, match="the connection was lost while it was waited for"):
                q.schedule("close", id="j", durability="replicas:2")
    assert proxy.lost == 1
    assert calls_of(together.primary, "evalsha") - before == sent
    assert [job.id for job in opened(together.url).list_jobs("ready").jobs] == ["j"]


def test_replicas_that_are_killed(opened: Open) -> None:
    with replicated(1) as pair:
        pair.anew()
        pair.replicas[0].kill()
        with pytest.raises(NotConfirmed, match="0 of 1 replicas"):
            opened(pair.url, SHORT).schedule("close", id="j", durability="replicas:1")
        assert has(pair.primary, "j")


# -- whose word counts -----------------------------------------------------------------------------------------------


def test_call_over_queue_over_setting(together: Replicated, opened: Open) -> None:
    q = opened(together.url, SHORT, durability=Durability(replicas=1))
    assert q.queue_durability("default") == "replicas:1"
    for one in together.replicas:
        one.stop()
    with pytest.raises(NotConfirmed):
        q.schedule("close", delay="1h")
    q.queue_set("default", durability="memory")
    assert q.schedule("close", delay="1h").outcome == "created"
    with pytest.raises(NotConfirmed, match="0 of 2"):
        q.schedule("close", delay="1h", durability="replicas:2")
    q.queue_set("default", durability="replicas:1")
    assert opened(together.url).queue_durability("default") == "replicas:1"
    with pytest.raises(NotConfirmed, match="0 of 1"):
        opened(together.url, SHORT).schedule("close", delay="1h")


def test_memory_costs_nothing(together: Replicated, opened: Open) -> None:
    """One script call a job, as without all this; what the queue asks for is looked up once."""
    q = opened(together.url)
    for _ in range(2):
        q.schedule("close", delay="1h")  # the queue is new to the server, and then to the client
    before = {name: calls_of(together.primary, name) for name in ("evalsha", "hget", "set", "wait")}
    for _ in range(50):
        q.schedule("close", delay="1h")
    q.schedule_many([{"name": "close", "delay": "1h"}] * 50)
    after = {name: calls_of(together.primary, name) - before[name] for name in before}
    inside = after.pop("hget")
    assert after == {"evalsha": 51, "set": 0, "wait": 0}
    assert inside == 0, "schedule.lua of a job that is due later asks no HGET, and nobody else did"


@pytest.mark.parametrize(
    "word", ["", "disk", "replicas:0", "replicas:65", "replicas:-1", "replicas", "Memory", "fsync:"]
)
def test_what_is_no_durability(word: str, opened: Open) -> None:
    with pytest.raises(InvalidInput, match="is no durability"):
        opened("redis://127.0.0.1:1/0").queue_set("orders", durability=word)


@pytest.mark.parametrize("word", ["memory", "replicas:1", "replicas:64", "fsync"])
def test_names_go_there_and_back(word: str) -> None:
    assert str(parse_durability(word)) == word


def test_the_strictest_of_several() -> None:
    both = strictest([Durability(replicas=1), Durability(), Durability(replicas=3), Durability(fsync=True)])
    assert both == Durability(replicas=3, fsync=True)


# -- workers ---------------------------------------------------------------------------------------------------------


def test_settling_waits_where_the_queue_asks_for_it(
    together: Replicated, opened: Open, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING, "delayq.worker")
    patient, hasty = opened(together.url), opened(together.url, SHORT)
    patient.queue_set("default", durability="replicas:2")
    patient.schedule_many([{"name": "close", "id": f"j{n}"} for n in range(4)])
    RedisStreams(patient.connector, patient.options).register(["default"])
    with consumer_of(patient, 2) as sure, consumer_of(hasty, 2) as hurried:
        for delivery, settle in zip(sure.deliveries, (sure.by_itself, sure.with_a_read), strict=True):
            assert settle(delivery) == [True]
            assert [has(one, delivery.id) for one in together.replicas] == [False, False]
        assert caplog.messages == []
        together.replicas[0].stop()
        for delivery, settle in zip(hurried.deliveries, (hurried.by_itself, hurried.with_a_read), strict=True):
            assert settle(delivery) == [True], "it was done, whoever knows of it"
            assert not has(together.primary, delivery.id)
        assert ["1 of 2 replicas" in message for message in caplog.messages] == [True], "told once, not each time"


def test_a_worker_settles_also_where_nobody_can_tell(
    own_server: OwnServer, opened: Open, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING, "delayq.worker")
    q = opened(own_server(flavour=Flavour.REDIS7).url)
    q.queue_set("default", durability="fsync")
    q.schedule_many([{"name": "close"}, {"name": "close"}], durability="memory")
    RedisStreams(q.connector, q.options).register(["default"])
    with consumer_of(q, 2) as worker:
        assert [worker.by_itself(delivery) for delivery in worker.deliveries] == [[True], [True]]
    assert ["has no WAITAOF" in message for message in caplog.messages] == [True]


@dataclass(frozen=True, slots=True)
class Worker:
    """A consumer and what it holds."""

    consumer: RedisConsumer
    deliveries: Sequence[Delivery]

    def by_itself(self, delivery: Delivery) -> Sequence[bool | None]:
        return self.consumer.settle([Settlement(delivery, DONE)]).settled

    def with_a_read(self, delivery: Delivery) -> Sequence[bool | None]:
        return self.consumer.fetch([Settlement(delivery, DONE)], 1).settled


@contextmanager
def consumer_of(client: Client, count: int) -> Iterator[Worker]:
    driver = RedisStreams(client.connector, client.options)
    with closing(driver.consumer(f"dq:here:{id(client)}:test", ["default"])) as consumer:
        yield Worker(consumer, consumer.fetch([], count).deliveries)


# -- the command line ------------------------------------------------------------------------------------------------


def test_the_command_line_ends_with_7(
    together: Replicated, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from delayq.cli import main

    monkeypatch.setenv("DELAYQ_URL", together.url)
    monkeypatch.setenv("DELAYQ_DATA_DIR", str(tmp_path))
    monkeypatch.chdir(tmp_path)

    def code(*words: str) -> object:
        with pytest.raises(SystemExit) as left:
            main(list(words))
        return left.value.code

    assert code("schedule", "close", "--in", "1h", "--id", "o1", "--durability", "replicas:2") == 0
    for one in together.replicas:
        one.stop()
    capsys.readouterr()
    for words, told in ((("schedule", "close", "--id", "o2"), "o2\n"), (("cancel", "o1"), "cancelled\n")):
        assert code(*words, "--durability", "replicas:1") == 7
        said = capsys.readouterr()
        assert said.out == told, "it is stored all the same"
        assert f"delayq show {words[1] if words[0] != 'schedule' else 'o2'} --queue default" in said.err
    assert code("schedule", "close", "--durability", "sometimes") == 2
    assert code("--durability", "replicas:1", "config", "show") == 0
    assert "replicas:1" in capsys.readouterr().out
