"""Log lines on stderr: plain text, or one JSON object per line.

The application may set up logging when it is loaded. The lines of delayq must still reach stderr. So `settle_logging`
enables the loggers of delayq again, and keeps their handler unless the application writes these lines to the console.
If a logger of the application has no handler, its warnings and errors are written to stderr in the same format.

Messages and tracebacks contain texts of unknown origin. Long ones are cut, and control characters are escaped, so that
no text can look like another log line or act on a terminal.
"""

import json
import logging
import os
import sys
import threading
import traceback
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, Final, Literal, TextIO

from delayq.core.display import printable
from delayq.core.full_pipes import PATIENCE, takes_output

LogFormat = Literal["text", "json"]

ROOT: Final = "delayq"
_HANDLER: Final = "delayq.stderr"
MAX_TEXT: Final = 16 * 1024
"""Maximum size of a message, and of a traceback, in bytes of UTF-8."""
PIECE: Final = 1_000
"""Number of characters that a pipe takes at once if it can be written: at most 4 KiB of UTF-8."""
_STANDARD: Final = frozenset(logging.makeLogRecord({}).__dict__) | {"message", "asctime"}


class TextFormatter(logging.Formatter):
    """One line per record, with the process id after the name of the logger, as in syslog.

    If the record has a job, the line contains the job id. A traceback adds its own lines.
    """

    def format(self, record: logging.LogRecord) -> str:
        """Return the line of a record."""
        message = _cut(record.getMessage(), printable)
        job_id = record.__dict__.get("job_id")
        if job_id and f"job {job_id}" not in message:
            message = f"job {printable(str(job_id))}: {message}"
        line = f"{self.formatTime(record)} {record.levelname} {record.name}[{record.process or os.getpid()}]: {message}"
        below = [text for text in (_traceback(record), record.stack_info) if text]
        return "\n".join([line, *(_cut_start(text, _printable_lines) for text in below)])


class JsonFormatter(logging.Formatter):
    """One JSON object per line: time, level, logger, process id, message, extra members, and the exception."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line of a record."""
        line: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname,
            "logger": record.name,
            "pid": record.process or os.getpid(),
            "message": _cut(record.getMessage()),
        }
        line |= {name: value for name, value in record.__dict__.items() if name not in _STANDARD}
        if record.exc_info:
            line["exception"] = _cut_start(_traceback(record))
        text = json.dumps(line, default=str, ensure_ascii=False)
        if text.isprintable():
            return text
        return "".join(letter if letter.isprintable() else json.dumps(letter)[1:-1] for letter in text)


class StderrHandler(logging.StreamHandler[TextIO]):
    """Writes log lines to stderr. Drops them while stderr is a full pipe that nobody reads.

    Otherwise, a log line would block the supervisor. The supervisor would then renew no leases, so jobs would run
    twice.
    """

    def __init__(self) -> None:
        super().__init__(sys.stderr)
        self._dropped = 0
        self._supervisor = os.getpid()

    def emit(self, record: logging.LogRecord) -> None:
        """Write the line of a record, or drop the line. After dropped lines, first write a line with their number."""
        if self._dropped:
            text = f"log lines dropped, because nobody read stderr: {self._dropped}"
            if not self._write(logging.makeLogRecord({"name": ROOT, "levelname": "WARNING", "msg": text}), within=0.0):
                self._dropped += 1
                return
            self._dropped = 0
        if not self._write(record, within=PATIENCE):
            self._dropped += 1

    def _write(self, record: logging.LogRecord, *, within: float) -> bool:
        """Write a line, or return False if nobody reads the stream for `within` seconds.

        In the supervisor, a long line is written in pieces that a pipe takes at once. In other processes, a long line
        is written as a whole, so that lines of several processes are not mixed.
        """
        if os.getpid() != self._supervisor:
            if takes_output(self.stream, within=within):
                super().emit(record)
                return True
            return False
        try:
            line = self.format(record) + self.terminator
            for start in range(0, len(line), PIECE):
                if not takes_output(self.stream, within=within):
                    return False
                self.stream.write(line[start : start + PIECE])
                self.stream.flush()
        except Exception:
            self.handleError(record)
        return True


class SafeText(logging.Filter):
    """Cuts and escapes the records of delayq for a handler of the application, whose formatter does neither."""

    def filter(self, record: logging.LogRecord) -> bool:
        """Change the record if it is one of delayq. Return True."""
        if record.name.partition(".")[0] == ROOT:
            record.msg, record.args = _cut(record.getMessage(), printable), None
            if record.exc_info:
                record.exc_text = _cut_start(_traceback(record), _printable_lines)  # formatters use this text
        return True


def begin_logging(*, log_format: LogFormat, level: str, quiet: bool) -> logging.Handler:
    """Write the log lines of delayq to stderr from now on. `quiet`: only warnings and errors."""
    handler = StderrHandler()
    handler.set_name(_HANDLER)
    if log_format == "json":
        handler.setFormatter(JsonFormatter())
    else:
        handler.setFormatter(TextFormatter())
    logger = logging.getLogger(ROOT)
    logger.handlers = [own for own in logger.handlers if own.name != _HANDLER]  # replaces the handler of -v
    logger.addHandler(handler)
    logger.setLevel(logging.WARNING if quiet else level)
    logger.propagate = False
    return handler


def _traceback(record: logging.LogRecord) -> str:
    """Return the traceback of a record, or ''.

    Do not use `record.exc_text`, because a formatter of the application may have written it.
    """
    if not record.exc_info or record.exc_info[0] is None:
        return ""
    try:
        return "".join(traceback.format_exception(*record.exc_info)).rstrip()
    except Exception as broken:
        return f"(no traceback: formatting it raised {type(broken).__name__})"


def _cut(text: str, escape: Callable[[str], str] = str) -> str:
    """Escape a text and cut a long one at its end."""
    start = escape(text[:MAX_TEXT]).encode("utf-8", "backslashreplace")
    if len(text) <= MAX_TEXT and len(start) <= MAX_TEXT:
        return start.decode()
    return f"{start[:MAX_TEXT].decode('utf-8', 'ignore')} … ({len(text):,} characters)"


def _cut_start(text: str, escape: Callable[[str], str] = str) -> str:
    """Escape a text and cut a long one at its start, because the end of a traceback is the most useful part."""
    end = escape(text[-MAX_TEXT:]).encode("utf-8", "backslashreplace")
    if len(text) <= MAX_TEXT and len(end) <= MAX_TEXT:
        return end.decode()
    return f"… {end[-MAX_TEXT:].decode('utf-8', 'ignore')}"


def _printable_lines(text: str) -> str:
    """Escape control characters in each line."""
    return "\n".join(map(printable, text.split("\n")))


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
            print(f"delayq: {_cut(record.getMessage(), printable)}", file=sys.stderr)
            print(f"delayq: a log handler of the application raised {error!r}", file=sys.stderr, flush=True)

    # mypy forbids assignments to methods:
    setattr(logger, "handle", guarded)  # noqa: B010


def settle_logging(handler: logging.Handler, *, is_format_said: bool) -> None:
    """After the application was loaded, make the lines of delayq reach stderr and the handlers of the application.

    `is_format_said`: an option has set the format, so console handlers of the application at `delayq` are removed.
    """
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
    _catch_the_rest(handler.formatter)
    for one in [*theirs, *logging.root.handlers]:
        if not any(isinstance(known, SafeText) for known in one.filters):
            one.addFilter(SafeText())


def _catch_the_rest(formatter: logging.Formatter | None) -> None:
    """Write warnings and errors of loggers without a handler in this format.

    If the format is JSON, also log Python warnings and uncaught exceptions of threads.
    """
    last_resort = StderrHandler()
    last_resort.setLevel(logging.WARNING)
    last_resort.setFormatter(formatter)
    logging.lastResort = last_resort
    if not isinstance(formatter, JsonFormatter):
        return
    logging.captureWarnings(True)
    if not logging.root.handlers:
        warnings = logging.getLogger("py.warnings")
        warnings.addHandler(last_resort)
        warnings.propagate = False  # the application may set up logging later
    if threading.excepthook is threading.__excepthook__:
        threading.excepthook = _log_error_of_thread


def _log_error_of_thread(ended: threading.ExceptHookArgs) -> None:
    if ended.exc_value is not None and not issubclass(ended.exc_type, SystemExit):
        name = ended.thread.name if ended.thread else "unknown"
        logging.getLogger("threading").error("the thread %s failed", name, exc_info=ended.exc_value)


def _is_console(handler: logging.Handler) -> bool:
    """Return True if a handler writes all errors to stdout or stderr."""
    is_stream = type(handler) is logging.StreamHandler and handler.stream in (sys.stdout, sys.stderr)
    return is_stream and handler.level <= logging.ERROR and not handler.filters
