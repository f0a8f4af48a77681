"""`Notification`: what is said, to whom over which channel, and how hard that is tried.

    class InvoicePaid(Notification, queue="notices", tries=3, backoff="1m"):
        invoice_id: int

        def via(self, to: Recipient) -> Sequence[str]:
            return ["mail", "webhook"]

        def to_mail(self, to: Recipient) -> MailMessage: ...
        def to_webhook(self, to: Recipient) -> WebhookMessage: ...

    notify(user, InvoicePaid(invoice_id=42))

Every recipient and channel is a job of its own, so a channel that fails is tried again alone. The class becomes a
dataclass; its keywords are those of a `Job`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Awaitable, Sequence
from typing import Any, ClassVar, Unpack, dataclass_transform

from delayq.core.errors import ConfigError
from delayq.jobs.middleware.forms import Middleware
from delayq.jobs.notifications.recipient import Recipient
from delayq.jobs.options import ClassOptions, Dispatched


@dataclass_transform(kw_only_default=True, field_specifiers=(dataclasses.field,))
class Notification:
    """Base of notification classes. One without `via` is a base for others."""

    _job: ClassVar[Any] = None
    _options: ClassVar[ClassOptions] = {}

    def __init_subclass__(cls, **options: Unpack[ClassOptions]) -> None:
        from delayq.jobs.notifications.job import job_of  # it knows this class

        super().__init_subclass__()
        dataclasses.dataclass(kw_only=True)(cls)
        inherited: ClassOptions = {**cls._options}
        inherited.pop("name", None)
        cls._options = {**inherited, **options}
        cls._job = None if cls.via is Notification.via else job_of(cls, cls._options)

    def via(self, to: Recipient) -> Sequence[str]:
        """The channels for this recipient; asked when the notification is sent."""
        raise ConfigError(f"{type(self).__qualname__} does not say over which channels it goes.", hint="Give it a via.")

    def per_channel(self, to: Recipient, channel: str) -> Dispatched:
        """What is different for one channel: queue, delay, any option of a dispatch. Asked when it is sent."""
        return {}

    def middleware(self, to: Recipient, channel: str) -> Sequence[Middleware]:
        """What surrounds the sending over one channel."""
        return ()

    def should_send(self, to: Recipient, channel: str) -> bool:
        """Asked just before it goes out, on the worker. False: it is skipped."""
        return True

    def failed(self, error: BaseException) -> Awaitable[None] | None:
        """Called when one channel has failed for good; on a fresh instance."""
        return None

    def message_for(self, to: Recipient, channel: str) -> Any:
        """What the channel carries: the answer of `to_<channel>`. Raises `ConfigError` when there is no such method."""
        make = getattr(self, f"to_{channel}", None)
        if make is None:
            raise ConfigError(
                f"{type(self).__qualname__} goes over {channel!r} and has no to_{channel}.",
                hint=f"Give it a method to_{channel}(self, to), which answers with the message.",
            )
        return make(to)
