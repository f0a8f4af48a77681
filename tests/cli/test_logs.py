"""`--log-format json`: each line says of which job it is, whoever wrote it; payloads are not in them."""

from __future__ import annotations

import json
import logging
from typing import Any

import pytest

from delayq import DelayQ
from delayq.cli.logs import JobLines
from delayq.core.at_work import trace_id_of
from delayq.core.events import JobEnded
from tests.support.cli import Cli

TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
HEADERS = {"traceparent": f"00-{TRACE}-00f067aa0ba902b7-01"}

TALKER = """
import logging
from delayq import job

log = logging.getLogger("shop")

@job("talk", tries=1)
def talk(card: str) -> None:
    log.info("on it")

@job("atalk", tries=1)
async def atalk(card: str) -> None:
    log.info("on it")

@job("break", tries=1)
def broken(card: str) -> None:
    log.warning("on it")
    raise ValueError("no luck")
"""


def lines(text: str) -> list[dict[str, Any]]:
    """All of them: a collector of logs reads nothing else, the greeting included."""
    return [json.loads(line) for line in text.splitlines()]


@pytest.mark.parametrize("threads", ["1", "2"])
def test_every_line_of_a_job_says_which(cli: Cli, q: DelayQ, threads: str) -> None:
    (cli.folder / "talker.py").write_text(TALKER)
    for name in ("talk", "atalk", "break"):
        q.schedule(name, {"card": "4111-1111"}, id=f"id-{name}", headers=HEADERS)
    q.schedule("nobody-knows", {"card": "4111-1111"}, id="id-unknown", headers=HEADERS, tries=1)
    cli.env["DELAYQ_LOG_FORMAT"] = "json"
    done = cli.ok("work", "--app", "talker", "--stop-when-empty", "--threads", threads, "--name", "w1")
    said = lines(done.err)
    for name in ("talk", "atalk", "break"):
        mine = [line for line in said if line.get("job_id") == f"id-{name}"]
        assert [line["logger"] for line in mine] == ["shop", "delayq.jobs"], name
        for line in mine:
            assert (line["job"], line["queue"], line["attempt"], line["trace_id"]) == (name, "default", 1, TRACE)
            assert line["worker"].startswith("dq:w1:")
    [unknown] = [line for line in said if line.get("job_id") == "id-unknown" and line["logger"] == "delayq.jobs"]
    assert (unknown["job"], unknown["outcome"], unknown["trace_id"]) == ("nobody-knows", "released", TRACE)
    assert not [line for line in said if "job_id" in line and not line["job_id"].startswith("id-")]
    assert "4111" not in done.err


def test_lines_between_jobs_belong_to_none(cli: Cli, q: DelayQ) -> None:
    (cli.folder / "talker.py").write_text(TALKER)
    q.schedule("talk", {"card": "1"}, id="a")
    cli.env["DELAYQ_LOG_FORMAT"] = "json"
    done = cli.ok("work", "--app", "talker", "--stop-when-empty")
    [stopped] = [line for line in lines(done.err) if line["message"].startswith("stopped")]
    assert "job_id" not in stopped
    assert logging.getLevelName(logging.INFO).lower() == stopped["level"]


def test_a_quiet_worker_says_of_which_job_too(cli: Cli, q: DelayQ) -> None:
    (cli.folder / "talker.py").write_text(TALKER)
    for name in ("talk", "break"):
        q.schedule(name, {"card": "1"}, id=f"id-{name}")
    cli.env["DELAYQ_LOG_FORMAT"] = "json"
    said = lines(cli.ok("-q", "work", "--app", "talker", "--stop-when-empty").err)
    mine = [(line["logger"], line["job_id"]) for line in said if "job_id" in line]
    assert mine == [("shop", "id-break"), ("delayq.jobs", "id-break")]


@pytest.mark.parametrize(
    "header",
    ["", "x", "00-" + "0" * 32 + "-1-01", f"00-{TRACE.upper()}-1-01", f"00-{TRACE[1:]}-1-01", TRACE, "00-é-1-01"],
)
def test_what_is_no_trace_is_left_out(header: str) -> None:
    assert trace_id_of({"traceparent": header}) == ""
    assert trace_id_of(None) == ""
    assert trace_id_of(HEADERS) == TRACE


def test_an_envelope_that_nobody_can_read_has_a_name_in_the_line(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, logger="delayq.jobs"):
        JobLines()(JobEnded("x1", "", "default", 1, "failed", 0.5, ValueError("no envelope")))
    [line] = caplog.messages
    assert line.startswith("(no name) x1 failed")


FLAKY = """
from delayq import Retry, job

def charge():
    raise ValueError("no luck")

@job("flaky", tries=2, backoff="1ms")
def flaky(card: str) -> None:
    charge()

@job("aflaky", tries=2, backoff="1ms")
async def aflaky(card: str) -> None:
    charge()

@job("asks", tries=2)
def asks(card: str) -> None:
    raise Retry("1ms", reason="not yet")
"""


@pytest.mark.parametrize("name", ["flaky", "aflaky"])
def test_an_error_that_leads_to_a_retry_is_a_warning_with_its_traceback(cli: Cli, q: DelayQ, name: str) -> None:
    (cli.folder / "flaky.py").write_text(FLAKY)
    q.schedule(name, {"card": "4111-1111"}, id="f1")
    done = cli.ok("--log-format", "json", "--log-level", "warning", "work", "--app", "flaky", "--max-jobs", "2")
    first, last = [json.loads(line) for line in done.err.splitlines() if '"outcome"' in line]
    assert (first["level"], first["outcome"]) == ("warning", "released")
    assert (last["level"], last["outcome"]) == ("error", "failed")
    for line in (first, last):
        frames = [row for row in line["exception"].splitlines() if row.startswith("  File ")]
        assert len(frames) == 2, "those of the user alone"
        assert all("flaky.py" in frame for frame in frames)
        assert line["exception"].endswith("ValueError: no luck")
    assert "4111" not in done.err


def test_a_retry_that_the_handler_asks_for_is_no_warning(cli: Cli, q: DelayQ) -> None:
    (cli.folder / "flaky.py").write_text(FLAKY)
    q.schedule("asks", {"card": "4111-1111"}, id="f1")
    done = cli.ok("--log-format", "json", "work", "--app", "flaky", "--max-jobs", "1")
    [line] = [json.loads(line) for line in done.err.splitlines() if '"outcome"' in line]
    assert (line["level"], line["outcome"], "exception" in line) == ("info", "released", False)
