"""What delayq needs to know of one kind of models: SQLAlchemy's, Django's, or your own.

    class Documents(Models):
        def name_of(self, kind): return "document" if kind is Document else None
        def kind_of(self, name): return Document if name == "document" else None
        def key_of(self, model): return model.number
        def load(self, kind, keys, session, eager): return store.find(keys)

    use_models(Documents())

A payload says `{"model":"document","key":17}`: a name that is registered here, never an import path.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager, asynccontextmanager, nullcontext
from typing import Any


class Models(ABC):
    """One kind of models. What it opens for a job is closed when the job is over."""

    @abstractmethod
    def name_of(self, kind: type) -> str | None:
        """What payloads call a class, also after it is renamed; None for a class that is none of these."""

    @abstractmethod
    def kind_of(self, name: str) -> type | None:
        """The class of that name, or None."""

    @abstractmethod
    def key_of(self, model: Any) -> Any:
        """The key of a model, as plain values that JSON can carry; None when it is not saved."""

    @abstractmethod
    def load(self, kind: type, keys: Sequence[Any], session: Any, eager: Any) -> Iterable[Any]:
        """The models with these keys, as they came back from JSON; in any order, without those that are gone.

        `session` is what `session()` opened; `eager` what the field's `Reference` says to load along, or None.
        """

    def session(self) -> AbstractContextManager[Any]:
        """What to load from, for one job; opened with the first model, and closed after the job."""
        return nullcontext()

    def asession(self) -> AbstractAsyncContextManager[Any]:
        """As `session`, for async jobs; unless you have one, `session` in a thread beside them."""
        return _in_a_thread(self.session())

    async def aload(self, kind: type, keys: Sequence[Any], session: Any, eager: Any) -> Iterable[Any]:
        """As `load`, for async jobs, with what `asession` opened; unless you have one, `load` in a thread."""
        return await asyncio.to_thread(lambda: list(self.load(kind, keys, session, eager)))


@asynccontextmanager
async def _in_a_thread(session: AbstractContextManager[Any]) -> AsyncIterator[Any]:
    opened = await asyncio.to_thread(session.__enter__)
    try:
        yield opened
    except BaseException as error:
        if not await asyncio.to_thread(session.__exit__, type(error), error, error.__traceback__):
            raise
    else:
        await asyncio.to_thread(session.__exit__, None, None, None)
