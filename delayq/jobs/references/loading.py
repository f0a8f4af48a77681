"""Loads the models of one attempt: every kind of them at once, from one session each, closed when the attempt is over.

An async job's models are loaded before its handler is called, so that nothing waits in its event loop; those of a
plain one are loaded the same way, without awaiting.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import AsyncExitStack, ExitStack, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Self

from delayq.core.errors import ConfigError, ModelMissing
from delayq.jobs.references.linked import Linked
from delayq.jobs.references.models import Models
from delayq.jobs.references.reference import Ref, plain_word

_current: ContextVar[Loading | None] = ContextVar("delayq_loading", default=None)


class Wanted(NamedTuple):
    """A reference, and the field it stands in."""

    linked: Linked
    ref: Ref

    def error(self) -> ModelMissing:
        """What to say when it is gone."""
        return ModelMissing(
            f"The {self.ref} is gone; the field {self.linked.name!r} of {self.linked.job!r} means it.",
            hint="If it was not committed yet at the dispatch, dispatch with after_commit=True.",
        )


@dataclass(slots=True)
class _Batch:
    """Models of one class, loaded together because their field says the same of how."""

    models: Models
    kind: type
    eager: Any
    refs: list[Ref] = field(default_factory=list)

    @property
    def keys(self) -> Sequence[Any]:
        return [ref.key for ref in {ref.word: ref for ref in self.refs}.values()]


class Loading:
    """What was loaded. Opened sessions end with the block: `with`, or `async with` for async jobs."""

    def __init__(self) -> None:
        self._found: dict[tuple[type, int, bytes], Any] = {}
        self._sessions: dict[int, Any] = {}
        self._stack = ExitStack()
        self._astack = AsyncExitStack()

    # -- loading -----------------------------------------------------------------------------------------------------

    def load(self, wanted: Iterable[Wanted]) -> None:
        """Load what is not there yet."""
        for batch in self._batches(wanted):
            session = self.session_of(batch.models)
            self._keep(batch, batch.models.load(batch.kind, batch.keys, session, batch.eager))

    async def aload(self, wanted: Iterable[Wanted]) -> None:
        """As `load`, awaited."""
        for batch in self._batches(wanted):
            models = batch.models
            if id(models) not in self._sessions:
                self._sessions[id(models)] = await self._astack.enter_async_context(models.asession())
            session = self._sessions[id(models)]
            self._keep(batch, await models.aload(batch.kind, batch.keys, session, batch.eager))

    def session_of(self, models: Models) -> Any:
        """The session of these models; opened now, unless it was."""
        if id(models) not in self._sessions:
            self._sessions[id(models)] = self._stack.enter_context(models.session())
        return self._sessions[id(models)]

    def missing(self, wanted: Iterable[Wanted]) -> Wanted | None:
        """The first that is gone."""
        return next((one for one in wanted if self._place(one) not in self._found), None)

    def model(self, linked: Linked, ref: Ref) -> Any:
        """What was loaded for a reference."""
        return self._found[self._place(Wanted(linked, ref))]

    def _batches(self, wanted: Iterable[Wanted]) -> Iterator[_Batch]:
        batches: dict[tuple[type, int], _Batch] = {}
        for one in wanted:
            kind, eager_id, _ = place = self._place(one)
            if place not in self._found:
                models, eager = one.linked.place(one.ref)[0], one.linked.reference.eager
                batch = batches.setdefault((kind, eager_id), _Batch(models, kind, eager))
                batch.refs.append(one.ref)
        yield from batches.values()

    def _keep(self, batch: _Batch, loaded: Iterable[Any]) -> None:
        for model in loaded:
            self._found[batch.kind, id(batch.eager), plain_word(batch.models.key_of(model))] = model

    def _place(self, one: Wanted) -> tuple[type, int, bytes]:
        return one.linked.place(one.ref)[1], id(one.linked.reference.eager), one.ref.word

    # -- the attempt -------------------------------------------------------------------------------------------------

    @contextmanager
    def current(self) -> Iterator[None]:
        """Inside the block payloads are read with these models, and handlers may ask for the sessions."""
        token = _current.set(self)
        try:
            yield
        finally:
            _current.reset(token)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: Any) -> None:
        self._stack.__exit__(*error)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *error: Any) -> None:
        try:
            await self._astack.__aexit__(*error)
        finally:
            self._stack.__exit__(*error)


def current_loading() -> Loading | None:
    """That of the attempt under way, in this thread or coroutine."""
    return _current.get()


def current_session(models: Models) -> Any:
    """The session that the models of the job under way came from. Raises `ConfigError` outside of such a job."""
    loading = current_loading()
    if loading is None:
        raise ConfigError("No job with models runs here, so there is no session of one.", hint="Open your own.")
    return loading.session_of(models)
