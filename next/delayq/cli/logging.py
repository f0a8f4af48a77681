"""Log lines on stderr: plain text, or one JSON object a line.

The application may set up logging when it is loaded. Then delayq's own lines still reach stderr: `settle_logging`
enables its loggers again, and keeps its own handler unless the application writes these lines to the console itself.
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
    """One JSON object a line: time, level, logger, message, what the record carries besides, and the exception."""

    def format(self, record: logging.LogRecord) -> str:
        """Write one record."""
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
    """Write delayq's lines to stderr from now on; `quiet` = only warnings and errors."""
    handler = logging.StreamHandler(sys.stderr)
    handler.set_name(_HANDLER)
    if log_format == "json":
        handler.setFormatter(JsonFormatter())
    else:
        handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    logger = logging.getLogger(ROOT)
    logger.handlers = [own for own in logger.handlers if own.name != _HANDLER]  # the one that -v began with
    logger.addHandler(handler)
    logger.setLevel(logging.WARNING if quiet else level)
    logger.propagate = False
    return handler


def _guard(logger: logging.Logger) -> None:
    """Let a handler or a filter of the application that raises cost its line, and not the process that logs."""
    if "handle" in vars(logger):
        return
    handle = logger.handle

    def guarded(record: logging.LogRecord) -> None:
        try:
            handle(record)
        except Exception as error:
            print(f"delayq: {record.getMessage()}", file=sys.stderr)
            print(f"delayq: a log handler of the application raised {error!r}", file=sys.stderr, flush=True)

    # mypy lets nothing be assigned to a method:
    setattr(logger, "handle", guarded)  # noqa: B010


def settle_logging(handler: logging.Handler, *, is_format_said: bool) -> None:
    """Make delayq's lines reach stderr and the handlers of the application, which has been loaded by now."""
    for name, logger in logging.root.manager.loggerDict.items():
        if isinstance(logger, logging.Logger) and (name == ROOT or name.startswith(f"{ROOT}.")):
            logger.disabled = False  # dictConfig disables loggers that it does not name
            _guard(logger)
    logger = logging.getLogger(ROOT)
    theirs = [one for one in logger.handlers if one is not handler]
    if handler not in logger.handlers:
        logger.addHandler(handler)
    if not theirs:  # an application that gave `delayq` handlers has decided this itself
        logger.propagate = bool(logging.root.handlers)
    consoles = [one for one in theirs if _is_console(one)]
    has_root_console = logger.propagate and any(_is_console(one) for one in logging.root.handlers)
    if is_format_said:  # it goes before the format of the application
        for one in consoles:
            logger.removeHandler(one)
        logger.propagate = logger.propagate and not has_root_console
    elif consoles or has_root_console:
        logger.removeHandler(handler)


def _is_console(handler: logging.Handler) -> bool:
    """Whether a handler shows all errors on stdout or stderr."""
    is_stream = type(handler) is logging.StreamHandler and handler.stream in (sys.stdout, sys.stderr)
    return is_stream and handler.level <= logging.ERROR and not handler.filters
