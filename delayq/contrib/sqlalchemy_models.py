"""SQLAlchemy's models as fields of jobs.

    models = SqlAlchemyModels(Base, session=sessionmaker(engine))
    use_models(models)

    class CloseOrder(Job, name="order.close"):
        order: Order

        def handle(self) -> None:
            self.order.status = "closed"
            models.current_session().commit()

    CloseOrder(order=order).dispatch(delay="15m")         {"order":{"model":"Order","key":42}}

The models of a job come from one session, which is closed after the job, without a commit: what a handler changes, it
commits itself. Async jobs load with `async_session`; without one, with `session` in a thread.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager, asynccontextmanager, closing
from typing import Any, Final, cast

import msgspec
from sqlalchemy import ColumnElement, inspect, select
from sqlalchemy.ext.asyncio import AsyncSession
from sqlalchemy.orm import DeclarativeBase, Mapper, Session
from sqlalchemy.sql.base import ExecutableOption

from delayq.core.errors import ConfigError, InvalidPayload
from delayq.jobs.references.loading import current_session
from delayq.jobs.references.models import Models

_AT_ONCE: Final = 500
"""Keys in one query; some databases take no more than a thousand."""


class SqlAlchemyModels(Models):
    """The classes mapped on `base`, each under its own name, or under the one that `names` gives it.

    A waiting job knows its models by these names: when a class is renamed, say its old one in `names`.
    `eager` says what to load along with a class, by loader options; a field's `Reference` goes before it. Names and
    keys are those of the top of an inheritance, so a field of `Animal` takes a `Dog` and gets one back.
    """

    def __init__(
        self,
        base: type[DeclarativeBase],
        *,
        session: Callable[[], Session] | None = None,
        async_session: Callable[[], AsyncSession] | None = None,
        names: Mapping[str, type] | None = None,
        eager: Mapping[type, Sequence[ExecutableOption]] | None = None,
    ) -> None:
        self._base = base
        self._session = session
        self._async_session = async_session
        self._kinds = dict(names or {})
        self._names = {kind: name for name, kind in self._kinds.items()}
        self._eager = dict(eager or {})

    def current_session(self) -> Session:
        """The session of the models of the job under way. Raises `ConfigError` outside of a job that has models."""
        return cast(Session, current_session(self))

    def current_async_session(self) -> AsyncSession:
        """As `current_session`, in an async job; models need an `async_session` for it."""
        session = current_session(self)
        if not isinstance(session, AsyncSession):
            raise ConfigError(
                "The models of this job came from a session that is not async.", hint="Give async_session."
            )
        return session

    # -- names and keys ----------------------------------------------------------------------------------------------

    def name_of(self, kind: type) -> str | None:
        """Its class's name, unless another was given."""
        mapper = self._mapper(kind)
        if mapper is None:
            return None
        top = _top(mapper)
        return self._names.get(top, top.__name__)

    def kind_of(self, name: str) -> type | None:
        """The class at the top of its inheritance. Raises `ConfigError` when two have that name."""
        if name in self._kinds:
            return self._kinds[name]
        found = {_top(mapper) for mapper in self._base.registry.mappers}
        named = [kind for kind in found if kind.__name__ == name and kind not in self._names]
        if len(named) > 1:
            places = " and ".join(sorted(f"{kind.__module__}.{kind.__qualname__}" for kind in named))
            raise ConfigError(f"Two models are called {name!r}: {places}.", hint="Give one another name with names=.")
        return named[0] if named else None

    def key_of(self, model: Any) -> Any:
        """One value, or with a composite key an object of them by the names of their attributes."""
        state = inspect(model)
        if not state.has_identity or state.deleted or state.was_deleted:
            return None
        names, values = _key_names(state.mapper), state.identity
        return values[0] if len(names) == 1 else dict(zip(names, values, strict=True))

    # -- loading -----------------------------------------------------------------------------------------------------

    def session(self) -> AbstractContextManager[Any]:
        """A new session, to be closed after the job."""
        if self._session is None:
            raise ConfigError("These models have no session for jobs that are not async.", hint="Give session=.")
        return closing(self._session())

    def asession(self) -> AbstractAsyncContextManager[Any]:
        """As `session`, for async jobs."""
        return super().asession() if self._async_session is None else _aclosing(self._async_session)

    def load(self, kind: type, keys: Sequence[Any], session: Any, eager: Any) -> Iterable[Any]:
        """By the session's own memory, or a query; many keys at once where the key is one column."""
        options, idents = self._options(kind, eager), self._idents(kind, keys)
        column = _only_column(kind)
        if column is None or len(idents) == 1:
            found = (session.get(kind, ident, options=options) for ident in idents)
            return [model for model in found if model is not None]
        return [one for query in _queries(kind, column, idents, options) for one in session.scalars(query).unique()]

    async def aload(self, kind: type, keys: Sequence[Any], session: Any, eager: Any) -> Iterable[Any]:
        """As `load`, awaited."""
        if self._async_session is None:
            return await super().aload(kind, keys, session, eager)
        options, idents = self._options(kind, eager), self._idents(kind, keys)
        column = _only_column(kind)
        if column is None or len(idents) == 1:
            found = [await session.get(kind, ident, options=options) for ident in idents]
            return [model for model in found if model is not None]
        models: list[Any] = []
        for query in _queries(kind, column, idents, options):
            models += (await session.scalars(query)).unique()
        return models

    def _options(self, kind: type, eager: Any) -> Sequence[ExecutableOption]:
        return tuple(self._eager.get(kind, ()) if eager is None else eager)

    def _idents(self, kind: type, keys: Sequence[Any]) -> list[Any]:
        """The keys as the database's types. Raises `InvalidPayload` for what cannot be one."""
        mapper = cast(Mapper[Any], inspect(kind))
        columns = dict(zip(_key_names(mapper), mapper.primary_key, strict=True))
        if len(columns) == 1:
            [column] = columns.values()
            return [_typed(kind, column, key) for key in keys]
        for key in keys:
            if not isinstance(key, dict) or key.keys() != columns.keys():
                raise InvalidPayload(f"The key of a {kind.__name__} needs {', '.join(columns)}, not {key!r}.")
        return [{name: _typed(kind, columns[name], key[name]) for name in columns} for key in keys]

    def _mapper(self, kind: type) -> Mapper[Any] | None:
        found: Any = inspect(kind, raiseerr=False)
        return found if isinstance(found, Mapper) and issubclass(kind, self._base) else None


def _top(mapper: Mapper[Any]) -> type:
    """The class whose keys these are: that of the whole inheritance, unless each class has a table of its own."""
    key = mapper.identity_key_from_primary_key((None,) * len(mapper.primary_key))
    return cast(type, key[0])


def _key_names(mapper: Mapper[Any]) -> list[str]:
    return [mapper.get_property_by_column(column).key for column in mapper.primary_key]


def _only_column(kind: type) -> Any:
    """The attribute that is the whole key; None when there are several."""
    names = _key_names(cast(Mapper[Any], inspect(kind)))
    return getattr(kind, names[0]) if len(names) == 1 else None


def _queries(kind: type, column: Any, idents: list[Any], options: Sequence[ExecutableOption]) -> Iterator[Any]:
    for at in range(0, len(idents), _AT_ONCE):
        yield select(kind).where(column.in_(idents[at : at + _AT_ONCE])).options(*options)


def _typed(kind: type, column: ColumnElement[Any], value: Any) -> Any:
    """A key's value from JSON: text that was a UUID is one again."""
    try:
        wanted = column.type.python_type
    except NotImplementedError:  # a type of the user's that does not say; it gets what JSON says
        return value
    try:
        return msgspec.convert(value, wanted)
    except msgspec.ValidationError as error:
        raise InvalidPayload(f"{value!r} is no key of a {kind.__name__}: {error}.") from None


@asynccontextmanager
async def _aclosing(make: Callable[[], AsyncSession]) -> AsyncIterator[AsyncSession]:
    session = make()
    try:
        yield session
    finally:
        await session.close()
