"""Lets a test answer the calls of all clients of this process, so that no call reaches their servers.

Each new session of a client is registered here. While a test intercepts the calls, the executors of all sessions pass
their calls to an executor of the test. A session keeps its executor, because other objects also use this executor: only
the methods of the executor are replaced.
"""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final
from weakref import WeakSet

import msgspec

from delayq.core.options import MEMORY
from delayq.redis.connection.executor import Executor
from delayq.redis.session import Session

_DIVERTED: Final = ("run_all", "start", "finish", "servers", "sleep", "close")
"""The methods of an executor that send calls, wait, or close connections."""

_sessions: Final[WeakSet[Session]] = WeakSet()
_lock: Final = threading.RLock()
_stand_in: Callable[[Session], Executor] | None = None
_undo: Final[list[Callable[[], None]]] = []


def registered(session: Session) -> Session:
    """Register the session of a client, and return it. While calls are intercepted, its calls are intercepted too."""
    with _lock:
        _sessions.add(session)
        if _stand_in is not None:
            _undo.append(_divert(session, _stand_in(session)))
    return session


def is_intercepted() -> bool:
    """Return True while a test answers the calls of all clients."""
    return _stand_in is not None


@contextmanager
def intercepted(stand_in: Callable[[Session], Executor]) -> Iterator[None]:
    """Intercept the calls of all clients inside the `with` block, even if a client is created in the block.

    `stand_in`: returns the executor that answers the calls of a session. No durability is required inside the block,
    and no embedded server is started. Raises RuntimeError if calls are intercepted already.
    """
    global _stand_in  # noqa: PLW0603
    with _lock:
        if _stand_in is not None:
            raise RuntimeError("delayq_fake and delayq_travel cannot be used at the same time, nor twice.")
        _stand_in = stand_in
        _undo.extend([_divert(session, stand_in(session)) for session in list(_sessions)])
    try:
        yield
    finally:
        with _lock:
            _stand_in = None
            while _undo:
                _undo.pop()()


def _divert(session: Session, to: Executor) -> Callable[[], None]:
    """Let an executor answer the calls of a session. Return a function that undoes this."""
    own: dict[str, Any] = vars(session.executor)
    before = (session.options, session.create_storage, session._list_at, session.shards.several)
    own.update({name: getattr(to, name) for name in _DIVERTED})
    session.options = msgspec.structs.replace(session.options, durability=MEMORY)
    session.create_storage, session._list_at, session.shards.several = None, {}, {}

    def undo() -> None:
        for name in _DIVERTED:
            del own[name]
        session.options, session.create_storage, session._list_at, session.shards.several = before

    return undo
