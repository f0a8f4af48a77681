"""The verbs of notifications, and how channels are made known."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from delayq.core.errors import ConfigError, InvalidInput
from delayq.core.names import check_id, new_id
from delayq.core.views import JobRef
from delayq.jobs.current import current_manager
from delayq.jobs.dispatch import Dispatch, adispatch_many, dispatch_many
from delayq.jobs.notifications.channel import Channel
from delayq.jobs.notifications.notification import Notification
from delayq.jobs.notifications.recipient import Notifiable, Recipient
from delayq.jobs.options import Dispatched
from delayq.jobs.registry import current


def use_channel(name: str, channel: Channel) -> None:
    """Let notifications that go via `name` be carried by `channel`, in the current registry. The last one counts."""
    if not name.isidentifier():
        raise ConfigError(f"{name!r} cannot name a channel.", hint="Use a word: the method to_<name> belongs to it.")
    current().channels[name] = channel


def notify(to: Notifiable | Iterable[Notifiable], notification: Notification, *, id: str | None = None) -> list[JobRef]:
    """Send a notification: a job for each recipient and channel; an answer for each.

    Its id is the same on all channels of one recipient. Give one, and sending it again changes nothing: its jobs are
    called `<id>.<channel>`, and are kept when they are there already. Everything is checked before the first is sent.
    Raises `InvalidInput` for a recipient without an address on a channel, and what `dispatch_many` raises.
    """
    jobs = _jobs(to, notification, id)
    return dispatch_many(jobs) if _in_bulk() else [job.dispatch() for job in jobs]


async def anotify(
    to: Notifiable | Iterable[Notifiable], notification: Notification, *, id: str | None = None
) -> list[JobRef]:
    """Send a notification, awaited: a job for each recipient and channel. Returns an answer for each job.

    With an `id` of yours, sending it again changes nothing: its jobs are called `<id>.<channel>`. Raises `InvalidInput`
    for a recipient without an address on a channel, and what `adispatch_many` raises.
    """
    jobs = _jobs(to, notification, id)
    return await adispatch_many(jobs) if _in_bulk() else [await job.adispatch() for job in jobs]


def _jobs(to: Any, notification: Notification, notification_id: str | None) -> list[Dispatch]:
    if notification._job is None:
        raise ConfigError(
            f"{type(notification).__qualname__} does not say over which channels it goes.", hint="Give it a via."
        )
    recipients = [to] if isinstance(to, Notifiable) else list(to)
    if notification_id is not None and len(recipients) != 1:
        raise InvalidInput(
            f"The id {notification_id!r} was given for {len(recipients)} recipients.", hint="Notify them one by one."
        )
    found: list[Dispatch] = []
    for one in recipients:
        recipient, one_id = one.recipient(), notification_id or new_id()
        found += [_job(recipient, notification, channel, one_id) for channel in notification.via(recipient)]
    return found


def _job(to: Recipient, notification: Notification, channel: str, notification_id: str) -> Dispatch:
    if channel not in to.addresses:
        raise InvalidInput(
            f"{type(notification).__qualname__} goes over {channel!r}, on which a recipient has no address.",
            hint="Give it one, or let via leave the channel out.",
        )
    if not callable(getattr(notification, f"to_{channel}", None)):
        notification.message_for(to, channel)  # raises
    made = notification._job(notification=notification, to=to, channel=channel, notification_id=notification_id)
    job: Dispatch = made._dispatch()
    said: Dispatched = {"id": check_id(f"{notification_id}.{channel}"), **notification.per_channel(to, channel)}
    return job.having(**said)


def _in_bulk() -> bool:
    """What may have to wait for a commit is sent one by one."""
    return current_manager().commit_hook is None
