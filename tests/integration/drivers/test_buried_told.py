"""Jobs that beanstalkd has buried are told of where no queue is named; a failed job of another queue is found."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.conftest import Inline
from tests.support.beanstalkd import Beanstalkd


@pytest.fixture
def tubed(beanstalkd: Beanstalkd, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Beanstalkd:
    monkeypatch.chdir(tmp_path)
    url = f"beanstalkd://127.0.0.1:{beanstalkd.port}"
    table = f'[connections.mq]\ndriver = "beanstalkd"\nurl = "{url}"\nfailed = "{tmp_path}/failed"\n'
    (tmp_path / "delayq.toml").write_text(table)
    with beanstalkd.client("bq") as client:
        client.put(b"no envelope")
        job = client.reserve(timeout=5)
        client.bury(job)
    return beanstalkd


@pytest.fixture
def inline(capsys: pytest.CaptureFixture[str]) -> Inline:
    return Inline(capsys)


def test_buried_jobs_are_told_of_without_a_queue(tubed: Beanstalkd, inline: Inline) -> None:
    told = "1 unreadable job of bq buried: delayq failed kick --queue bq gives back."
    assert told in inline.ok("--connection", "mq", "failed", "list").err
    assert told in inline.ok("--connection", "mq", "stats").err
    doctor = inline("--connection", "mq", "doctor")
    assert (doctor.code, "queue bq: 1 job buried" in doctor.out) == (1, True)


def test_retry_names_the_queue_option(tubed: Beanstalkd, inline: Inline) -> None:
    done = inline("--connection", "mq", "failed", "retry", "nobody")
    assert (done.code, "--queue Q" in done.err) == (3, True)
