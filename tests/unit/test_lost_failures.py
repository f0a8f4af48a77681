"""A place for failed jobs that cannot be used is found before a worker begins, and not when the first job fails."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from delayq.app import driver_factory
from delayq.core.errors import ConfigError
from delayq.manager import Manager
from delayq.settings import Settings


def manager_with(failed: str) -> Manager:
    """Of a beanstalkd that nobody asks: the place for failures is looked at without it."""
    return Manager(Settings(connections={"mq": {"driver": "beanstalkd", "failed": failed}}))


@pytest.mark.parametrize(
    ("failed", "why"),
    [
        ("/dev/null/failed", "Failed jobs cannot be kept in /dev/null/failed: Not a directory."),
        ("sqlite:////nowhere/at/all.db", "The database sqlite:////nowhere/at/all.db cannot be reached"),
        ("sqlite:///{folder}/empty.db", "/empty.db has no table failed_jobs."),
    ],
    ids=["no folder", "no database", "no table"],
)
def test_a_worker_is_refused(failed: str, why: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    driver: Any = driver_factory(manager_with(failed.format(folder=tmp_path)), "mq")()
    monkeypatch.setattr(driver._broker, "ready", lambda queues: None)
    with pytest.raises(ConfigError) as refused:
        driver.steward(["q"]).lease_s()
    assert refused.value.message.startswith("The failed jobs of the connection 'mq' could not be kept: ")
    assert why in refused.value.message
    assert refused.value.hint == "Mend that place, or name another: failed = … below [connections.mq]."
    driver.close()


@pytest.mark.parametrize("failed", ["null", "{folder}/failed/here"])
def test_a_good_place_is_no_reason(failed: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    driver: Any = driver_factory(manager_with(failed.format(folder=tmp_path)), "mq")()
    monkeypatch.setattr(driver._broker, "ready", lambda queues: None)
    assert driver.steward(["q"]).lease_s() == 90
    assert failed == "null" or list((tmp_path / "failed/here").iterdir()) == []
    driver.close()
