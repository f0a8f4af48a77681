"""The executor: what is sent again, and what is not."""

import re
import time
from collections.abc import Callable
from typing import Any

import pytest
import redis
from redis.exceptions import NoScriptError, ResponseError

from delayq import DelayQ
from delayq.core.errors import BackendFull, BackendUnavailable, CallRefused, ConfigError, LoginRefused, OutcomeUnknown
from delayq.core.options import Options
from delayq.redis.calls.call import Call, command, read, script_call, value_of
from delayq.redis.connection.errors import NOT_READY
from delayq.redis.connection.executor import Started
from delayq.redis.connection.leaf import ConnectionLost, drive
from delayq.redis.connection.server import ServerExecutor
from delayq.redis.keys import Keys
from delayq.redis.operations.operations import Operations
from delayq.redis.scripts import load
from delayq.redis.session import Session

LOST_BEFORE = ConnectionLost("refused", sent=False)
LOST_AFTER = ConnectionLost("reset", sent=True)


class FakeLeaf:
    """Answers each exchange with the next of its answers; the last one stands for all that follow. Time is a number."""

    def __init__(self, *answers: list[Any] | ConnectionLost | LoginRefused) -> None:
        self._answers = list(answers)
        self.requests: list[bytes] = []
        self.now = 0.0
        self.closed = 0
        self.loses_requests = False
        self.seconds_per_lost_try = 0.0

    where = "redis://test"

    async def send(self, request: bytes, *, within: float | None = None) -> None:
        self.requests.append(request)
        if self.loses_requests:
            raise ConnectionLost("reset", sent=True)

    async def receive(
        self, connection: None, replies: int, *, block: float = 0.0, within: float | None = None
    ) -> list[Any]:
        answer = self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]
        if isinstance(answer, ConnectionLost):
            self.now += self.seconds_per_lost_try
            raise answer
        if isinstance(answer, LoginRefused):
            raise answer
        return answer

    async def sleep(self, seconds: float) -> None:
        self.now += seconds

    async def close(self) -> None:
        self.closed += 1

    def run(self, *calls: Call[Any]) -> list[Any]:
        return [value_of(outcome) for outcome in self.outcomes(*calls)]

    def outcomes(self, *calls: Call[Any]) -> list[Any]:
        executor = ServerExecutor(self, clock=lambda: self.now)
        return drive(executor.run_all(calls))


READ = read("GET", "a", parse=bytes)
COUNT = command("INCR", "a", parse=int, repeatable=False)
COUNT_BY_HAND = command("SET", "a", 7, parse=int)
BUSY = ResponseError("BUSY Redis is busy running a script.")
RUN_NOW: dict[str, Any] = {"now": "", "queue": "q", "wake": "w", "high_water": 1, "id": "a"}


def test_what_was_not_sent_is_sent_again() -> None:
    assert FakeLeaf(LOST_BEFORE, LOST_BEFORE, [7]).run(COUNT) == [7]


def test_what_was_sent_is_sent_again_when_that_does_no_harm() -> None:
    assert FakeLeaf(LOST_AFTER, [b"x"]).run(READ) == [b"x"]


def test_a_lost_answer_leaves_the_outcome_unknown() -> None:
    leaf = FakeLeaf(LOST_AFTER, [7])
    with pytest.raises(OutcomeUnknown):
        leaf.run(COUNT)
    assert len(leaf.requests) == 1


def test_a_refused_login_after_a_lost_answer_leaves_the_outcome_unknown() -> None:
    refused = LoginRefused("Redis is a sentinel. The request was not sent.", hint="Write its url.")
    with pytest.raises(OutcomeUnknown, match=r"did not reply to a call, and then refused the login\. The") as unknown:
        FakeLeaf(LOST_AFTER, refused).run(COUNT_BY_HAND)
    assert isinstance(unknown.value.__cause__, LoginRefused)
    for lost, call in ((LOST_BEFORE, COUNT_BY_HAND), (LOST_AFTER, READ)):
        with pytest.raises(LoginRefused):
            FakeLeaf(lost, refused).run(call)


@pytest.mark.parametrize(("lost", "error"), [(LOST_BEFORE, BackendUnavailable), (LOST_AFTER, OutcomeUnknown)])
def test_patience_ends_after_five_seconds(lost: ConnectionLost, error: type[Exception]) -> None:
    leaf = FakeLeaf(lost)
    with pytest.raises(error):
        leaf.run(COUNT_BY_HAND)
    assert 4.5 <= leaf.now <= 5.0


@pytest.mark.parametrize(("call", "error"), [(READ, BackendUnavailable), (COUNT_BY_HAND, OutcomeUnknown)])
def test_a_server_that_hangs_is_given_up_after_five_seconds(call: Call[Any], error: type[Exception]) -> None:
    leaf = FakeLeaf(LOST_AFTER)
    leaf.seconds_per_lost_try = 2.0
    with pytest.raises(error):
        leaf.run(call)
    assert leaf.now <= 5.0


READS: dict[str, Callable[[Operations[Any]], Any]] = {
    "get": lambda client: client.get("a"),
    "wait": lambda client: client.wait("a", timeout="1m"),
    "list_jobs": lambda client: client.list_jobs("ready"),
    "iter_failed": lambda client: anext(client.iter_failed()),
    "queues": lambda client: client.queues(),
    "stats": lambda client: client.stats("orders"),
    "upcoming": lambda client: client.upcoming("orders"),
    "queue_show": lambda client: client.queue_show("orders"),
    "workers": lambda client: client.workers(),
    "control": lambda client: client.control(),
}
WRITES: dict[str, Callable[[Operations[Any]], Any]] = {
    "schedule": lambda client: client.schedule("n"),
    "cancel": lambda client: client.cancel("a"),
    "pause_all": lambda client: client.pause_all(),
    "forget": lambda client: client.forget("a"),
}


@pytest.mark.parametrize("name", [*READS, *WRITES])
def test_only_what_changes_something_may_have_an_unknown_outcome(name: str) -> None:
    leaf = FakeLeaf(LOST_AFTER)
    session = Session(ServerExecutor(leaf, clock=lambda: leaf.now), Keys("test"), Options())
    operation = {**READS, **WRITES}[name]
    with pytest.raises(BackendUnavailable if name in READS else OutcomeUnknown) as lost:
        drive(operation(Operations(session, lambda *_: None)))
    assert "was not sent" not in str(lost.value)


@pytest.mark.parametrize(
    ("reason", "hint"),
    [
        (
            "self-signed certificate",
            "In the url, name the file with the CA certificate of the server: ?ssl_ca_certs=/path/ca.pem.",
        ),
        ("unable to get local issuer certificate", "of the server: ?ssl_ca_certs=/path/ca.pem."),
        (
            "IP address mismatch, certificate is not valid for '10.0.0.1'. ",
            "In the url, use a host that the server's certificate names.",
        ),
        ("Hostname mismatch, certificate is not valid for 'db'. ", "use a host that the server's certificate names."),
        ("certificate has expired", "Renew the certificate of the server."),
    ],
)
def test_a_certificate_that_is_refused_has_a_hint_of_its_own(reason: str, hint: str) -> None:
    failure = f"[SSL: CERTIFICATE_VERIFY_FAILED] certificate verify failed: {reason} (_ssl.c:1006)"
    with pytest.raises(BackendUnavailable) as lost:
        FakeLeaf(ConnectionLost(failure, sent=False)).run(READ)
    assert hint in lost.value.hint


def test_that_a_request_was_not_sent_is_told_of_what_changes_something() -> None:
    not_sent = "cannot be reached: refused. The request was not sent. Check"
    for call, sentence in ((READ, "cannot be reached: refused. Check"), (COUNT, not_sent)):
        with pytest.raises(BackendUnavailable, match=re.escape(sentence)):
            FakeLeaf(LOST_BEFORE).run(call)


def test_a_script_that_the_server_lacks_is_sent_as_text() -> None:
    script = load("renew")
    call = script_call(script, ("a", "b", "c"), lambda reply: reply, repeatable=True, consumer="me")
    leaf = FakeLeaf([b"x", NoScriptError("NOSCRIPT")], [[0]])
    assert leaf.run(READ, call) == [b"x", [0]]
    assert leaf.requests[1].startswith(b"*7\r\n$4\r\nEVAL\r\n")


def test_a_call_that_is_refused_leaves_the_others_their_answers() -> None:
    first, refused, last = FakeLeaf([7, ResponseError("WRONGTYPE"), b"x"]).outcomes(COUNT, READ, READ)
    assert (first, last) == (7, b"x")
    assert isinstance(refused, CallRefused)


def test_a_script_text_that_is_lost_leaves_the_others_their_answers() -> None:
    call = script_call(load("renew"), ("a", "b", "c"), lambda reply: reply, repeatable=True, consumer="me")
    first, lost = FakeLeaf([7, NoScriptError("NOSCRIPT")], LOST_AFTER).outcomes(COUNT, call)
    assert first == 7
    assert isinstance(lost, OutcomeUnknown)


def test_a_script_that_the_server_lacks_may_be_not_ready_and_still_runs_once() -> None:
    call = script_call(load("run_now"), ("a",) * 8, lambda reply: reply, repeatable=False, **RUN_NOW)
    leaf = FakeLeaf([NoScriptError("NOSCRIPT")], [BUSY], [b"ready"])
    assert leaf.run(call) == [b"ready"]
    assert [request.split(b"\r\n")[2] for request in leaf.requests] == [b"EVALSHA", b"EVAL", b"EVAL"]


@pytest.mark.parametrize("code", sorted(NOT_READY))
def test_a_call_that_meets_a_server_that_is_not_ready_is_asked_again(code: str) -> None:
    leaf = FakeLeaf([7, ResponseError(f"{code} wait"), b"x"], [ResponseError(f"{code} wait")], [8])
    assert leaf.run(COUNT, COUNT, READ) == [7, 8, b"x"]
    assert [request.count(b"INCR") for request in leaf.requests] == [2, 1, 1]


@pytest.mark.parametrize(("code", "closed"), [("READONLY", 1), ("MASTERDOWN", 1), ("UNBLOCKED", 1), ("BUSY", 0)])
def test_a_replica_is_asked_again_over_a_new_connection_which_may_lead_to_the_primary(code: str, closed: int) -> None:
    leaf = FakeLeaf([ResponseError(f"{code} wait")], [8])
    assert leaf.run(COUNT) == [8]
    assert leaf.closed == closed


def test_a_server_that_is_not_ready_for_five_seconds_is_unavailable() -> None:
    leaf = FakeLeaf([BUSY])
    with pytest.raises(BackendUnavailable, match=r"Redis at redis://test is not ready: it is busy with a"):
        leaf.run(COUNT)
    assert 4.5 <= leaf.now <= 5.0


def test_an_answer_that_is_lost_after_not_ready_leaves_the_outcome_unknown() -> None:
    first, lost = FakeLeaf([b"x", BUSY], LOST_AFTER).outcomes(READ, COUNT)
    assert first == b"x"
    assert isinstance(lost, OutcomeUnknown)


def test_a_lost_answer_among_tries_that_were_not_sent_leaves_the_outcome_unknown() -> None:
    with pytest.raises(OutcomeUnknown):
        FakeLeaf(LOST_BEFORE, LOST_AFTER, LOST_BEFORE).run(COUNT)


def test_a_trip_is_sent_again_only_when_all_its_calls_may_be() -> None:
    assert FakeLeaf(LOST_AFTER, [b"x", b"y"]).run(READ, READ) == [b"x", b"y"]
    with pytest.raises(OutcomeUnknown):
        FakeLeaf(LOST_AFTER, [b"x", 7]).run(READ, COUNT)


@pytest.mark.parametrize(
    ("reply", "error", "sentence"),
    [
        ("OOM command not allowed when used memory > 'maxmemory'.", BackendFull, "has reached its memory limit."),
        ("ERR Error running script: OOM command not allowed", BackendFull, "Raise maxmemory, or let workers drain"),
        ("WRONGTYPE Operation against a key", CallRefused, "refused GET: WRONGTYPE Operation against a key. Another"),
        ("NOPERM this user has no permissions", CallRefused, "Allow it in the ACL of this user"),
        (
            "ACL failure in script: No permissions to access a channel script: on @user_script:1.",
            CallRefused,
            "refused GET: ACL failure in script: No permissions to access a channel. Allow it in the ACL of this user",
        ),
        (
            "ERR Error running script (call to f_1): @user_script:35: WRONGTYPE Operation against a key",
            CallRefused,
            "refused GET: WRONGTYPE Operation against a key. Another",
        ),
        (
            "ERR unknown command 'GET', with args beginning with: 'key' ",
            CallRefused,
            "refused GET: ERR unknown command 'GET'. If this is the address of a sentinel, write redis+sentinel://",
        ),
    ],
)
def test_an_error_says_what_to_do_next(reply: str, error: type[Exception], sentence: str) -> None:
    leaf = FakeLeaf([ResponseError(reply)])
    with pytest.raises(error, match=re.escape(sentence)):
        leaf.run(READ)
    assert len(leaf.requests) == 1


def test_a_script_in_an_old_server_words_its_errors_by_another_prefix() -> None:
    words = "Error running script (call to f_1): @user_script:9: -BUSY Redis is busy running a script"
    assert FakeLeaf([ResponseError(words)], [7]).run(COUNT) == [7]


def started_and_finished(leaf: FakeLeaf, *calls: Call[Any]) -> list[Any]:
    executor = ServerExecutor(leaf, clock=lambda: leaf.now)
    started = drive(executor.start(calls))
    leaf.loses_requests = False
    return drive(executor.finish(started))


def test_a_trip_that_is_started_ends_as_one_that_is_run() -> None:
    assert started_and_finished(FakeLeaf([7, b"x"]), COUNT, READ) == [7, b"x"]
    assert started_and_finished(FakeLeaf(LOST_AFTER, [b"x"]), READ) == [b"x"]
    assert started_and_finished(FakeLeaf([7])) == []
    with pytest.raises(OutcomeUnknown):
        started_and_finished(FakeLeaf(LOST_AFTER, [7]), COUNT)


def test_a_trip_that_broke_off_while_it_was_sent_is_not_sent_twice() -> None:
    leaf = FakeLeaf([7])
    leaf.loses_requests = True
    with pytest.raises(OutcomeUnknown):
        started_and_finished(leaf, COUNT)
    assert len(leaf.requests) == 1
    leaf.loses_requests = True
    assert started_and_finished(leaf, COUNT_BY_HAND) == [7]


def test_no_calls_make_no_trip() -> None:
    leaf = FakeLeaf([])
    assert (leaf.outcomes(), leaf.requests) == ([], [])


def test_a_wrong_password_is_told_at_once(url: str, server: redis.Redis) -> None:
    server.config_set("requirepass", "secret")
    try:
        started = time.monotonic()
        with pytest.raises(ConfigError, match="refused the login"):
            DelayQ(url.replace("unix://", "unix://:wrong@")).stats()
        assert time.monotonic() - started < 1
    finally:
        server.config_set("requirepass", "")


def test_a_started_trip_whose_answer_was_lost_is_never_told_as_not_sent() -> None:
    leaf = FakeLeaf(LOST_AFTER, LOST_BEFORE)
    executor = ServerExecutor(leaf, clock=lambda: leaf.now)
    started = Started([COUNT_BY_HAND], "a connection")
    with pytest.raises(OutcomeUnknown):
        drive(executor.finish(started))
