"""`notify` dispatches notifications: one job for each recipient and channel, so that each job is retried on its own."""

from collections.abc import Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Unpack

from delayq.core.display import shown
from delayq.core.errors import InvalidInput
from delayq.jobs.channels import channel_of
from delayq.jobs.dispatch import Message, Sendable, adispatch_many, dispatch_many
from delayq.jobs.notification import Notification
from delayq.jobs.options import Said

if TYPE_CHECKING:  # clients import redis-py, which a program that only declares jobs does not need
    from delayq.client import AsyncJobRef, JobRef


def notify(recipients: Any, notification: Notification, **said: Unpack[Said]) -> "list[JobRef]":
    """Send a notification to one recipient, or to a list of recipients, and return the references of its jobs.

    Each recipient and channel gets one job. `via` of the notification returns the channels of a recipient. A recipient
    is a value that JSON can carry, such as a text, a dict, a dataclass or a msgspec Struct. A list, tuple, set or
    iterator means several recipients. The keywords are options of all these jobs, and override the options of the class
    and of its channels; see `Job.dispatch`. All payloads are checked before the first job is sent.

    Raises InvalidInput for an unknown channel, for a channel for which the notification has no method
    `to_<channel>`, and for `id` if there are several jobs. Raises the errors of `dispatch_many`.

        notify(customer, OrderShipped(order_id=42))
        notify([ann, bob], OrderShipped(order_id=42), delay="15m")
    """
    return dispatch_many(_jobs(recipients, notification, said))


async def anotify(recipients: Any, notification: Notification, **said: Unpack[Said]) -> "list[AsyncJobRef]":
    """Send a notification in an event loop; see `notify`."""
    return await adispatch_many(_jobs(recipients, notification, said))


class _Sending(Sendable):
    """The job for one recipient and channel."""

    def __init__(self, message: Message, said: Said) -> None:
        self._given = message
        self._options = said

    def _message(self) -> Message:
        return self._given

    def _said(self) -> Said:
        return self._options


def _jobs(recipients: Any, notification: Notification, said: Said) -> list[Sendable]:
    handler = notification._handler if isinstance(notification, Notification) else None
    if handler is None:
        raise InvalidInput(
            f"notification is {shown(notification)}, and not a notification with a method `via`.",
            hint="Give an object of a class that is derived from Notification: notify(ann, OrderShipped(order_id=42)).",
            field="notification",
        )
    jobs: list[Sendable] = []
    for recipient in _several(recipients):
        for channel in _channels(notification, recipient):
            write = partial(handler.write, notification, recipient, channel)
            options = _over(notification.options.get(channel, {}), said)
            jobs.append(_Sending(Message(handler.name, write, handler.options), options))
    if len(jobs) > 1 and said.get("id") is not None:
        raise InvalidInput(
            f"id is {shown(said['id'])}, but the notification makes {len(jobs)} jobs.",
            hint="Leave out id=, or notify one recipient through one channel.",
            field="id",
        )
    return jobs


def _over(of_channel: Said, said: Said) -> Said:
    """Return the options of a job. If the caller gives a due time, the due time of the channel is dropped."""
    if said.get("delay") is not None or said.get("at") is not None:
        of_channel = {**of_channel, "delay": None, "at": None}
    return {**of_channel, **said}


def _several(recipients: Any) -> Iterable[Any]:
    is_many = isinstance(recipients, list | tuple | set | frozenset) or hasattr(recipients, "__next__")
    return recipients if is_many else [recipients]


def _channels(notification: Notification, recipient: Any) -> Sequence[str]:
    """Return the channels of a recipient; raises InvalidInput for an unusable channel."""
    channels = notification.via(recipient)
    if isinstance(channels, str) or not isinstance(channels, Sequence):
        raise InvalidInput(
            f"{type(notification).__qualname__}.via returned {shown(channels)}.",
            hint='Return a list of channels, such as ["mail"].',
            field="channel",
        )
    for channel in channels:
        channel_of(channel)
        if not callable(getattr(notification, f"to_{channel}", None)):
            raise InvalidInput(
                f"{type(notification).__qualname__} has no method `to_{channel}` for the channel {channel!r}.",
                hint=f"Add `def to_{channel}(self, recipient)`, which returns the content.",
                field="channel",
            )
    return channels
