"""Output that cannot be written, and the words of a command line."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import redis

from delayq import DelayQ
from delayq.__main__ import _command

ROOT = Path(__file__).parents[2]


def run(url: str, words: str, redirect: str = "", **environment: str) -> "subprocess.CompletedProcess[str]":
    command = f"exec {sys.executable} -m delayq --url {url} {words} {redirect}"
    variables = {**os.environ, "PYTHONPATH": str(ROOT), **environment}
    return subprocess.run(["sh", "-c", command], capture_output=True, text=True, env=variables, check=False)


@pytest.mark.parametrize("redirect", [">&-", "2>&-", ">&- 2>&-", ">/dev/full", ">/dev/full 2>/dev/full"])
@pytest.mark.parametrize("form", ["", "--json"])
def test_the_exit_code_reports_the_change_and_not_its_output(
    url: str, server: redis.Redis, redirect: str, form: str
) -> None:
    ended = run(url, f"schedule order.close --in 1h --id one {form}", redirect)
    assert (ended.returncode, "Traceback" in ended.stderr) == (0, False)
    cancelled = run(url, f"cancel one {form}", redirect)
    assert cancelled.returncode == 0
    with DelayQ(url) as client:
        assert client.get("one", queue="default") is None


def test_an_answer_that_cannot_be_written_is_a_failure_of_a_command_that_reads(url: str, server: redis.Redis) -> None:
    ended = run(url, "stats", ">/dev/full")
    assert (ended.returncode, ended.stderr) == (
        1,
        "delayq: The output could not be written: No space left on device.\n",
    )


def test_a_pipe_whose_reader_stops_is_no_failure_to_report(url: str, server: redis.Redis) -> None:
    ended = run(url, "--help", "| head -1")
    assert "could not be written" not in ended.stderr


def test_characters_that_the_stream_cannot_show_are_escaped(url: str, server: redis.Redis) -> None:
    with DelayQ(url) as client:
        client.schedule("größe", {"text": "é🙂"}, id="one", delay="1h")
    shown = run(url, "show one", PYTHONIOENCODING="ascii")
    assert (shown.returncode, "gr\\xf6\\xdfe" in shown.stdout) == (0, True), shown.stderr
    listed = run(url, "list --json", PYTHONIOENCODING="ascii")
    assert listed.stdout.isascii()
    assert (json.loads(listed.stdout)["name"], json.loads(listed.stdout)["data"]) == ("größe", {"text": "é🙂"})


@pytest.mark.parametrize(
    ("words", "command"),
    [
        ("schedule --queue work", "schedule"),
        ("--url redis://work work --app a", "work"),
        ("--url=redis://x -q up", "up"),
        ("--prefix move stats", "stats"),
        ("--help", ""),
        ("", ""),
    ],
)
def test_the_command_is_not_a_word_of_its_arguments(words: str, command: str) -> None:
    assert _command(words.split()) == command


def test_a_payload_that_is_nested_too_deeply_is_one_sentence(url: str, server: redis.Redis) -> None:
    deep = "[" * 100_000 + "]" * 100_000
    ended = subprocess.run(
        [sys.executable, "-m", "delayq", "--url", url, "schedule", "n", "--data", "-"],
        input=deep,
        capture_output=True,
        text=True,
        cwd=ROOT,
        check=False,
    )
    assert ended.returncode == 2
    assert ended.stderr == "delayq: --data - is nested too deeply. Example: --data '{\"order_id\": 42}'.\n"


@pytest.mark.parametrize("words", ["work --app json --once --json", "work --app nowhere --json", "work --json"])
def test_a_worker_with_json_lines_writes_nothing_else(url: str, server: redis.Redis, words: str) -> None:
    ended = run(url, words)
    assert ended.stderr
    for line in ended.stderr.splitlines():
        assert isinstance(json.loads(line), dict), line


@pytest.mark.parametrize("words", ["stats", "schedule n", "cancel x"])
def test_a_command_that_waits_for_redis_says_so_once(words: str) -> None:
    ended = run("redis://127.0.0.1:1", words)
    assert ended.returncode == 5
    told = [line for line in ended.stderr.splitlines() if "trying again" in line]
    assert len(told) == 1
    assert told[0].startswith("delayq: Redis at redis://127.0.0.1:1 does not answer: Error 111")


def test_a_quiet_command_waits_for_redis_without_a_line() -> None:
    assert "trying again" not in run("redis://127.0.0.1:1", "-q stats").stderr
