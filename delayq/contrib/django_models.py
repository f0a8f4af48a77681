"""Django's models as fields of jobs.

    use_models(DjangoModels())

    class CloseOrder(Job, name="order.close"):
        order: Order

        def handle(self) -> None:
            self.order.close()
            self.order.save()

    CloseOrder(order=order).dispatch(delay="15m")         {"order":{"model":"shop.order","key":42}}

A model is named by its label, which Django itself keeps it by. It is loaded from the database that its class is
written to: a replica may not have it yet. Connections that have served their time are closed before and after a job,
as around a request.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager, contextmanager
from typing import Any, TypeAlias

from django.apps import apps
from django.core.exceptions import ValidationError
from django.db import router
from django.db.models import Model

from delayq.contrib.django_connections import ahealthy_connections, healthy_connections
from delayq.core.errors import InvalidPayload
from delayq.jobs.references.models import Models

Narrow: TypeAlias = Callable[[Any], Any]
"""From a queryset to one that loads more along: `lambda orders: orders.select_related("customer")`."""


class DjangoModels(Models):
    """All models of the installed applications.

    `eager` says what to load along with a class; a field's `Reference` goes before it. `using`: a database for all of
    them, instead of the one that Django's routers name for writes.
    """

    def __init__(self, *, eager: Mapping[type, Narrow] | None = None, using: str | None = None) -> None:
        self._eager = dict(eager or {})
        self._using = using

    def name_of(self, kind: type) -> str | None:
        """'shop.order'."""
        meta: Any = getattr(kind, "_meta", None)
        return str(meta.label_lower) if issubclass(kind, Model) and meta is not None and not meta.abstract else None

    def kind_of(self, name: str) -> type | None:
        """The installed model of that label."""
        try:
            found: type = apps.get_model(name)
        except (LookupError, ValueError):
            return None
        return found

    def key_of(self, model: Any) -> Any:
        """Its primary key; a list of values where that is composite."""
        return None if model._state.adding else model.pk

    def session(self) -> AbstractContextManager[Any]:
        """Nothing but the connections' health."""
        return healthy_connections()

    def asession(self) -> AbstractAsyncContextManager[Any]:
        """As `session`, for async jobs."""
        return ahealthy_connections()

    def load(self, kind: type, keys: Sequence[Any], session: Any, eager: Any) -> Iterable[Any]:
        """One query."""
        with _readable(kind, keys):
            return list(self._queryset(kind, keys, eager))

    async def aload(self, kind: type, keys: Sequence[Any], session: Any, eager: Any) -> Iterable[Any]:
        """As `load`, with Django's own awaiting."""
        with _readable(kind, keys):
            return [model async for model in self._queryset(kind, keys, eager)]

    def _queryset(self, kind: Any, keys: Sequence[Any], eager: Narrow | None) -> Any:
        rows = kind._base_manager.using(self._using or router.db_for_write(kind))
        narrow = self._eager.get(kind) if eager is None else eager
        rows = rows if narrow is None else narrow(rows)
        return rows.filter(pk__in=[tuple(key) if isinstance(key, list) else key for key in keys])


@contextmanager
def _readable(kind: type, keys: Sequence[Any]) -> Iterator[None]:
    """Raises `InvalidPayload` for keys that are none of that model's."""
    try:
        yield
    except (TypeError, ValueError, ValidationError) as error:
        raise InvalidPayload(f"{', '.join(map(repr, keys))}: no key of a {kind.__name__}. {error}") from error
