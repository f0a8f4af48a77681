"""Limits where nobody counts: refused when a job is dispatched; failed for good, not put off for ever, when it runs."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from delayq import Concurrency, RateLimited, ThrottlesExceptions, WithoutOverlapping, job
from delayq.core.errors import ConfigError, InvalidInput
from delayq.core.limiting import Acquire, Place, Who
from delayq.core.signals import Fail
from delayq.drivers.serving.limits import NoLimits
from delayq.jobs.current import make_manager, using_manager
from delayq.jobs.registry import Registry, using
from delayq.settings import Settings
from tests.support import shelf


@pytest.mark.parametrize(
    "limit",
    [Concurrency("imports", 2), WithoutOverlapping(), RateLimited("api"), ThrottlesExceptions(3, "1m")],
    ids=lambda one: type(one).__name__,
)
def test_a_job_that_declares_one_is_refused_at_dispatch(limit: object, tmp_path: Path) -> None:
    manager = make_manager(Settings(connections={"mq": {"driver": "shelf", "folder": str(tmp_path)}}))
    manager.extend("shelf", shelf.backend)
    with using(Registry()), using_manager(manager):

        @job("limited", middleware=[limit])  # type: ignore[list-item]
        def limited() -> None:
            """Never runs."""

        @job("free")
        def free() -> None:
            """Nor does it."""

        with pytest.raises(InvalidInput) as refused:
            limited.job().having(connection="mq").dispatch()
        assert refused.value.message.startswith("The connection 'mq' counts for no limit, and the job declares ")
        assert type(limit).__name__ in refused.value.message
        assert not (tmp_path / "shelf.json").exists() or (tmp_path / "shelf.json").read_text() in ("", "[]")
        free.job().having(connection="mq").dispatch()
        limited.job().having(connection="null").dispatch()
    manager.close()


def test_one_that_asks_all_the_same_fails_for_good() -> None:
    question = Acquire(Who("q", "id", "entry"), Place("imports", "", 2))
    with pytest.raises(Fail) as failed:
        NoLimits("mq").ask(question)
    assert isinstance(failed.value.cause, ConfigError)
    assert "'mq' keeps no limits and no locks, and the job asked for one (Acquire)" in failed.value.cause.message
    with pytest.raises(Fail):
        asyncio.run(NoLimits("mq").aask(question))
