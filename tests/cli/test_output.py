"""What is printed where: data on stdout, the rest on stderr, nothing that drives a terminal."""

from __future__ import annotations

import json
import os
import pty
import re
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from delayq import DelayQ
from delayq.cli.printable import printable
from delayq.cli.render import Output
from delayq.cli.words import count, distance, moment, span
from tests.cli.conftest import Inline
from tests.support.cli import Cli, end

NASTY = "red \x1b[31m, c1 \x9b2J, bell \x07, right-to-left \u202e"


def on_terminal(cli: Cli, *words: str, typed: bytes = b"", **env: str) -> tuple[int, str]:
    """A command with a terminal for stdin, stdout and stderr: its exit code, and all it showed."""
    ours, theirs = pty.openpty()
    with subprocess.Popen(
        [sys.executable, "-m", "delayq", *words],
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        env={**cli.env, "TERM": "xterm", "COLUMNS": "120", **env},
        cwd=cli.folder,
    ) as process:
        os.close(theirs)
        os.write(ours, typed)
        shown = b""
        try:
            while piece := os.read(ours, 65_536):
                shown += piece
        except OSError:  # Linux: the other side has closed
            pass
        os.close(ours)
    return process.returncode, shown.decode()


@pytest.fixture
def failed(cli: Cli, q: DelayQ) -> str:
    """A job that failed with a message meant for a terminal."""
    q.schedule("bad", {"text": NASTY}, id="b1")
    worker = cli.start("work", "--app", "shop", "--stop-when-empty")
    done = end(worker)
    assert done.code == 0
    assert "\x1b" not in done.out + done.err
    return "b1"


def test_nothing_drives_a_terminal(cli: Cli, inline: Inline, failed: str) -> None:
    words = [("failed", "list"), ("failed", "show", failed), ("show", failed), ("list",)]
    for some in words:
        for shown in (inline(*some).out, inline(*some, "--json").out):
            assert not any(letter in shown for letter in "\x1b\x9b\x07"), some
    for some in words[:2]:
        _, shown = on_terminal(cli, *some)
        assert "\x1b[31m" not in shown
        assert "\x9b" not in shown
    assert json.loads(inline("failed", "show", failed, "--json").out)["error"]["message"] == NASTY


def test_plain_in_a_pipe_and_a_table_on_a_terminal(cli: Cli, inline: Inline, q: DelayQ) -> None:
    q.schedule("order.close", delay="1h", id="o1")
    assert inline("stats").out.splitlines() == [
        "queue    scheduled  ready  reserved  failed  completed  overdue  paused",
        "default          1      0         0       0          0",
    ]
    code, shown = on_terminal(cli, "stats")
    assert code == 0
    assert "\x1b[1m" in shown
    assert "─" in shown
    _, dumb = on_terminal(cli, "stats", TERM="dumb")
    assert "\x1b" not in dumb
    _, grey = on_terminal(cli, "list", NO_COLOR="1")
    assert "\x1b[3" not in grey


def test_a_terminal_is_asked_before_something_is_destroyed(cli: Cli, q: DelayQ) -> None:
    q.schedule("x", delay="1h", id="o1")
    code, shown = on_terminal(cli, "clear", typed=b"n\n")
    assert code == 1
    assert "queue default? [y/N]" in shown
    assert "Nothing was done" in shown
    assert q.get("o1") is not None
    assert on_terminal(cli, "clear", typed=b"y\n")[0] == 0
    assert q.get("o1") is None


@pytest.mark.parametrize("words", [("clear",), ("failed", "flush"), ("failed", "forget", "--all")], ids=" ".join)
def test_with_nobody_to_ask_yes_must_be_said(inline: Inline, q: DelayQ, words: tuple[str, ...]) -> None:
    q.schedule("x", delay="1h", id="o1")
    done = inline(*words)
    assert (done.code, done.out) == (2, "")
    assert "--yes" in done.err
    assert q.get("o1") is not None
    assert inline(*words, "--yes").code == 0


def test_quiet_drops_the_chatter_and_keeps_errors(inline: Inline) -> None:
    assert inline("-q", "workers").err == ""
    assert inline("workers").err == "0 workers\n"
    assert "Error" in inline("-q", "show", "none").err


def test_a_misspelt_variable_is_a_warning_beside_the_data(cli: Cli) -> None:
    done = cli("stats", "--json", env={"DELAYQ_LEESE": "5s"})
    assert done.json == {"queues": []}
    assert "DELAYQ_LEASE" in done.err


def test_warnings_come_once(cli: Cli) -> None:
    assert cli("clear", "--yes", env={"DELAYQ_LEESE": "5s"}).err.count("DELAYQ_LEESE") == 1


def test_json_of_every_kind_parses(inline: Inline, q: DelayQ) -> None:
    q.schedule("x", delay="1h", id="o1")
    q.schedule("x", delay="1h", id="o2")
    for words in (
        ("schedule", "x"), ("reschedule", "o1", "--in", "1m"), ("run-now", "o1"), ("show", "o2"), ("cancel", "o2"),
        ("stats",), ("upcoming",), ("activity",), ("job-types",), ("pause", "default", "--for", "1m"),
        ("resume", "default"), ("doctor",),
        ("queue", "set", "default"), ("failed", "prune", "--older", "1d"), ("failed", "flush", "--yes"),
        ("clear", "--yes"),
    ):  # fmt: skip
        document = json.loads(inline(*words, "--json").out)
        assert isinstance(document, dict), words
    for words in (("list",), ("config", "show"), ("workers",), ("failed", "list"), ("failed", "retry", "--all")):
        for line in inline(*words, "--json").out.splitlines():
            assert isinstance(json.loads(line), dict), words


def test_json_is_one_line_and_means_the_same(capsys: pytest.CaptureFixture[str]) -> None:
    Output().json({"a": NASTY, "b": msgspec.Raw(b'{\n\t"c":\r\n "\\u001b \xc2\x9b"}')})
    out = capsys.readouterr().out
    assert out.count("\n") == 1
    assert json.loads(out) == {"a": NASTY, "b": {"c": "\x1b \x9b"}}
    assert not any(letter in out for letter in "\x1b\x9b\x07\u2028")


LONE = "no text: \ud800"  # what a path or a variable that is no UTF-8 becomes in Python


def test_a_lone_surrogate_is_shown_escaped(capsys: pytest.CaptureFixture[str]) -> None:
    out = Output()
    out.json({"result": {LONE: [LONE, (LONE,)]}, "n": 1, "data": msgspec.Raw(b'"\\ud800"')})
    out.table(["what"], [[LONE]])
    out.record([("what", f"{LONE}\n{LONE}")])
    out.line(LONE)
    document, *lines = capsys.readouterr().out.splitlines()
    escaped = LONE.replace("\ud800", "\\ud800")
    assert json.loads(document) == {"result": {escaped: [escaped, [escaped]]}, "n": 1, "data": "\ud800"}
    assert lines == ["what", escaped, "what", f"    {escaped}", f"    {escaped}", escaped]


def test_a_folder_that_is_no_utf8_can_be_shown(cli: Cli) -> None:
    folder = os.fsdecode(b"/tmp/d\xff")
    done = cli("config", "show", "--json", env={"DELAYQ_DATA_DIR": folder})
    assert done.code == 0
    assert "/tmp/d\\udcff" in {json.loads(line)["value"] for line in done.out.splitlines()}
    done = cli("config", "show", env={"DELAYQ_DATA_DIR": folder})
    assert done.code == 0
    assert "/tmp/d\\udcff" in done.out


def test_a_stdout_that_is_not_utf8_gets_escapes(cli: Cli, q: DelayQ) -> None:
    payload = {"text": "Zoë 世界 🚲"}
    q.schedule("世界", payload, delay="1h", id="o1")
    ascii_only = {"PYTHONIOENCODING": "ascii"}
    done = cli("show", "o1", "--json", env=ascii_only)
    assert (done.code, done.out.isascii()) == (0, True)
    assert (done.json["name"], done.json["data"]) == ("世界", payload)
    for words in (("show", "o1"), ("list",)):
        done = cli(*words, env=ascii_only)
        assert (done.code, "\\u4e16\\u754c" in done.out) == (0, True), words
    code, shown = on_terminal(cli, "list", PYTHONIOENCODING="ascii")
    assert (code, "\\u4e16\\u754c" in shown) == (0, True)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain", "plain"), ("Zoë 世界", "Zoë 世界"), ("a\x1b[0m", "a\\x1b[0m"), ("a\nb\t", "a\\nb\\t"),
        ("\u202e", "\\u202e"), ("\x9b", "\\x9b"), ("\ud800", "\\ud800"),
    ],
)  # fmt: skip
def test_printable(text: str, shown: str) -> None:
    assert printable(text) == shown


@pytest.mark.parametrize(
    ("ms", "text"),
    [(0, "0s"), (250, "250ms"), (1_499, "1s"), (1_500, "2s"), (59_999, "1m"), (899_000, "14m 59s"),
     (183_845_000, "2d 3h"), (86_400_000, "1d")],
)  # fmt: skip
def test_span(ms: int, text: str) -> None:
    assert span(ms) == text


def test_moments() -> None:
    assert moment(1_000_000_060_000, 1_000_000_000_000) == "2001-09-09T01:47:40.000Z, in 1m"
    assert moment(None, 0) == ""
    assert (distance(5, 5), distance(0, 3_000)) == ("now", "3s ago")
    assert (count(1, "job"), count(2_000, "job")) == ("1 job", "2,000 jobs")


def test_render_is_the_only_module_that_prints() -> None:
    package = Path(__file__).resolve().parents[2] / "delayq"
    words = re.compile(r"(?<![\w.])print\(|sys\.std(out|err)\.write|typer\.s?echo")
    printing = {
        str(path.relative_to(package))
        for path in package.rglob("*.py")
        if words.search(path.read_text(encoding="utf-8"))
    }
    assert printing == {"cli/render.py"}
