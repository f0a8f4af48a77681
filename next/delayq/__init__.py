"""delayq runs jobs later, and does not lose a job when a worker crashes.

Programs schedule jobs with DelayQ, AsyncDelayQ or `dispatch`. Redis keeps the jobs, and workers run them when they are
due.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from delayq.client import AsyncDelayQ as AsyncDelayQ
    from delayq.client import AsyncJobRef as AsyncJobRef
    from delayq.client import DelayQ as DelayQ
    from delayq.client import JobRef as JobRef
    from delayq.core.backoff import Exponential as Exponential
    from delayq.core.backoff import Fixed as Fixed
    from delayq.core.backoff import Steps as Steps
    from delayq.core.batch_info import BatchInfo as BatchInfo
    from delayq.core.batch_info import MissingJob as MissingJob
    from delayq.core.control_flow import Discard as Discard
    from delayq.core.control_flow import Fail as Fail
    from delayq.core.control_flow import JobCancelled as JobCancelled
    from delayq.core.control_flow import JobSignal as JobSignal
    from delayq.core.control_flow import JobTimedOut as JobTimedOut
    from delayq.core.control_flow import LimitReached as LimitReached
    from delayq.core.control_flow import Retry as Retry
    from delayq.core.control_flow import Snooze as Snooze
    from delayq.core.control_flow import WorkerShutdown as WorkerShutdown
    from delayq.core.errors import BackendError as BackendError
    from delayq.core.errors import BackendFull as BackendFull
    from delayq.core.errors import BackendUnavailable as BackendUnavailable
    from delayq.core.errors import BatchNotFound as BatchNotFound
    from delayq.core.errors import CommittedUnsent as CommittedUnsent
    from delayq.core.errors import ConfigError as ConfigError
    from delayq.core.errors import Conflict as Conflict
    from delayq.core.errors import DelayqError as DelayqError
    from delayq.core.errors import FoundElsewhere as FoundElsewhere
    from delayq.core.errors import InvalidInput as InvalidInput
    from delayq.core.errors import JobFinished as JobFinished
    from delayq.core.errors import JobHasFailed as JobHasFailed
    from delayq.core.errors import JobNotFailed as JobNotFailed
    from delayq.core.errors import JobNotFound as JobNotFound
    from delayq.core.errors import JobRunning as JobRunning
    from delayq.core.errors import LimitNotFound as LimitNotFound
    from delayq.core.errors import ModelMissing as ModelMissing
    from delayq.core.errors import NotConfirmed as NotConfirmed
    from delayq.core.errors import NotDecrypted as NotDecrypted
    from delayq.core.errors import OutcomeUnknown as OutcomeUnknown
    from delayq.core.errors import PayloadLost as PayloadLost
    from delayq.core.errors import QueueInUse as QueueInUse
    from delayq.core.errors import QueueNotFound as QueueNotFound
    from delayq.core.errors import ResultLost as ResultLost
    from delayq.core.events import JobDispatched as JobDispatched
    from delayq.core.events import JobEnded as JobEnded
    from delayq.core.events import JobRetryRequested as JobRetryRequested
    from delayq.core.events import JobStarted as JobStarted
    from delayq.core.events import NotificationFailed as NotificationFailed
    from delayq.core.events import NotificationSent as NotificationSent
    from delayq.core.events import QueueBusy as QueueBusy
    from delayq.core.events import QueuePaused as QueuePaused
    from delayq.core.events import QueueResumed as QueueResumed
    from delayq.core.events import WorkerLooping as WorkerLooping
    from delayq.core.events import WorkerStarting as WorkerStarting
    from delayq.core.events import WorkerStopping as WorkerStopping
    from delayq.core.failure_groups import FailedGroup as FailedGroup
    from delayq.core.failure_groups import FailedGroups as FailedGroups
    from delayq.core.job_search import FoundJobs as FoundJobs
    from delayq.core.job_search import JobSearch as JobSearch
    from delayq.core.job_spec import JobSpec as JobSpec
    from delayq.core.limits import LimitInfo as LimitInfo
    from delayq.core.limits import RateLimit as RateLimit
    from delayq.core.listeners import emit as emit
    from delayq.core.listeners import listener as listener
    from delayq.core.models import ModelRef as ModelRef
    from delayq.core.models import OnMissing as OnMissing
    from delayq.core.states import Answer as Answer
    from delayq.core.states import OnConflict as OnConflict
    from delayq.core.states import State as State
    from delayq.core.unique import Unique as Unique
    from delayq.core.views import Control as Control
    from delayq.core.views import DayCounts as DayCounts
    from delayq.core.views import JobInfo as JobInfo
    from delayq.core.views import Page as Page
    from delayq.core.views import QueueStats as QueueStats
    from delayq.core.views import QueueView as QueueView
    from delayq.core.views import Retried as Retried
    from delayq.core.views import Upcoming as Upcoming
    from delayq.core.views import WorkerInfo as WorkerInfo
    from delayq.jobs.batch import PendingBatch as PendingBatch
    from delayq.jobs.batch import RunningBatch as RunningBatch
    from delayq.jobs.batch import afind_batch as afind_batch
    from delayq.jobs.batch import batch as batch
    from delayq.jobs.batch import find_batch as find_batch
    from delayq.jobs.chain import PendingChain as PendingChain
    from delayq.jobs.chain import RunningChain as RunningChain
    from delayq.jobs.chain import chain as chain
    from delayq.jobs.channels import AsyncChannel as AsyncChannel
    from delayq.jobs.channels import Channel as Channel
    from delayq.jobs.channels import use_channel as use_channel
    from delayq.jobs.conditions import FailOnException as FailOnException
    from delayq.jobs.conditions import Skip as Skip
    from delayq.jobs.conditions import SkipIfBatchCancelled as SkipIfBatchCancelled
    from delayq.jobs.context import JobContext as JobContext
    from delayq.jobs.dispatch import Dispatch as Dispatch
    from delayq.jobs.dispatch import adispatch as adispatch
    from delayq.jobs.dispatch import adispatch_many as adispatch_many
    from delayq.jobs.dispatch import dispatch as dispatch
    from delayq.jobs.dispatch import dispatch_many as dispatch_many
    from delayq.jobs.function import handles as handles
    from delayq.jobs.function import job as job
    from delayq.jobs.job import Job as Job
    from delayq.jobs.limits import Concurrency as Concurrency
    from delayq.jobs.limits import RateLimited as RateLimited
    from delayq.jobs.limits import WithoutOverlapping as WithoutOverlapping
    from delayq.jobs.limits import use_limit as use_limit
    from delayq.jobs.local_run import Ran as Ran
    from delayq.jobs.middleware import AsyncMiddleware as AsyncMiddleware
    from delayq.jobs.middleware import Middleware as Middleware
    from delayq.jobs.middleware import Next as Next
    from delayq.jobs.middleware import RunningJob as RunningJob
    from delayq.jobs.models import Models as Models
    from delayq.jobs.models import use_models as use_models
    from delayq.jobs.notification import Notification as Notification
    from delayq.jobs.notify import anotify as anotify
    from delayq.jobs.notify import notify as notify
    from delayq.jobs.queued_listener import queued_listener as queued_listener
    from delayq.jobs.registry import use_middleware as use_middleware
    from delayq.jobs.transactions import within as within
    from delayq.manager import Manager as Manager
    from delayq.manager import current_manager as current_manager
    from delayq.manager import set_manager as set_manager
    from delayq.manager import using_manager as using_manager
    from delayq.settings.model import Settings as Settings

_MODULES: Final = {
    "client": "AsyncDelayQ AsyncJobRef DelayQ JobRef",
    "core.backoff": "Exponential Fixed Steps",
    "core.batch_info": "BatchInfo MissingJob",
    "core.errors": "BackendError BackendFull BackendUnavailable BatchNotFound CommittedUnsent ConfigError Conflict "
    "DelayqError FoundElsewhere InvalidInput JobFinished JobHasFailed JobNotFailed JobNotFound JobRunning "
    "LimitNotFound ModelMissing NotConfirmed NotDecrypted OutcomeUnknown PayloadLost QueueInUse QueueNotFound "
    "ResultLost",
    "core.events": "JobDispatched JobEnded JobRetryRequested JobStarted NotificationFailed NotificationSent QueueBusy "
    "QueuePaused QueueResumed WorkerLooping WorkerStarting WorkerStopping",
    "core.failure_groups": "FailedGroup FailedGroups",
    "core.job_search": "FoundJobs JobSearch",
    "core.job_spec": "JobSpec",
    "core.control_flow": "Discard Fail JobCancelled JobSignal JobTimedOut LimitReached Retry Snooze WorkerShutdown",
    "core.limits": "LimitInfo RateLimit",
    "core.listeners": "emit listener",
    "core.models": "ModelRef OnMissing",
    "core.states": "Answer OnConflict State",
    "core.unique": "Unique",
    "core.views": "Control DayCounts JobInfo Page QueueStats QueueView Retried Upcoming WorkerInfo",
    "jobs.batch": "PendingBatch RunningBatch afind_batch batch find_batch",
    "jobs.chain": "PendingChain RunningChain chain",
    "jobs.channels": "AsyncChannel Channel use_channel",
    "jobs.conditions": "FailOnException Skip SkipIfBatchCancelled",
    "jobs.context": "JobContext",
    "jobs.dispatch": "Dispatch adispatch adispatch_many dispatch dispatch_many",
    "jobs.function": "handles job",
    "jobs.job": "Job",
    "jobs.limits": "Concurrency RateLimited WithoutOverlapping use_limit",
    "jobs.local_run": "Ran",
    "jobs.middleware": "AsyncMiddleware Middleware Next RunningJob",
    "jobs.models": "Models use_models",
    "jobs.notification": "Notification",
    "jobs.notify": "anotify notify",
    "jobs.queued_listener": "queued_listener",
    "jobs.registry": "use_middleware",
    "jobs.transactions": "within",
    "manager": "Manager current_manager set_manager using_manager",
    "settings.model": "Settings",
}
_PLACES: Final = {name: f"delayq.{module}" for module, names in _MODULES.items() for name in names.split()}

__all__ = list(_PLACES)


def __dir__() -> list[str]:
    """List all public names, also names that have not been imported yet."""
    return sorted({*globals(), *__all__})


def __getattr__(name: str) -> Any:
    """Import a public name when it is first used, so that `import delayq` is fast."""
    if name not in _PLACES:
        raise AttributeError(f"module 'delayq' has no attribute {name!r}")
    return getattr(import_module(_PLACES[name]), name)
