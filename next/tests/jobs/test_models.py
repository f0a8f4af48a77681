"""Models of SQLAlchemy and of other libraries as fields: what is sent, and what a handler gets."""

import asyncio
import json
import logging
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import field
from pathlib import Path
from typing import Annotated, Any
from uuid import UUID, uuid4

import msgspec
import pytest
from sqlalchemy import Engine, create_engine, event, inspect
from sqlalchemy.ext.asyncio import async_object_session, async_sessionmaker, create_async_engine
from sqlalchemy.orm import Session, object_session, scoped_session, sessionmaker

from delayq import (
    ConfigError,
    DelayQ,
    InvalidInput,
    Job,
    JobContext,
    ModelMissing,
    ModelRef,
    Next,
    RunningJob,
    dispatch,
    handles,
    job,
    use_models,
)
from delayq.contrib.sqlalchemy import SQLAlchemyModels
from delayq.core.outcome import Done, GiveUp
from delayq.jobs import models
from delayq.jobs.limits import _key_of
from delayq.jobs.local_run import Ran, arun, run
from delayq.jobs.models import Wanted
from tests.jobs.support import payload_of
from tests.support.queue import envelope_of
from tests.support.sqlalchemy_shop import Badge, Base, Buyer, Line, Note, Order, RushOrder, Score, Stock, Tag

SHOP = "tests.support.sqlalchemy_shop"
UUID_KEY = UUID("01234567-89ab-cdef-0123-456789abcdef")


@pytest.fixture(autouse=True)
def forgotten_models() -> Iterator[None]:
    yield
    models._used.clear()


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[Engine]:
    engine = create_engine(f"sqlite:///{tmp_path}/shop.db")
    Base.metadata.create_all(engine)
    with Session(engine) as session:
        session.add_all([Order(id=42, lines=[Line(id=1), Line(id=2)]), Order(id=43), RushOrder(id=44)])
        session.add_all(
            [
                Buyer(id=UUID_KEY),
                Stock(warehouse=1, product=2),
                Score(value=0.5),
                Note(text="hello"),
                Tag(name="Red"),
                Badge(code="B5"),
            ]
        )
        session.commit()
    yield engine
    engine.dispose()


@pytest.fixture
def session(engine: Engine) -> Iterator[Session]:
    use_models(SQLAlchemyModels(sessionmaker(engine)))
    with Session(engine) as session:
        yield session


@pytest.fixture
def queries(engine: Engine) -> list[str]:
    statements: list[str] = []
    event.listen(engine, "before_cursor_execute", lambda *words: statements.append(words[2]))
    return statements


SAVE = (
    "Add it to a session and commit, then dispatch the job. "
    "Before the commit, flush the session and use within=session."
)


def ref(key: int | str, kind: str = "Order", **more: str) -> dict[str, Any]:
    return {"model": f"{SHOP}.{kind}", "key": key, **more}


def sent_as(name: str, data: Any) -> bytes:
    return envelope_of("a-1", name=name).replace(b'"data":{}', b'"data":' + msgspec.json.encode(data))


def ran(name: str, data: Any) -> Ran:
    return run(sent_as(name, data))


# -- what is sent ------------------------------------------------------------------------------------------------------


def test_fields_are_sent_as_name_and_key_without_a_query(session: Session, queries: list[str]) -> None:
    @job("models.sent")
    def sent(  # noqa: PLR0917
        order: Order,
        none: Order | None,
        orders: list[Order],
        buyer: Annotated[Buyer, "of the order"],
        note: Note,
        rush: Order,
        n: int = 0,
        later: Order | None = None,
    ) -> None: ...

    order, rush, buyer = session.get_one(Order, 42), session.get_one(Order, 44), session.get_one(Buyer, UUID_KEY)
    note = session.get_one(Note, "hello")
    session.expire_all()
    queries.clear()
    assert payload_of(sent.job(order, None, [order, rush], buyer, note, rush, n=1)) == {
        "order": ref(42),
        "none": None,
        "orders": [ref(42), ref(44)],
        "buyer": ref(str(UUID_KEY), "Buyer"),
        "note": ref("hello", "Note"),
        "rush": ref(44),
        "n": 1,
    }
    assert queries == []


def test_a_model_that_was_added_is_refused_until_it_is_flushed(session: Session) -> None:
    @job("models.added")
    def added(buyer: Buyer) -> None: ...

    buyer = Buyer(id=uuid4())
    session.add(buyer)
    with session.no_autoflush, pytest.raises(InvalidInput) as refused:
        payload_of(added.job(buyer))
    assert f"This Buyer has the key {str(buyer.id)!r}, but it is not saved. {SAVE}" in str(refused.value)
    session.flush()
    assert payload_of(added.job(buyer)) == {"buyer": ref(str(buyer.id), "Buyer")}
    session.rollback()
    with pytest.raises(InvalidInput, match="but it is not saved"):
        payload_of(added.job(buyer))


def test_a_deleted_model_is_refused_unless_the_deletion_is_rolled_back(session: Session, queries: list[str]) -> None:
    @job("models.deleted")
    def deleted(order: Order) -> None: ...

    order = session.get_one(Order, 43)
    session.delete(order)
    assert payload_of(deleted.job(order)) == {"order": ref(43)}
    session.flush()
    refusal = r"This Order has the key 43, but it is deleted\. Send an object whose row exists"
    queries.clear()
    with pytest.raises(InvalidInput, match=refusal):
        payload_of(deleted.job(order))
    assert queries == []
    session.rollback()
    assert payload_of(deleted.job(order)) == {"order": ref(43)}
    session.delete(order)
    session.commit()
    with pytest.raises(InvalidInput, match=refusal):
        payload_of(deleted.job(order))


def test_a_job_class_and_a_dispatch_by_name_send_the_same(
    session: Session, manager: Any, sent: DelayQ, queries: list[str]
) -> None:
    class Close(Job, name="models.class"):
        order: Order
        others: list[Order] = field(default_factory=list)

        def handle(self) -> None: ...

    order, rush = session.get_one(Order, 42), session.get_one(RushOrder, 44)
    assert payload_of(Close(order=rush)) == {"order": ref(44), "others": []}
    queries.clear()
    for name, kind in (("models.class", "Order"), ("models.elsewhere", "RushOrder")):
        info = sent.get(dispatch(name, {"order": rush, "others": [order], "n": 1}).id)
        assert info is not None and info.envelope is not None
        data = msgspec.json.decode(info.envelope.data)
        assert data == {"order": ref(44, kind), "others": [ref(42)], "n": 1}
    assert queries == []


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (Order(), f"This Order has no key, because it is not saved. {SAVE}"),
        (Order(id=7), f"This Order has the key 7, but it is not saved. {SAVE}"),
        (
            42,
            f'42 is not a model {SHOP}.Order. Send an object of this class, or ModelRef("{SHOP}.Order", key).',
        ),
        (None, "None is not a model tests.support.sqlalchemy_shop.Order."),
        ({"model": f"{SHOP}.Order", "key": 42}, f'or ModelRef("{SHOP}.Order", key).'),
        (ModelRef("shop.Buyer", 1), f"The ModelRef names the model 'shop.Buyer', and not {SHOP}.Order. Send an object"),
    ],
)
def test_an_unsaved_model_and_other_values_are_refused(
    session: Session, manager: Any, sent: DelayQ, value: Any, message: str
) -> None:
    @job("models.refused")
    def refused(order: Order) -> None: ...

    with pytest.raises(InvalidInput) as raised:
        refused.job(order=value).dispatch(queue="refused")
    assert "The field 'order' of the job 'models.refused' cannot be sent: " in str(raised.value)
    assert message in str(raised.value)
    assert (raised.value.field, raised.value.exit_code) == ("data", 2)
    assert sent.queues() == []


def test_an_unsaved_model_in_a_list_or_in_a_dispatch_by_name_is_refused(
    session: Session, manager: Any, sent: DelayQ
) -> None:
    @job("models.listed")
    def listed(orders: list[Order]) -> None: ...

    refusals: list[Callable[[], Any]] = [
        lambda: listed.job(orders=[session.get_one(Order, 42), Order()]).dispatch(),
        lambda: listed.job(orders=Order()).dispatch(),  # type: ignore[arg-type]
        lambda: dispatch("models.listed", {"orders": [Order()]}),
        lambda: dispatch("models.nowhere", {"orders": Order()}),
    ]
    for refused in refusals:
        with pytest.raises(InvalidInput, match="The field 'orders' of the job 'models"):
            refused()
    assert sent.queues() == []


def test_a_client_that_gets_a_model_names_the_ways_to_send_it(session: Session, sent: DelayQ) -> None:
    order = session.get_one(Order, 42)
    hint = "To send a database model, pass it to `dispatch` as a member of the payload: "
    for data in ({"order": order}, {"orders": [{"order": order}]}):
        with pytest.raises(InvalidInput, match=re.escape(hint)):
            sent.schedule("models.scheduled", data)
    assert sent.queues() == []
    assert sent.schedule("models.scheduled", {"order": ModelRef(f"{SHOP}.Order", 42)}).outcome == "created"


def test_keys_of_several_columns_or_of_other_types_are_refused(session: Session) -> None:
    with pytest.raises(
        InvalidInput, match=r"'stock' of the job 'models.stock' .* has 2 columns. Send the key in plain"
    ):

        @job("models.stock")
        def stock(stock: Stock) -> None: ...

    @job("models.score")
    def score(score: Score) -> None: ...

    with pytest.raises(InvalidInput, match=r"The key of .*Score is 0.5. Keys can be int, str or UUID"):
        payload_of(score.job(session.get_one(Score, 0.5)))


@pytest.mark.parametrize("kind", [dict[str, Order], list[list[Order]], dict[str, Note]])
def test_models_deeper_in_a_field_are_refused(kind: Any) -> None:
    def nested(orders: Any) -> None: ...

    nested.__annotations__["orders"] = kind
    with pytest.raises(InvalidInput, match="is a model, and a field can only be a model, a model or None, or a list"):
        job("models.nested")(nested)


@pytest.mark.parametrize("value", ["keep", True, 1])
def test_on_missing_is_checked(value: Any) -> None:
    with pytest.raises(InvalidInput, match=r"on_missing is .* Use 'fail' or 'discard'."):
        job("models.on_missing", on_missing=value)


# -- what the handler gets ---------------------------------------------------------------------------------------------


def test_each_attempt_loads_each_model_once_in_one_open_session(session: Session, queries: list[str]) -> None:
    seen: list[Any] = []

    @job("models.loaded")
    def loaded(order: Order, none: Order | None, orders: list[Order], buyer: Buyer, note: Note) -> None:
        seen.append((order.id, none, [one.id for one in orders], buyer.id, note.text, type(orders[1])))
        assert object_session(order) is object_session(buyer) is object_session(note)
        assert orders[0] is orders[2] is order
        queries.append("handler")
        seen.append(len(order.lines))

    queries.clear()
    data = {
        "order": ref(42),
        "none": None,
        "orders": [ref(42), ref(44), ref(42)],
        "buyer": ref(str(UUID_KEY), "Buyer"),
        "note": ref("hello", "Note"),
    }
    assert isinstance(ran("models.loaded", data).outcome, Done)
    assert seen == [(42, None, [42, 44, 42], UUID_KEY, "hello", RushOrder), 2]
    assert queries.index("handler") == 3
    assert ran("models.loaded", data).error is None
    assert len(seen) == 4


SPELLINGS = [
    (Order, 42, "042"),
    (Order, 42, "42"),
    (Buyer, UUID_KEY, UUID_KEY.hex),
    (Buyer, UUID_KEY, str(UUID_KEY).upper()),
    (Tag, "Red", "rED"),
    (Badge, "B5", 5),
]


@pytest.mark.parametrize(("kind", "key", "text"), SPELLINGS)
def test_a_key_in_another_spelling_finds_its_row(engine: Engine, kind: type, key: Any, text: Any) -> None:
    seen: list[Any] = []
    path = engine.url.database
    async_engine = create_async_engine(f"sqlite+aiosqlite:///{path}")
    use_models(SQLAlchemyModels(sessionmaker(engine), async_sessions=async_sessionmaker(async_engine)))

    def spelled(one: Any, several: Any) -> None:
        seen.append([inspect(row).identity[0] for row in (one, *several)])

    async def aspelled(one: Any, several: Any) -> None:
        spelled(one, several)

    spelled.__annotations__.update(one=kind, several=list[kind])  # type: ignore[valid-type]
    aspelled.__annotations__.update(one=kind, several=list[kind])  # type: ignore[valid-type]
    declared: Any = job("models.spelled", on_missing="discard")(spelled)
    job("models.aspelled", on_missing="discard")(aspelled)
    wanted, standard = ref(text, kind.__name__), ref(str(key), kind.__name__)
    for name in ("models.spelled", "models.aspelled"):
        assert ran(name, {"one": wanted, "several": [wanted, standard]}).outcome == Done()
    assert seen == [[key] * 3] * 2
    payload = payload_of(declared.job(ModelRef(**wanted), [ModelRef(**wanted)]))
    if kind not in (Tag, Badge):
        assert payload["one"] == payload["several"][0] == ref(42 if kind is Order else str(UUID_KEY), kind.__name__)
    asyncio.run(async_engine.dispose())


def test_a_reference_takes_a_uuid(session: Session) -> None:
    @job("models.uuid")
    def taken(buyer: Buyer) -> None: ...

    given: Any = ModelRef(f"{SHOP}.Buyer", UUID_KEY)  # type: ignore[arg-type]
    assert payload_of(taken.job(given)) == {"buyer": ref(str(UUID_KEY), "Buyer")}


def test_a_discard_of_a_missing_row_is_logged_once(session: Session, caplog: pytest.LogCaptureFixture) -> None:
    @job("models.logged", on_missing="discard")
    def logged(order: Order) -> None: ...

    with caplog.at_level(logging.INFO, logger="delayq"):
        ran("models.logged", {"order": ref(1)})
    assert [record.getMessage() for record in caplog.records] == [
        f"job a-1 (models.logged) is discarded: there is no {SHOP}.Order with the key 1"
    ]


def test_the_row_is_read_at_the_attempt(session: Session) -> None:
    states: list[str] = []

    class Close(Job, name="models.fresh"):
        order: Order

        def handle(self) -> None:
            states.append(self.order.state)

    order = session.get_one(Order, 42)
    close = Close(order=order)
    payload = payload_of(close)
    order.state = "paid"
    session.commit()
    ran("models.fresh", payload)
    close.dispatch_sync()
    assert states == ["paid", "paid"]


@pytest.mark.parametrize(("commits", "begins"), [(False, False), (True, False), (False, True)])
def test_the_handler_commits_or_the_sessions_do(engine: Engine, commits: bool, begins: bool) -> None:
    sessions = sessionmaker(engine)
    use_models(SQLAlchemyModels(sessions.begin if begins else sessions))

    @job("models.commits")
    def commit(order: Order, error: bool) -> None:
        order.state = "closed"
        session = object_session(order)
        assert session is not None
        if commits:
            session.commit()
        if error:
            raise ValueError

    def state_after(*, error: bool) -> str:
        ran("models.commits", {"order": ref(42), "error": error})
        with Session(engine) as session:
            return session.get_one(Order, 42).state

    assert state_after(error=True) == ("closed" if commits else "open")
    assert state_after(error=False) == ("closed" if commits or begins else "open")


def test_models_are_loaded_before_middleware_and_for_the_object_of_a_class(session: Session) -> None:
    seen: list[Any] = []

    class Notes:
        def handle(self, running: RunningJob, next: Next) -> Any:
            seen.append(("middleware", running.data["order"].id, running.instance.order.id))
            return next(running)

    class Close(Job, name="models.middleware", middleware=[Notes()]):
        order: Order

        def __post_init__(self) -> None:
            seen.append(("made", type(self.order)))

        def handle(self, context: JobContext) -> None:
            seen.append(("handler", self.order.id, context.id))

    ran("models.middleware", {"order": ref(42)})
    assert seen == [("made", Order), ("middleware", 42, 42), ("handler", 42, "a-1")]


def test_a_model_as_the_key_of_a_limit_counts_by_its_key(session: Session) -> None:
    keys: list[str] = []

    class Notes:
        def handle(self, running: RunningJob, next: Next) -> None:
            keys.append(_key_of(["order"], running))

    @job("models.limited", middleware=[Notes()])
    def limited(order: Order) -> None: ...

    for key in (42, 42, 43):
        ran("models.limited", {"order": ref(key)})
    assert keys == [json.dumps(ref(key), separators=(",", ":")) for key in (42, 42, 43)]


def test_the_hook_failed_gets_loaded_models_or_their_references(session: Session) -> None:
    seen: list[Any] = []

    class Close(Job, name="models.failed"):
        order: Order

        def handle(self) -> None:
            raise ValueError(self.order.state)

        def failed(self, error: BaseException) -> None:
            seen.append((type(error), self.order if isinstance(self.order, ModelRef) else self.order.state))

    ran("models.failed", {"order": ref(42)})
    ran("models.failed", {"order": ref(1)})
    assert seen == [(ValueError, "open"), (ModelMissing, ModelRef(f"{SHOP}.Order", 1))]
    assert payload_of(Close(order=seen[1][1])) == {"order": ref(1)}


def test_a_missing_row_fails_the_job_at_once_or_discards_it(session: Session) -> None:
    calls: list[Order] = []

    @job("models.fails", tries=5)
    def fails(order: Order) -> None:
        calls.append(order)

    @job("models.discards", tries=5, on_missing="discard")
    def discards(orders: list[Order]) -> None:
        calls.extend(orders)

    failed = ran("models.fails", {"order": ref(1)}).outcome
    assert isinstance(failed, GiveUp) and isinstance(failed.error, ModelMissing)
    assert failed.error.field == "order"
    assert str(failed.error).startswith(
        f"The field 'order' of 'models.fails' cannot be loaded: there is no {SHOP}.Order with the key 1. Dispatch"
    )
    discarded = ran("models.discards", {"orders": [ref(42), ref(2), ref(3)]}).outcome
    assert discarded == Done(discarded=f"there is no {SHOP}.Order with the keys 2, 3")
    assert calls == []
    with pytest.raises(ModelMissing):
        fails.job(order=ModelRef(f"{SHOP}.Order", 1)).dispatch_sync()  # type: ignore[arg-type]


def test_another_model_in_the_payload_is_an_error(session: Session) -> None:
    @job("models.other")
    def other(order: Order) -> None: ...

    error = ran("models.other", {"order": ref(str(UUID_KEY), "Buyer")}).error
    assert isinstance(error, msgspec.ValidationError)
    assert str(error) == f"Expected the model {SHOP}.Order, got {SHOP}.Buyer - at `$.order`"


def test_more_keys_than_a_query_has_at_most(session: Session) -> None:
    session.add_all(Order(id=n) for n in range(1000, 2200))
    session.commit()
    loaded: list[int] = []

    @job("models.many")
    def many(orders: list[Order]) -> None:
        loaded.extend(order.id for order in orders)

    assert ran("models.many", {"orders": [ref(n) for n in reversed(range(1000, 2200))]}).error is None
    assert loaded == list(reversed(range(1000, 2200)))


# -- async handlers ----------------------------------------------------------------------------------------------------


def test_an_async_handler_gets_models_of_an_async_session(engine: Engine) -> None:
    seen: list[Any] = []

    @job("models.async", on_missing="discard")
    async def close(order: Order) -> None:
        lines = await order.awaitable_attrs.lines
        session = async_object_session(order)
        assert session is not None
        order.state = "closed"
        await session.commit()
        seen.append(len(lines))

    async def main() -> None:
        async_engine = create_async_engine(str(engine.url).replace("sqlite", "sqlite+aiosqlite"))
        use_models(SQLAlchemyModels(async_sessions=async_sessionmaker(async_engine)))
        assert (await arun(sent_as("models.async", {"order": ref(42)}))).error is None
        missing = await arun(sent_as("models.async", {"order": ref(1)}))
        assert isinstance(missing.outcome, Done) and missing.outcome.discarded
        await async_engine.dispose()

    asyncio.run(main())
    assert seen == [2]
    with Session(engine) as session:
        assert session.get_one(Order, 42).state == "closed"


@pytest.mark.parametrize("is_async", [False, True])
def test_without_sessions_the_error_says_what_to_call(engine: Engine, is_async: bool) -> None:
    if is_async:
        use_models(SQLAlchemyModels(sessionmaker(engine)))  # the sessions of the other kind do not help

    def plain(order: Order) -> None: ...
    async def coroutine(order: Order) -> None: ...

    job("models.sessions")(coroutine if is_async else plain)
    error = ran("models.sessions", {"order": ref(42)}).error
    assert isinstance(error, ConfigError)
    assert f"delayq has no {'async ' * is_async}sessions to load it. Call use_models(SQLAlchemyModels(" in str(error)


# -- other libraries ---------------------------------------------------------------------------------------------------


class Account:
    """A model of a library that delayq does not know."""

    def __init__(self, key: int) -> None:
        self.key = key
        self.is_open = False


class Accounts:
    def name_of(self, kind: type) -> str | None:
        return f"bank.{kind.__name__}" if issubclass(kind, Account) else None

    def key_of(self, model: Any) -> int:
        if not model.key:
            raise InvalidInput("The account is new.", hint="Save it.")
        key: int = model.key
        return key

    @contextmanager
    def load(self, wanted: Wanted) -> Iterator[Sequence[Any]]:
        accounts = [kind(one.key) if one.key != 404 else None for kind, one in wanted]
        for account in filter(None, accounts):
            account.is_open = True
        yield accounts
        for account in filter(None, accounts):
            account.is_open = False


def test_models_of_another_library(session: Session) -> None:
    use_models(Accounts())
    seen: list[Account] = []

    @job("models.bank")
    def bank(account: Account, order: Order, other: Account | None = None) -> None:
        assert account.is_open and order.lines
        seen.append(account)

    assert payload_of(bank.job(Account(7), session.get_one(Order, 42))) == {
        "account": {"model": "bank.Account", "key": 7},
        "order": ref(42),
    }
    with pytest.raises(
        InvalidInput, match=r"'account' of the job 'models.bank' cannot be sent: The account is new. Sa"
    ):
        payload_of(bank.job(Account(0), session.get_one(Order, 42)))
    assert ran("models.bank", {"account": {"model": "bank.Account", "key": 7}, "order": ref(42)}).error is None
    assert [(account.key, account.is_open) for account in seen] == [(7, False)]


def test_an_async_handler_needs_aload() -> None:
    use_models(Accounts())

    @job("models.abank")
    async def abank(account: Account) -> None: ...

    error = ran("models.abank", {"account": {"model": "bank.Account", "key": 7}}).error
    assert isinstance(error, ConfigError) and "Accounts has no method `aload`" in str(error)


@pytest.mark.parametrize("wrong", [Account(1), Accounts, None, "models"])
def test_use_models_refuses_other_objects(wrong: Any) -> None:
    with pytest.raises(InvalidInput, match=r"which has no method `name_of`. Give an object with the methods of Models"):
        use_models(wrong)


def test_a_method_gets_the_reference(session: Session, manager: Any) -> None:
    seen: list[Any] = []

    @handles("models.Mailer", on_missing="discard")
    class Mailer:
        def send(self, context: JobContext, data: Any) -> None:
            seen.append(data)

    from delayq.jobs.dispatch import _by_name

    _by_name("models.Mailer@send", {"order": session.get_one(Order, 42)}).dispatch_sync()
    assert seen == [{"order": ref(42)}]


def test_a_program_that_is_run_as_a_file_sends_the_name_that_its_worker_knows(tmp_path: Path) -> None:
    program = """
import sys
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column
from delayq.contrib.sqlalchemy import SQLAlchemyModels

class Base(DeclarativeBase):
    pass

class Order(Base):
    __tablename__ = "orders"
    id: Mapped[int] = mapped_column(primary_key=True)

print(SQLAlchemyModels().name_of(Order))
"""
    (tmp_path / "shop.py").write_text(program)
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    for words in (["shop.py"], ["-m", "shop"], ["-c", "import shop"]):
        done = subprocess.run(
            [sys.executable, *words], cwd=tmp_path, env=environment, capture_output=True, text=True, check=True
        )
        assert done.stdout == "shop.Order\n"


def test_a_scoped_session_is_that_of_the_handler(engine: Engine) -> None:
    sessions = scoped_session(sessionmaker(engine))
    use_models(SQLAlchemyModels(sessions))

    @job("models.scoped")
    def scoped(order: Order) -> None:
        assert object_session(order) is sessions()
        order.state = "closed"
        sessions.commit()

    assert ran("models.scoped", {"order": ref(42)}).error is None
    with Session(engine) as session:
        assert session.get_one(Order, 42).state == "closed"
    sessions.remove()


@pytest.mark.parametrize("key", [None, True, 1.5, ("a", 1)])
def test_a_reference_needs_a_key(key: Any) -> None:
    with pytest.raises(InvalidInput, match=r"The ModelRef of 'shop.Order' has the key .*Give the primary key"):
        ModelRef("shop.Order", key)
