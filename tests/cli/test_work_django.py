"""`delayq work` with an application that uses Django: a database connection that broke is not kept."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from delayq import DelayQ
from tests.support.cli import Cli, end, environment

APP = """
import os, django
from django.conf import settings
settings.configure(DATABASES={"default": {
    "ENGINE": "django.db.backends.postgresql", "NAME": "postgres", "USER": "delayq", "HOST": os.environ["SHOP_HOST"],
    "CONN_MAX_AGE": None}})
django.setup()
from asgiref.sync import sync_to_async
from django.db import connection
from delayq import JobContext, job

def query(last):
    with connection.cursor() as cursor:
        if not last:  # as a restart of the database ends it
            cursor.execute("SELECT pg_terminate_backend(pg_backend_pid())")
        cursor.execute("SELECT 1")

@job("shop.plain", tries=2, backoff="1ms")
def plain(context: JobContext) -> None:
    query(context.attempt == 2)

@job("shop.awaited", tries=2, backoff="1ms")
async def awaited(context: JobContext) -> None:
    await sync_to_async(query)(context.attempt == 2)
"""


@pytest.fixture
def cli(redis_url: str, postgres_url: str, tmp_path: Path) -> Iterator[Cli]:
    (tmp_path / "shop_jobs.py").write_text(APP)
    cli = Cli(tmp_path, environment(DELAYQ_URL=redis_url, SHOP_HOST=postgres_url.partition("?host=")[2]))
    cli.env["PYTHONPATH"] = str(tmp_path)
    yield cli
    cli.close()


@pytest.mark.parametrize("name", ["shop.plain", "shop.awaited"])
@pytest.mark.parametrize("threads", ["1", "2"])
def test_a_job_meets_no_connection_that_an_earlier_one_broke(cli: Cli, q: DelayQ, name: str, threads: str) -> None:
    q.schedule(name, id="a", retention="1h")
    worker = cli.start("work", "--app", "shop_jobs", "--threads", threads, "--stop-when-empty")
    done = end(worker)
    found = q.get("a")
    assert found is not None
    assert (found.state, found.attempts) == ("completed", 2), done.err
