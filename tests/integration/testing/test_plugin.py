"""The plugin as a suite of somebody else meets it: a folder, a delayq.toml that names a real Redis, pytest."""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
from importlib.metadata import EntryPoint
from pathlib import Path

from tests.docs.manuals import ROOT

SUITE = """
import pytest
from delayq import DelayQ, Job, dispatch

class CloseOrder(Job, name="order.close"):
    order_id: int
    def handle(self):
        return self.order_id

def test_fake(delayq_fake):
    CloseOrder(order_id=42).dispatch(delay="15m")
    delayq_fake.assert_pushed_with_delay(CloseOrder, "15m", lambda job: job.order_id == 42)

def test_fake_fails(delayq_fake):
    dispatch("order.open")
    delayq_fake.assert_pushed(CloseOrder)

@pytest.mark.parametrize("again", range(2))
def test_travel(delayq_travel, again):
    CloseOrder(order_id=42).dispatch(delay="15m", id="order-42")
    assert [attempt.result for attempt in delayq_travel("15m")] == [42]

@pytest.fixture(scope="session")
def server_of_before(delayq_server):
    return delayq_server

def test_both(delayq_travel, delayq_fake):
    delayq_fake.only("order.open")
    dispatch("order.open")
    CloseOrder(order_id=7).dispatch(delay="1m")
    assert [attempt.result for attempt in delayq_travel("1h")] == [7]
    delayq_fake.assert_count(1)
"""


def run(folder: Path, *options: str) -> subprocess.CompletedProcess[str]:
    """pytest in a process of its own, without what else is installed here."""
    words = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *options]
    return subprocess.run(
        words,
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=50,
        check=False,
        env={
            "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
            "PYTHONPATH": str(ROOT),
            "PATH": os.environ["PATH"],
            "HOME": str(folder),
        },
    )


def test_a_suite_with_the_fixtures(tmp_path: Path) -> None:
    (tmp_path / "test_shop.py").write_text(SUITE)
    (tmp_path / "delayq.toml").write_text('url = "redis://shop.invalid:6379/0"\nprefix = "shop"\nqueue = "orders"\n')
    done = run(tmp_path, "-p", "delayq.testing.plugin", "-W", "error")
    assert "1 failed, 4 passed" in done.stdout, done.stdout + done.stderr
    assert "No order.close was pushed. Pushed:" in done.stdout
    assert "order.open to orders, at once: null" in done.stdout
    assert "delayq/testing" not in done.stdout, "a failed assertion shows the test, not the kit"


def test_a_suite_that_has_nothing_to_do_with_it_pays_nothing(tmp_path: Path) -> None:
    (tmp_path / "test_else.py").write_text(
        "import sys\n\ndef test_else():\n"
        "    heavy = {'redis', 'msgspec', 'pydantic', 'delayq.jobs', 'delayq.redis', 'delayq.testing.fake'}\n"
        "    assert 'delayq.testing.plugin' in sys.modules\n"
        "    assert heavy & set(sys.modules) == set()\n"
    )
    done = run(tmp_path, "-p", "delayq.testing.plugin")
    assert "1 passed" in done.stdout, done.stdout + done.stderr


def test_an_installed_delayq_brings_the_plugin() -> None:
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["entry-points"]["pytest11"]
    [(name, place)] = declared.items()
    plugin = EntryPoint(name, place, "pytest11").load()
    assert name == "delayq"
    assert {"delayq_fake", "delayq_travel", "delayq_server"} <= set(vars(plugin))
