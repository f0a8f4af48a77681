"""References without a database: models of one's own, and what is asked of them."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Annotated, Any

import msgspec
import pytest

from delayq import Job, Models, OnMissing, Reference, job, use_models
from delayq.core.errors import ConfigError, DelayqError, InvalidPayload, ModelMissing
from delayq.core.outcome import Ack, GiveUp, Outcome
from delayq.jobs.codecs import Codecs
from delayq.jobs.dispatch import dispatch, named
from delayq.jobs.payload import Field, Payload
from delayq.jobs.registry import Registry, current, using
from delayq.testing import arun_job, run_job


class Document:
    """A model of the application's own."""

    def __init__(self, number: int) -> None:
        self.number = number


class Letter(Document):
    """One of a special kind, under the same name."""


class Documents(Models):
    """Keeps them in memory and remembers what it was asked for. Those with a number below 0 are never found."""

    def __init__(self) -> None:
        self.asked: list[tuple[Sequence[Any], Any]] = []
        self.threads: list[int] = []
        self.open = 0
        self.errors: list[BaseException | None] = []

    def name_of(self, kind: type) -> str | None:
        return "document" if issubclass(kind, Document) else None

    def kind_of(self, name: str) -> type | None:
        return Document if name == "document" else None

    def key_of(self, model: Any) -> Any:
        return model.number or None

    def load(self, kind: type, keys: Sequence[Any], session: Any, eager: Any) -> Iterable[Any]:
        self.asked.append((keys, eager))
        self.threads.append(threading.get_ident())
        assert (session, self.open) == ("session", 1)
        return (Letter(key) if key > 100 else Document(key) for key in reversed(keys) if key > 0)

    def session(self) -> AbstractContextManager[Any]:
        return self._session()

    @contextmanager
    def _session(self) -> Iterator[str]:
        self.open += 1
        try:
            yield "session"
        except BaseException as error:
            self.errors.append(error)
            raise
        else:
            self.errors.append(None)
        finally:
            self.open -= 1


@pytest.fixture
def documents() -> Iterator[Documents]:
    with using(Registry()):
        documents = Documents()
        use_models(documents)
        yield documents


def payload(*fields: tuple[str, Any]) -> Payload:
    return Payload("x", [Field(name, kind) for name, kind in fields], current().codecs)


def error_of(outcome: Outcome) -> BaseException:
    assert isinstance(outcome, GiveUp)
    return outcome.error


def test_a_name_and_a_key_travel(documents: Documents) -> None:
    made = payload(("one", Document), ("many", list[Document]), ("maybe", Document | None), ("n", int))
    raw = made.write({"one": Document(1), "many": [Document(3), Document(2)], "maybe": None, "n": 1})
    assert bytes(raw) == (
        b'{"one":{"model":"document","key":1},"many":[{"model":"document","key":3},{"model":"document","key":2}],'
        b'"maybe":null,"n":1}'
    )
    assert documents.asked == []
    values = made.read(raw)
    assert [values["one"].number, [one.number for one in values["many"]], values["maybe"]] == [1, [3, 2], None]
    assert documents.asked == [([1, 3, 2], None)]
    assert documents.open == 0


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (list[Document], [Document(1), Document(2)]),
        (set[Document], {Document(1), Document(2)}),
        (frozenset[Document], frozenset({Document(1)})),
        (tuple[Document, int], (Document(1), 7)),
        (dict[str, list[Document]], {"a": [Document(1)], "b": []}),
        (Sequence[Document], [Document(1)]),
        (Annotated[list[Document], msgspec.Meta(max_length=2)], [Document(1)]),
        (list[Annotated[Document, Reference()]] | None, [Document(1)]),
    ],
)
def test_containers(documents: Documents, kind: Any, value: Any) -> None:
    made = payload(("it", kind))
    back = made.read(made.write({"it": value}))["it"]
    assert type(back) is type(value)
    assert numbers(back) == numbers(value)


def numbers(value: Any) -> Any:
    """The numbers of all documents in a value, in their order or sorted."""
    if isinstance(value, Document):
        return value.number
    if isinstance(value, dict):
        return {key: numbers(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [numbers(one) for one in value]
    return sorted(map(numbers, value)) if isinstance(value, set | frozenset) else value


def test_a_limit_beside_a_model_still_holds(documents: Documents) -> None:
    made = payload(("it", Annotated[list[Document], msgspec.Meta(max_length=1)]))
    with pytest.raises(InvalidPayload, match=r"The field 'it' of 'x' cannot be sent: Expected `array` of length <= 1"):
        made.write({"it": [Document(1), Document(2)]})


def test_unsaved_and_foreign_models_are_refused_by_field(documents: Documents) -> None:
    made = payload(("one", Letter))
    with pytest.raises(InvalidPayload, match=r"The field 'one' of 'x' holds a Letter that is not saved.*Save it"):
        made.write({"one": Letter(0)})
    with pytest.raises(InvalidPayload, match="The field 'one' of 'x' takes Letter, not Document"):
        made.write({"one": Document(1)})


def test_what_comes_back_must_fit_the_field(documents: Documents) -> None:
    made = payload(("one", Letter))
    assert isinstance(made.read(msgspec.Raw(b'{"one":{"model":"document","key":101}}'))["one"], Letter)
    with pytest.raises(InvalidPayload, match="document with the key 1 is a Document, not Letter"):
        made.read(msgspec.Raw(b'{"one":{"model":"document","key":1}}'))
    with pytest.raises(InvalidPayload, match=r"holds the model 'tests.unit.Document', not Letter"):
        made.read(msgspec.Raw(b'{"one":{"model":"tests.unit.Document","key":1}}'))
    with pytest.raises(ModelMissing, match="The document with the key -1 is gone; the field 'one' of 'x' means it"):
        made.read(msgspec.Raw(b'{"one":{"model":"document","key":-1}}'))


def test_a_job_has_one_session_until_it_is_over(documents: Documents) -> None:
    seen: list[Any] = []

    @job("read")
    def read(
        one: Document, same: Document, other: Annotated[Document, Reference(eager="all")], fail: bool = False
    ) -> None:
        seen.append((documents.open, one is same, one is other))
        if fail:
            raise RuntimeError("no")

    assert run_job(read.job(Document(1), Document(1), Document(1))) == Ack()
    assert (seen, documents.open, documents.errors) == ([(1, True, False)], 0, [None])
    assert documents.asked == [([1], None), ([1], "all")]
    run_job(read.job(Document(1), Document(1), Document(1), fail=True))
    assert (documents.open, repr(documents.errors[1])) == (0, "RuntimeError('no')")


async def test_an_async_job_loads_in_a_thread_unless_its_models_know_better(documents: Documents) -> None:
    seen: list[Any] = []

    @job("read")
    async def read(one: Document) -> None:
        await asyncio.sleep(0)
        seen.append((documents.open, one.number))

    assert await arun_job(read.job(Document(1))) == Ack()
    assert (seen, documents.open) == ([(1, 1)], 0)
    assert documents.threads != [threading.get_ident()]


async def test_async_models(documents: Documents) -> None:
    class Remote(Documents):
        async def aload(self, kind: type, keys: Sequence[Any], session: Any, eager: Any) -> Iterable[Any]:
            await asyncio.sleep(0)
            return self.load(kind, keys, session, eager)

    with using(Registry()):
        remote = Remote()
        use_models(remote)

        @job("read")
        async def read(one: Document) -> int:
            return one.number

        assert await arun_job(read.job(Document(1))) == Ack()
    assert remote.threads == [threading.get_ident()]


def test_a_plain_function_that_answers_with_a_coroutine_keeps_its_session(documents: Documents) -> None:
    seen: list[int] = []

    async def later() -> None:
        seen.append(documents.open)

    @job("read")
    def read(one: Document) -> Any:
        return later()

    assert run_job(read.job(Document(1))) == Ack()
    assert (seen, documents.open) == ([1], 0)


def test_the_failed_hook_is_not_called_when_its_model_went_meanwhile(
    documents: Documents, caplog: pytest.LogCaptureFixture
) -> None:
    gone: list[str] = []

    class Read(Job, name="read", tries=1):
        one: Document

        def handle(self) -> None:
            documents.load = lambda *_: []  # type: ignore[method-assign]
            raise RuntimeError("no")

        def failed(self, error: BaseException) -> None:
            gone.append(str(error))

    assert str(error_of(run_job(Read(one=Document(1))))) == "no"
    assert gone == []
    assert "the failed hook of read was not called: The document with the key 1 is gone" in caplog.text


def test_policies_are_words(documents: Documents) -> None:
    assert Reference(on_missing="discard").on_missing is OnMissing.DISCARD
    with pytest.raises(ConfigError, match="on_missing is 'ignore'"):
        Reference(on_missing="ignore")
    with pytest.raises(ConfigError, match="on_missing is 'ignore'"):

        @job("read", on_missing="ignore")
        def read(one: Document) -> None: ...


def test_a_policy_of_the_job_and_of_the_reference(documents: Documents) -> None:
    @job("drop", on_missing="discard")
    def drop(one: Document, two: Annotated[Document, Reference(on_missing="fail")]) -> None: ...

    assert run_job(drop.job(Document(-1), Document(1))) == Ack()
    assert isinstance(error_of(run_job(drop.job(Document(1), Document(-1)))), ModelMissing)
    assert documents.open == 0


def test_jobs_without_models_are_left_alone(documents: Documents) -> None:
    @job("plain")
    def plain(n: int) -> None: ...

    assert current().get("plain") is plain
    run_job(plain.job(1))
    assert documents.asked == []


def test_nobody_knows_a_model_without_its_models() -> None:
    made = Payload("x", [Field("one", Document)], Codecs())
    with pytest.raises(InvalidPayload, match="The field 'one' of 'x' cannot be sent: nothing writes a Document"):
        made.write({"one": Document(1)})


def test_a_reference_by_hand_is_read_like_any_other(documents: Documents) -> None:
    @job("read", tries=1)
    def read(one: Document) -> None: ...

    assert run_job(named("read", {"one": {"model": "document", "key": 1}})) == Ack()
    assert "Object missing required field `key`" in str(
        error_of(run_job(named("read", {"one": {"model": "document"}})))
    )
    with pytest.raises(DelayqError, match="gone"):
        dispatch("read", {"one": {"model": "document", "key": -1}}, connection="sync")
