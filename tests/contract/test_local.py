"""The connections that keep no jobs: after the response, and in a process of its own."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from delayq.core.errors import ConfigError, InvalidInput, UnknownJob
from delayq.core.spec import JobSpec
from delayq.core.states import OnConflict
from delayq.core.views import Fate, JobRef
from delayq.drivers.background import BackgroundConnection
from delayq.drivers.failed_store import FailedJob
from delayq.jobs.after_response import AfterResponse
from delayq.jobs.current import make_manager
from delayq.jobs.function import job
from delayq.jobs.handler import Handler
from delayq.jobs.job import Job
from delayq.jobs.registry import Registry, using
from delayq.manager import Manager
from delayq.settings import Settings
from tests.support import aside_jobs
from tests.support.cli import ROOT
from tests.support.waiting import wait_until


@pytest.fixture
def handlers() -> Iterator[None]:
    """The registry of `aside_jobs`, instead of an empty one."""
    with using(Registry()) as registry:
        for one in (aside_jobs.tell, aside_jobs.waits, aside_jobs.fails, aside_jobs.dies):
            registry.add(one)
        yield


@pytest.fixture
def manager(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Manager]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    aside = {"driver": "background", "failed": str(tmp_path / "failed")}
    manager = make_manager(Settings(connections={"aside": aside}))
    yield manager
    manager.close()


def send(manager: Manager, connection: str, name: str, **data: Any) -> JobRef:
    """Hand one in."""
    return manager.connection(connection).schedule(JobSpec(name=name, data=data), OnConflict.KEEP)


def failed(manager: Manager, job_id: str) -> FailedJob | None:
    """What is kept of a job that failed in the background."""
    connection = manager.connection("aside")
    assert isinstance(connection, BackgroundConnection)
    return connection.failed_store().get(job_id)


def kept_of(manager: Manager, ref: JobRef) -> FailedJob:
    """As `failed`, once it is there."""
    kept = wait_until(lambda: failed(manager, ref.id), what="the failed job is kept")
    assert kept is not None
    return kept


def handler_of(kind: type[Job]) -> Handler:
    """What a class of jobs registered when it was declared."""
    assert kind._handler is not None
    return kind._handler


# -- deferred ----------------------------------------------------------------------------------------------------------


async def test_a_deferred_job_runs_after_the_response(manager: Manager, tmp_path: Path) -> None:
    path, seen = tmp_path / "said", list[object]()

    async def app(scope: Any, receive: Any, respond: Any) -> None:
        ref = await manager.connection("deferred").aschedule(
            JobSpec(name="aside.tell", data={"path": str(path)}), OnConflict.KEEP
        )
        seen.append(ref.outcome)
        await respond({"type": "http.response.start", "status": 500})
        seen.append(path.exists())

    async def respond(message: Any) -> None:
        """Sent."""

    async def receive() -> Any:
        return {"type": "http.request"}

    await AfterResponse(app)({"type": "http"}, receive, respond)
    assert seen == [Fate.AFTER_RESPONSE, False]
    assert path.read_text() == str(os.getpid())


def test_what_would_never_run_is_refused(manager: Manager) -> None:
    with pytest.raises(ConfigError, match="No response is under way"):
        send(manager, "deferred", "aside.tell", path="/nowhere")


@pytest.mark.parametrize("connection", ["deferred", "aside"])
def test_what_they_cannot_do_is_refused(manager: Manager, connection: str) -> None:
    def refused(**options: Any) -> str:
        spec = JobSpec(name="aside.tell", data={"path": "/nowhere"}, **options)
        with pytest.raises(InvalidInput) as raised:
            manager.connection(connection).schedule(spec, OnConflict.KEEP)
        return raised.value.message

    assert "cannot hold a job until its time comes" in refused(delay="5s")
    assert "cannot hold a job until its time comes" in refused(at="2030-01-01T00:00:00Z")
    assert "keeps no unique keys" in refused(unique="k")
    assert "forgets a job" in refused(retention="1h")
    assert "'order-1'" in refused(id="order-1")


# -- background --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["aside.tell", "aside.told"])
def test_it_runs_in_a_process_of_its_own_that_leaves_nothing(manager: Manager, tmp_path: Path, name: str) -> None:
    path = tmp_path / "said"
    if name == "aside.told":
        with using(Registry()) as registry:
            registry.add(handler_of(aside_jobs.Told))
            ref = send(manager, "aside", name, path=str(path))
    else:
        ref = send(manager, "aside", name, path=str(path))
    assert ref.outcome is Fate.BACKGROUND
    wait_until(lambda: path.exists() and path.read_text(), what="the job runs")
    pid = int(path.read_text())
    assert pid != os.getpid()
    wait_until(lambda: not Path(f"/proc/{pid}").exists(), what="no process and no zombie is left")
    assert failed(manager, ref.id) is None


def test_nobody_waits_for_it(manager: Manager, tmp_path: Path) -> None:
    gate, path = tmp_path / "gate", tmp_path / "said"
    os.mkfifo(gate)
    asyncio.run(_asend(manager, path=str(path), gate=str(gate)))
    assert not path.exists()
    gate.write_bytes(b"go")  # returns once the job reads
    wait_until(path.exists, what="the job ends")


async def _asend(manager: Manager, **data: str) -> None:
    ref = await manager.connection("aside").aschedule(JobSpec(name="aside.waits", data=data), OnConflict.KEEP)
    assert ref.outcome is Fate.BACKGROUND


def test_a_failure_is_kept(manager: Manager) -> None:
    ref = send(manager, "aside", "aside.fails", order=42)
    kept = kept_of(manager, ref)
    assert (kept.connection, kept.name, kept.failure.message) == ("aside", "aside.fails", "no order 42")
    assert "raise ValueError" in kept.failure.traceback


def test_a_process_that_dies_without_a_word_is_a_failure_too(manager: Manager) -> None:
    ref = send(manager, "aside", "aside.dies")
    kept = kept_of(manager, ref)
    assert (kept.failure.type, "signal 9" in kept.failure.message) == ("WorkerVanished", True)


def test_a_module_that_cannot_be_imported_is_a_failure_too(tmp_path: Path, manager: Manager) -> None:
    aside = {"driver": "background", "failed": str(tmp_path / "failed"), "app": "no.such.module"}
    wrong = make_manager(Settings(connections={"aside": aside}))
    ref = send(wrong, "aside", "aside.tell", path=str(tmp_path / "said"))
    kept = kept_of(manager, ref)
    assert "no module 'no'" in kept.failure.message


def test_a_job_that_no_other_process_can_know_is_refused(manager: Manager, monkeypatch: pytest.MonkeyPatch) -> None:
    @job("aside.local")
    def local() -> None:
        """Its module says it is a script."""

    monkeypatch.setattr(local.function, "__module__", "__main__")
    monkeypatch.setattr(local, "place", "__main__.local:1")
    with pytest.raises(UnknownJob):
        send(manager, "aside", "aside.unknown")
    monkeypatch.delattr("__main__.__spec__", raising=False)
    with pytest.raises(ConfigError, match="where no other process can import it"):
        send(manager, "aside", "aside.local")
