"""`Notification`: the base class of messages to people. Each recipient and channel gets a job of its own.

class OrderShipped(Notification, name="order.shipped", tries=3):
    order_id: int

    def via(self, recipient: Customer) -> list[str]: ...
    def to_mail(self, recipient: Customer) -> str: ...

notify(customer, OrderShipped(order_id=42))
"""

import dataclasses
import inspect
from collections.abc import Awaitable, Mapping, Sequence
from typing import Any, ClassVar, Final, Unpack, cast, dataclass_transform, get_type_hints

import msgspec

from delayq.core.control_flow import Discard, JobInterrupted, Snooze
from delayq.core.display import shown
from delayq.core.errors import InvalidInput
from delayq.core.events import NotificationFailed, NotificationSent
from delayq.core.listeners import emit, listeners
from delayq.core.names import check_job_name
from delayq.core.outcome import Policy
from delayq.jobs.channels import channel_of
from delayq.jobs.context import JobContext
from delayq.jobs.handlers import checked_result, origin_of, refuse_async, refuse_generator
from delayq.jobs.job import _fields_of
from delayq.jobs.options import ClassDeclared, JobOptions, Said, check_said
from delayq.jobs.payload import Field, Payload
from delayq.jobs.registry import registry

_ADDED: Final = ("recipient", "channel")
"""Fields of the payload that `notify` adds to the fields of the class."""

channel_options: Final[dict[str, Mapping[str, Said]]] = {}
"""For each name of a notification, its attribute `options`: options of a dispatch by channel."""

_NO_FAILURE: Final = (Snooze, Discard)


@dataclass_transform(kw_only_default=True, field_specifiers=(dataclasses.field,))
class Notification:
    """Derive from this class to declare a notification. `notify` sends it: one job for each recipient and channel.

    Each class becomes a dataclass whose fields are given by keyword, and are sent as in a Job. The class has the same
    keywords as a Job class. They apply to the jobs of all channels. `options` maps channels to options of a dispatch,
    which override the keywords of the class. The annotation of the parameter of `via` is the type of the recipients;
    without an annotation, recipients are plain JSON values. A class without `via` is a base class for other
    notifications.

        class OrderShipped(Notification, name="order.shipped", queue="mail", tries=3):
            options = {"chat": {"queue": "chat", "delay": "1m"}}
            order_id: int

            def via(self, recipient: Customer) -> list[str]:
                return ["mail", "chat"] if recipient.chat else ["mail"]

            def to_mail(self, recipient: Customer) -> str:
                return f"Your order {self.order_id} is on its way."

            def to_chat(self, recipient: Customer) -> str:
                return f"Shipped: {self.order_id}"

    Raises InvalidInput for an option or field that cannot be used.
    """

    job_name: ClassVar[str] = ""
    job_options: ClassVar[JobOptions] = JobOptions()
    options: ClassVar[Mapping[str, Said]] = {}
    _handler: ClassVar["NotificationHandler | None"] = None

    def __init_subclass__(cls, **declared: Unpack[ClassDeclared]) -> None:
        super().__init_subclass__()
        cls.job_name = check_job_name(declared.pop("name", cls.__name__))
        cls.job_options = cls.job_options.over(declared, job_name=cls.job_name)
        dataclasses.dataclass(kw_only=True)(cls)
        _check_class(cls)
        cls._handler = None
        if cls.via is not Notification.via:
            cls._handler = NotificationHandler(cls)
            registry.add(cls._handler)
            channel_options[cls.job_name] = cls.options

    # -- methods that a class may override -----------------------------------------------------------------------------

    def via(self, recipient: Any) -> Sequence[str]:
        """Return the names of the channels for a recipient; [] = send nothing. `notify` calls this method."""
        raise NotImplementedError

    def should_send(self, recipient: Any, channel: str) -> bool:
        """Return False to send nothing; the job is then completed. A worker calls this method right before it sends."""
        return True

    def failed(self, recipient: Any, channel: str, error: BaseException) -> Awaitable[None] | None:
        """Override this hook to act after the job of a channel has failed for good. The hook may be async."""
        return None


class NotificationHandler:
    """Runs the jobs of a notification: creates the object from the payload, and sends it through one channel."""

    wants_context = True
    is_async = False
    has_middleware = False

    def __init__(self, kind: type[Notification]) -> None:
        self.name = kind.job_name
        self.options = kind.job_options
        self.origin = origin_of(kind)
        refuse_async(kind.should_send)
        refuse_generator(kind.failed)
        self.has_failed_hook = kind.failed is not Notification.failed
        self._kind = kind
        fields = _fields_of(cast(Any, kind))
        self._fields = [field.name for field in fields]
        self._payload = Payload(
            self.name, [*fields, Field("recipient", _kind_of_recipient(kind)), Field("channel", str)]
        )
        self.read = self._payload.read
        self.model_fields = self._payload.model_fields
        self.payload_members = self._payload.kinds

    def policy(self, standard: Policy) -> Policy:
        """Return `standard`, overridden by the values that the class declares."""
        return self.options.policy(standard)

    def write(self, notification: Notification, recipient: Any, channel: str) -> msgspec.Raw:
        """Return the payload of the job for one recipient and channel; raises InvalidInput."""
        fields = {name: getattr(notification, name) for name in self._fields}
        return self._payload.write({**fields, "recipient": recipient, "channel": channel})

    def call(self, job: dict[str, Any], context: JobContext | None) -> Awaitable[None] | None:
        """Send the notification. If the channel is async, return a coroutine."""
        return self.call_on(self.instance(job, context), job, context)

    def instance(self, job: dict[str, Any], context: JobContext | None) -> Notification:
        """Create the object of the notification."""
        return self._kind(**{name: job[name] for name in self._fields})

    def call_on(
        self, instance: Notification, job: dict[str, Any], context: JobContext | None
    ) -> Awaitable[None] | None:
        """Send the notification through the channel of the job."""
        try:
            if not checked_result(instance.should_send(job["recipient"], job["channel"])):
                return None
            channel: Any = channel_of(job["channel"])
            content = checked_result(getattr(instance, f"to_{job['channel']}")(job["recipient"]))
            if not callable(getattr(channel, "send", None)):
                return self._asend(channel, content, job, context)
            checked_result(channel.send(job["recipient"], content))
        except (Exception, JobInterrupted) as error:
            self._tell_failed(job, context, error)
            raise
        self._tell_sent(job, context)
        return None

    def failed(self, job: dict[str, Any], error: BaseException, context: JobContext | None) -> Awaitable[None] | None:
        """Create a new object of the notification and call its `failed` hook."""
        return self.instance(job, context).failed(job["recipient"], job["channel"], error)

    async def _asend(self, channel: Any, content: Any, job: dict[str, Any], context: JobContext | None) -> None:
        try:
            await channel.asend(job["recipient"], content)
        except (Exception, JobInterrupted) as error:
            self._tell_failed(job, context, error)
            raise
        self._tell_sent(job, context)

    def _tell_sent(self, job: dict[str, Any], context: JobContext | None) -> None:
        if NotificationSent in listeners:
            emit(NotificationSent(*self._facts(job, context)))

    def _tell_failed(self, job: dict[str, Any], context: JobContext | None, error: BaseException) -> None:
        if NotificationFailed in listeners and not isinstance(error, _NO_FAILURE):
            emit(NotificationFailed(*self._facts(job, context), f"{type(error).__name__}: {error}"))

    def _facts(self, job: dict[str, Any], context: JobContext | None) -> tuple[str, str, str, Any]:
        recipient = msgspec.json.decode(self._payload.write(job))["recipient"]
        return "" if context is None else context.id, self.name, job["channel"], recipient


def _kind_of_recipient(kind: type[Notification]) -> Any:
    """Return the annotation of the parameter of `via`, whatever its name is."""
    is_bound = isinstance(inspect.getattr_static(kind, "via"), classmethod | staticmethod)
    parameters = list(inspect.signature(kind.via).parameters)[0 if is_bound else 1 :]
    try:
        return get_type_hints(kind.via, include_extras=True).get(parameters[0], Any) if parameters else Any
    except (NameError, TypeError) as error:
        raise InvalidInput(
            f"The annotations of {kind.__qualname__}.via cannot be read: {error}.",
            hint="Import or declare the types at the top level of the module, outside of `if TYPE_CHECKING`.",
            field="recipient",
        ) from None


def _check_class(kind: type[Notification]) -> None:
    """Refuse fields whose names the payload or the base class already uses, and unknown dispatch options."""
    for field in dataclasses.fields(kind):  # type: ignore[arg-type]
        if field.name in _ADDED or hasattr(Notification, field.name):
            raise InvalidInput(
                f"The name of the field {field.name!r} of {kind.__qualname__} is reserved for delayq.",
                hint=f"Rename it, for example to {field.name}_.",
                field="data",
            )
    if not isinstance(kind.options, Mapping) or not all(isinstance(one, Mapping) for one in kind.options.values()):
        raise InvalidInput(
            f"options of {kind.__qualname__} is {shown(kind.options)}.",
            hint='Give the options of a dispatch by channel, such as {"mail": {"queue": "mail"}}.',
            field="options",
        )
    for said in kind.options.values():
        check_said(said, job_name=kind.job_name)
