"""Notifications: one job for each recipient and channel, and what a worker does with it."""

import asyncio
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, ClassVar, cast

import msgspec
import pytest
import sqlalchemy as sa
import sqlalchemy.orm as sa_orm

from delayq import (
    Channel,
    DelayQ,
    InvalidInput,
    JobDispatched,
    JobEnded,
    Manager,
    Next,
    Notification,
    NotificationFailed,
    NotificationSent,
    RunningJob,
    Snooze,
    anotify,
    listener,
    notify,
    queued_listener,
    use_channel,
    using_manager,
)
from delayq.core.outcome import Done, GiveUp, RunAgain
from delayq.jobs import channels
from delayq.jobs.application import queues_of_application
from delayq.jobs.options import Said
from delayq.testing import Fake, run_job

pytestmark = pytest.mark.usefixtures("no_listeners")

WRONG: Any = "no notification"


@dataclass
class Customer:
    address: str
    chat: bool = False


class Kept:
    """A channel that keeps what it sends."""

    def __init__(self) -> None:
        self.sent: list[tuple[Any, Any]] = []
        self.error: BaseException | None = None

    def send(self, recipient: Any, content: Any) -> None:
        if self.error is not None:
            raise self.error
        self.sent.append((recipient, content))


class AsyncKept(Kept):
    send: Any = None

    async def asend(self, recipient: Any, content: Any) -> None:
        await asyncio.sleep(0)
        Kept.send(self, recipient, content)


class Shipped(Notification, name="note.shipped", queue="notes", delay="1h", tries=4):
    options: ClassVar[Mapping[str, Said]] = {"chat": {"queue": "chat", "tries": 2}}
    order_id: int
    by: str = "bike"

    def via(self, recipient: Customer) -> list[str]:
        return ["mail", "chat"] if recipient.chat else ["mail"]

    def to_mail(self, recipient: Customer) -> str:
        return f"Order {self.order_id} comes to {recipient.address} by {self.by}"

    def to_chat(self, recipient: Customer) -> dict[str, int]:
        return {"order": self.order_id}


class Quiet(Shipped, name="note.quiet"):
    told: list[Any]

    def should_send(self, recipient: Customer, channel: str) -> bool:
        return recipient.address != "nowhere"

    def failed(self, recipient: Customer, channel: str, error: BaseException) -> None:
        FAILED.append((recipient, channel, str(error)))


FAILED: list[Any] = []
ANN = Customer("ann@example.org")
BOB = Customer("bob@example.org", chat=True)


@pytest.fixture
def mail(monkeypatch: pytest.MonkeyPatch) -> Iterator[Kept]:
    monkeypatch.setattr(channels, "_channels", {})
    mail = Kept()
    use_channel("mail", mail)
    use_channel("chat", AsyncKept())
    yield mail


def payload(recipient: Customer, channel: str = "mail", **fields: Any) -> dict[str, Any]:
    return {"order_id": 42, "recipient": msgspec.to_builtins(recipient), "channel": channel, **fields}


def test_the_annotation_of_the_recipient_counts_whatever_its_name_is() -> None:
    class Named(Notification, name="note.named"):
        def via(self, customer: Customer, /) -> list[str]:
            return ["mail"]

    class Static(Notification, name="note.static"):
        @staticmethod
        def via(to: Customer) -> list[str]:
            return ["mail"]

    class OfClass(Notification, name="note.of_class"):
        @classmethod
        def via(cls, to: Customer) -> list[str]:
            return ["mail"]

    class Plain(Notification, name="note.plain"):
        def via(self, anybody, /):  # type: ignore[no-untyped-def]
            return ["mail"]

    kinds = [cast(Any, kind)._handler.payload_members["recipient"] for kind in (Named, Static, OfClass, Plain)]
    assert kinds == [Customer, Customer, Customer, Any]


def test_each_recipient_and_channel_gets_a_job_with_its_options(sent: DelayQ, mail: Kept) -> None:
    refs = notify([ANN, BOB], Shipped(order_id=42), tags=["a"])
    assert [ref.queue for ref in refs] == ["notes", "notes", "chat"]
    jobs = [ref.refresh() for ref in refs]
    assert [job.data for job in jobs if job] == [
        payload(ANN, by="bike"),
        payload(BOB, by="bike"),
        payload(BOB, "chat", by="bike"),
    ]
    envelopes = [json.loads(job.raw) for job in jobs if job]
    assert {(job["name"], *job["tags"]) for job in envelopes} == {("note.shipped", "a")}
    assert [job.get("tries") for job in envelopes] == [None, None, 2]


def test_options_of_the_call_come_first(sent: DelayQ, mail: Kept) -> None:
    refs = notify(BOB, Shipped(order_id=42), queue="other", delay="2h", tries=9)
    assert [ref.queue for ref in refs] == ["other", "other"]
    tomorrow = datetime.now(UTC).replace(microsecond=0) + timedelta(days=1)
    (ref,) = notify(ANN, Shipped(order_id=42), id="shipped-42", at=tomorrow)
    assert (ref.id, ref.due_ms) == ("shipped-42", tomorrow.timestamp() * 1000)


def test_notifications_wait_for_a_commit(sent: DelayQ, mail: Kept) -> None:
    dispatched: list[JobDispatched] = []
    listener(JobDispatched)(dispatched.append)
    with sa_orm.Session(sa.create_engine("sqlite://")) as session:
        session.execute(sa.text("select 1"))
        refs = notify(BOB, Shipped(order_id=42), within=session)
        assert {ref.outcome for ref in refs} == {"after commit"}
        assert dispatched == []
        session.commit()
    assert [one.id for one in dispatched] == [ref.id for ref in refs]


def test_anotify_does_the_same(manager: Manager, mail: Kept) -> None:
    async def send() -> list[str]:
        refs = await anotify((one for one in (ANN, BOB)), Shipped(order_id=1))
        await manager.connection().aclient.close()
        return [ref.queue for ref in refs]

    assert asyncio.run(send()) == ["notes", "notes", "chat"]


def test_the_fake_records_notifications(delayq_fake: Fake, mail: Kept, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DELAYQ_URL", "redis://127.0.0.1:1/0")
    with using_manager(Manager()):
        notify(ANN, Shipped(order_id=42))
    delayq_fake.assert_pushed(Shipped, lambda job: job.data["channel"] == "mail")
    delayq_fake.assert_not_pushed(Quiet)


def test_a_worker_sends_the_content_of_its_channel(manager: Manager, mail: Kept) -> None:
    assert isinstance(run_job("note.shipped", payload(ANN)).outcome, Done)
    assert mail.sent == [(ANN, "Order 42 comes to ann@example.org by bike")]
    assert isinstance(run_job("note.shipped", payload(BOB, "chat")).outcome, Done)
    chat: Any = channels.channel_of("chat")
    assert chat.sent == [(BOB, {"order": 42})]


def test_a_recipient_may_refuse_at_the_last_moment(manager: Manager, mail: Kept) -> None:
    assert isinstance(run_job("note.quiet", payload(Customer("nowhere"), told=[])).outcome, Done)
    assert mail.sent == []


@pytest.mark.parametrize("channel", ["mail", "chat"])
def test_a_channel_that_fails_is_retried_and_then_fails(manager: Manager, mail: Kept, channel: str) -> None:
    events: list[Any] = []
    listener(NotificationFailed)(events.append)
    listener(NotificationSent)(events.append)
    broken: Any = channels.channel_of(channel)
    broken.error = OSError("no route")
    FAILED.clear()
    first = run_job("note.quiet", payload(BOB, channel, told=[]), id="n-1")
    assert (type(first.outcome), FAILED) == (RunAgain, [])
    last = run_job("note.quiet", payload(BOB, channel, told=[]), attempts=3, id="n-1")
    assert (type(last.outcome), FAILED) == (GiveUp, [(BOB, channel, "no route")])
    recipient = {"address": "bob@example.org", "chat": True}
    assert events == [NotificationFailed("n-1", "note.quiet", channel, recipient, "OSError: no route")] * 2
    broken.error = Snooze("1m")
    run_job("note.quiet", payload(BOB, channel, told=[]))
    broken.error = None
    run_job("note.quiet", payload(BOB, channel, told=[]), id="n-2")
    assert events[2:] == [NotificationSent("n-2", "note.quiet", channel, recipient)]


def test_the_events_can_be_heard_by_jobs(sent: DelayQ, mail: Kept) -> None:
    @queued_listener(NotificationSent, name="note.sent", delay="1h")
    def note(event: NotificationSent) -> None:
        pass

    run_job("note.shipped", payload(ANN), id="n-1")
    (job,) = sent.iter_jobs("scheduled")
    assert job.name == "note.sent"
    assert job.data["event"]["recipient"] == {"address": "ann@example.org", "chat": False}


def test_the_jobs_run_in_middleware_and_emit_events(manager: Manager, mail: Kept) -> None:
    seen: list[Any] = []
    listener(JobEnded)(lambda event: seen.append(event.outcome))

    class Timed:
        def handle(self, job: RunningJob, next: Next) -> Any:
            seen.append((type(job.instance).__name__, job.data["channel"]))
            return next(job)

    class Tidy(Shipped, name="note.tidy", middleware=[Timed()]):
        pass

    run_job("note.tidy", payload(BOB, "chat"))
    assert seen == [("Tidy", "chat"), "done"]


def test_a_base_class_is_no_notification(mail: Kept) -> None:
    class Base(Notification):
        order_id: int

    with pytest.raises(InvalidInput, match="and not a notification with a method `via`") as raised:
        notify(ANN, Base(order_id=1))
    assert raised.value.field == "notification"
    with pytest.raises(InvalidInput, match="notification is 'no notification'"):
        notify(ANN, WRONG)


def test_what_cannot_be_sent_is_refused_before_anything_is_sent(sent: DelayQ, mail: Kept) -> None:
    class Odd(Shipped, name="note.odd"):
        ways: Any

        def via(self, recipient: Customer) -> list[str]:
            ways: list[str] = self.ways
            return ways

    for ways, told in {
        ("sms",): r"No channel 'sms' is known\. Register it with use_channel\. Known channels: chat, mail\.",
        ("mial",): r"No channel 'mial' is known\. Did you mean mail\?",
        "mail": r"Odd\.via returned 'mail'\. Return a list of channels",
    }.items():
        with pytest.raises(InvalidInput, match=told) as raised:
            notify([ANN, BOB], Odd(order_id=1, ways=ways))
        assert raised.value.field == "channel"
    use_channel("sms", mail)
    with pytest.raises(InvalidInput, match=r"has no method `to_sms` for the channel 'sms'\. Add `def to_sms"):
        notify(ANN, Odd(order_id=1, ways=["mail", "sms"]))
    with pytest.raises(InvalidInput, match="id is 'x', but the notification makes 2 jobs"):
        notify(BOB, Shipped(order_id=1), id="x")
    with pytest.raises(InvalidInput, match=r"The field 'recipient' of 'note\.loose' is a Customer, but a worker would"):
        notify(["ann", ANN], Loose(order_id=1))
    assert sent.queues() == []


class Loose(Shipped, name="note.loose"):
    def via(self, recipient: Any) -> list[str]:
        return ["mail"]


def test_declarations_that_cannot_be_used_are_refused() -> None:
    with pytest.raises(InvalidInput, match=r"The name of the field 'channel' of .* is reserved for delayq"):

        class Clashing(Notification, name="note.clashing"):
            channel: str

    with pytest.raises(InvalidInput, match=r"A dispatch of the job 'note\.queues' has no option 'queues'"):

        class Misspelt(Notification, name="note.queues"):
            options: ClassVar[Any] = {"mail": {"queues": "mail"}}

    with pytest.raises(InvalidInput, match=r"options of .* is 'mail'"):

        class Text(Notification, name="note.text"):
            options: ClassVar[Any] = "mail"


@pytest.mark.parametrize("name", ["", "a b", 3])
def test_a_channel_needs_a_name(name: Any) -> None:
    with pytest.raises(InvalidInput, match="The channel has the name") as raised:
        use_channel(name, Kept())
    assert raised.value.field == "name"


@pytest.mark.parametrize("channel", [object(), Kept])
def test_a_channel_needs_a_method(channel: Any) -> None:
    with pytest.raises(
        InvalidInput, match=r"The channel 'mail' is .*, which cannot send\. Use an object with a method"
    ):
        use_channel("mail", channel)


def test_the_protocol_fits() -> None:
    channel: Channel = Kept()
    assert channel


def test_a_worker_serves_the_queues_of_the_channels(manager: Manager) -> None:
    class Served(Notification, name="note.served", queue="served-notes"):
        options: ClassVar[Mapping[str, Said]] = {"mail": {"queue": "served-mail"}}

        def via(self, recipient: str) -> list[str]:
            return ["mail"]

    assert {"served-notes", "served-mail"} <= set(queues_of_application())


def test_a_channel_or_hook_whose_code_would_not_run_is_refused() -> None:
    class Mail:
        async def send(self, recipient: Any, content: Any) -> None: ...

    with pytest.raises(InvalidInput, match=r"Mail.send is async, .* Name the async method `asend`\."):
        use_channel("unrun", Mail())  # type: ignore[arg-type]

    class Chat:
        async def asend(self, recipient: Any, content: Any) -> Any:
            yield

    with pytest.raises(InvalidInput, match=r"Chat.asend is a generator function"):
        use_channel("unrun", Chat())

    with pytest.raises(InvalidInput, match=r"Asked.should_send is async, .* Remove `async`"):

        class Asked(Notification, name="unrun.asked"):
            def via(self, recipient: Any) -> list[str]:
                return []

            async def should_send(self, recipient: Any, channel: str) -> bool:  # type: ignore[override]
                return False


def test_a_channel_that_only_makes_a_coroutine_has_not_sent(manager: Manager) -> None:
    class Mail:
        def send(self, recipient: Any, content: Any) -> Any:
            return asyncio.sleep(0)

    use_channel("unsent", Mail())

    class Told(Notification, name="unsent.told"):
        def via(self, recipient: Any) -> list[str]:
            return ["unsent"]

        def to_unsent(self, recipient: Any) -> str:
            return "hello"

    error = run_job(Told._handler.name, {"recipient": "ann", "channel": "unsent"}).error  # type: ignore[union-attr]
    assert isinstance(error, TypeError) and "returned a coroutine" in str(error)
