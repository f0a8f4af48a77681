"""Calls to SQS, and what went wrong with them in delayq's words. Batches of ten, each entry answered for itself."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, NamedTuple, TypeVar

from botocore import exceptions as aws
from botocore import xform_name

from delayq.core.errors import BackendError, BackendUnavailable, ConfigError, DelayqError, InvalidInput, OutcomeUnknown
from delayq.drivers.sqs.clients import Clients
from delayq.drivers.sqs.message import ROOM
from delayq.drivers.sqs.place import BATCH, FIFO, MAX_BYTES, Place

T = TypeVar("T")

ANSWER_S: Final = 5.0
LONG_POLL_S: Final = 1
SEND: Final = "SendMessageBatch"
DELETE: Final = "DeleteMessageBatch"
HIDE: Final = "ChangeMessageVisibilityBatch"
REPEATS: Final = 3
_GONE: Final = ("ReceiptHandleIsInvalid", "MessageNotInflight")
_KEYS: Final = (
    "InvalidClientTokenId",
    "UnrecognizedClientException",
    "SignatureDoesNotMatch",
    "ExpiredToken",
    "ExpiredTokenException",
    "InvalidAccessKeyId",
    "InvalidSecurity",
)
_BUSY: Final = (
    "ThrottlingException",
    "RequestThrottled",
    "Throttling",
    "TooManyRequestsException",
    "ServiceUnavailable",
)
_NEVER_SENT: Final = (aws.EndpointConnectionError, aws.ConnectTimeoutError, aws.ProxyConnectionError)


class Queue(NamedTuple):
    """One queue as SQS knows it. `max_bytes`: the largest message it takes."""

    url: str
    max_bytes: int
    fifo: bool


class Service:
    """The calls of one connection. Clients are made in the process that uses them, and shared by its threads."""

    def __init__(self, place: Place, clients: Clients, answer_ms: int | None = None) -> None:
        self.place = place
        self._made_by = clients
        self._answer_ms = answer_ms
        self._lock = threading.Lock()
        self._pid = 0
        self._clients: dict[bool, Any] = {}
        self._queues: dict[str, Queue] = {}

    def queue(self, name: str) -> Queue:
        """Where a queue is and what it takes; asked once. Raises `ConfigError` for one that is not there."""
        found = self._queues.get(name)
        if found is None:
            url = self._url(name)
            known = self.attributes(url, ["MaximumMessageSize"], queue=name)
            fifo = url.endswith(FIFO)
            found = Queue(url, int(known.get("MaximumMessageSize", MAX_BYTES)), fifo)
            self._queues[name] = found
        return found

    def _url(self, queue: str) -> str:
        """Where a queue is; it is made if it is not there and shall be."""
        name, account = self.place.name(queue), self.place.account
        owner = {"QueueOwnerAWSAccountId": account} if account else {}
        try:
            found = self.call(lambda client: client.get_queue_url(QueueName=name, **owner), queue=queue)
        except NoQueue:
            if not self.place.create:
                raise
            more = {"FifoQueue": "true"} if name.endswith(FIFO) else {}
            found = self.call(lambda client: client.create_queue(QueueName=name, Attributes=more), queue=queue)
        return str(found["QueueUrl"])

    def attributes(self, url: str, names: list[str], *, queue: str) -> dict[str, str]:
        """Attributes of a queue, as text."""
        answer = self.call(lambda client: client.get_queue_attributes(QueueUrl=url, AttributeNames=names), queue=queue)
        found: dict[str, str] = answer.get("Attributes", {})
        return found

    def call(self, do: Callable[[Any], T], *, queue: str = "", once: bool = False) -> T:
        """Do one call. `once`: it is not sent again by itself, and a lost answer is an `OutcomeUnknown`."""
        try:
            return do(self._client(once=once))
        except (aws.BotoCoreError, aws.ClientError) as error:
            raise self._error(error, queue, once=once) from error

    def batch(
        self, operation: str, queue: str, entries: Sequence[dict[str, Any]], *, once: bool = False
    ) -> list[DelayqError | None]:
        """A batch operation on so many entries, ten at a time; None for each that worked, else why it did not.

        What the server blames itself for is asked again. `Gone`: the receipt counts no more. Raises when a whole call
        fails; then nothing is known of what was in it.
        """
        answers: list[DelayqError | None] = [None] * len(entries)
        left = list(range(len(entries)))
        for _ in range(REPEATS):
            failed: list[int] = []
            for numbers in _batches(left, entries, self.queue(queue).max_bytes):
                for number, why in self._ten(operation, queue, {n: entries[n] for n in numbers}, once=once):
                    answers[number] = why
                    if isinstance(why, BackendUnavailable):
                        failed.append(number)
            left = failed
        return answers

    def close(self) -> None:
        """Close all connections; the next call opens new ones."""
        with self._lock:
            clients, self._clients = self._clients, {}
        if self._pid == os.getpid():
            for client in clients.values():
                client.close()

    def _ten(
        self, operation: str, queue: str, entries: dict[int, dict[str, Any]], *, once: bool
    ) -> Iterable[tuple[int, DelayqError | None]]:
        rows = [{"Id": str(number), **entry} for number, entry in entries.items()]
        url = self.queue(queue).url
        answer = self.call(
            lambda client: getattr(client, xform_name(operation))(QueueUrl=url, Entries=rows), queue=queue, once=once
        )
        failed = {int(row["Id"]): row for row in answer.get("Failed", [])}
        done = {int(row["Id"]) for row in answer.get("Successful", [])}
        for number in entries:
            if number in failed:
                yield number, _refusal(operation, failed[number], self.place)
            elif number in done:
                yield number, None
            else:
                yield number, OutcomeUnknown(f"{self.place} did not say what became of a message.")

    def _client(self, *, once: bool) -> Any:
        with self._lock:
            if self._pid != os.getpid():  # connections that a fork has copied are the parent's
                self._pid, self._clients = os.getpid(), {}
            if once not in self._clients:
                self._clients[once] = self._made(once=once)
            return self._clients[once]

    def _made(self, *, once: bool) -> Any:
        answer_s = ANSWER_S if self._answer_ms is None else self._answer_ms / 1000
        attempts = 1 if once or self._answer_ms is not None else REPEATS
        try:
            return self._made_by.make(answer_s=answer_s + LONG_POLL_S, attempts=attempts)
        except aws.BotoCoreError as error:
            raise self._error(error, "", once=False) from error

    def _error(self, error: Exception, queue: str, *, once: bool) -> DelayqError:
        match error:
            case aws.NoCredentialsError() | aws.PartialCredentialsError() | aws.CredentialRetrievalError():
                return ConfigError(
                    f"No AWS credentials were found for {self.place}.",
                    hint="Set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or name a profile.",
                )
            case aws.NoRegionError():
                return ConfigError("No AWS region is known.", hint='Write region = "eu-central-1", or set AWS_REGION.')
            case aws.ProfileNotFound():
                return ConfigError(
                    f"AWS knows no profile {self.place.profile!r} here.", hint="Look into ~/.aws/config."
                )
            case aws.ClientError():
                return self._answered(error, queue)
            case _ if isinstance(error, _NEVER_SENT):
                return BackendUnavailable(
                    f"{self.place} does not answer: {error}", hint="Mend endpoint_url or region, or try again later."
                )
            case aws.HTTPClientError() if once:
                return OutcomeUnknown(f"The answer of {self.place} was lost, so it may have worked: {error}")
            case aws.HTTPClientError():
                return BackendUnavailable(f"{self.place} cannot be talked to: {error}", hint="Try again later.")
            case _:
                return BackendError(f"{self.place}: {error}")

    def _answered(self, error: Any, queue: str) -> DelayqError:
        said = error.response.get("Error", {})
        code, message = str(said.get("Code", "")), str(said.get("Message", ""))
        status = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
        if code.endswith(("NonExistentQueue", "QueueDoesNotExist")):
            self._queues.pop(queue, None)
            name = self.place.name(queue)
            attributes = " --attributes FifoQueue=true" if name.endswith(FIFO) else ""
            return NoQueue(
                f"{self.place} has no queue {name!r}.",
                hint=f"aws sqs create-queue --queue-name {name}{attributes}, or create = true in the connection.",
            )
        if code in _KEYS:
            return ConfigError(f"{self.place} refused the AWS credentials ({code}).", hint="Renew them.")
        if code.startswith("AccessDenied"):
            return ConfigError(
                f"{self.place} denies it: {message}", hint="Give the role sqs:SendMessage, ReceiveMessage and so on."
            )
        if code.endswith("PurgeQueueInProgress"):
            return BackendError(f"The queue {queue!r} was cleared less than a minute ago.", hint="Wait a minute.")
        if code in _BUSY or status >= 500:
            return BackendUnavailable(f"{self.place} has no time ({code}).", hint="Try again later.")
        return BackendError(f"{self.place} answered {code}: {message}")


class NoQueue(ConfigError):
    """The queue is not there."""


class Gone(BackendError):
    """The receipt counts no more."""


def _refusal(operation: str, row: dict[str, Any], place: Place) -> DelayqError:
    code, message = str(row.get("Code", "")), str(row.get("Message", ""))
    if operation != SEND and code.endswith((*_GONE, "InvalidParameterValue")):
        return Gone(f"{place} answered {code}: {message}")
    if not row.get("SenderFault", False):
        return BackendUnavailable(f"{place} could not do it ({code}): {message}", hint="Try again later.")
    return InvalidInput(f"{place} refused a message ({code}): {message}")


def _batches(numbers: Sequence[int], entries: Sequence[dict[str, Any]], limit: int) -> Iterable[list[int]]:
    """Ten at most, and together no larger than one may be."""
    some: list[int] = []
    total = 0
    for number in numbers:
        size = len(str(entries[number].get("MessageBody", "")).encode()) + ROOM
        if some and (len(some) == BATCH or total + size > limit):
            yield some
            some, total = [], 0
        some.append(number)
        total += size
    if some:
        yield some
