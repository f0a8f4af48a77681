"""Concurrency, WithoutOverlapping and RateLimited, on a real server."""

import asyncio
import json
import logging
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import redis

from delayq import (
    AsyncDelayQ,
    BackendUnavailable,
    Concurrency,
    DelayQ,
    Discard,
    InvalidInput,
    Job,
    JobContext,
    JobSpec,
    LimitReached,
    Manager,
    Notification,
    RateLimit,
    RateLimited,
    RunningJob,
    WithoutOverlapping,
    dispatch,
    handles,
    job,
    use_limit,
    use_middleware,
)
from delayq.core.envelope import decode
from delayq.core.outcome import Done
from delayq.jobs import limits
from delayq.jobs.local_run import run
from delayq.jobs.middleware import AnyMiddleware
from delayq.jobs.registry import Registry, registry
from delayq.manager import current_manager
from delayq.redis.operations.limits import LimitOperations
from tests.support.queue import envelope_of

HOW = ["sync", "async"]
WRONG: Any = 7


class Runs:
    """Runs the jobs of one limited handler as a worker does, with the middleware method `handle` or `ahandle`."""

    def __init__(self, how: str, middleware: Sequence[AnyMiddleware], *, name: str = "limited") -> None:
        self.ran: list[Any] = []
        self.inside: Any = None
        self._name = name
        self._how = how

        def note(n: int = 1, to: str = "ann", fails: bool = False) -> None:
            self.ran.append(n)
            if self.inside is not None:
                self.inside()
            if fails:
                raise ValueError(n)

        if how == "async":

            @job(name, middleware=middleware)
            async def in_loop(n: int = 1, to: str = "ann", fails: bool = False) -> None:
                await asyncio.to_thread(note, n, to, fails)

        else:
            job(name, middleware=middleware)(note)

    def run(self, job_id: str, *, token: str = "1-0", place_ms: int = 70_000, **data: Any) -> None:
        context = JobContext(decode(envelope_of(job_id, name=self._name)), b"", tries=5, due_ms=0, token=token)
        context.place_ms = place_ms
        answer = registry.get(self._name).call(data, context)
        if self._how == "async":
            asyncio.run(answer)

    def is_refused(self, job_id: str, **data: Any) -> bool:
        try:
            self.run(job_id, **data)
        except LimitReached:
            return True
        return False


@pytest.fixture(autouse=True)
def own_rates(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "_rates", {})


def hold(sent: DelayQ, name: str, *, key: str = "", limit: int = 1, holder: str = "orders other") -> int:
    expires_ms = sent.limits.acquire(name, limit, holder=holder, key=key, expire_ms=70_000)
    assert expires_ms is not None
    return expires_ms


@pytest.mark.parametrize("how", HOW)
def test_a_job_has_a_place_while_it_runs(sent: DelayQ, how: str) -> None:
    runs = Runs(how, [Concurrency("mail", 1)])
    held: list[Any] = []
    runs.inside = lambda: held.extend(sent.limits.list())
    runs.run("a")
    (while_it_ran,) = held
    assert (while_it_ran.name, while_it_ran.places) == ("mail", [("", 1)])
    (after,) = sent.limits.list()
    assert (after.places, after.granted, after.refused) == ([], 1, 0)
    assert not runs.is_refused("b")


@pytest.mark.parametrize("how", HOW)
def test_a_refused_job_does_not_run(sent: DelayQ, how: str) -> None:
    runs = Runs(how, [Concurrency("mail", 1)])
    until = hold(sent, "mail")
    assert runs.is_refused("a")
    assert runs.ran == []
    sent.limits.release("mail", holder="orders other", expires_ms=until)
    assert not runs.is_refused("a")


@pytest.mark.parametrize("how", HOW)
def test_a_failed_handler_frees_its_place(sent: DelayQ, how: str) -> None:
    runs = Runs(how, [Concurrency("mail", 1)])
    with pytest.raises(ValueError):
        runs.run("a", fails=True)
    assert not runs.is_refused("b")


@pytest.mark.parametrize("how", HOW)
def test_a_later_attempt_takes_over_and_the_earlier_one_frees_nothing(sent: DelayQ, how: str) -> None:
    runs = Runs(how, [Concurrency("mail", 1)])
    first = hold(sent, "mail", holder="orders a")
    runs.inside = lambda: sent.limits.release("mail", holder="orders a", expires_ms=first - 1)
    runs.run("a")
    assert runs.ran == [1]


@pytest.mark.parametrize("how", HOW)
def test_a_dropped_job_is_discarded(sent: DelayQ, how: str) -> None:
    runs = Runs(how, [Concurrency("mail", 1, drop=True)])
    hold(sent, "mail")
    with pytest.raises(Discard, match="the limit mail is reached"):
        runs.run("a")
    runs = Runs(how, [RateLimited("sms", RateLimit.per_day(1), drop=True)], name="sms")
    runs.run("a")
    with pytest.raises(Discard):
        runs.run("b")


@pytest.mark.parametrize("how", HOW)
def test_a_rate_limits_the_starts(sent: DelayQ, how: str) -> None:
    runs = Runs(how, [RateLimited("sms", RateLimit.per_day(2), key=["to"])])
    asked = [runs.is_refused("a", to="ann", n=n) for n in range(3)]
    assert (asked, runs.is_refused("b", to="bob")) == ([False, False, True], False)
    (info,) = sent.limits.list()
    assert (info.name, info.granted, info.refused, info.places) == ("sms", 3, 1, [])


def test_the_rates_of_use_limit(sent: DelayQ) -> None:
    runs = Runs("sync", [RateLimited("sms")])
    with pytest.raises(InvalidInput, match="The limit 'sms' of the job 'limited' has no rate"):
        runs.run("a")
    use_limit("sms", [RateLimit.per_day(5), RateLimit.per_hour(1)])
    assert [runs.is_refused("a"), runs.is_refused("b")] == [False, True]


# --- keys


def test_keys(sent: DelayQ) -> None:
    for n, (key, expected) in enumerate(
        [
            (None, ""),
            ("vip", "vip"),
            (["to"], "ann lee"),
            (["n"], "7"),
            (["n", "to"], '[7,"ann lee"]'),
            (lambda running: running.data["to"].upper(), "ANN LEE"),
        ]
    ):
        runs = Runs("sync", [Concurrency("mail", 1, key=key)], name=f"job-{n}")
        runs.inside = lambda: seen.extend(sent.limits.list()[0].places)  # noqa: B023
        seen: list[Any] = []
        runs.run("a", n=7, to="ann lee")
        assert seen == [(expected, 1)]


def test_a_key_function_that_returns_no_text(sent: DelayQ) -> None:
    wrong: Any = lambda running: 7  # noqa: E731
    with pytest.raises(InvalidInput, match="returned 7"):
        Runs("sync", [Concurrency("mail", 1, key=wrong)], name="b").run("a")


def test_without_overlapping_counts_the_jobs_of_one_name(sent: DelayQ) -> None:
    one = Runs("sync", [WithoutOverlapping()], name="one")
    other = Runs("sync", [WithoutOverlapping()], name="other")
    hold(sent, "one")
    assert (one.is_refused("a"), other.is_refused("a")) == (True, False)


def test_without_overlapping_counts_each_key_and_shares_it_if_wanted(sent: DelayQ) -> None:
    own = Runs("sync", [WithoutOverlapping(["to"])], name="own")
    hold(sent, "own", key="ann")
    assert (own.is_refused("a", to="ann"), own.is_refused("a", to="bob")) == (True, False)
    shared = [Runs("sync", [WithoutOverlapping(["to"], shared=True)], name=name) for name in ("s1", "s2")]
    hold(sent, limits.SHARED, key="ann")
    assert [runs.is_refused("b", to="ann") for runs in shared] == [True, True]
    assert [runs.is_refused("b", to="bob") for runs in shared] == [False, False]


@pytest.mark.parametrize(
    "limit",
    [
        Concurrency("mail", 1, key=["n", "city"]),
        WithoutOverlapping(["city"], shared=True),
        RateLimited("mail", RateLimit.per_day(1), key=["city"]),
    ],
)
def test_a_key_with_a_member_that_the_job_does_not_have_is_refused_at_the_declaration(limit: AnyMiddleware) -> None:
    with pytest.raises(InvalidInput) as refused:
        job("mail.function", middleware=[limit])(lambda n, to="ann": None)
    assert refused.value.field == "key"
    assert str(refused.value) == (
        "The limit key of the job 'mail.function' names the member 'city', but its payload does not have this member. "
        "Name members of the payload: n, to."
    )
    with pytest.raises(InvalidInput, match=r"'mail\.class' names the member 'city', .*: n\."):

        class Mail(Job, name="mail.class", middleware=[limit]):
            n: int

            def handle(self) -> None: ...

    with pytest.raises(InvalidInput, match=r"'mail\.notice' names the member 'city', .*: n, recipient, channel\."):

        class Notice(Notification, name="mail.notice", middleware=[limit]):
            n: int

            def via(self, recipient: str) -> Sequence[str]:
                return []

    jobs = Registry()
    job("mail.other", registry=jobs)(lambda n=1: None)
    with pytest.raises(InvalidInput, match="names the member 'city'"):
        jobs.use(limit)


def test_a_key_of_a_method_is_checked_when_the_job_is_dispatched(sent: DelayQ) -> None:
    @handles("Letters", middleware=[Concurrency("mail", 1, key=["city"])])
    class Letters:
        def send(self, context: JobContext, data: Any) -> None: ...

    async def from_loop(data: Any) -> None:
        async with AsyncDelayQ(settings=current_manager().settings) as client:
            await client.schedule("Letters@send", data)

    calls: list[Callable[[Any], Any]] = [
        lambda data: dispatch("Letters@send", data),
        lambda data: sent.schedule("Letters@send", data),
        lambda data: sent.schedule("Letters@send", json.dumps(data).encode()),
        lambda data: sent.schedule_many([JobSpec("other"), JobSpec("Letters@send", data)]),
        lambda data: asyncio.run(from_loop(data)),
    ]
    no_member = "The limit key of the job 'Letters@send' names the member 'city', but its payload does not have this"
    hints = {
        "to": f"{no_member} member. Name members of the payload: to.",
        "": f"{no_member} member. Add this member to the payload, or give the limit another key.",
    }
    for call in calls:
        for member, message in hints.items():
            with pytest.raises(InvalidInput) as refused:
                call({member: "ann"} if member else None)
            assert str(refused.value).removeprefix("specs[1]: ") == message
    assert sent.queues() == []
    for call in calls:
        call({"city": "Berlin"})
    assert sent.stats("default")[0].ready == len(calls) + 1


def test_a_key_of_the_method_middleware_is_checked_when_the_job_runs() -> None:
    class Close(Job, name="close"):
        order_id: int = 42

        def handle(self) -> None: ...

        def middleware(self) -> Sequence[AnyMiddleware]:
            return [Concurrency("orders", 1, key=["order"])]

    with pytest.raises(InvalidInput, match="names the member 'order'"):
        Close().dispatch_sync()


# --- without an answer


@pytest.mark.parametrize("how", HOW)
@pytest.mark.parametrize(
    "middleware",
    [
        *(Concurrency("mail", 1, drop=drop) for drop in (False, True)),
        *(RateLimited("mail", RateLimit.per_day(1), drop=drop) for drop in (False, True)),
    ],
)
def test_a_job_never_runs_without_an_answer(
    manager: Manager,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    middleware: AnyMiddleware,
    how: str,
) -> None:
    async def away(*args: object, **options: object) -> None:
        raise BackendUnavailable("Redis is away.")

    limits_of_client = type(manager.connection().client.limits)
    for name in ("acquire", "take"):
        monkeypatch.setattr(LimitOperations, name, away)
        monkeypatch.setattr(limits_of_client, name, lambda self, *args, **options: asyncio.run(away()))
    runs = Runs(how, [middleware])
    with caplog.at_level(logging.WARNING):
        assert runs.is_refused("a")  # an outage never discards a job
    assert runs.ran == []
    assert caplog.messages == ["job a (limited) waits, because the limit mail could not be asked: Redis is away."]


@pytest.mark.parametrize("how", HOW)
def test_a_place_that_cannot_be_freed_changes_nothing_for_its_job(
    manager: Manager, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, how: str
) -> None:
    async def away(*args: object, **options: object) -> None:
        raise BackendUnavailable("Redis is away.")

    monkeypatch.setattr(LimitOperations, "release", away)
    limits_of_client = type(manager.connection().client.limits)
    monkeypatch.setattr(limits_of_client, "release", lambda self, *args, **options: asyncio.run(away()))
    runs = Runs(how, [Concurrency("mail", 1)])
    with caplog.at_level(logging.WARNING):
        runs.run("a")
    assert runs.ran == [1]
    assert "keeps its place under the limit mail until the place expires" in caplog.text


# --- local runs, timeouts, declarations


def test_a_local_run_asks_no_limit(sent: DelayQ) -> None:
    runs = Runs("sync", [Concurrency("mail", 1), RateLimited("sms")])
    hold(sent, "mail")
    assert run(envelope_of("a", name="limited")).outcome == Done()
    assert runs.ran == [1]


def test_the_place_expires_after_the_time_of_the_context_or_of_the_middleware(
    sent: DelayQ, server: redis.Redis
) -> None:
    left: list[int] = []
    for name, middleware in [("a", Concurrency("mail", 1)), ("b", Concurrency("mail", 1, expire_after="20s"))]:
        runs = Runs("sync", [middleware], name=name)
        runs.inside = lambda: left.append(server.pttl("test:{limit:mail}:holders:"))
        runs.run("a", place_ms=9_000)
    assert 8_000 < left[0] <= 9_000
    assert 19_000 < left[1] <= 20_000


def test_a_job_whose_settings_have_no_timeout_fails_with_one_sentence(sent: DelayQ) -> None:
    runs = Runs("sync", [Concurrency("mail", 1)])
    with pytest.raises(InvalidInput) as refused:
        runs.run("a", place_ms=0)
    assert str(refused.value) == (
        "The job 'limited' has the limit 'mail', but its timeout is 0, so its place would never expire. Give the job a "
        'timeout, or give the limit expire_after="1h".'
    )


def test_a_limit_on_a_job_without_timeout_is_refused_at_the_declaration(sent: DelayQ) -> None:
    with pytest.raises(InvalidInput, match="its timeout is 0"):

        @job("plain", timeout="0s", middleware=[Concurrency("mail", 1)])
        def plain() -> None: ...

    with pytest.raises(InvalidInput, match="has the limit 'Import', but its timeout is 0"):

        class Import(Job, timeout="0s", middleware=[WithoutOverlapping()]):
            def handle(self) -> None: ...

    @job("expires", timeout="0s", middleware=[Concurrency("mail", 1, expire_after="1h"), RateLimited("sms")])
    def expires() -> None: ...

    with pytest.raises(InvalidInput, match="its timeout is 0"):
        use_middleware(Concurrency("all", 10))

    with pytest.raises(InvalidInput, match="'Letters@send' has the limit 'mail', but its timeout is 0"):

        @handles("Letters", timeout="0s", middleware=[Concurrency("mail", 1)])
        class Letters:
            def send(self, context: JobContext, data: Any) -> None: ...


def test_the_name_of_a_limit_has_no_braces_even_if_the_job_has_some() -> None:
    with pytest.raises(InvalidInput, match=r"'a\{b\}' of a limit is not valid"):

        @job("a{b}", middleware=[WithoutOverlapping()])
        def plain() -> None: ...


def test_middleware_of_a_class_is_limited_too(sent: DelayQ) -> None:
    class Close(Job, name="close"):
        order_id: int = 42

        def handle(self) -> None:
            raise AssertionError

        def middleware(self) -> Sequence[AnyMiddleware]:
            return [Concurrency("orders", 1, key=str(self.order_id))]

    hold(sent, "orders", key="42")
    context = JobContext(decode(envelope_of("a", name="close")), b"", tries=5, due_ms=0, token="1-0", place_ms=9_000)
    with pytest.raises(LimitReached) as refused:
        registry.get("close").call({}, context)
    assert (refused.value.limit, str(refused.value)) == ("orders", "the limit orders is reached")


def test_a_coroutine_that_a_decorator_hides_runs_inside_its_place(sent: DelayQ) -> None:
    held: list[Any] = []

    def hides(function: Any) -> Any:
        def wrapped() -> Any:
            return function()

        return wrapped

    @job("hidden", middleware=[Concurrency("mail", 1)])
    @hides
    async def hidden() -> str:
        held.extend((await asyncio.to_thread(sent.limits.list))[0].places)
        return "result"

    context = JobContext(decode(envelope_of("a", name="hidden")), b"", tries=5, due_ms=0, token="1-0", place_ms=9_000)
    assert registry.get("hidden").call({}, context) == "result"
    assert held == [("", 1)]


@pytest.mark.parametrize(
    ("make", "field"),
    [
        (lambda: Concurrency("mail", 0), "limit"),
        (lambda: Concurrency("mail", WRONG * 1.5), "limit"),
        (lambda: Concurrency("", 1), "name"),
        (lambda: Concurrency("my mail", 1), "name"),
        (lambda: Concurrency("mail", 1, key=WRONG), "key"),
        (lambda: Concurrency("mail", 1, key=[]), "key"),
        (lambda: Concurrency("mail", 1, key="a\n"), "key"),
        (lambda: Concurrency("mail", 1, expire_after="0s"), "expire_after"),
        (lambda: Concurrency("mail", 1, expire_after="soon"), "expire_after"),
        (lambda: WithoutOverlapping(shared=True), "key"),
        (lambda: RateLimited("mail", WRONG), "rate"),
        (lambda: RateLimited("mail", []), "rate"),
        (lambda: RateLimited("my mail"), "name"),
        (lambda: use_limit("mail", WRONG), "rate"),
        (lambda: use_limit("my mail", RateLimit.per_day(1)), "name"),
    ],
)
def test_arguments_that_cannot_be_used_are_refused(make: Any, field: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        make()
    assert (refused.value.field, refused.value.hint != "") == (field, True)


def test_the_header_of_refusals_is_not_shown_to_the_handler() -> None:
    raw = envelope_of("a", extra=',"headers":{"delayq-refused":"2 mail","trace":"7"}')
    assert JobContext(decode(raw), raw, tries=1, due_ms=0).headers == {"trace": "7"}


def test_a_function_of_the_running_job_is_the_key(sent: DelayQ) -> None:
    def tenant(running: RunningJob) -> str:
        return running.context.queue

    runs = Runs("sync", [Concurrency("mail", 1, key=tenant)])
    hold(sent, "mail", key=decode(envelope_of("a")).queue)
    assert runs.is_refused("b")
