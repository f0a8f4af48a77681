"""Mistakes that are refused where they are made: at the class, at the dispatch, at the schedule."""

from __future__ import annotations

import dataclasses
import types
from collections.abc import Callable
from dataclasses import InitVar
from datetime import UTC, datetime
from typing import Any, Generic, TypeVar
from zoneinfo import ZoneInfo

import msgspec
import pytest

from delayq.core.errors import ConfigError, InvalidDuration, InvalidInput, InvalidPayload, InvalidTime
from delayq.core.options import Options
from delayq.core.spec import JobSpec, prepare
from delayq.jobs.batch import batch
from delayq.jobs.chain import chain
from delayq.jobs.codecs import Codecs
from delayq.jobs.dispatch import dispatch, dispatch_many, named
from delayq.jobs.job import Job
from delayq.jobs.payload import Field, Payload
from delayq.jobs.registry import Registry, using

T = TypeVar("T")
U = TypeVar("U")


@pytest.fixture(autouse=True)
def registry() -> Any:
    with using(Registry()) as registry:
        yield registry


def declare(**options: Any) -> Any:
    members = {"__annotations__": {"order_id": int}, "__module__": "shop", "handle": lambda self: None}
    return types.new_class("Close", (Job,), options, lambda namespace: namespace.update(members))


@pytest.mark.parametrize(
    "send",
    [
        lambda: declare()(order_id=1).dispatch(dealy="15m"),
        lambda: declare()(order_id=1).dispatch_sync(dealy=1),
        lambda: declare()(order_id=1).on_queue("vip").dispatch_after_response(dealy=1),
        lambda: dispatch("Close", {}, dealy="15m"),  # type: ignore[call-arg]
    ],
)
def test_an_option_nobody_knows_is_refused(send: Callable[[], Any]) -> None:
    with pytest.raises(InvalidInput, match="'Close' has no option 'dealy'") as refused:
        send()
    assert refused.value.hint == "Did you mean 'delay'?"
    with pytest.raises(InvalidInput) as refused:
        named("x").dispatch_sync(xyzzy=1)  # type: ignore[call-arg]
    assert "after_commit, at, backoff" in str(refused.value.hint)


TAGS_AND_HEADERS: list[tuple[dict[str, Any], str]] = [
    ({"tags": [1]}, "The tag 1 is no text"),
    ({"tags": "abc"}, "tags is the text 'abc', and they are a list"),
    ({"tags": 5}, "tags is 5, and they are a list of texts"),
    ({"tags": [["a"]]}, "The tag a value of type list is no text"),
    ({"tags": ["\ud800"]}, "is no text"),
    ({"headers": {"tenant": 7}}, "The header 'tenant' is 7, which is no text"),
    ({"headers": {7: "x"}}, "The name of a header is 7"),
    ({"headers": "x"}, "headers is 'x', and they are a mapping"),
]


@pytest.mark.parametrize(("given", "words"), TAGS_AND_HEADERS)
def test_tags_and_headers_are_text(given: dict[str, Any], words: str) -> None:
    with pytest.raises(InvalidInput, match=words):
        prepare(JobSpec(name="x", **given), Options(), 0)
    with pytest.raises(InvalidInput, match=words):
        declare()(order_id=1).dispatch_sync(**given)


def test_fluent_tags_and_headers_and_those_a_function_makes() -> None:
    for tags in ([1], "abc"):
        with pytest.raises(InvalidInput, match="tag"):
            declare(tags=lambda job, tags=tags: tags)(order_id=1).dispatch_sync()
    with pytest.raises(InvalidInput, match="'tenant' is 7"):
        declare()(order_id=1).with_headers({"tenant": 7})
    declare(tags=lambda job: ["é"])(order_id=1).tags("a").with_headers({"tenant": "7"}).dispatch_sync()


@pytest.mark.parametrize(
    ("options", "error", "words"),
    [
        ({"delay": 5}, InvalidDuration, "declares a wrong delay: 5 is no duration: it has no unit"),
        ({"delay": "2026-11-21T15:00:00Z"}, InvalidDuration, "declares a wrong delay"),
        ({"deadline": 5}, InvalidDuration, "declares a wrong deadline"),
        ({"deadline": "garbage-x"}, InvalidTime, "declares a wrong deadline: 'garbage-x' is no point in time"),
        ({"retry_until": 1.5}, InvalidDuration, "declares a wrong retry_until"),
        ({"retry_until": datetime(2026, 1, 1)}, InvalidTime, "has no offset"),  # noqa: DTZ001
        ({"connection": 5}, ConfigError, "has connection=5"),
        ({"tags": 5}, ConfigError, "declares wrong tags: tags is 5"),
        ({"tags": [5]}, ConfigError, "declares wrong tags: The tag 5 is no text"),
    ],
)
def test_a_wrong_value_is_refused_at_the_class(options: dict[str, Any], error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        declare(**options)


def test_limits_that_are_points_in_time_are_fine() -> None:
    far = datetime(2999, 1, 1, tzinfo=UTC)
    options = declare(deadline=far, retry_until="2999-01-01T00:00:00Z", delay="5m", tags=("a",)).job_options
    assert (options.deadline, list(options.tags)) == (far, ["a"])


@pytest.mark.parametrize("thing", [5, int, "order.close"])
def test_many_takes_jobs_only(thing: Any) -> None:
    with pytest.raises(InvalidInput, match=r"(5|The class int|'order.close') is no job"):
        dispatch_many([thing])


@pytest.mark.parametrize("made", [chain(5), chain(named("a"), 5), batch([5]), batch([[named("a"), 5]]), chain([int])])  # type: ignore[arg-type, list-item]
def test_chains_and_batches_take_jobs_only(made: Any) -> None:
    with pytest.raises(InvalidInput, match=r"(5|The class int) is no job"):
        made.dispatch()


@pytest.mark.parametrize("options", [{"allow_failure": True}, {"finaly": ()}, {"on_queue": "x", "name": "n"}])
def test_a_batch_has_no_other_options(options: Any) -> None:
    with pytest.raises(InvalidInput, match=r"A batch has no option '\w+'\. It has id, name, allow_failures, before"):
        batch([], **options)


@pytest.mark.parametrize("unique", [5, ["a"], object()])
def test_what_is_no_unique_key(unique: Any) -> None:
    with pytest.raises(InvalidInput, match=r"unique=.* is no key\. Use a text, or a Unique"):
        dispatch("a", unique=unique)


def test_an_init_var_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"The field 'secret' of .*Close is an InitVar, which would not travel"):

        class Close(Job):
            order_id: int
            secret: InitVar[str]


BERLIN = ZoneInfo("Europe/Berlin")


@dataclasses.dataclass
class Slot:
    start: datetime


class Window(msgspec.Struct):
    start: datetime


@pytest.mark.parametrize("fold", [0, 1])
@pytest.mark.parametrize(("month", "day"), [(10, 25), (3, 29)])
def test_a_time_at_a_change_of_the_clocks_travels(fold: int, month: int, day: int) -> None:
    when = datetime(2026, month, day, 2, 30, tzinfo=BERLIN, fold=fold)
    shapes: list[tuple[Any, Any]] = [
        (datetime, when),
        (list[datetime | None], [when, None]),
        (dict[str, datetime], {"a": when}),
        (Slot, Slot(when)),
        (Window, Window(when)),
    ]
    for kind, value in shapes:
        payload = Payload("x", [Field("value", kind)], Codecs())
        back = payload.read(payload.write({"value": value}))["value"]
        if kind is datetime:
            assert back.astimezone(UTC) == when.astimezone(UTC)


def test_a_datetime_in_a_field_of_any_type_is_still_refused() -> None:
    payload = Payload("x", [Field("value", Any)], Codecs())
    with pytest.raises(InvalidPayload, match="a datetime is read as a str"):
        payload.write({"value": datetime(2026, 10, 25, 2, 30, tzinfo=BERLIN)})


def test_a_generic_job_checks_what_its_subclass_says() -> None:
    class Move(Job, Generic[T, U]):
        first: T
        more: list[U] | None = None

    class Named(Move[str, T], Generic[T]):
        third: T

    class Dated(Named[datetime], name="dated"):
        def handle(self) -> Any:
            return self.first, self.more, self.third

    when = datetime(2026, 1, 1, tzinfo=UTC)
    assert Dated(first="a", more=[when], third=when).dispatch_sync().result == ("a", [when], when)
    wrong: Any = Dated
    for fields in ({"first": 1, "third": when}, {"first": "a", "third": 1}, {"first": "a", "third": when, "more": [1]}):
        with pytest.raises(InvalidPayload, match="dated"):
            wrong(**fields).dispatch_sync()
