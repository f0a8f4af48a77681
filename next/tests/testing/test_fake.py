"""The fake records what a process sends, and answers as Redis does."""

import asyncio
import re
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import redis
from pydantic import SecretStr

from delayq import (
    AsyncDelayQ,
    ConfigError,
    Conflict,
    DelayQ,
    DelayqError,
    InvalidInput,
    Job,
    JobNotFound,
    JobSpec,
    Manager,
    Settings,
    Unique,
    adispatch,
    batch,
    chain,
    dispatch,
    dispatch_many,
    find_batch,
    job,
    set_manager,
)
from delayq.testing import Fake, faking

NOWHERE = "redis://127.0.0.1:1/0"


class CloseOrder(Job, name="kit.close", queue="orders", delay="15m"):
    order_id: int

    def handle(self) -> None: ...


class Vetoed(Job, name="kit.vetoed"):
    def handle(self) -> None: ...

    def prepare_for_dispatch(self) -> bool:
        return False


@job("kit.mail", tags=["mail"])
def send_mail(to: str) -> None: ...


def test_it_records_what_is_dispatched(elsewhere: Manager, delayq_fake: Fake) -> None:
    ref = CloseOrder(order_id=42).with_headers({"trace": "1"}).dispatch()
    send_mail.job("ann").dispatch()
    asyncio.run(adispatch("kit.other", {"n": 1}, queue="low"))
    assert (ref.outcome, ref.state, ref.queue) == ("created", "scheduled", "orders")
    (recorded,) = delayq_fake.pushed(CloseOrder)
    assert (recorded.id, recorded.data, recorded.headers) == (ref.id, {"order_id": 42}, {"trace": "1"})
    assert (recorded.due_ms, recorded.delay_ms) == (ref.due_ms, 900_000)
    assert [one.name for one in delayq_fake.jobs] == ["kit.close", "kit.mail", "kit.other"]
    assert delayq_fake.pushed(send_mail)[0].tags == ["mail"]
    delayq_fake.assert_pushed_on("low", "kit.other")
    delayq_fake.assert_pushed(CloseOrder, lambda one: bool(one.data == {"order_id": 42}))
    delayq_fake.assert_pushed_with_delay("kit.close", "15m")


def test_clients_made_before_the_fake_are_covered(request: pytest.FixtureRequest) -> None:
    early, of_async = DelayQ(NOWHERE), AsyncDelayQ(NOWHERE)
    fake: Fake = request.getfixturevalue("delayq_fake")
    assert early.schedule("kit.early", id="a").outcome == "created"
    assert asyncio.run(of_async.schedule("kit.async", id="b", deadline="1h")).state == "ready"
    early.schedule_many([JobSpec("kit.many"), JobSpec("kit.many")], spread="1m")
    assert DelayQ(NOWHERE).push_raw(fake.pushed("kit.early")[0].raw, queue="raw").queue == "raw"
    fake.assert_pushed_times("kit.many", 2)
    assert early.get("b") is not None


@pytest.fixture
def without_url(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    monkeypatch.delenv("DELAYQ_URL", raising=False)
    monkeypatch.setenv("DELAYQ_EMBEDDED", "never")
    monkeypatch.chdir(tmp_path)
    set_manager(None)
    yield
    set_manager(None)


def test_it_needs_no_url(without_url: None, delayq_fake: Fake, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*words: Any, **more: Any) -> Any:
        raise AssertionError("a socket was made")

    async def from_loop() -> None:
        await AsyncDelayQ().schedule("kit.mail", {})

    asyncio_loop = asyncio.new_event_loop()
    monkeypatch.setattr(socket, "socket", refused)
    DelayQ().schedule("kit.mail", {})
    asyncio_loop.run_until_complete(from_loop())
    dispatch("kit.mail", {"to": "ann"})
    chain(send_mail.job("ann"), send_mail.job("bob")).dispatch()
    batch([send_mail.job("ann")]).dispatch()
    delayq_fake.assert_pushed_times("kit.mail", 5)
    monkeypatch.undo()
    asyncio_loop.close()


def test_a_client_without_url_raises_after_the_fake(without_url: None) -> None:
    with faking():
        client, of_async = DelayQ(), AsyncDelayQ()
        client.schedule("kit.mail", {})
    calls: list[Callable[[], Any]] = [
        lambda: client.schedule("kit.mail", {}),
        lambda: asyncio.run(of_async.schedule("kit.mail", {})),
        DelayQ,
    ]
    for call in calls:
        with pytest.raises(ConfigError, match=r"No Redis address is set\. Set DELAYQ_URL"):
            call()


@pytest.mark.parametrize("durability", ["fsync", "replicas:2"])
def test_any_durability_is_recorded(durability: str, delayq_fake: Fake) -> None:
    client = DelayQ(settings=Settings(url=SecretStr(NOWHERE), durability=durability))
    assert client.schedule("kit.durable", id="a").outcome == "created"
    assert client.cancel("a") == "cancelled"
    delayq_fake.assert_pushed("kit.durable")


def test_clients_use_their_server_again_after_the_fake(url: str, server: redis.Redis) -> None:
    client = DelayQ(settings=Settings(url=SecretStr(url), prefix="test", durability="fsync"))
    with faking():
        client.schedule("kit.faked")
    assert not server.keys()
    assert client._operations._session.options.durability.fsync
    with DelayQ(url, prefix="test") as plain:
        plain.schedule("kit.real", id="r")
    assert server.smembers("test:queues") == {"default"}


def _script_of_answers(client: DelayQ) -> list[Any]:
    """Call everything that the fake can answer, and return the answers without times and ids."""
    seen: list[Any] = []

    def note(call: Any) -> None:
        try:
            value = call()
        except DelayqError as error:
            seen.append((type(error).__name__, str(error)))
            return
        seen.append((value.outcome, value.state, value.id) if hasattr(value, "outcome") else value)

    for state, options in {"scheduled": {"delay": "1h"}, "ready": {}}.items():
        for conflict in ("keep", "replace", "postpone", "error"):
            key: Any = conflict
            job_id = f"{state}-{conflict}"
            note(lambda job_id=job_id, options=options: client.schedule("kit.a", id=job_id, **options))
            note(lambda job_id=job_id, key=key: client.schedule("kit.b", id=job_id, delay="2h", on_conflict=key))
            note(lambda job_id=job_id: client.get(job_id).envelope.name)  # type: ignore[union-attr]
        for act in ("reschedule", "run_now", "cancel", "archive", "retry", "forget"):
            job_id = f"{state}-{act}"
            note(lambda job_id=job_id, options=options: client.schedule("kit.c", id=job_id, **options))
            extra: Any = {"delay": "1m"} if act == "reschedule" else {}
            for _ in range(2):
                note(lambda job_id=job_id, act=act, extra=extra: getattr(client, act)(job_id, **extra))
    for act in ("reschedule", "run_now", "cancel", "archive", "retry", "forget"):
        extra = {"delay": "1m"} if act == "reschedule" else {}
        note(lambda act=act, extra=extra: getattr(client, act)("unknown", **extra))
    note(lambda: client.schedule("kit.k", unique="key", id="k1", delay="1h"))
    note(lambda: client.schedule("kit.k", unique="key", id="k2"))
    note(lambda: client.schedule("kit.k", unique="key", on_conflict="error"))
    note(lambda: client.schedule("kit.k", unique="key", id="k3", on_conflict="replace"))
    note(lambda: client.archive("k1"))
    note(lambda: client.schedule("kit.k", unique="key", id="k4"))
    note(lambda: client.retry("k1"))
    note(lambda: client.cancel("k4"))
    note(lambda: client.retry("k1"))
    window = Unique(until="window", window="1h")
    note(lambda: client.schedule("kit.w", {"n": 1}, unique=window, id="w1", queue="w"))
    note(lambda: client.cancel("w1", queue="w"))
    note(lambda: client.schedule("kit.w", {"n": 1}, unique=window, id="w2", queue="w"))
    note(lambda: client.schedule("kit.w", {"n": 1}, id="e1", queue="elsewhere"))
    note(lambda: client.cancel("e1"))
    note(lambda: client.get("archived"))
    info = client.get("scheduled-archive")
    seen.append((info.state, info.failure.type) if info and info.failure else None)
    return seen


def test_it_answers_as_redis_does(url: str, server: redis.Redis, request: pytest.FixtureRequest) -> None:
    with DelayQ(url, prefix="test") as client:
        real = _script_of_answers(client)
        request.getfixturevalue("delayq_fake")
        assert _script_of_answers(client) == real


def test_a_taken_id_raises_conflict(delayq_fake: Fake) -> None:
    client = DelayQ(NOWHERE)
    client.schedule("kit.a", id="a")
    with pytest.raises(Conflict):
        client.schedule("kit.a", id="a", on_conflict="error")
    with pytest.raises(JobNotFound):
        client.run_now("b", queue="orders")
    delayq_fake.assert_pushed_times("kit.a", 1)


def test_clients_of_other_servers_and_prefixes_share_no_ids(delayq_fake: Fake) -> None:
    for client in (DelayQ(NOWHERE), DelayQ(NOWHERE, prefix="x"), DelayQ("redis://127.0.0.1:2/0")):
        assert client.schedule("kit.a", id="a").outcome == "created"
    delayq_fake.assert_pushed_times("kit.a", 3)


def test_chains(elsewhere: Manager, delayq_fake: Fake) -> None:
    pages = batch([send_mail.job("a"), chain(send_mail.job("b"), CloseOrder(order_id=1))])
    ref = chain(CloseOrder(order_id=1), pages, send_mail.job("c")).dispatch()
    assert ref.name == "kit.close"
    delayq_fake.assert_pushed_times(send_mail, 0)
    delayq_fake.assert_chained([CloseOrder, [send_mail, [send_mail, CloseOrder]], "kit.mail"])
    with pytest.raises(AssertionError, match=r"No chain \[kit.close, kit.mail\] was sent. Chains sent:\n  \[kit"):
        delayq_fake.assert_chained([CloseOrder, send_mail])


def test_batches(elsewhere: Manager, delayq_fake: Fake) -> None:
    members: list[Any] = [CloseOrder(order_id=1), chain(send_mail.job("b"), CloseOrder(order_id=2))]
    running = batch(members, name="pages", before=send_mail.job("start"), then=send_mail.job("end")).dispatch()
    delayq_fake.assert_batched([CloseOrder, [send_mail, CloseOrder]], name="pages")
    delayq_fake.assert_pushed(send_mail, lambda one: bool(one.data == {"to": "start"}))
    delayq_fake.assert_not_pushed(send_mail, lambda one: bool(one.data == {"to": "end"}))
    (recorded,) = delayq_fake.batches
    assert (recorded.id, recorded.then, recorded.allow_failures) == (running.id, ["kit.mail"], False)
    info = find_batch(running.id)
    assert info is not None and (info.total, info.pending, info.name) == (2, 2, "pages")
    with pytest.raises(AssertionError, match=r"No batch of \[kit.close\] was sent. Batches sent:\n  pages: \[kit"):
        delayq_fake.assert_batched([CloseOrder])


def test_a_chain_that_begins_with_a_batch(elsewhere: Manager, delayq_fake: Fake) -> None:
    chain(batch([CloseOrder(order_id=1), CloseOrder(order_id=2)]), send_mail.job("end")).dispatch()
    delayq_fake.assert_chained([[CloseOrder, CloseOrder], send_mail])


def test_a_veto_and_nothing(elsewhere: Manager, delayq_fake: Fake) -> None:
    assert Vetoed().dispatch().outcome == "vetoed"
    delayq_fake.assert_nothing_pushed()


def test_failed_assertions_list_the_jobs(elsewhere: Manager, delayq_fake: Fake) -> None:
    dispatch_many([CloseOrder(order_id=1), send_mail.job("ann").on_queue("mails")])
    dispatch("kit.gone", id="g").cancel()
    rows = [
        "kit.close (queue orders, in 15m)",
        "kit.mail (queue mails, due at once)",
        "kit.gone (queue default, cancelled)",
    ]
    sent = "".join(f"\n  {row}" for row in rows)
    failing: dict[str, Any] = {
        "No job 'kit.x' was sent.": lambda: delayq_fake.assert_pushed("kit.x"),
        "No job 'kit.close' that matches `where` was sent.": lambda: delayq_fake.assert_pushed(
            CloseOrder, lambda _: False
        ),
        "Matching jobs 'kit.mail' sent: 1, not 2.": lambda: delayq_fake.assert_pushed_times(send_mail, 2),
        "No matching job 'kit.mail' was sent to the queue 'x'.": lambda: delayq_fake.assert_pushed_on("x", send_mail),
        "No matching job 'kit.close' was sent with a delay of 20m.": lambda: delayq_fake.assert_pushed_with_delay(
            CloseOrder, "20m"
        ),
        "The job 'kit.mail' was sent.": lambda: delayq_fake.assert_not_pushed(send_mail),
        "Jobs were sent.": delayq_fake.assert_nothing_pushed,
    }
    for problem, check in failing.items():
        with pytest.raises(AssertionError) as caught:
            check()
        assert str(caught.value) == f"{problem} Jobs sent:{sent}"


def test_other_questions_are_refused(elsewhere: Manager, delayq_fake: Fake) -> None:
    client = DelayQ(NOWHERE)
    ref = client.schedule("kit.a")
    running = batch([CloseOrder(order_id=1)]).dispatch()
    questions: dict[str, Any] = {
        "stats": client.stats,
        "workers": client.workers,
        "pause_all": client.pause_all,
        "list_jobs": lambda: client.list_jobs("ready"),
        "iter_jobs": lambda: list(client.iter_jobs("ready")),
        "clear": lambda: client.clear("orders"),
        "batches.cancel": lambda: DelayQ(NOWHERE, prefix="kit").batches.cancel(running.id),
        "batches.list": client.batches.list,
        "limits.list": client.limits.list,
        "limits.free": lambda: client.limits.free("mail"),
        "limits.acquire": lambda: client.limits.acquire("mail", 1, holder="q a", expire_ms=1000),
    }
    for method, question in questions.items():
        with pytest.raises(RuntimeError, match=rf"^delayq_fake .* the call '{re.escape(method)}': .* delayq_travel"):
            question()
    for wait in (lambda: ref.wait("1h"), lambda: ref.result("1h")):
        with pytest.raises(RuntimeError, match=r"^delayq_fake .* delayq_travel") as caught:
            wait()
        assert not isinstance(caught.value, DelayqError)

    async def from_loop() -> None:
        of_async = AsyncDelayQ(NOWHERE)
        with pytest.raises(RuntimeError, match=r"the call 'limits\.free'"):
            await of_async.limits.free("mail")
        with pytest.raises(RuntimeError, match="the call 'iter_jobs'"):
            [one async for one in of_async.iter_jobs("ready")]

    asyncio.run(from_loop())


def test_what_is_not_a_job_is_refused(delayq_fake: Fake) -> None:
    wrong: Any = CloseOrder(order_id=1)
    with pytest.raises(InvalidInput, match="is a job object"):
        delayq_fake.pushed(wrong)
    with pytest.raises(InvalidInput, match="is not a job"):
        delayq_fake.pushed(3)  # type: ignore[arg-type]


def test_one_fake_at_a_time(delayq_fake: Fake) -> None:
    with pytest.raises(RuntimeError, match="at the same time"), faking():
        pass
    assert delayq_fake.jobs == []
