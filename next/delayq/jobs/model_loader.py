"""Loads the models of a job around its handler."""

import logging
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, ExitStack, asynccontextmanager, contextmanager
from typing import Any, Final

from delayq.core.control_flow import Discard, Fail
from delayq.core.display import shown
from delayq.core.errors import ConfigError, ModelMissing
from delayq.core.models import FAIL, ModelRef, OnMissing
from delayq.jobs.context import JobContext
from delayq.jobs.models import ModelField, Models, Wanted, check_models, models_of, refs_in

logger: Final = logging.getLogger("delayq.jobs")


class ModelLoader:
    """Replaces the references to models in payloads by loaded models, for the jobs of one name."""

    def __init__(self, fields: Mapping[str, ModelField], *, job_name: str, on_missing: OnMissing | None) -> None:
        self._fields = fields
        self._job_name = job_name
        self._on_missing = on_missing or FAIL

    @contextmanager
    def loaded(self, job: dict[str, Any], context: JobContext | None = None) -> Iterator[None]:
        """Load the models of a job into `job`. The models are usable until the context manager ends.

        Raises Fail or Discard if a model is missing, ConfigError if the models of this library cannot be loaded, and
        msgspec.ValidationError if a reference names another model than the field declares.
        """
        with ExitStack() as stack:
            found: dict[ModelRef, Any] = {}
            for models, wanted in self._wanted(job):
                _note(found, wanted, stack.enter_context(models.load(wanted)))
            self._place(job, found, context)
            yield

    @asynccontextmanager
    async def aloaded(self, job: dict[str, Any], context: JobContext | None = None) -> AsyncIterator[None]:
        """Load the models of a job whose handler is async; see `loaded`."""
        async with AsyncExitStack() as stack:
            found: dict[ModelRef, Any] = {}
            for models, wanted in self._wanted(job):
                _note(found, wanted, await stack.enter_async_context(self._aload(models, wanted)))
            self._place(job, found, context)
            yield

    def _wanted(self, job: dict[str, Any]) -> list[tuple[Models, Wanted]]:
        """Return the references in a job, grouped by library and without duplicates."""
        wanted: dict[int, tuple[Models, dict[ModelRef, type]]] = {}
        check_models(self._fields, job)
        for name, field in self._fields.items():
            for ref in refs_in(job[name]):
                models = models_of(field.kind)
                wanted.setdefault(id(models), (models, {}))[1][ref] = field.kind
        return [(models, [(kind, ref) for ref, kind in refs.items()]) for models, refs in wanted.values()]

    def _aload(self, models: Models, wanted: Wanted) -> AbstractAsyncContextManager[Sequence[Any]]:
        aload = getattr(models, "aload", None)
        if aload is None:
            raise ConfigError(
                f"The handler of the job {self._job_name!r} is async, but {type(models).__name__} has no method "
                "`aload`.",
                hint="Add `aload`, or use a handler that is a plain function.",
            )
        loading: AbstractAsyncContextManager[Sequence[Any]] = aload(wanted)
        return loading

    def _place(self, job: dict[str, Any], found: Mapping[ModelRef, Any], context: JobContext | None) -> None:
        for name in self._fields:
            missing = [ref for ref in refs_in(job[name]) if found.get(ref) is None]
            if missing:
                raise self._missing(name, missing, context)
        for name in self._fields:
            value = job[name]
            if isinstance(value, ModelRef):
                job[name] = found[value]
            elif isinstance(value, list):
                job[name] = [found[one] if isinstance(one, ModelRef) else one for one in value]

    def _missing(self, name: str, missing: Sequence[ModelRef], context: JobContext | None) -> Fail | Discard:
        keys = ", ".join(shown(ref.key) for ref in missing[:5]) + (" and others" if len(missing) > 5 else "")
        what = f"there is no {missing[0].model} with the key{'s' * (len(missing) > 1)} {keys}"
        if self._on_missing == "discard":
            job_id = "" if context is None else f"{context.id} "
            logger.info("job %s(%s) is discarded: %s", job_id, self._job_name, what)
            return Discard(what)
        return Fail(
            ModelMissing(
                f"The field {name!r} of {self._job_name!r} cannot be loaded: {what}.",
                hint="Dispatch a job after the row is committed. Declare on_missing='discard' if a row may be deleted.",
                field=name,
            )
        )


def _note(found: dict[ModelRef, Any], wanted: Wanted, models: Sequence[Any]) -> None:
    found.update((ref, model) for (_, ref), model in zip(wanted, models, strict=True))
