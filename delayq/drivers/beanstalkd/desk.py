"""The thread that talks on the connection which reserves.

    handlers, watchdog, lease keeper ──▶ requests ──▶ desk ──▶ beanstalkd
                 answers ◀───────────────────────────

A worker tears its main thread out of a wait with a signal, and a conversation that is torn is a connection lost, with
every reservation on it. So nobody talks but this thread, which no signal reaches; who asks waits for the answer, and
may be torn out of that. What was reserved for one who has left goes back at once, uncounted.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from queue import Empty, SimpleQueue
from typing import Any, TypeVar, cast

from delayq.drivers.beanstalkd.line import Line

T = TypeVar("T")

CLOSE_S = 10.0


class _Request:
    """One piece of work; its `answer` is what came of it, and what was raised."""

    __slots__ = ("answer", "do")

    def __init__(self, do: Callable[[Line], Any]) -> None:
        self.do = do
        self.answer: SimpleQueue[tuple[Any, Exception | None]] = SimpleQueue()


class Desk:
    """Made in the process that uses it; its thread begins with the first request and ends with `close`."""

    def __init__(self, line: Line) -> None:
        self._line = line
        self._requests: SimpleQueue[_Request | None] = SimpleQueue()
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None

    @property
    def open(self) -> bool:
        """Whether anybody has asked since it was made or closed."""
        return self._thread is not None

    def ask(self, do: Callable[[Line], T], undo: Callable[[Line, T], None] | None = None) -> T:
        """Have it done, and wait for the answer; what `do` raises is raised here.

        `undo` is given an answer that nobody waits for any more.
        """
        request = _Request(do)
        self._begin()
        try:
            self._requests.put(request)
            answer, error = request.answer.get()
        except BaseException:
            if undo is not None:
                self._requests.put(_Request(lambda line: _take_back(line, request, undo)))
            raise
        if error is not None:
            raise error
        return cast(T, answer)

    def close(self) -> None:
        """Close the connection, with all that it holds, and end the thread. Asked again, it begins anew."""
        with self._lock:
            thread, self._thread = self._thread, None
            if thread is None:
                return
            self._requests.put(None)
        thread.join(CLOSE_S)

    def _begin(self) -> None:
        if self._thread is None:
            with self._lock:
                if self._thread is None:
                    self._thread = threading.Thread(target=self._work, name="delayq-beanstalkd", daemon=True)
                    self._thread.start()

    def _work(self) -> None:
        while (request := self._requests.get()) is not None:
            try:
                request.answer.put((request.do(self._line), None))
            except Exception as error:  # noqa: BLE001  (it belongs to whoever asked, and is raised there)
                request.answer.put((None, error))
        self._line.hang_up()


def _take_back(line: Line, request: _Request, undo: Callable[[Line, T], None]) -> None:
    """Undo what was done for one who has left. It comes after the request, so the answer lies there by now."""
    try:
        answer, error = request.answer.get_nowait()
    except Empty:
        return
    if error is None:
        undo(line, answer)
