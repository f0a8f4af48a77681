"""Loads Django models for jobs, and closes stale database connections of Django in a worker."""

import logging
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from typing import Any, Final

from asgiref.sync import SyncToAsync, ThreadSensitiveContext, sync_to_async
from django.core.exceptions import ValidationError
from django.db import connections, router
from django.db.models import Model

from delayq.core.errors import InvalidInput
from delayq.core.models import ModelRef, unsaved

logger: Final = logging.getLogger("delayq.worker")

_Wanted = Sequence[tuple[type, ModelRef]]


class DjangoModels:
    """Loads models of Django. No call of `use_models` is needed.

    Rows are read by `_base_manager`, so a default manager that hides rows has no effect. Rows are read from the write
    database that the routers chose for the object at the dispatch.
    """

    def name_of(self, kind: type) -> str | None:
        """Return the label of a model, such as "shop.Order", or None.

        Raises InvalidInput for an abstract model, and for a key of several columns.
        """
        if not issubclass(kind, Model):
            return None
        model: Any = kind
        options = model._meta
        if options.abstract:
            raise InvalidInput(f"The model {options.label} is abstract.", hint="Use a model with a table.")
        if len(getattr(options, "pk_fields", ())) > 1:
            raise InvalidInput(
                f"The key of {options.label} has {len(options.pk_fields)} columns.",
                hint="Send the key in plain fields.",
            )
        label: str = options.label
        return label

    def key_of(self, model: Any) -> Any:
        """Return the primary key of an object, without a query. Raises InvalidInput for an unsaved object."""
        if model.pk is None or model._state.adding:
            raise unsaved(model, model.pk, hint="Save it, then dispatch the job.")
        return model.pk

    def standard_key(self, kind: type, key: Any) -> Any:
        """Return a key in the form that the database returns. If keys are ints, for example, "042" becomes 42."""
        return _standard_key(kind, key)

    def database_of(self, model: Any) -> str:
        """Return the alias of the database of an object, or '' if it is the usual database of its class."""
        alias: str = router.db_for_write(type(model), instance=model)
        return "" if alias == router.db_for_write(type(model)) else alias

    @contextmanager
    def load(self, wanted: _Wanted) -> Iterator[Sequence[Any]]:
        """Yield the objects in the order of `wanted`, None for a missing row."""
        yield _find(wanted)

    @asynccontextmanager
    async def aload(self, wanted: _Wanted) -> AsyncIterator[Sequence[Any]]:
        """Do the same as `load`, in the thread that Django uses for the queries of this task."""
        yield await sync_to_async(_find)(wanted)


def _find(wanted: _Wanted) -> list[Any]:
    found: dict[tuple[type, ModelRef], Any] = {}
    for kind, database in dict.fromkeys((kind, ref.database) for kind, ref in wanted):
        model: Any = kind
        rows = model._base_manager.using(database or router.db_for_write(kind))
        keys = {
            ref: _standard_key(model, ref.key) for other, ref in wanted if (other, ref.database) == (kind, database)
        }
        by_text = {str(key): one for key, one in rows.in_bulk(list(keys.values())).items()}
        for ref, key in keys.items():
            one = by_text.get(str(key))
            if one is None and isinstance(key, str):  # the database may, for example, ignore case
                one = rows.filter(pk=key).first()
            found[kind, ref] = one
    return [found[kind, ref] for kind, ref in wanted]


def _standard_key(model: Any, key: Any) -> Any:
    """Return a key in the form that the database returns. A key that does not fit the model is returned unchanged."""
    try:
        return model._meta.pk.to_python(key)
    except ValidationError:
        return key


def close_all() -> None:
    """Close all connections of this thread. An error is logged."""
    for connection in connections.all(initialized_only=True):
        _close(connection.close)


@contextmanager
def fresh_connections(job: Any, context: Any) -> Iterator[None]:
    """Close stale connections of this thread before and after a job, as Django does around a request."""
    _close_stale()
    try:
        yield
    finally:
        _close_stale()


@asynccontextmanager
async def own_connections(job: Any, context: Any) -> AsyncIterator[None]:
    """Give an async job a thread of its own for its queries, as Django does for an async request.

    The thread starts with the first query. After the job, its connections are closed in the background, so that a
    database that hangs cannot block the event loop.
    """
    async with _OwnThread():
        yield


class _OwnThread(ThreadSensitiveContext):
    async def __aexit__(self, *error: Any) -> None:
        executor = SyncToAsync.context_to_thread_executor.pop(self, None)
        if executor is not None:
            executor.submit(close_all)
            executor.shutdown(wait=False)
        await super().__aexit__(*error)  # type: ignore[no-untyped-call]


def _close_stale() -> None:
    for connection in connections.all(initialized_only=True):
        _close(connection.close_if_unusable_or_obsolete)


def _close(close: Any) -> None:
    try:
        close()
    except Exception as error:
        logger.warning("a database connection of Django could not be closed: %r", error)
