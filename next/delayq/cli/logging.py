"""Log lines on stderr: plain text, or one JSON object per line.

The application may set up logging when it is loaded. The lines of delayq must still reach stderr. So `settle_logging`
enables the loggers of delayq again, and keeps their handler unless the application writes these lines to the console.
"""

import json
import logging
import sys
from datetime import UTC, datetime
from typing import Any, Final, Literal

LogFormat = Literal["text", "json"]

ROOT: Final = "delayq"
_HANDLER: Final = "delayq.stderr"
_STANDARD: Final = frozenset(logging.makeLogRecord({}).__dict__) | {"message", "asctime"}


class JsonFormatter(logging.Formatter):
    """One JSON object per line: time, level, logger, message, extra members of the record, and the exception."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line of a record."""
        line: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
        }
        line |= {name: value for name, value in record.__dict__.items() if name not in _STANDARD}
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps(line, default=str, ensure_ascii=False)


def begin_logging(*, log_format: LogFormat, level: str, quiet: bool) -> logging.Handler:
    """Write the log lines of delayq to stderr from now on. `quiet`: only warnings and errors."""
    handler = logging.StreamHandler(sys.stderr)
    handler.set_name(_HANDLER)
    if log_format == "json":
        handler.setFormatter(JsonFormatter())
    else:
        handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    logger = logging.getLogger(ROOT)
    logger.handlers = [own for own in logger.handlers if own.name != _HANDLER]  # replaces the handler of -v
    logger.addHandler(handler)
    logger.setLevel(logging.WARNING if quiet else level)
    logger.propagate = False
    return handler


def writes_json() -> bool:
    """Return True if the log lines of delayq are JSON. Then nothing else may be written to stderr."""
    return any(isinstance(handler.formatter, JsonFormatter) for handler in logging.getLogger(ROOT).handlers)


def _guard(logger: logging.Logger) -> None:
    """If a log handler or filter of the application raises, print the line, so that the process does not end."""
    if "handle" in vars(logger):
        return
    handle = logger.handle

    def guarded(record: logging.LogRecord) -> None:
        try:
            handle(record)
        except Exception as error:
            print(f"delayq: {record.getMessage()}", file=sys.stderr)
            print(f"delayq: a log handler of the application raised {error!r}", file=sys.stderr, flush=True)

    # mypy forbids assignments to methods:
    setattr(logger, "handle", guarded)  # noqa: B010


def settle_logging(handler: logging.Handler, *, is_format_said: bool) -> None:
    """After the application was loaded, make the lines of delayq reach stderr and the handlers of the application."""
    for name, logger in logging.root.manager.loggerDict.items():
        if isinstance(logger, logging.Logger) and (name == ROOT or name.startswith(f"{ROOT}.")):
            logger.disabled = False  # dictConfig disables loggers that it does not name
            _guard(logger)
    logger = logging.getLogger(ROOT)
    theirs = [one for one in logger.handlers if one is not handler]
    if handler not in logger.handlers:
        logger.addHandler(handler)
    if not theirs:  # with handlers on `delayq`, the application has decided this itself
        logger.propagate = bool(logging.root.handlers)
    consoles = [one for one in theirs if _is_console(one)]
    has_root_console = logger.propagate and any(_is_console(one) for one in logging.root.handlers)
    if is_format_said:  # the format of the command line wins
        for one in consoles:
            logger.removeHandler(one)
        logger.propagate = logger.propagate and not has_root_console
    elif consoles or has_root_console:
        logger.removeHandler(handler)


def _is_console(handler: logging.Handler) -> bool:
    """Return True if a handler writes all errors to stdout or stderr."""
    is_stream = type(handler) is logging.StreamHandler and handler.stream in (sys.stdout, sys.stderr)
    return is_stream and handler.level <= logging.ERROR and not handler.filters
