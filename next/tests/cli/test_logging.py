"""Delayq's own lines reach stderr once, whatever the application does to logging while it is loaded.

Issue 3730 of tilecloud-chain: after `disable_existing_loggers`, the default, failed jobs left no line.
"""

import json
import logging
import os
import re
import subprocess
import sys
from contextlib import suppress
from typing import Any, Final

import pytest

from delayq.cli.logging import MAX_TEXT, JsonFormatter, StderrHandler, TextFormatter

PROGRAM: Final = """
import logging, logging.config, sys
from delayq.cli.logging import begin_logging, settle_logging

logging.getLogger("delayq.worker")
handler = begin_logging(log_format={form!r}, level="INFO", quiet=False)
{application}
settle_logging(handler, is_format_said={form!r} == "json")
logging.getLogger("delayq.worker").error("job 1 failed")
logging.getLogger("delayq").error("the backend cannot be reached")
"""

BASIC: Final = "logging.basicConfig(level=logging.INFO, format='APP %(message)s')"
TO_CONSOLE: Final = {"handlers": ["console"], "level": "INFO"}


def configured(**sections: Any) -> str:
    """Return an application that sets up logging, with a handler `console` for stderr."""
    config = {
        "version": 1,
        "formatters": {"app": {"format": "APP %(message)s"}},
        "handlers": {"console": {"class": "logging.StreamHandler", "formatter": "app"}},
        **sections,
    }
    return f"logging.config.dictConfig({config!r})"


def lines(application: str, form: str = "text") -> list[str]:
    """Load an application, let a job fail, and return what was written to stderr."""
    program = PROGRAM.format(form=form, application=application)
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)
    return ended.stderr.splitlines()


@pytest.mark.parametrize(
    "application",
    [
        BASIC,
        configured(root=TO_CONSOLE),
        configured(root=TO_CONSOLE, disable_existing_loggers=False),
        configured(root={**TO_CONSOLE, "level": "CRITICAL"}),
        configured(loggers={"delayq": TO_CONSOLE}),
        configured(loggers={"delayq": {**TO_CONSOLE, "propagate": False}}, root=TO_CONSOLE),
    ],
    ids=[
        "basicConfig",
        "loggers disabled",
        "loggers kept",
        "root is quiet",
        "delayq named",
        "delayq named beside root",
    ],
)
def test_an_application_that_logs_to_stderr_writes_our_lines_once(application: str) -> None:
    assert lines(application) == ["APP job 1 failed", "APP the backend cannot be reached"]


@pytest.mark.parametrize(
    "application",
    [
        "",
        configured(),
        configured(
            root=TO_CONSOLE,
            filters={"debug": {"name": "only.this.logger"}},
            handlers={"console": {"class": "logging.StreamHandler", "filters": ["debug"]}},
        ),
        configured(loggers={"delayq": {"level": "INFO", "handlers": []}}),
    ],
    ids=["no logging", "all disabled", "console has a filter", "delayq has no handler"],
)
def test_our_lines_reach_stderr_when_the_application_would_not_write_them(application: str) -> None:
    own = [without_pid(line) for line in lines(application) if not line.startswith("APP")]
    assert own == ["ERROR delayq.worker: job 1 failed", "ERROR delayq: the backend cannot be reached"]


def test_our_lines_go_to_stderr_beside_the_log_file_of_the_application(tmp_path: Any) -> None:
    file = tmp_path / "app.log"
    handlers = {"file": {"class": "logging.FileHandler", "filename": str(file)}}
    assert len(lines(configured(handlers=handlers, root={"handlers": ["file"]}))) == 2
    assert file.read_text().splitlines() == ["job 1 failed", "the backend cannot be reached"]


@pytest.mark.parametrize(
    "application", [BASIC, configured(root=TO_CONSOLE), configured(loggers={"delayq": TO_CONSOLE})]
)
def test_json_that_was_asked_for_goes_before_the_format_of_the_application(application: str) -> None:
    found = [json.loads(line) for line in lines(application, form="json")]
    assert [line["message"] for line in found] == ["job 1 failed", "the backend cannot be reached"]


def record(message: str, *args: Any, error: BaseException | None = None, **extra: Any) -> logging.LogRecord:
    exc_info = None if error is None else (type(error), error, error.__traceback__)
    made = logging.LogRecord("delayq.worker", logging.ERROR, __file__, 1, message, args, exc_info)
    vars(made).update(extra)
    return made


def text(*of: Any, **members: Any) -> str:
    """Return a line without its time and process id."""
    return without_pid(TextFormatter().format(record(*of, **members)))


def without_pid(line: str) -> str:
    return re.sub(r"\[[0-9]+\]", "", line.split(" ", 2)[2], count=1)


def test_a_line_has_the_id_of_the_process_that_wrote_it() -> None:
    line = TextFormatter().format(record("failed", process=4711))
    assert line.endswith(" ERROR delayq.worker[4711]: failed")
    assert json.loads(JsonFormatter().format(record("failed", process=4711)))["pid"] == 4711


def raised(message: str) -> ValueError:
    try:
        raise ValueError(message)
    except ValueError as error:
        return error


HOSTILE: Final = "\x1b[2J\r\n\0\x9b1m\u202e"


def test_control_characters_in_a_message_are_escaped() -> None:
    assert text("job %s", f"1 {HOSTILE}!") == (r"ERROR delayq.worker: job 1 \x1b[2J\r\n\x00\x9b1m\u202e!")
    line = JsonFormatter().format(record(f"job 1 {HOSTILE}", note=HOSTILE, error=raised(HOSTILE)))
    assert line.isprintable()
    assert (json.loads(line)["message"], json.loads(line)["note"]) == (f"job 1 {HOSTILE}", HOSTILE)


def test_the_lines_of_a_traceback_stay_and_its_control_characters_are_escaped() -> None:
    first, second, *_, last = text("failed", error=raised("no\x1b[2J\r\ncard")).split("\n")
    assert (first, second) == ("ERROR delayq.worker: failed", "Traceback (most recent call last):")
    assert last == "card"
    assert r"ValueError: no\x1b[2J\r" in text("failed", error=raised("no\x1b[2J\r\ncard")).split("\n")


@pytest.mark.parametrize("letter", ["x", "é", "€", "\x1b", "\udc80"])
def test_a_long_message_is_cut_at_its_end_and_a_long_traceback_at_its_start(letter: str) -> None:
    error = raised(f"first{letter * 20_000}last")
    long = text(f"first{letter * 20_000}last", error=error)
    message, _, trace = long.partition("\n")
    for cut in (message, trace):
        assert MAX_TEXT - 10 <= len(cut.encode()) <= MAX_TEXT + 100
    assert message.startswith("ERROR delayq.worker: first") and message.endswith(" … (20,009 characters)")
    assert trace.startswith("… ") and trace.endswith("last")
    line = json.loads(JsonFormatter().format(record(f"first{letter * 20_000}last", error=error)))
    assert line["message"].startswith("first") and line["message"].endswith(" … (20,009 characters)")
    assert line["exception"].startswith("… ") and line["exception"].endswith("last")
    assert max(len(line[member].encode("utf-8", "surrogatepass")) for member in ("message", "exception")) < 17_000


def test_a_traceback_that_cannot_be_formatted_costs_no_line(monkeypatch: pytest.MonkeyPatch) -> None:
    def format_exception(*of: Any) -> Any:
        raise RecursionError

    error = raised("no")
    monkeypatch.setattr("traceback.print_exception", format_exception)
    monkeypatch.setattr("traceback.format_exception", format_exception)
    assert text("failed", error=error) == (
        "ERROR delayq.worker: failed\n(no traceback: formatting it raised RecursionError)"
    )


def test_another_formatter_of_the_same_record_does_not_change_the_line() -> None:
    made = record("failed", error=raised("\x1b"))
    logging.Formatter().format(made)
    assert "\x1b" not in TextFormatter().format(made)


@pytest.mark.parametrize(
    ("message", "line"),
    [
        ("a handler ran out of memory", "job order-42: a handler ran out of memory"),
        ("job order-42 (order.close) failed", "job order-42 (order.close) failed"),
    ],
)
def test_a_line_has_the_id_of_its_job_once(message: str, line: str) -> None:
    assert text(message, job_id="order-42") == f"ERROR delayq.worker: {line}"


def test_the_stack_of_a_record_is_part_of_its_line() -> None:
    assert text("here", stack_info="Stack:\n  \x1b") == "ERROR delayq.worker: here\nStack:\n  \\x1b"


def test_records_of_loggers_without_a_handler_have_the_format_of_delayq() -> None:
    """Also the warnings of Python and the errors of threads, if the format is JSON."""
    told = """
import threading, warnings
logging.getLogger("shop").error("the bank does not answer")
logging.getLogger("shop").info("not this one")
warnings.warn("an old function")
thread = threading.Thread(target=lambda: 1 / 0, name="ledger")
thread.start()
thread.join()
"""
    program = PROGRAM.format(form="json", application="") + told
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)
    found = [json.loads(line) for line in ended.stderr.splitlines()]
    assert [(one["logger"], one["message"]) for one in found[2:]] == [
        ("shop", "the bank does not answer"),
        ("py.warnings", found[3]["message"]),
        ("threading", "the thread ledger failed"),
    ]
    assert "an old function" in found[3]["message"]
    assert "ZeroDivisionError" in found[4]["exception"]
    as_text = subprocess.run(
        [sys.executable, "-c", PROGRAM.format(form="text", application="") + told],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    ).stderr
    assert re.search(r" ERROR shop\[\d+\]: the bank does not answer\n", as_text)


def test_lines_are_dropped_and_counted_while_nobody_reads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("delayq.cli.logging.PATIENCE", 0.1)
    reader, writer = os.pipe()
    with open(writer, "w", encoding="utf-8") as stream, open(reader, "rb", buffering=0) as other_end:
        monkeypatch.setattr(sys, "stderr", stream)
        handler = StderrHandler()
        handler.setFormatter(TextFormatter())
        for _ in range(200):
            handler.emit(logging.makeLogRecord({"msg": "x" * 1000, "levelname": "INFO", "name": "shop"}))
        written = other_end.read(1_000_000).count(b"\n")
        assert 10 < written < 200
        handler.emit(logging.makeLogRecord({"msg": "the last one", "levelname": "INFO", "name": "shop"}))
        dropped, last = other_end.read(1_000_000).decode().splitlines()
    assert dropped.endswith(f"log lines dropped, because nobody read stderr: {200 - written}")
    assert last.endswith("the last one")


def test_a_long_line_does_not_wait_for_a_reader_in_the_supervisor(monkeypatch: pytest.MonkeyPatch) -> None:
    """A pipe with little room takes the start of the line; the rest is dropped."""
    monkeypatch.setattr("delayq.cli.logging.PATIENCE", 0.1)
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    with suppress(BlockingIOError):
        while True:
            os.write(writer, b"x" * 4096)
    os.read(reader, 8192)
    os.set_blocking(writer, True)
    with open(writer, "w", encoding="utf-8") as stream, open(reader, "rb", buffering=0) as other_end:
        monkeypatch.setattr(sys, "stderr", stream)
        handler = StderrHandler()
        handler.emit(logging.makeLogRecord({"msg": "y" * 16_000, "levelname": "INFO", "name": "shop"}))
        assert other_end.read(1_000_000).count(b"y") in range(1, 16_000)
        handler.emit(logging.makeLogRecord({"msg": "the last one", "levelname": "INFO", "name": "shop"}))
        assert other_end.read(1_000_000).endswith(b"stderr: 1\nthe last one\n")


def test_a_stream_of_the_application_needs_no_descriptor(monkeypatch: pytest.MonkeyPatch) -> None:
    class Stream:
        def __init__(self) -> None:
            self.written = ""

        def write(self, text: str) -> None:
            self.written += text

        def flush(self) -> None: ...

    stream = Stream()
    monkeypatch.setattr(sys, "stderr", stream)
    StderrHandler().emit(logging.makeLogRecord({"msg": "heard", "levelname": "INFO", "name": "shop"}))
    assert stream.written == "heard\n"
