"""Jobs that wait for the commit of a transaction of Django.

Django is configured once in a process, so each test runs a program of its own.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import redis

SETUP = """
import django
from django.conf import settings
settings.configure(DATABASES={
    "default": {"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:"},
    "archive": {"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:"},
})
django.setup()
from django.db import transaction
from delayq import *
import delayq
q = DelayQ()

class Close(Job, name="django.close", delay="1h"):
    order_id: int = 1
    def handle(self): ...

class Paid(Job, name="django.paid", delay="1h", after_commit=True):
    def handle(self): ...

def count():
    return q.stats("default")[0].scheduled if q.queues() else 0
"""

PROGRAMS = {
    "a job is sent after the commit of the outermost block": """
with transaction.atomic():
    with transaction.atomic():
        assert Close().dispatch(within="default").outcome == "after commit"
        assert Paid().dispatch().outcome == "after commit"
    assert count() == 0
assert count() == 2
""",
    "a rollback sends nothing, also of a savepoint": """
with transaction.atomic():
    Paid().dispatch()
    try:
        with transaction.atomic():
            Paid().dispatch()
            chain(Close(), Close()).after_commit().dispatch()
            raise ValueError
    except ValueError:
        pass
assert count() == 1
try:
    with transaction.atomic():
        Paid().dispatch()
        raise ValueError
except ValueError:
    pass
assert count() == 1
""",
    "without a transaction a job is sent at once": """
assert Paid().dispatch().outcome == "created"
assert Close().dispatch(within="default").outcome == "created"
with transaction.atomic("archive"):
    assert Paid().dispatch().outcome == "created"
    assert Paid().dispatch(within="archive").outcome == "after commit"
assert count() == 4
""",
    "chains and batches wait": """
with transaction.atomic(), within("default"):
    assert chain(Close(), Close()).dispatch().outcome == "after commit"
    assert batch([Close(), Close()]).dispatch().outcome == "after commit"
    assert count() == 0
assert count() == 3
""",
    "an unknown alias is refused": """
import asyncio
for call in (lambda: Close().dispatch(within="nowhere"), lambda: asyncio.run(Close().adispatch(within="nowhere"))):
    try:
        call()
    except InvalidInput as error:
        assert str(error) == (
            "within is 'nowhere', and Django has no database with this alias. Known are archive, default."
        ), error
    else:
        raise AssertionError
""",
    "all jobs that cannot be sent are named, and the others are sent": """
from unittest.mock import patch
calls = []
send = DelayQ.send_prepared
def counting(self, jobs, **said):
    calls.append(len(jobs))
    return send(self, jobs, **said)
with patch.object(DelayQ, "send_prepared", counting):
    with transaction.atomic():
        for n in range(3):
            Close(order_id=n).dispatch(within="default")
        try:
            with transaction.atomic():
                Paid().dispatch()
                raise ValueError
        except ValueError:
            pass
assert calls == [1, 1, 1] and count() == 3, calls
try:
    with patch.object(DelayQ, "send_prepared", side_effect=BackendUnavailable("Redis is away.")):
        with transaction.atomic():
            refs = [Close(order_id=n).dispatch(within="default") for n in range(2)]
            chain(Close(), Close()).within("default").dispatch()
except CommittedUnsent as error:
    assert error.jobs == [("django.close", ref.id) for ref in refs], error.jobs
else:
    raise AssertionError
assert count() == 4
with transaction.atomic():
    Paid().dispatch()
assert count() == 5
""",
    "a callback of the application that raises stops only the dispatches after it": """
def fail():
    raise OSError("mail server is down")
try:
    with transaction.atomic():
        Paid().dispatch()
        transaction.on_commit(fail)
        Paid().dispatch()
except OSError:
    pass
assert count() == 1
""",
    "without autocommit and without a block, nothing can wait": """
transaction.set_autocommit(False)
try:
    Paid().dispatch()
except InvalidInput as error:
    assert "Autocommit of the database 'default' is off" in str(error), error
else:
    raise AssertionError
transaction.rollback()
transaction.set_autocommit(True)
assert count() == 0
""",
    "the callbacks of a test case send too": """
from django.test import TestCase

class Orders(TestCase):
    def runTest(self):
        Paid().dispatch()  # never committed
        for n in (1, 2):
            with self.captureOnCommitCallbacks(execute=True):
                Paid().dispatch()
                Close().dispatch(within="default")
            assert count() == 2 * n, count()

from django.test.runner import DiscoverRunner
from django.test.utils import setup_test_environment
import unittest
result = unittest.TextTestRunner().run(Orders())
assert result.wasSuccessful()
""",
    "adispatch waits for the transaction of the thread that runs the queries of its task": """
import asyncio
from asgiref.sync import async_to_sync, sync_to_async

def buy():
    before = count()
    with transaction.atomic():
        assert async_to_sync(Paid().adispatch)().outcome == "after commit"
        assert async_to_sync(chain(Close(), Close()).after_commit().adispatch)().outcome == "after commit"
        assert async_to_sync(batch([Close()]).within("default").adispatch)().outcome == "after commit"
        assert count() == before
    assert count() == before + 3

def cancel():
    with transaction.atomic():
        async_to_sync(Paid().adispatch)()
        raise ValueError

async def across_calls():
    block = transaction.atomic()
    await sync_to_async(block.__enter__)()
    assert (await Paid().adispatch()).outcome == "after commit"
    assert count() == 6
    await sync_to_async(block.__exit__)(None, None, None)
    assert count() == 7
    assert (await Paid().adispatch()).outcome == "created"

buy()
asyncio.run(sync_to_async(buy)())
for call in (cancel, lambda: asyncio.run(sync_to_async(cancel)())):
    try:
        call()
    except ValueError:
        pass
assert count() == 6
asyncio.run(across_calls())
assert count() == 8
""",
    "adispatch sends at once if the thread of the queries cannot be asked": """
import asyncio
from asgiref.sync import ThreadSensitiveContext, sync_to_async

def in_a_loop():
    with transaction.atomic():
        assert asyncio.run(Paid().adispatch()).outcome == "created"

async def later(context):
    await asyncio.sleep(0.05)
    return await Paid().adispatch()

async def outlives():
    async with ThreadSensitiveContext() as context:
        task = asyncio.create_task(later(context))
        await asyncio.sleep(0)
    assert (await task).outcome == "created"

in_a_loop()
asyncio.run(sync_to_async(in_a_loop)())
asyncio.run(outlives())
assert count() == 3
""",
    "jobs that cannot be sent are named, and the commit is valid": """
from unittest.mock import patch
done = []
try:
    with patch.object(DelayQ, "send_prepared", side_effect=BackendUnavailable("Redis is away.")):
        with transaction.atomic():
            ref = Paid().dispatch()
            done.append(1)
except CommittedUnsent as error:
    assert error.jobs == [("django.paid", ref.id)]
else:
    raise AssertionError
assert not transaction.get_connection().in_atomic_block
""",
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_django(name: str, tmp_path: Path, url: str, server: redis.Redis) -> None:
    environment = {**os.environ, "DELAYQ_URL": url, "DELAYQ_PREFIX": "test"}
    ran = subprocess.run(
        [sys.executable, "-c", SETUP + PROGRAMS[name]],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr


def test_an_import_of_django_is_not_enough(tmp_path: Path, url: str, server: redis.Redis) -> None:
    program = """
import django.conf, django.db
from delayq import InvalidInput, Job
class Paid(Job, name="django.paid", after_commit=True):
    def handle(self): ...
try:
    Paid().dispatch()
except InvalidInput as error:
    assert "no session is named" in str(error), error
else:
    raise AssertionError
"""
    environment = {**os.environ, "DELAYQ_URL": url, "DELAYQ_PREFIX": "test"}
    ran = subprocess.run(
        [sys.executable, "-c", program], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
    )
    assert ran.returncode == 0, ran.stderr
