"""What an application does to its process, and how a worker copes: exit hooks, context, logging, old releases."""

import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import redis

from delayq import DelayQ, ResultLost
from tests.support.lines import complete_lines

pytestmark = pytest.mark.processes

FLUSHING = """
import atexit, os, signal
from delayq import WorkerStopping, job, listener

notes = []
atexit.register(lambda: write("hook of the parent"))

def write(line):
    with open("log", "a") as file:
        file.write(line + "\\n")

@job("note", queue="q")
def note(n: int) -> None:
    if not notes:
        atexit.register(lambda: write(f"at exit {notes}"))
    notes.append(n)
    if n == 10:
        os.kill(os.getppid(), signal.SIGTERM)
    if n == 20:
        raise MemoryError

@listener(WorkerStopping)
def flush(event: WorkerStopping) -> None:
    write(f"flushed {notes}")
"""

HANGING = """
import atexit, time
from delayq import job

@job("first", queue="q", tries=1)
def first() -> None:
    atexit.register(time.sleep, 1000)
    raise MemoryError

@job("second", queue="q")
def second() -> None:
    with open("log", "a") as file:
        file.write("second\\n")
"""

TENANTS = """
import contextvars
from delayq import job

tenant = contextvars.ContextVar("tenant", default="nobody")

def serve(name):
    with open("log", "a") as file:
        file.write(f"{tenant.get()} {name}\\n")
    tenant.set(name)

@job("plain", queue="q")
def plain(name: str) -> None:
    serve(name)

@job("async", queue="q")
async def asynchronous(name: str) -> None:
    serve(name)
"""

SILENCING = """
import logging.config
from delayq import job

logging.config.dictConfig({"version": 1})

@job("fails", queue="q", tries=1)
def fails() -> None:
    raise ValueError("why")
"""

SILENCING_LATER = """
import logging.config
from delayq import job

@job("silences", queue="q")
def silences() -> None:
    logging.config.dictConfig({"version": 1})

@job("fails", queue="q", tries=1)
def fails() -> None:
    raise ValueError("why")
"""

RAISING_FILTER = """
import contextvars, logging
from delayq import job

request = contextvars.ContextVar("request")
handler = logging.StreamHandler()
handler.addFilter(lambda record: bool(request.get()))
logging.getLogger().addHandler(handler)

@job("fails", queue="q", tries=1)
def fails() -> None:
    raise ValueError("why")
"""

OLD_RELEASE = """
from delayq import job

@job("mail", queue="q", tries=1)
def mail(to: str) -> None:
    with open("log", "a") as file:
        file.write(f"old release: {to}\\n")
"""

NEW_RELEASE = """
from delayq import job

@job("mail", queue="q", tries=1)
def mail(to: str, locale: str = "en") -> None:
    with open("log", "a") as file:
        file.write(f"{to} {locale}\\n")

@job("text", queue="q", tries=1)
def text(to: str) -> None:
    with open("log", "a") as file:
        file.write(f"text {to}\\n")
"""

KINDS = """
from delayq import Job, JobContext, dispatch, handles

def write(line):
    with open("log", "a") as file:
        file.write(line + "\\n")

class Plain(Job, queue="q", retention="1h"):
    n: int
    def handle(self, context: JobContext):
        write(f"plain {self.n} of {context.id}, attempt {self.attempts()}")
        return {"n": self.n}

class Awaited(Job, queue="q"):
    n: int
    async def handle(self):
        write(f"awaited {self.n}")

class Gives(Job, queue="q", tries=1):
    how: str
    def handle(self):
        if self.how == "up":
            raise ValueError("broken")
        self.fail("decided")
    def failed(self, error):
        write(f"{self.how}: {error} at attempt {self.attempts()}")

class GivesAwaited(Job, queue="q", tries=1):
    async def handle(self):
        raise ValueError("broken")
    async def failed(self, error):
        write(f"awaited: {error}")

class Mixed(Job, queue="q", tries=1):
    def handle(self):
        raise ValueError("broken")
    async def failed(self, error):
        write(f"mixed: {error}")

@handles("Mailer", queue="q")
class Mailer:
    def send(self, context, data):
        write(f"sent {data['to']}")
        dispatch("Mailer@again", data)
    async def again(self, context, data):
        write(f"again {data['to']}")

class Loses(Job, queue="q", retention="1h"):
    def handle(self):
        return {"x": float("nan")}
"""

DECORATED = """
import asyncio, functools
from delayq import Job, job

def write(line):
    with open("log", "a") as file:
        file.write(line + "\\n")

def in_thread(function):
    @functools.wraps(function)
    async def call(*args, **kwargs):
        return await asyncio.to_thread(function, *args, **kwargs)
    return call

def in_loop(function):
    @functools.wraps(function)
    def call(*args, **kwargs):
        return asyncio.run(function(*args, **kwargs))
    return call

def logged(function):
    @functools.wraps(function)
    def call(*args, **kwargs):
        return function(*args, **kwargs)
    return call

@job("async-of-plain", queue="q")
@in_thread
def async_of_plain() -> None:
    write("async-of-plain")

@job("plain-of-async", queue="q")
@in_loop
async def plain_of_async() -> None:
    write("plain-of-async")

@job("logged", queue="q")
@logged
async def logged_async() -> None:
    await asyncio.sleep(0)
    write("logged")

class Logged(Job, queue="q"):
    @logged
    async def handle(self):
        await asyncio.sleep(0)
        write("class")
"""

REFUSED = """
from delayq import Job

def write(line):
    with open("log", "a") as file:
        file.write(line + "\\n")

class Late(Job, queue="q"):
    def handle(self):
        write("it ran")
    def failed(self, error):
        write(f"{type(error).__name__} {self.context.id}")

class LateAsync(Job, queue="q"):
    async def handle(self):
        write("it ran")
    async def failed(self, error):
        write(f"{type(error).__name__} {self.context.id}")
"""

OTHER_REDIS = """
from delayq import Manager, job, set_manager
from delayq.settings.model import load_settings

set_manager(Manager(load_settings(url="redis://elsewhere:1/0")))

@job("note", queue="q")
def note(n: int) -> None: ...
"""

Work = Callable[..., str]


@pytest.fixture
def client(url: str, server: redis.Redis) -> Iterator[DelayQ]:
    with DelayQ(url) as client:
        yield client


@pytest.fixture
def work(url: str, tmp_path: Path) -> Work:
    """Run a worker for an application until its queue is empty, and return what it wrote to stderr."""

    def work(application: str, *options: str) -> str:
        (tmp_path / "app.py").write_text(application)
        words = [sys.executable, "-B", "-m", "delayq", "--url", url, "work", "--app", "app", "--queue", "q"]
        environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[1])}
        ended = subprocess.run(
            [*words, "--stop-when-empty", *options],
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert ended.returncode == 0, ended.stderr
        return ended.stderr

    return work


def lines(folder: Path) -> list[str]:
    log = folder / "log"
    return complete_lines(log)


@pytest.mark.parametrize(
    ("last", "options", "why"),
    [
        (2, (), "no job may start now"),
        (2, ("--max-jobs", "2"), "all its jobs have run (2)"),
        (10, (), "SIGTERM"),
        (20, (), "no job may start now"),
    ],
    ids=["nothing to do", "its jobs have run", "SIGTERM", "replaced for its memory"],
)
def test_a_child_flushes_before_it_ends(
    work: Work, client: DelayQ, tmp_path: Path, *, last: int, options: tuple[str, ...], why: str
) -> None:
    """Issue 4916 of opentelemetry-python-contrib: spans were lost because a child ended by `os._exit`."""
    for n in (1, last):
        client.schedule("note", {"n": n}, queue="q")
    assert f"the worker is shutting down: {why}; " in work(FLUSHING, *options)
    assert [line for line in lines(tmp_path) if line != "flushed []"] == [
        f"flushed [1, {last}]",
        f"at exit [1, {last}]",
        "hook of the parent",
    ]


def test_a_child_that_is_replaced_is_ended_when_its_exit_hooks_hang(work: Work, client: DelayQ, tmp_path: Path) -> None:
    for name in ("first", "second"):
        client.schedule(name, queue="q")
    said = work(HANGING, "--grace", "1s")
    assert "in _leave" in said
    assert re.search(r"child process \d+ ended with signal SIGALRM", said)
    assert lines(tmp_path) == ["second"]


@pytest.mark.parametrize(("name", "threads"), [("plain", 1), ("plain", 2), ("async", 1)])
def test_each_job_has_a_context_of_its_own(work: Work, client: DelayQ, tmp_path: Path, name: str, threads: int) -> None:
    """Issue 126 of acts_as_tenant: what one job set, the next one saw."""
    for n in range(6):
        client.schedule(name, {"name": f"tenant-{n}"}, queue="q")
    work(TENANTS, "--threads", str(threads))
    assert sorted(lines(tmp_path)) == [f"nobody tenant-{n}" for n in range(6)]


def test_a_failure_is_told_also_when_the_application_silences_loggers(work: Work, client: DelayQ) -> None:
    """Issue 3730 of tilecloud-chain: `disable_existing_loggers` left failed jobs without a line."""
    client.schedule("fails", queue="q")
    assert "ValueError: why" in work(SILENCING)
    client.schedule("silences", queue="q")
    client.schedule("fails", queue="q")
    assert "ValueError: why" in work(SILENCING_LATER)


def test_a_filter_of_the_application_that_raises_ends_no_process(work: Work, client: DelayQ) -> None:
    client.schedule("fails", queue="q")
    told = work(RAISING_FILTER)
    assert "ValueError: why" in told
    assert "delayq: a log handler of the application raised LookupError" in told
    assert "exit code" not in told
    assert client.stats("q")[0].failed == 1


def test_an_application_without_a_job_is_told(work: Work) -> None:
    assert "delayq: The module app declares no jobs, so this worker can run none. Is it the right module?\n" in work("")


def test_jobs_of_a_new_release_wait_for_it(work: Work, client: DelayQ, tmp_path: Path) -> None:
    """Issue 15212 of chatwoot: jobs with a new argument failed under workers of the old release."""
    mail = client.schedule("mail", {"to": "ann", "locale": "fr"}, queue="q")
    client.schedule("mail", {"to": "bob"}, queue="q")
    text = client.schedule("text", {"to": "eve"}, queue="q")
    work(OLD_RELEASE)
    assert lines(tmp_path) == ["old release: bob"]
    (stats,) = client.stats("q")
    assert (stats.scheduled, stats.failed) == (2, 0)
    waiting = list(client.iter_jobs("scheduled", queue="q"))
    assert {job.id for job in waiting} == {mail.id, text.id}
    assert [job.attempts for job in waiting] == [0, 0]
    for job in waiting:
        client.run_now(job.id, queue="q")
    work(NEW_RELEASE)
    assert sorted(lines(tmp_path)) == ["ann fr", "old release: bob", "text eve"]


@pytest.mark.parametrize("threads", ["1", "3"])
def test_jobs_of_all_kinds_run(work: Work, client: DelayQ, tmp_path: Path, threads: str) -> None:
    kept = client.schedule("Plain", {"n": 1}, queue="q")
    client.schedule("Awaited", {"n": 2}, queue="q")
    client.schedule("Gives", {"how": "up"}, queue="q")
    client.schedule("Gives", {"how": "decided"}, queue="q")
    client.schedule("GivesAwaited", {}, queue="q")
    client.schedule("Mixed", {}, queue="q")
    client.schedule("Mailer@send", {"to": "ann"}, queue="q")
    lost = client.schedule("Loses", {}, queue="q")
    work(KINDS, "--threads", threads)
    assert sorted(lines(tmp_path)) == [
        "again ann",
        "awaited 2",
        "awaited: broken",
        "decided: decided at attempt 1",
        "mixed: broken",
        f"plain 1 of {kept.id}, attempt 1",
        "sent ann",
        "up: broken at attempt 1",
    ]
    assert kept.result() == {"n": 1}
    with pytest.raises(ResultLost, match="nan, which JSON cannot express"):
        lost.result()
    (stats,) = client.stats("q")
    assert (stats.failed, stats.completed, stats.ready, stats.reserved) == (4, 2, 0, 0)


@pytest.mark.parametrize("threads", ["1", "3"])
def test_a_job_that_fails_before_it_starts_is_told(work: Work, client: DelayQ, tmp_path: Path, threads: str) -> None:
    for name in ("Late", "LateAsync"):
        client.schedule(name, id=name, queue="q", deadline="1ms")
    work(REFUSED, "--threads", threads)
    assert sorted(lines(tmp_path)) == ["DeadlinePassed Late", "DeadlinePassed LateAsync"]
    failed = list(client.iter_failed("q"))
    assert [(job.attempts, job.failure and job.failure.type) for job in failed] == [(0, "DeadlinePassed")] * 2


@pytest.mark.parametrize("threads", ["1", "3"])
def test_what_a_decorated_handler_returns_is_awaited(work: Work, client: DelayQ, tmp_path: Path, threads: str) -> None:
    """They counted as done, and their code never ran."""
    for name in ("async-of-plain", "plain-of-async", "logged", "Logged"):
        client.schedule(name, queue="q")
    work(DECORATED, "--threads", threads)
    assert sorted(lines(tmp_path)) == ["async-of-plain", "class", "logged", "plain-of-async"]
    (stats,) = client.stats("q")
    assert (stats.failed, stats.scheduled, stats.ready, stats.reserved) == (0, 0, 0, 0)


def test_a_worker_refuses_an_application_with_another_redis(url: str, tmp_path: Path) -> None:
    """Jobs would go to one server, and the worker would wait at the other."""
    (tmp_path / "app.py").write_text(OTHER_REDIS)
    words = [sys.executable, "-B", "-m", "delayq", "--url", url, "work", "--app", "app"]
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[1])}
    ended = subprocess.run(words, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert ended.returncode == 2
    assert (
        f"would serve {url} (prefix delayq), but the application sends its jobs to redis://elsewhere:1/0"
        in ended.stderr
    )
