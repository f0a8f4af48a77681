"""Job classes as they are declared: what is refused, where, and with which sentence."""

from __future__ import annotations

import dataclasses
import subprocess
import sys
import types
from typing import Any, ClassVar

import pytest

from delayq.core.errors import ConfigError, DelayqError, InvalidDuration, InvalidName
from delayq.jobs.context import JobContext
from delayq.jobs.job import Job
from delayq.jobs.options import NAMES
from delayq.jobs.registry import Registry, current, using


@pytest.fixture(autouse=True)
def registry() -> Any:
    with using(Registry()) as registry:
        yield registry


def declare(body: dict[str, Any], fields: dict[str, Any] | None = None, **options: Any) -> Any:
    members = {"__annotations__": fields or {}, "__module__": "shop", **body}
    return types.new_class("Close", (Job,), options, lambda namespace: namespace.update(members))


def test_it_is_a_dataclass_with_fields_by_keyword() -> None:
    class Close(Job, name="order.close"):
        order_id: int
        lines: list[str] = dataclasses.field(default_factory=list)
        LIMIT: ClassVar[int] = 3

        def handle(self) -> None: ...

    assert Close(order_id=1) == Close(order_id=1, lines=[])
    assert repr(Close(order_id=1)).endswith("Close(order_id=1, lines=[])")
    assert [field.name for field in dataclasses.fields(Close)] == ["order_id", "lines"]
    with pytest.raises(TypeError):
        Close(1)  # type: ignore[call-arg]
    assert current().get("order.close").name == "order.close"


BELONGING = ("dispatch", "on_queue", "with_headers", "release", "context")


@pytest.mark.parametrize("name", [*NAMES, *BELONGING])
def test_reserved_names_are_refused_when_the_class_is_made(name: str) -> None:
    bodies: list[tuple[dict[str, Any], dict[str, Any]]]
    bodies = [({}, {name: int}), ({name: 3}, {}), ({name: 3}, {name: int}), ({name: lambda self: 3}, {})]
    if name == "middleware":  # an option, and the one hook of that name: the method is allowed, nothing else
        del bodies[-1]
    for body, fields in bodies:
        with pytest.raises(ConfigError, match=f"Close has a member '{name}', which (is the name|belongs)"):
            declare(body, fields)


def test_a_mixin_cannot_smuggle_one_in() -> None:
    class Slow:
        tries = 9

    with pytest.raises(ConfigError, match="has a member 'tries', which is the name of an option"):

        class Close(Slow, Job): ...


def test_private_fields_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"'_secret' of .* starts with an underscore"):
        declare({}, {"_secret": int})


@pytest.mark.parametrize(
    ("options", "error", "words"),
    [
        ({"quee": "a"}, ConfigError, "'Close' has an option 'quee'"),
        ({"tries": -1}, ConfigError, "tries=-1"),
        ({"max_exceptions": 0}, ConfigError, "max_exceptions=0"),
        ({"on_timeout": "explode"}, ConfigError, "on_timeout='explode'"),
        ({"middleware": "timed"}, ConfigError, r"Give a list: middleware="),
        ({"middleware": [7]}, ConfigError, "7 is no middleware"),
        ({"tags": "urgent"}, ConfigError, r"Give a list: tags=\['urgent'\]"),
        ({"timeout": "30"}, InvalidDuration, "30"),
        ({"delay": "soon"}, InvalidDuration, "soon"),
        ({"retry_until": "15 minuets"}, InvalidDuration, "minuets"),
        ({"queue": "a b"}, InvalidName, "a b"),
        ({"name": "a b"}, InvalidName, "a b"),
    ],
)
def test_bad_options_are_refused_when_the_class_is_made(
    options: dict[str, Any], error: type[DelayqError], words: str
) -> None:
    with pytest.raises(error, match=words):
        declare({"handle": lambda self: None}, **options)
    assert current().names() == ()


def test_handle_takes_the_context_or_nothing() -> None:
    def untyped(self: Any, context) -> None: ...  # type: ignore[no-untyped-def]
    def typed(self: Any, context: JobContext) -> None: ...
    def other(self: Any, order_id: int) -> None: ...
    def two(self: Any, context: JobContext, more: int) -> None: ...
    def generator(self: Any) -> Any:
        yield 1

    declare({"handle": untyped}, name="a")
    declare({"handle": typed}, name="b")
    for bad in (other, two):
        with pytest.raises(ConfigError, match="It may take one parameter, the context"):
            declare({"handle": bad}, name="c")
    with pytest.raises(ConfigError, match="generator"):
        declare({"handle": generator}, name="d")


def test_a_class_without_handle_is_a_base_and_cannot_be_dispatched() -> None:
    base = declare({})
    assert current().names() == ()
    with pytest.raises(DelayqError, match="has no handle"):
        base().dispatch()


def test_two_classes_of_one_name_are_refused() -> None:
    class One(Job, name="same"):
        def handle(self) -> None: ...

    with pytest.raises(ConfigError, match="Two handlers are registered for 'same'"):

        class Two(Job, name="same"):
            def handle(self) -> None: ...


def test_a_type_that_is_defined_further_down() -> None:
    class Close(Job):
        line: Later

        def handle(self) -> None: ...

    handler = Close._handler
    assert handler is not None
    assert bytes(handler.write(Close(line=Later(1)))) == b'{"line":{"x":1}}'


@dataclasses.dataclass
class Later:
    x: int


def test_a_type_that_is_nowhere() -> None:
    class Close(Job):
        line: Nowhere  # type: ignore[name-defined]  # noqa: F821

        def handle(self) -> None: ...

    with pytest.raises(ConfigError, match="import its type at the top of the module"):
        Close(line=1).dispatch()


def test_declaring_jobs_costs_neither_pydantic_nor_redis() -> None:
    code = (
        "import sys, delayq; from delayq import Job, JobContext, dispatch, handles, job;"
        "print([name for name in ('pydantic', 'redis', 'typer', 'asyncio') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "['asyncio']"
