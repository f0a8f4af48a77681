"""Django's models as fields of jobs, through a real server, a real worker and a database in a file."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import django
import pytest
from django.apps import apps
from django.conf import settings as django_settings
from django.db import connection, connections

from delayq import dispatch, use_models
from delayq.contrib.django_models import DjangoModels
from delayq.core.errors import InvalidPayload
from delayq.core.outcome import GiveUp
from delayq.core.states import State
from delayq.jobs.dispatch import named
from delayq.testing import run_job
from tests.support.station import Station

pytestmark = pytest.mark.usefixtures("manager")


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """The models of the shop, with tables. Other modules of the suite may have configured Django, or may want to."""
    if not django_settings.configured:
        folder = tmp_path_factory.mktemp("django")
        database = {"ENGINE": "django.db.backends.sqlite3"}
        django_settings.configure(
            DATABASES={name: {**database, "NAME": str(Path(folder) / name)} for name in ("default", "archive")}
        )
        django.setup()
    apps.set_installed_apps(["tests.support.django_shop"])
    from tests.support.django_shop import jobs, models

    with connection.schema_editor() as editor:
        editor.create_model(models.Customer)
        editor.create_model(models.Order)
    yield SimpleNamespace(Customer=models.Customer, Order=models.Order, jobs=jobs)
    with connection.schema_editor() as editor:
        editor.delete_model(models.Order)
        editor.delete_model(models.Customer)
    connections.close_all()
    apps.unset_installed_apps()


@pytest.fixture
def shop(tables: Any, station: Station) -> Iterator[Any]:
    yield tables
    tables.Customer.objects.all().delete()
    connections.close_all()


def an_order(shop: Any) -> Any:
    """An order of Ann's; no connection stays open for a worker to inherit."""
    ann = shop.Customer.objects.create(name="Ann")
    order = shop.Order.objects.create(customer=ann)
    connections.close_all()
    return order


def test_a_plain_and_an_async_job(station: Station, shop: Any) -> None:
    use_models(DjangoModels())
    order = an_order(shop)
    tape = station.tape()
    close, look = shop.jobs.closing(tape), shop.jobs.looking(tape)
    ref = close(order=order, customer=order.customer).dispatch()
    connections.close_all()
    assert station.job(ref.id).data == {
        "order": {"model": "shop.order", "key": order.pk},
        "customer": {"model": "shop.customer", "key": str(order.customer_id)},
    }
    station.drain()
    look(orders=[order, order]).dispatch()
    station.drain()
    assert list(tape) == [[order.pk, "open", "Ann"], ["closed", "closed"]]


def test_a_function_and_a_dispatch_by_name(station: Station, shop: Any) -> None:
    use_models(DjangoModels())
    tape = station.tape()
    show = shop.jobs.showing(tape)
    order = an_order(shop)
    show.job(order).dispatch()
    dispatch("show", {"order": {"model": "shop.order", "key": order.pk}})
    connections.close_all()
    station.drain()
    assert list(tape) == ["open", "open"]


def test_a_missing_model(station: Station, shop: Any) -> None:
    use_models(DjangoModels())
    order = an_order(shop)
    close = shop.jobs.closing(station.tape())
    ref = close(order=order).dispatch()
    key = order.pk
    order.delete()
    connections.close_all()
    station.drain()
    info = station.job(ref.id)
    assert (info.state, info.attempts) == (State.FAILED, 1)
    assert info.failure is not None
    assert f"The shop.order with the key {key} is gone" in info.failure.message


def test_a_missing_model_that_drops_the_job(station: Station, shop: Any) -> None:
    use_models(DjangoModels())
    order = an_order(shop)
    tape = station.tape()
    close = shop.jobs.closing(tape, on_missing="discard")
    ref = close(order=order).dispatch()
    order.delete()
    connections.close_all()
    station.drain()
    assert (station.state(ref.id), station.ends(ref.id), list(tape)) == (State.ABSENT, ["discarded"], [])


def test_an_unsaved_model(station: Station, shop: Any) -> None:
    use_models(DjangoModels())
    close = shop.jobs.closing(station.tape())
    for order in (shop.Order(), shop.Order(id=5)):
        with pytest.raises(InvalidPayload, match="The field 'order' of 'close' holds a Order that is not saved"):
            close(order=order).dispatch()


def test_what_is_loaded_along(station: Station, shop: Any) -> None:
    use_models(DjangoModels(eager={shop.Order: lambda orders: orders.select_related("customer")}))
    tape = station.tape()
    order = an_order(shop)
    shop.jobs.greeting(tape)(order=order, bare=order).dispatch()
    connections.close_all()
    station.drain()
    assert list(tape) == [[True, False]]


def test_what_is_no_key(station: Station, shop: Any) -> None:
    use_models(DjangoModels())
    shop.jobs.closing(station.tape(), tries=1)
    for reference, says in [
        ({"model": "shop.order", "key": "one"}, "'one': no key of a Order"),
        ({"model": "shop.nothing", "key": 1}, "holds the model 'shop.nothing', not Order"),
        ({"model": "shop.customer", "key": str(uuid.uuid4())}, "holds the model 'shop.customer', not Order"),
    ]:
        outcome = run_job(named("close", {"order": reference}))
        assert isinstance(outcome, GiveUp)
        assert says in str(outcome.error)
