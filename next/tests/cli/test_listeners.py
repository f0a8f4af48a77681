"""Commands call the listeners of the module that `--app` names."""

from pathlib import Path

import pytest
import redis

from delayq import DelayQ
from delayq.manager import set_manager
from tests.cli.conftest import Run, Tell

APPLICATION = """
from delayq import JobRetryRequested, QueueBusy, dispatch, listener

@listener(QueueBusy)
def busy(event: QueueBusy) -> None:
    dispatch("alert", {"queue": event.queue, "ready": event.ready, "limit": event.limit}, queue="alerts", delay="1h")

@listener(JobRetryRequested)
def retried(event: JobRetryRequested) -> None:
    print("retried", event.id, event.name, event.queue)
"""


@pytest.fixture
def client(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, url: str, server: redis.Redis, no_listeners: None
) -> DelayQ:
    (tmp_path / "heard.py").write_text(APPLICATION)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(__import__("sys").modules, "heard", raising=False)
    set_manager(None)
    return DelayQ(url)


def test_a_busy_queue_calls_its_listeners(run: Run, client: DelayQ) -> None:
    for _ in range(3):
        client.schedule("order.close", queue="orders")
    assert run("stats", "--busy-above", "3", "--app", "heard").exit_code == 0
    assert client.stats("alerts")[0].scheduled == 0
    ended = run("stats", "--busy-above", "2", "--app", "heard")
    assert (ended.exit_code, ended.stderr) == (1, "delayq: More than 2 jobs are ready in: orders.\n")
    (alert,) = client.iter_jobs("scheduled", queue="alerts")
    assert alert.data == {"queue": "orders", "ready": 3, "limit": 2}


def test_a_retry_calls_its_listeners(run: Run, client: DelayQ) -> None:
    client.schedule("order.close", id="1", queue="orders", delay="1h")
    client.archive("1", queue="orders")
    ended = run("failed", "retry", "1", "--queue", "orders", "--app", "heard")
    assert ended.exit_code == 0, ended.output
    assert "retried 1 order.close orders\n" in ended.stdout


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("stats", "--app", "heard"), "--app belongs to --busy-above. Add --busy-above N, or leave out --app."),
        (("stats", "--busy-above", "2", "--app", "nowhere"), "The module 'nowhere' was not found."),
        (("failed", "retry", "1", "--app", "nowhere"), "The module 'nowhere' was not found."),
    ],
)
def test_a_refusal_says_why(tell: Tell, client: DelayQ, words: tuple[str, ...], told: str) -> None:
    code, said = tell(*words)
    assert (code, told in said) == (2, True), said
