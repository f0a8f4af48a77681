"""delayq runs work later and never loses it.

    from delayq import DelayQ

    q = DelayQ()
    q.schedule("order.close", {"order_id": 42}, delay="15m", id="order-42")
    q.cancel("order-42")

Names are imported when they are first used, so that `import delayq` costs next to nothing.
"""

from __future__ import annotations

import typing

from delayq.core.lazy import importer as _importer
from delayq.core.lazy import lister as _lister
from delayq.core.public_names import HOMES as _HOMES

if typing.TYPE_CHECKING:
    from delayq.client import AsyncDelayQ, DelayQ
    from delayq.core.backoff import Exponential, Fixed, Steps
    from delayq.core.batches import BatchInfo
    from delayq.core.control import Control, WorkerOrder
    from delayq.core.debounce import Debounce
    from delayq.core.errors import (
        BackendError,
        BackendFull,
        BackendUnavailable,
        BatchNotFound,
        CommittedUnsent,
        ConfigError,
        Conflict,
        DelayqError,
        FoundElsewhere,
        InvalidInput,
        JobFinished,
        JobHasFailed,
        JobNotFailed,
        JobNotFound,
        JobRunning,
        ModelMissing,
        NotAllSearched,
        NotConfirmed,
        OutcomeUnknown,
        PayloadLost,
        QueueInUse,
        QueueNotFound,
        WorkerNotFound,
    )
    from delayq.core.events import (
        JobDebounced,
        JobDispatched,
        JobEnded,
        JobFenced,
        JobLimited,
        JobModelMissing,
        JobRetryRequested,
        JobRolledBack,
        JobSkipped,
        JobStarted,
        JobUnsent,
        NotificationEvent,
        NotificationFailed,
        NotificationSending,
        NotificationSent,
        NotificationSkipped,
        UniqueJobSkipped,
        WorkerIdle,
        WorkerInterrupted,
        WorkerPausing,
        WorkerQueuePaused,
        WorkerQueueResumed,
        WorkerResuming,
        WorkerStarting,
        WorkerStopping,
    )
    from delayq.core.progress import Progress
    from delayq.core.queue_events import QueueBusy, QueueFailedOver, QueuePaused, QueueResumed
    from delayq.core.rate_limit import RateLimit
    from delayq.core.signals import (
        Discard,
        Fail,
        JobSignal,
        Retry,
        Snooze,
    )
    from delayq.core.spec import JobSpec
    from delayq.core.states import Answer, OnConflict, State
    from delayq.core.unique import Unique
    from delayq.core.views import (
        Fate,
        JobInfo,
        JobRef,
        OrderedWorker,
        Page,
        QueueStats,
        Retried,
        Upcoming,
        WorkerInfo,
    )
    from delayq.drivers.sync import Ran
    from delayq.drivers.within import within
    from delayq.jobs.after_response import AfterResponse, AfterResponseWSGI
    from delayq.jobs.batch import (
        PendingBatch,
        afind_batch,
        batch,
        find_batch,
    )
    from delayq.jobs.chain import PendingChain, chain
    from delayq.jobs.context import JobContext
    from delayq.jobs.coordinated import RunningBatch, RunningChain
    from delayq.jobs.current import (
        current_manager,
        make_manager,
        set_manager,
        using_manager,
    )
    from delayq.jobs.dispatch import (
        Dispatch,
        adispatch,
        adispatch_many,
        dispatch,
        dispatch_many,
    )
    from delayq.jobs.events.announcing import aannounce, announce
    from delayq.jobs.events.listening import listener, queued_listener
    from delayq.jobs.function import job
    from delayq.jobs.gates import gate
    from delayq.jobs.job import Job
    from delayq.jobs.middleware.concurrency import Concurrency, WithoutOverlapping
    from delayq.jobs.middleware.fail_on import FailOnException
    from delayq.jobs.middleware.forms import Middleware, Next
    from delayq.jobs.middleware.rate_limited import RateLimited
    from delayq.jobs.middleware.release import Release
    from delayq.jobs.middleware.running_job import RunningJob
    from delayq.jobs.middleware.skip import Skip
    from delayq.jobs.middleware.skip_if_batch_cancelled import SkipIfBatchCancelled
    from delayq.jobs.middleware.throttles_exceptions import ThrottlesExceptions
    from delayq.jobs.notifications.broadcast import BroadcastChannel
    from delayq.jobs.notifications.channel import Channel, Letter
    from delayq.jobs.notifications.mail import MailChannel, Smtp
    from delayq.jobs.notifications.mail_message import Attachment, MailMessage
    from delayq.jobs.notifications.notification import Notification
    from delayq.jobs.notifications.notifying import anotify, notify, use_channel
    from delayq.jobs.notifications.recipient import Notifiable, Recipient
    from delayq.jobs.notifications.webhook import WebhookChannel, WebhookMessage
    from delayq.jobs.references.models import Models
    from delayq.jobs.references.reference import OnMissing, Reference
    from delayq.jobs.registry import use_limit, use_middleware, use_models
    from delayq.jobs.string_jobs import handles
    from delayq.manager import Manager
    from delayq.settings import Settings

__version__ = "0.1.0"

__all__ = [
    "AfterResponse",
    "AfterResponseWSGI",
    "Answer",
    "AsyncDelayQ",
    "Attachment",
    "BackendError",
    "BackendFull",
    "BackendUnavailable",
    "BatchInfo",
    "BatchNotFound",
    "BroadcastChannel",
    "Channel",
    "CommittedUnsent",
    "Concurrency",
    "ConfigError",
    "Conflict",
    "Control",
    "Debounce",
    "DelayQ",
    "DelayqError",
    "Discard",
    "Dispatch",
    "Exponential",
    "Fail",
    "FailOnException",
    "Fate",
    "Fixed",
    "FoundElsewhere",
    "InvalidInput",
    "Job",
    "JobContext",
    "JobDebounced",
    "JobDispatched",
    "JobEnded",
    "JobFenced",
    "JobFinished",
    "JobHasFailed",
    "JobInfo",
    "JobLimited",
    "JobModelMissing",
    "JobNotFailed",
    "JobNotFound",
    "JobRef",
    "JobRetryRequested",
    "JobRolledBack",
    "JobRunning",
    "JobSignal",
    "JobSkipped",
    "JobSpec",
    "JobStarted",
    "JobUnsent",
    "Letter",
    "MailChannel",
    "MailMessage",
    "Manager",
    "Middleware",
    "ModelMissing",
    "Models",
    "Next",
    "NotAllSearched",
    "NotConfirmed",
    "Notifiable",
    "Notification",
    "NotificationEvent",
    "NotificationFailed",
    "NotificationSending",
    "NotificationSent",
    "NotificationSkipped",
    "OnConflict",
    "OnMissing",
    "OrderedWorker",
    "OutcomeUnknown",
    "Page",
    "PayloadLost",
    "PendingBatch",
    "PendingChain",
    "Progress",
    "QueueBusy",
    "QueueFailedOver",
    "QueueInUse",
    "QueueNotFound",
    "QueuePaused",
    "QueueResumed",
    "QueueStats",
    "Ran",
    "RateLimit",
    "RateLimited",
    "Recipient",
    "Reference",
    "Release",
    "Retried",
    "Retry",
    "RunningBatch",
    "RunningChain",
    "RunningJob",
    "Settings",
    "Skip",
    "SkipIfBatchCancelled",
    "Smtp",
    "Snooze",
    "State",
    "Steps",
    "ThrottlesExceptions",
    "Unique",
    "UniqueJobSkipped",
    "Upcoming",
    "WebhookChannel",
    "WebhookMessage",
    "WithoutOverlapping",
    "WorkerIdle",
    "WorkerInfo",
    "WorkerInterrupted",
    "WorkerNotFound",
    "WorkerOrder",
    "WorkerPausing",
    "WorkerQueuePaused",
    "WorkerQueueResumed",
    "WorkerResuming",
    "WorkerStarting",
    "WorkerStopping",
    "__version__",
    "aannounce",
    "adispatch",
    "adispatch_many",
    "afind_batch",
    "announce",
    "anotify",
    "batch",
    "chain",
    "current_manager",
    "dispatch",
    "dispatch_many",
    "find_batch",
    "gate",
    "handles",
    "job",
    "listener",
    "make_manager",
    "notify",
    "queued_listener",
    "set_manager",
    "use_channel",
    "use_limit",
    "use_middleware",
    "use_models",
    "using_manager",
    "within",
]

if not typing.TYPE_CHECKING:  # a type checker would otherwise believe in every name
    __getattr__ = _importer(__name__, _HOMES)
    __dir__ = _lister(__name__)
