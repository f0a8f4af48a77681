"""`failed retry --here` runs one failed job in this process."""

import json
import os
from pathlib import Path

import pytest
import redis

from delayq import Conflict, DelayQ, InvalidInput
from delayq.core.errors import JobNotFailed, JobNotFound
from delayq.jobs.registry import registry
from delayq.manager import set_manager
from tests.cli.conftest import Run, Tell

APPLICATION = """
import os
from delayq import Discard, Retry, job

@job("here.pay")
def pay(order_id: int) -> None:
    with open("paid", "a") as file:
        file.write(f"{order_id} by {os.getpid()}\\n")
    if order_id == 1:
        raise ValueError("no order 1")
    if order_id == 2:
        raise Retry(reason="the bank is busy")
    if order_id == 3:
        raise Discard()
"""

LINKS = {"chain": ["next"], "batch": "b1"}


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, url: str, server: redis.Redis) -> DelayQ:
    """Four failed jobs and their application, which is the working directory."""
    (tmp_path / "here_jobs.py").write_text(APPLICATION)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(registry, "_handlers", dict(registry._handlers))
    monkeypatch.delitem(__import__("sys").modules, "here_jobs", raising=False)
    set_manager(None)
    client = DelayQ(url)
    for n in range(5):
        data = {"order_id": n} if n < 4 else {"order_id": "x"}
        client.schedule("here.pay", data, id=f"pay-{n}", queue="money", delay="1h")
        client.archive(f"pay-{n}", queue="money", reason="the bank is closed")
    return client


@pytest.mark.parametrize("link", LINKS)
def test_a_job_of_a_chain_or_batch_is_refused(run: Run, shop: DelayQ, link: str) -> None:
    job = {"name": "here.pay", "queue": "money", "data": {"order_id": 0}}
    envelope = {"v": 1, "id": "linked", "attempts": 0, "created_ms": 0, **job, link: LINKS[link]}
    shop.push_raw(json.dumps(envelope).encode(), queue="money", delay="1h")
    shop.archive("linked", queue="money")
    ended = run("failed", "retry", "--here", "linked", "--queue", "money", "--app", "here_jobs")
    assert isinstance(ended.exception, InvalidInput)
    assert "belongs to a chain or a batch" in ended.exception.message
    assert not Path("paid").exists()


def test_a_job_whose_unique_key_another_job_owns_does_not_run(run: Run, shop: DelayQ) -> None:
    def schedule(id: str) -> None:
        shop.schedule("here.pay", {"order_id": 0}, id=id, queue="money", delay="1h", unique="key")

    schedule("first")
    shop.archive("first", queue="money")
    schedule("owner")
    ended = run("failed", "retry", "--here", "first", "--app", "here_jobs", "--json")
    assert isinstance(ended.exception, Conflict)
    assert ended.exception.message == "The job 'owner' owns the unique key of 'first'."
    assert json.loads(ended.stdout) == {"id": "first", "queue": "money", "outcome": "refused"}
    assert not Path("paid").exists()
    shop.cancel("owner", queue="money")
    assert run("failed", "retry", "--here", "first", "--app", "here_jobs").exit_code == 0


def test_a_job_that_is_done_leaves_the_failed_jobs(run: Run, shop: DelayQ) -> None:
    ended = run("failed", "retry", "--here", "pay-0", "--app", "here_jobs")
    assert (ended.exit_code, ended.stdout) == (0, "pay-0  done in queue money\n")
    assert Path("paid").read_text() == f"0 by {os.getpid()}\n"
    assert shop.get("pay-0", queue="money") is None


def test_a_job_that_cannot_run_is_told_as_json(run: Run, shop: DelayQ) -> None:
    shop.schedule("shop.pay", id="waits", queue="money", delay="1h")
    for id, queue, outcome in (("nope", None, "unknown"), ("waits", "money", "refused")):
        ended = run("failed", "retry", "--here", id, "--app", "here_jobs", "--json")
        assert json.loads(ended.stdout) == {"id": id, "queue": queue, "outcome": outcome}
        assert isinstance(ended.exception, JobNotFound if outcome == "unknown" else JobNotFailed)


def test_a_discarded_job_is_done(run: Run, shop: DelayQ) -> None:
    ended = run("failed", "retry", "--here", "pay-3", "--queue", "money", "--app", "here_jobs", "--json")
    assert ended.stdout == '{"id":"pay-3","queue":"money","outcome":"done"}\n'


def test_a_job_that_fails_again_stays_as_it_is(run: Run, shop: DelayQ) -> None:
    before = shop.get("pay-1", queue="money")
    ended = run("failed", "retry", "--here", "pay-1", "--app", "here_jobs")
    assert ended.exit_code == 1
    assert isinstance(ended.exception, ValueError)  # as it was raised, for a debugger
    assert ended.exception.__traceback__ is not None
    assert ended.stderr == "delayq: The job 'pay-1' failed again, and stays among the failed jobs.\n"
    assert shop.get("pay-1", queue="money") == before


def test_a_job_that_asks_to_run_again_stays_as_it_is(run: Run, shop: DelayQ) -> None:
    ended = run("failed", "retry", "--here", "pay-2", "--app", "here_jobs")
    assert (ended.exit_code, ended.stdout) == (1, "")
    assert (
        ended.stderr
        == "delayq: The job 'pay-2' asked to run again (the bank is busy), and stays among the failed jobs.\n"
    )
    assert [job.id for job in shop.iter_failed("money")] == [f"pay-{n}" for n in range(5)]


@pytest.mark.parametrize(
    ("words", "code", "told"),
    [
        (("--here", "pay-0"), 2, "No application is named. Name the module of your jobs: --app shop.jobs"),
        (("--here", "--all", "--app", "here_jobs"), 2, "--here needs exactly one id, and no --rate."),
        (
            ("--here", "pay-0", "pay-1", "--app", "here_jobs"),
            2,
            "--here needs exactly one id, and no --rate.",
        ),
        (("--here", "pay-0", "--data", "{}", "--app", "here_jobs"), 2, "The payload does not fit 'here.pay'"),
        (("--here", "nope", "--app", "here_jobs"), 3, "No job 'nope' is known in any queue."),
        (("--here", "pay-4", "--app", "here_jobs"), 2, "The payload does not fit 'here.pay'"),
    ],
)
def test_a_refusal_says_why_and_runs_nothing(
    tell: Tell, shop: DelayQ, words: tuple[str, ...], code: int, told: str
) -> None:
    ended, said = tell("failed", "retry", *words)
    assert (ended, told in said) == (code, True), said
    assert not Path("paid").exists()
