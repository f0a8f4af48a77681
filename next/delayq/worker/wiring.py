"""Puts the parts of a worker together, from its backend, its options and the declared jobs."""

import gc
from functools import partial

from delayq.backends.protocol import Backend
from delayq.core.options import Options
from delayq.core.outcome import default_policy
from delayq.jobs.registry import Registry
from delayq.worker.attempt import Attempts
from delayq.worker.child_main import run_child
from delayq.worker.children import Children
from delayq.worker.crash_recovery import CrashRecovery
from delayq.worker.heartbeat import Heartbeat
from delayq.worker.lease_renewal import LeaseRenewal
from delayq.worker.options import WorkerOptions
from delayq.worker.shared_memory import SlotTable
from delayq.worker.sidecar import Sidecar, run_sidecar
from delayq.worker.start_up import when_reachable
from delayq.worker.stopping import Stopping
from delayq.worker.supervisor import TICK, Role, Supervisor
from delayq.worker.timeouts import Timeouts


def work(backend: Backend, defaults: Options, options: WorkerOptions, registry: Registry) -> int:
    """Run a worker until it has stopped, and return its exit code. This process becomes the supervisor.

    `defaults`: values for options that a job does not declare. `registry`: the handlers of the jobs.

    Raises ConfigError if the url cannot be used, or if encryption keys are set, but the package cryptography is not
    installed. Raises BackendUnavailable or OutcomeUnknown if the server has not answered after `options.start_timeout`
    (None = wait without end), BackendUnavailable if the embedded server does not start, and LoginRefused if Redis
    refuses the login. Raises UnsafeSetup if the server evicts keys, unless `options.allows_eviction` is True. All these
    errors are raised before the first child is forked.
    """
    if defaults.key_ring is not None:
        _ = defaults.key_ring.fernet
    keeper = backend.lease_keeper(options.queues)
    lease = when_reachable(keeper.open, retry_timeout=options.start_timeout)
    if not options.allows_eviction:
        when_reachable(backend.check, retry_timeout=options.start_timeout)
    backend.prepare()

    stopping = Stopping(options, last_restart_ms=keeper.restart_ms())
    children = Children(
        partial(run_child, backend=backend, defaults=defaults, options=options, registry=registry),
        partial(SlotTable, keeper.queues()),
        processes=options.processes,
        max_jobs=options.max_jobs,
        host=options.name,
    )
    roles: list[Role] = [
        LeaseRenewal(keeper, lease=lease, give_up=stopping.give_up),
        Timeouts(is_single=options.is_single, grace=options.timeout_grace),
    ]
    workers = backend.worker_registry()
    if workers is not None:
        roles.append(
            Heartbeat(
                workers,
                options.queues,
                now_ms=keeper.now_ms,
                host=options.name,
                crashed=lambda: [] if stopping.is_stopping else children.crashed(),
            )
        )
    sidecar = partial(run_sidecar, backend, defaults, options.queues, lease)
    attempts = Attempts(registry, now_ms=keeper.now_ms, standard=default_policy(defaults))
    supervisor = Supervisor(
        children,
        Sidecar(sidecar if options.with_loops and backend.has_loops else None),
        stopping,
        alive=roles,
        ended=CrashRecovery(keeper, attempts.end_of_killed),
        tick=min(TICK, lease / 6),
    )
    # Exclude imported objects from garbage collection: in each child, the collector would write to these objects, so
    # that the kernel would have to copy memory that the processes share.
    gc.freeze()
    return supervisor.run()
