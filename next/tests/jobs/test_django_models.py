"""Models of Django as fields, and the connections of Django around the jobs of a worker."""

import asyncio
import logging
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any, NoReturn
from uuid import UUID

import pytest

from delayq import InvalidInput, Job, ModelMissing, ModelRef, job
from delayq.core.outcome import Done, GiveUp
from delayq.jobs.django_connections import handlers_of_child
from delayq.jobs.local_run import Ran, arun, run
from delayq.jobs.registry import registry
from tests.jobs.support import payload_of
from tests.jobs.test_models import sent_as

UUID_KEY = UUID("01234567-89ab-cdef-0123-456789abcdef")
PAGE = Path(__file__).parents[2]


@pytest.fixture
def shop() -> Iterator[Any]:
    from django.db import connections

    from tests.support import django_shop

    django_shop.Order._base_manager.create(pk=42)
    django_shop.Order._base_manager.create(pk=43, is_closed=True)
    django_shop.Buyer.objects.create(pk=UUID_KEY)
    django_shop.Order._base_manager.using("archive").create(pk=42, is_closed=True)
    django_shop.Invoice.objects.create(order_id=42)
    django_shop.Tag.objects.create(name="Red")
    yield django_shop
    for alias in ("default", "archive"):
        for kind in (django_shop.Order, django_shop.Buyer, django_shop.Tag, django_shop.Invoice):
            kind._base_manager.using(alias).all().delete()
    connections.close_all()


def ref(key: int | str, kind: str = "Order", **more: str) -> dict[str, Any]:
    return {"model": f"shop.{kind}", "key": key, **more}


def ran(name: str, data: Any) -> Ran:
    return run(sent_as(name, data))


def annotated(function: Any, **kinds: Any) -> Any:
    """Annotate the parameters of a function with models, which are imported late."""
    function.__annotations__.update(kinds)
    return function


class Queries:
    """Counts the queries of all databases."""

    def __init__(self) -> None:
        self.count = 0

    def __enter__(self) -> "Queries":
        from django.db import connections

        self._hooks = [connections[alias].execute_wrapper(self._note) for alias in connections]
        for hook in self._hooks:
            hook.__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        for hook in self._hooks:
            hook.__exit__(*error)

    def _note(self, execute: Any, *words: Any) -> Any:
        self.count += 1
        return execute(*words)


def test_models_are_sent_as_label_and_key_without_a_query(shop: Any) -> None:
    def sent(order: Any, orders: Any, buyer: Any, invoice: Any, none: Any = None) -> None: ...

    sent = annotated(
        sent, order=shop.Order, orders=list[shop.Order], buyer=shop.Buyer, invoice=shop.Invoice, none=shop.Order | None
    )
    declared: Any = job("django.sent")(sent)
    closed = shop.Order._base_manager.get(pk=43)
    order, archived = shop.Order.objects.using("default").get(), shop.Order._base_manager.using("archive").get()
    copied = shop.Order.objects.get()
    buyer, invoice = shop.Buyer.objects.get(), shop.Invoice.objects.using("archive").get()
    assert (copied._state.db, invoice._state.db) == ("copy", "archive")
    with Queries() as queries:
        payload = payload_of(declared.job(order, [closed, archived, copied], buyer, invoice))
    assert payload == {
        "order": ref(42),
        "orders": [ref(43), ref(42, database="archive"), ref(42)],
        "buyer": ref(str(UUID_KEY), "Buyer"),
        "invoice": ref(42, "Invoice"),
    }
    assert queries.count == 0


def test_unsaved_deleted_and_abstract_models_are_refused(shop: Any, manager: Any, sent: Any) -> None:
    declared: Any = job("django.refused")(annotated(lambda buyer: None, buyer=shop.Buyer))
    deleted = shop.Buyer.objects.get()
    deleted.delete()
    without_key = "This Buyer has no key, because it is not saved. Save it, then dispatch the job."
    unsaved = f"This Buyer has the key {str(UUID_KEY)!r}, but it is not saved. Save it, then dispatch the job."
    for wrong, words in ((shop.Buyer(), without_key), (shop.Buyer(pk=UUID_KEY), unsaved), (deleted, without_key)):
        with pytest.raises(InvalidInput, match=f"field 'buyer' of .* {re.escape(words)}"):
            declared.job(buyer=wrong).dispatch()
    assert sent.queues() == []
    with pytest.raises(InvalidInput, match=r"The model shop.Base is abstract"):
        job("django.abstract")(annotated(lambda base: None, base=shop.Base))


def test_a_key_of_several_columns_is_refused(shop: Any) -> None:
    from django.db import models

    if not hasattr(models, "CompositePrimaryKey"):
        pytest.skip("this Django has no CompositePrimaryKey")

    class Stock(models.Model):  # type: ignore[misc]
        pk = models.CompositePrimaryKey("warehouse", "product")
        warehouse = models.IntegerField()
        product = models.IntegerField()

        class Meta:
            app_label = "shop"

    with pytest.raises(InvalidInput, match=r"The key of shop.Stock has 2 columns. Send the key in plain fields."):
        job("django.stock")(annotated(lambda stock: None, stock=Stock))


def test_a_handler_gets_rows_that_the_default_manager_hides(shop: Any) -> None:
    seen: list[Any] = []

    def loaded(orders: Any, buyer: Any, invoice: Any) -> None:
        seen.append([(order.pk, order.is_closed, order._state.db) for order in orders])
        seen.append((buyer.pk, invoice.pk, invoice._state.db))
        assert orders[0] is orders[3]

    job("django.loaded")(annotated(loaded, orders=list[shop.Order], buyer=shop.Buyer, invoice=shop.Invoice))
    data = {
        "orders": [ref(42), ref(43), ref(42, database="archive"), ref(42)],
        "buyer": ref(str(UUID_KEY), "Buyer"),
        "invoice": ref(42, "Invoice"),
    }
    with Queries() as queries:
        assert ran("django.loaded", data).error is None
    orders = [(42, False, "default"), (43, True, "default"), (42, True, "archive"), (42, False, "default")]
    assert seen == [orders, (UUID_KEY, 42, "archive")]
    assert queries.count == 4


def test_an_async_handler_gets_models_and_missing_rows_fail_or_discard(shop: Any) -> None:
    seen: list[Any] = []

    async def close(order: Any) -> None:
        await order.arefresh_from_db()
        seen.append(order.pk)

    job("django.fails")(annotated(close, order=shop.Order))
    job("django.discards", on_missing="discard")(annotated(close, order=shop.Order))
    for name, key in (("django.fails", 42), ("django.discards", 42)):
        assert asyncio.run(arun(sent_as(name, {"order": ref(key)}))).error is None
    failed = asyncio.run(arun(sent_as("django.fails", {"order": ref(1)}))).outcome
    assert isinstance(failed, GiveUp) and isinstance(failed.error, ModelMissing)
    discarded = asyncio.run(arun(sent_as("django.discards", {"order": ref(1)}))).outcome
    assert isinstance(discarded, Done) and discarded.discarded == "there is no shop.Order with the key 1"
    assert seen == [42, 42]


@pytest.mark.parametrize(
    ("kind", "key", "text"),
    [
        ("Order", 42, "042"),
        ("Invoice", 42, "042"),
        ("Buyer", UUID_KEY, UUID_KEY.hex),
        ("Buyer", UUID_KEY, str(UUID_KEY).upper()),
        ("Tag", "Red", "rED"),
    ],
)
def test_a_key_in_another_spelling_finds_its_row(shop: Any, kind: str, key: Any, text: str) -> None:
    seen: list[Any] = []
    model: Any = getattr(shop, kind)

    def spelled(one: Any, several: Any) -> None:
        seen.append([row.pk for row in (one, *several)])

    async def aspelled(one: Any, several: Any) -> None:
        spelled(one, several)

    declared: Any = job("django.spelled", on_missing="discard")(annotated(spelled, one=model, several=list[model]))
    job("django.aspelled", on_missing="discard")(annotated(aspelled, one=model, several=list[model]))
    wanted = ref(text, kind)
    data = {"one": wanted, "several": [wanted, ref(str(key), kind)]}
    for name in ("django.spelled", "django.aspelled"):
        assert asyncio.run(arun(sent_as(name, data))).outcome == Done()
    assert seen == [[key] * 3] * 2
    if kind != "Tag":
        standard = ref(key if isinstance(key, int) else str(key), kind)
        given = model(pk=text)
        given._state.adding = False
        for sent in (ModelRef(**wanted), given):
            assert payload_of(declared.job(sent, [sent])) == {"one": standard, "several": [standard]}


def test_a_key_that_a_model_cannot_have_is_an_error(shop: Any) -> None:
    job("django.wrong", on_missing="discard")(annotated(lambda buyer: None, buyer=shop.Buyer))
    assert ran("django.wrong", {"buyer": ref("x", "Buyer")}).error is not None


# -- connections -------------------------------------------------------------------------------------------------------


def called(name: str) -> Any:
    """Call a handler as a child of a worker does."""
    handler = handlers_of_child(registry).get(name)
    result = handler.call(handler.read(b"{}"), None)
    return asyncio.run(result) if handler.is_async else result


def test_a_plain_job_closes_stale_connections_before_and_after(shop: Any) -> None:
    from django.db import connection

    seen: list[Any] = []

    @job("django.plain")
    def plain() -> int:
        seen.append(connection.connection)
        count: int = shop.Buyer.objects.count()
        seen.append(connection.connection)
        return count

    shop.Buyer.objects.count()
    assert connection.connection is not None
    assert called("django.plain") == 1
    assert seen[0] is None and seen[1] is not None
    assert connection.connection is None


def test_a_failed_job_and_its_hook_close_connections_too(shop: Any) -> None:
    from django.db import connection

    class Fails(Job, name="django.fails"):
        def handle(self) -> NoReturn:
            raise ValueError(shop.Buyer.objects.count())

        def failed(self, error: BaseException) -> None:
            shop.Buyer.objects.count()

    class AsyncHook(Job, name="django.hook"):
        async def handle(self) -> None: ...

        async def failed(self, error: BaseException) -> None:
            await shop.Buyer.objects.acount()
            threads.append(threading.active_count())

    threads: list[int] = []
    with pytest.raises(ValueError, match="1"):
        called("django.fails")
    assert connection.connection is None
    handlers = handlers_of_child(registry)
    assert handlers.get("django.fails").failed({}, ValueError(), None) is None
    assert connection.connection is None
    hook: Any = handlers.get("django.hook").failed({}, ValueError(), None)
    asyncio.run(hook)
    assert len(threads) == 1


def test_an_error_while_closing_is_logged_and_changes_nothing(
    shop: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    from django.db import connection

    def breaks() -> NoReturn:
        raise OSError("the socket is gone")

    @job("django.breaks")
    def plain() -> int:
        connection.ensure_connection()
        monkeypatch.setattr(connection, "close_if_unusable_or_obsolete", breaks)
        return 7

    with caplog.at_level(logging.WARNING):
        assert called("django.breaks") == 7
    assert "a database connection of Django could not be closed: OSError('the socket is gone')" in caplog.text


def test_an_async_job_has_a_thread_for_its_queries_and_leaves_no_connection(shop: Any) -> None:
    from asgiref.sync import sync_to_async
    from django.db import connection

    connections: list[Any] = []
    threads: set[int] = set()

    def query() -> None:
        connection.ensure_connection()
        connections.append(connection.connection)
        threads.add(threading.get_ident())

    @job("django.async")
    async def handler() -> int:
        await sync_to_async(query)()
        await sync_to_async(query)()
        count: int = await shop.Buyer.objects.acount()
        return count

    before = set(threading.enumerate())
    assert called("django.async") == 1
    assert called("django.async") == 1
    for thread in set(threading.enumerate()) - before:
        thread.join()
    assert threading.get_ident() not in threads
    assert connections[0] is connections[1] is not connections[2]
    for raw in connections:
        with pytest.raises(Exception, match="closed database"):
            raw.execute("SELECT 1")


@pytest.mark.parametrize("configured", [False, True])
def test_only_a_configured_django_changes_the_handlers(configured: bool) -> None:
    program = """
import sys
from delayq.jobs.django_connections import handlers_of_child
from delayq.jobs.registry import registry
assert handlers_of_child(registry) is registry and "django" not in sys.modules
import django, django.apps, django.conf, django.db, django.db.models
assert handlers_of_child(registry) is registry
django.conf.settings.configure()
assert handlers_of_child(registry) is registry
django.setup()
assert handlers_of_child(registry) is not registry
"""
    lines = program.splitlines()
    done = partial(subprocess.run, check=False, capture_output=True, text=True, cwd=PAGE)
    ended = done([sys.executable, "-c", "\n".join(lines if configured else lines[:6])])
    assert ended.returncode == 0, ended.stderr
