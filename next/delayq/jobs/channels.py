"""Channels: the objects of the application that send notifications, for example by mail."""

from typing import Any, Final, Protocol

from delayq.core.display import did_you_mean, shown
from delayq.core.errors import InvalidInput
from delayq.jobs.handlers import refuse_async, refuse_generator


class Channel(Protocol):
    """Sends notifications. A worker calls `send` in the thread and context of a job, within the timeout of the job."""

    def send(self, recipient: Any, content: Any) -> None:
        """Send the content that the method `to_<channel>` of the notification returned. Raise an exception to retry."""
        ...


class AsyncChannel(Protocol):
    """A channel with a coroutine function. Each job runs it in an event loop of its own."""

    async def asend(self, recipient: Any, content: Any) -> None:
        """Send the content; see Channel."""
        ...


AnyChannel = Channel | AsyncChannel

_channels: Final[dict[str, AnyChannel]] = {}


def use_channel(name: str, channel: AnyChannel) -> None:
    """Register the channel of a name. Call this in the module that declares the notifications.

    The name is also a part of method names: the channel "mail" sends the content of `to_mail`. An earlier channel of
    this name is replaced. Raises InvalidInput for a name that begins with a digit or has characters other than letters,
    digits and _, for an object that has neither `send` nor `asend`, for an async `send`, and for a generator function.

        use_channel("mail", Mail("smtp.example.org"))
    """
    if not isinstance(name, str) or not name.isidentifier():
        raise InvalidInput(
            f"The channel has the name {shown(name)}.",
            hint="Use letters, digits and _, with no digit at the start, such as 'mail'.",
            field="name",
        )
    if isinstance(channel, type) or not (
        callable(getattr(channel, "send", None)) or callable(getattr(channel, "asend", None))
    ):
        raise InvalidInput(
            f"The channel {name!r} is {shown(channel)}, which cannot send.",
            hint="Use an object with a method `send(recipient, content)` or `async def asend(recipient, content)`.",
            field="channel",
        )
    if callable(send := getattr(channel, "send", None)):
        refuse_async(send, hint="Name the async method `asend`.")
    if callable(asend := getattr(channel, "asend", None)):
        refuse_generator(asend)
    _channels[name] = channel


def channel_of(name: object) -> AnyChannel:
    """Return the channel of a name; raises InvalidInput."""
    if isinstance(name, str) and name in _channels:
        return _channels[name]
    known = ", ".join(sorted(_channels)) or "none"
    raise InvalidInput(
        f"No channel {shown(name)} is known.",
        hint=did_you_mean(str(name), _channels) or f"Register it with use_channel. Known channels: {known}.",
        field="channel",
    )
