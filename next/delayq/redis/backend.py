"""The backend of Redis and Valkey: it makes the objects through which clients, workers and loops use the server."""

from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

from delayq.backends.protocol import Backend
from delayq.core.errors import BackendError, BackendUnavailable, OutcomeUnknown
from delayq.core.queue_order import Order, strict
from delayq.core.resting import NODE_REST
from delayq.redis.connection.executor import Executor
from delayq.redis.connection.factory import make_executor, parse_address
from delayq.redis.connection.leaf import drive
from delayq.redis.connection.server import RETRY_TIMEOUT
from delayq.redis.connection.url import Address, UnsetAddress
from delayq.redis.health import refuse_eviction, warn_unknown_policy
from delayq.redis.interception import is_intercepted, registered
from delayq.redis.keys import Keys
from delayq.redis.scripts import load_all
from delayq.redis.session import Session
from delayq.settings.connections import Routes
from delayq.settings.model import Settings

if TYPE_CHECKING:  # clients, which are made most often, need none of these
    from delayq.redis.connection.factory import AnyAddress
    from delayq.redis.worker.consumer import RedisConsumer
    from delayq.redis.worker.hints import Hints
    from delayq.redis.worker.lease_keeper import RedisLeaseKeeper
    from delayq.redis.worker.queue_keeper import RedisQueueKeeper
    from delayq.redis.worker.worker_registry import RedisWorkerRegistry

CHILD_RETRY_TIMEOUT: Final = 1.0
"""How long, in seconds, a child retries a failed Redis call. The loop of the child repeats failed steps in any case."""

SUPERVISOR_RETRY_TIMEOUT: Final = 1.2
"""How long, in seconds, a supervisor retries a failed Redis call: room for two tries."""

SHORT_TRY_TIMEOUT: Final = 0.5
"""Time limit of one try, in seconds: for supervisors, because a supervisor that waits does nothing else; with several
servers, also for children and loops."""

LATE_START: Final = "jobs can start up to 1 s late"
LATE_STOP: Final = "cancelled jobs that are running stop up to a third of a lease late"
"""Effects of missing notifications on start and cancel, for the log."""


class RedisBackend:
    """Implements the protocol Backend with Redis or Valkey.

    If the settings have no url, the embedded server of the project is used:

    * The parts of a worker create the data directory and start the server when they are made. Methods that make these
      parts raise BackendUnavailable if the embedded server does not start.
    * A client finds or starts the server at its first connection. If the data directory does not exist, calls that
      store new jobs create it, and all other calls raise BackendUnavailable.

    Methods that need the address raise ConfigError if the url cannot be used.
    """

    has_loops = True

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._keys = Keys(settings.prefix)
        self._options = settings.options()
        self._loops: Executor | None = None

    @property
    def where(self) -> str:
        """The address of the server, without secrets."""
        return self._client_address.masked

    def shares_jobs_with(self, other: Backend) -> bool:
        """Return True if both are Redis backends with the same url and prefix."""
        return isinstance(other, RedisBackend) and self._jobs_at == other._jobs_at

    def prepare(self) -> None:
        """Read all scripts, so that children use the same release even if the files change later."""
        import delayq.redis.worker.consumer
        import delayq.redis.worker.hints
        import delayq.redis.worker.queue_keeper  # noqa: F401  # children share the pages of what is imported now

        load_all()

    def check(self) -> None:
        """Raise UnsafeSetup if a server evicts keys when its memory is full. Warn if its policy cannot be read.

        If a node of a cluster does not answer, warn, so that the jobs of the other nodes can run. Raises
        BackendUnavailable if no server answers.
        """
        servers = drive(make_executor(self._address, retry_timeout=CHILD_RETRY_TIMEOUT).servers())
        silent: list[BackendError] = []
        for server in servers:
            try:
                refuse_eviction(server)
            except (BackendUnavailable, OutcomeUnknown) as error:
                silent.append(error)
        if len(silent) == len(servers):
            raise silent[0]
        for one in silent:
            warn_unknown_policy(one.message)

    def consumer(
        self,
        queues: Sequence[str],
        *,
        name: str,
        order: Order = strict,
        forced: bool = False,
        wake_fd: int | None = None,
    ) -> "RedisConsumer":
        """Make the consumer of a child."""
        from delayq.redis.worker.consumer import RedisConsumer

        executor = self._loop_executor(CHILD_RETRY_TIMEOUT, wake_fd=wake_fd)
        return RedisConsumer(executor, self._keys, queues, self._options, name=name, order=order, forced=forced)

    def lease_keeper(self, queues: Sequence[str]) -> "RedisLeaseKeeper":
        """Make the lease keeper of a supervisor."""
        from delayq.redis.worker.hints import Hints
        from delayq.redis.worker.lease_keeper import RedisLeaseKeeper

        executor = self._supervisor_executor()
        stop_hints = Hints(
            self._address, self._keys.cancel, consequence=LATE_STOP, is_checked=True, server=lambda: executor.where
        )
        return RedisLeaseKeeper(executor, self._keys, queues, self._options, stop_hints)

    def queue_keeper(self, queues: Sequence[str], *, name: str) -> "RedisQueueKeeper":
        """Make the queue keeper of the loops."""
        from delayq.redis.worker.queue_keeper import RedisQueueKeeper

        self._loops = executor = self._loop_executor(RETRY_TIMEOUT)
        return RedisQueueKeeper(executor, self._keys, self._options, name=name, queues=queues)

    def wake_ups(self) -> "Hints":
        """Make the subscription to notifications for the loops. The first wait connects to the server."""
        from delayq.redis.worker.hints import Hints

        return Hints(
            self._address,
            self._keys.wake,
            consequence=LATE_START,
            is_checked=True,
            server=lambda: "" if self._loops is None else self._loops.where,
        )

    def worker_registry(self) -> "RedisWorkerRegistry":
        """Make the list of workers."""
        from delayq.redis.worker.worker_registry import RedisWorkerRegistry

        return RedisWorkerRegistry(self._supervisor_executor(), self._keys)

    def session(self, *, is_async: bool, routes: Routes) -> Session:
        """Make the session of a client."""
        executor = make_executor(self._client_address, is_async=is_async)
        session = Session(
            executor,
            self._keys,
            self._options,
            routes=routes,
            connection=self._settings.connection,
            create_storage=self._create_embedded if self._settings.uses_embedded else None,
        )
        return registered(session)

    @cached_property
    def _client_address(self) -> "AnyAddress":
        if not self._settings.uses_embedded:
            if self._settings.url is None and is_intercepted():
                return UnsetAddress(self._settings.must_have_url)
            return parse_address(self._settings.must_have_url())
        from delayq.redis.embedded.address import EmbeddedAddress  # only needed without a url
        from delayq.redis.embedded.server import EmbeddedServer

        return EmbeddedAddress(EmbeddedServer.of_project(self._settings))

    @property
    def _address(self) -> "AnyAddress":
        """The address for the parts of a worker. An embedded server is started, in a new data directory if needed."""
        if self._settings.uses_embedded:
            self._create_embedded()
        return self._client_address

    def _create_embedded(self) -> None:
        from delayq.redis.embedded.address import EmbeddedAddress

        assert isinstance(self._client_address, EmbeddedAddress)
        self._client_address.create()

    def _loop_executor(self, retry_timeout: float, *, wake_fd: int | None = None) -> Executor:
        """Make the executor of a child or of the loops. With several servers, one of them must not delay the others."""
        if isinstance(self._address, Address):
            return make_executor(self._address, retry_timeout=retry_timeout, wake_fd=wake_fd)
        return make_executor(
            self._address,
            retry_timeout=min(retry_timeout, CHILD_RETRY_TIMEOUT),
            try_timeout=SHORT_TRY_TIMEOUT,
            node_rest=NODE_REST,
            wake_fd=wake_fd,
        )

    @property
    def _jobs_at(self) -> tuple[Any, str]:
        return self._settings.url, self._settings.prefix

    def _supervisor_executor(self) -> Executor:
        return make_executor(
            self._address,
            retry_timeout=SUPERVISOR_RETRY_TIMEOUT,
            try_timeout=SHORT_TRY_TIMEOUT,
            node_rest=NODE_REST,
        )
