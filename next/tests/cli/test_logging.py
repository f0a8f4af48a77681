"""Delayq's own lines reach stderr once, whatever the application does to logging while it is loaded.

Issue 3730 of tilecloud-chain: after `disable_existing_loggers`, the default, failed jobs left no line.
"""

import json
import subprocess
import sys
from typing import Any, Final

import pytest

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
    own = [line.split(" ", 2)[2] for line in lines(application) if not line.startswith("APP")]
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
