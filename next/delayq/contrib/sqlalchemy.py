"""Models of SQLAlchemy as fields of jobs.

use_models(SQLAlchemyModels(sessionmaker(engine)))                                the handler commits
use_models(SQLAlchemyModels(sessionmaker(engine).begin))                          delayq commits after the handler
use_models(SQLAlchemyModels(async_sessions=async_sessionmaker(async_engine)))     for async handlers
"""

import sys
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager, asynccontextmanager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

import sqlalchemy
from sqlalchemy.orm import Mapper, Session

from delayq.core.display import shown
from delayq.core.errors import ConfigError, InvalidInput
from delayq.core.models import ModelRef, unsaved

if TYPE_CHECKING:  # importing this may need greenlet
    from sqlalchemy.ext.asyncio import AsyncSession

_AT_ONCE: Final = 500
"""Maximum number of keys in one query, because databases limit the number of parameters."""

_Wanted = Sequence[tuple[type, ModelRef]]


class SQLAlchemyModels:
    """Loads models of SQLAlchemy in a session that is open while the handler runs. Give it to `use_models`.

    * `sessions`: creates the session of a plain handler, such as `sessionmaker(engine)`. `object_session(order)` of
      SQLAlchemy returns this session in the handler.
    * `async_sessions`: creates the session of an async handler, such as `async_sessionmaker(engine)`.

    The session is closed after each attempt, and changes that the handler has not committed are rolled back. With
    `sessionmaker(engine).begin`, the session is committed when the handler returns, and rolled back if the handler
    raises an exception.
    """

    def __init__(
        self,
        sessions: Callable[[], AbstractContextManager[Session]] | None = None,
        *,
        async_sessions: "Callable[[], AbstractAsyncContextManager[AsyncSession]] | None" = None,
    ) -> None:
        self._sessions = sessions
        self._async_sessions = async_sessions

    def name_of(self, kind: type) -> str | None:
        """Return the module and name of a mapped class, or None. Raises InvalidInput for a key of several columns."""
        mapper: Any = sqlalchemy.inspect(kind, raiseerr=False)
        if not isinstance(mapper, Mapper):
            return None
        name = f"{_module_of(kind)}.{kind.__qualname__}"
        if len(mapper.primary_key) != 1:
            raise InvalidInput(
                f"The key of {name} has {len(mapper.primary_key)} columns.", hint="Send the key in plain fields."
            )
        return name

    def key_of(self, model: Any) -> Any:
        """Return the primary key of an object, without a query.

        Raises InvalidInput for an unsaved object, and for an object whose row was deleted by a flush.
        """
        state = sqlalchemy.inspect(model)
        if state.identity is None:
            raise unsaved(
                model,
                state.mapper.primary_key_from_instance(model)[0],
                hint="Add it to a session and commit, then dispatch the job. Before the commit, flush the session and "
                "use within=session.",
            )
        if state.was_deleted:
            raise InvalidInput(
                f"This {type(model).__qualname__} has the key {shown(state.identity[0])}, but it is deleted.",
                hint="Send an object whose row exists, or send the values that the job needs in plain fields.",
            )
        return state.identity[0]

    def standard_key(self, kind: type, key: Any) -> Any:
        """Return a key with the type of its column, because a text can be another spelling of an int or a UUID."""
        return _typed(_key_column(kind), key)

    @contextmanager
    def load(self, wanted: _Wanted) -> Iterator[Sequence[Any]]:
        """Open a session and yield the objects, None for a missing row. Raises ConfigError without `sessions`."""
        if self._sessions is None:
            raise _not_set_up("sessions", "SQLAlchemyModels(sessionmaker(engine))")
        with self._sessions() as session:
            found = _Found(wanted)
            for kind, query in _queries(wanted):
                found.note(kind, session.scalars(query).unique().all())
            for kind, ref, query in found.queries_of_missing():
                found.place(kind, ref, session.scalars(query).unique().one_or_none())
            yield found.in_order()

    @asynccontextmanager
    async def aload(self, wanted: _Wanted) -> AsyncIterator[Sequence[Any]]:
        """Open an async session and load objects; see `load`."""
        if self._async_sessions is None:
            raise _not_set_up("async sessions", "SQLAlchemyModels(async_sessions=async_sessionmaker(engine))")
        async with self._async_sessions() as session:
            found = _Found(wanted)
            for kind, query in _queries(wanted):
                found.note(kind, (await session.scalars(query)).unique().all())
            for kind, ref, query in found.queries_of_missing():
                found.place(kind, ref, (await session.scalars(query)).unique().one_or_none())
            yield found.in_order()


def _queries(wanted: _Wanted) -> Iterator[tuple[type, Any]]:
    for kind in dict.fromkeys(kind for kind, _ in wanted):
        column = _key_column(kind)
        keys = [_typed(column, ref.key) for other, ref in wanted if other is kind]
        for start in range(0, len(keys), _AT_ONCE):
            yield kind, sqlalchemy.select(kind).where(column.in_(keys[start : start + _AT_ONCE]))


class _Found:
    """The loaded objects of one attempt."""

    def __init__(self, wanted: _Wanted) -> None:
        self._keys = {(kind, ref): _typed(_key_column(kind), ref.key) for kind, ref in wanted}
        self._wanted = wanted
        self._by_text: dict[tuple[type, str], Any] = {}
        self._single: dict[tuple[type, ModelRef], Any] = {}

    def note(self, kind: type, objects: Sequence[Any]) -> None:
        """Add objects that one query has loaded."""
        self._by_text.update(((kind, str(sqlalchemy.inspect(one).identity[0])), one) for one in objects)

    def queries_of_missing(self) -> Iterator[tuple[type, ModelRef, Any]]:
        """Yield a query for each key without an object, if the key of the object can have another text.

        For example, a database may ignore case, and a type of the application may convert keys.
        """
        for (kind, ref), key in self._keys.items():
            is_converted = isinstance(_key_column(kind).type, sqlalchemy.types.TypeDecorator)
            if (isinstance(key, str) or is_converted) and (kind, str(key)) not in self._by_text:
                yield kind, ref, sqlalchemy.select(kind).where(_key_column(kind) == key)

    def place(self, kind: type, ref: ModelRef, one: Any) -> None:
        """Add the object of one reference, or None if its row is missing."""
        self._single[kind, ref] = one

    def in_order(self) -> list[Any]:
        """Return the objects in the order of the references, with None for a missing row."""
        by_text, single = self._by_text, self._single
        return [by_text.get((kind, str(self._keys[kind, ref])), single.get((kind, ref))) for kind, ref in self._wanted]


def _key_column(kind: type) -> Any:
    mapper: Mapper[Any] = sqlalchemy.inspect(kind)
    return mapper.primary_key[0]


def _typed(column: Any, key: Any) -> Any:
    """Return a key with the type of its column, because a job carries a UUID as text.

    A key that does not fit the column is returned unchanged.
    """
    try:
        kind = column.type.python_type
        if kind is str and type(key) is int:
            return str(key)
        return kind(key) if kind in (int, UUID) and isinstance(key, str) else key
    except (NotImplementedError, ValueError):
        return key


def _module_of(kind: type) -> str:
    """Return the module of a class. For a class in the program itself, started by `python shop.py`, return `shop`."""
    file = getattr(sys.modules.get("__main__"), "__file__", None)
    return Path(file).stem if kind.__module__ == "__main__" and file else kind.__module__


def _not_set_up(what: str, example: str) -> ConfigError:
    return ConfigError(
        f"A job has a SQLAlchemy model, but delayq has no {what} to load it.",
        hint=f"Call use_models({example}) in the module that declares the jobs.",
    )
