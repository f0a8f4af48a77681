"""The job that carries one notification to one address. One class of jobs for each class of notifications."""

from __future__ import annotations

import types
from collections.abc import Sequence
from typing import Any

from delayq.core.errors import ConfigError
from delayq.core.events import NotificationFailed, NotificationSending, NotificationSent, NotificationSkipped
from delayq.core.signals import JobSignal
from delayq.jobs.job import Job
from delayq.jobs.middleware.forms import Middleware
from delayq.jobs.notifications.channel import Channel, Letter
from delayq.jobs.notifications.recipient import Recipient
from delayq.jobs.options import ClassOptions
from delayq.jobs.registry import Registry, current


def job_of(kind: type, options: ClassOptions) -> type[Job]:
    """Make, and register, the job class of a notification class."""
    registry = current()

    def fill(space: dict[str, Any]) -> None:
        fields = {"notification": kind, "to": Recipient, "channel": str, "notification_id": str}
        space["__annotations__"] = fields
        space["__module__"], space["__qualname__"] = kind.__module__, kind.__qualname__
        space["handle"] = lambda self: _send(self, registry)
        space["middleware"] = _middleware
        space["failed"] = lambda self, error: self.notification.failed(error)

    named: ClassOptions = {"name": kind.__name__, **options}
    made: type[Job] = types.new_class(kind.__name__, (Job,), dict(named), fill)
    return made


def _middleware(job: Any) -> Sequence[Middleware]:
    wanted: Sequence[Middleware] = job.notification.middleware(job.to, job.channel)
    return wanted


def _send(job: Any, registry: Registry) -> None:
    """One attempt, on the worker."""
    name, address = job.job_name, job.to.addresses[job.channel]
    about = (job.notification_id, name, job.channel, address, job.context.id)
    if not job.notification.should_send(job.to, job.channel):
        registry.events.tell(NotificationSkipped(*about))
        return
    channel = _channel(registry, job.channel)
    registry.events.tell(NotificationSending(*about))
    try:
        message = job.notification.message_for(job.to, job.channel)
        channel.deliver(Letter(job.notification_id, name, job.channel, address, job.to.name, message))
    except JobSignal as signal:
        if cause := getattr(signal, "cause", None):
            registry.events.tell(NotificationFailed(*about, cause))
        raise
    except Exception as error:
        registry.events.tell(NotificationFailed(*about, error))
        raise
    registry.events.tell(NotificationSent(*about))


def _channel(registry: Registry, name: str) -> Channel:
    channel = registry.channels.get(name)
    if channel is None:
        known = ", ".join(registry.channels) or "none"
        raise ConfigError(
            f"There is no channel {name!r}; known here: {known}.",
            hint=f'Register it where the jobs are: use_channel("{name}", ...).',
        )
    return channel
