"""The commands as a user types them, in this process."""

import json
from collections.abc import Callable

import pytest
import redis
from typer.testing import CliRunner, Result

from delayq.cli import main as cli
from delayq.core.errors import DelayqError

Run = Callable[..., Result]


@pytest.fixture
def run(url: str, server: redis.Redis, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Run a command on the private server."""
    monkeypatch.setenv("DELAYQ_URL", url)
    return lambda *words: CliRunner().invoke(cli.app, words)


def test_schedule_show_list_and_cancel_a_job(run: Run) -> None:
    limits = ("--timeout", "30s", "--deadline", "2h")
    said = json.loads(run("schedule", "order.close", "--in", "15m", "--id", "order-42", *limits, "--json").stdout)
    assert (said["id"], said["queue"], said["state"], said["outcome"]) == (
        "order-42",
        "default",
        "scheduled",
        "created",
    )
    shown = json.loads(run("show", "order-42", "--json").stdout)
    assert (shown["name"], shown["due_ms"], shown["timeout_ms"]) == ("order.close", said["due_ms"], 30_000)
    assert shown["deadline_ms"] > shown["due_ms"]
    (listed,) = run("list", "--json").stdout.splitlines()
    assert json.loads(listed)["id"] == "order-42"
    assert json.loads(run("stats", "--json").stdout)["queues"][0]["scheduled"] == 1
    assert json.loads(run("cancel", "order-42", "--json").stdout)["outcome"] == "cancelled"
    assert run("cancel", "order-42").exit_code == 3


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (("schedule", "x", "--in", "soon"), 2, "delay 'soon' is no duration"),
        (("schedule", "x", "--data", "{"), 2, "--data is no JSON"),
        (("show", "nope"), 3, "No job 'nope' is known"),
        (("--url", "http://host", "stats"), 2, "is no address of a Redis"),
        (("work",), 2, "No application is named"),
        (("work", "--app", "./shop.py"), 2, "takes the name of a module"),
    ],
)
def test_a_refusal_is_one_sentence_and_its_exit_code(run: Run, words: list[str], code: int, message: str) -> None:
    error = run(*words).exception
    assert isinstance(error, DelayqError)
    assert (error.exit_code, message in str(error)) == (code, True)


def test_without_an_address_the_next_step_is_told(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DELAYQ_URL")
    error = run("stats").exception
    assert isinstance(error, DelayqError)
    assert (error.exit_code, "Set DELAYQ_URL" in str(error)) == (2, True)
