"""Laravel's payloads on beanstalkd and SQS: made and run by Illuminate's own classes, run and made by delayq."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, Protocol

import greenstalk
import pytest

from delayq.core.errors import DelayqError, InvalidInput
from delayq.core.followups import Chain, Link
from delayq.core.outcome import GiveUp
from delayq.core.sealing import open_data
from delayq.core.states import State
from delayq.drivers.serving.connection import BrokerConnection
from delayq.jobs.current import current_manager
from delayq.jobs.running import LocalRunner
from delayq.manager import Manager
from delayq.settings import Settings
from tests.laravel.side import PythonSide, again, data_of, envelope_of, give_up
from tests.support.beanstalkd import Beanstalkd
from tests.support.cli import Cli, environment
from tests.support.keys import key, ring
from tests.support.laravel import PATIENCE_S, php, told
from tests.support.sqs import Sqs, sqs
from tests.support.waiting import wait_until

PROGRAM = Path(__file__).parent / "php" / "bodies.php"
ORDER = {"order_id": 42, "name": "käse \U0001f9c0", "lines": [], "paid": 12.5, "none": None}


def in_php(*words: str, given: str = "") -> str:
    """What Illuminate's classes say."""
    program = php(("Queue",), ())
    done = subprocess.run(
        [program, str(PROGRAM), *words], input=given, capture_output=True, text=True, timeout=PATIENCE_S, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def made(**wish: Any) -> str:
    """A payload as Laravel makes it."""
    return in_php("make", given=json.dumps(wish) + "\n").rstrip("\n")


class Place(Protocol):
    """A server that both use, in the hands of a test. The queue is `orders`."""

    options: dict[str, Any]

    def put(self, body: str, delay_s: int = 0) -> None:
        """As Laravel's connection sends a body."""

    def run(self) -> list[dict[str, Any]]:
        """As a worker of Laravel's takes one job and runs it."""

    def bodies(self) -> list[str]:
        """Take out what is ready."""


class OnBeanstalkd:
    def __init__(self, server: Beanstalkd, folder: Path) -> None:
        self._server = server
        url = f"beanstalkd://{server.address}"
        self.options = {"driver": "beanstalkd", "url": url, "laravel": "beanstalkd", "failed": str(folder)}

    def put(self, body: str, delay_s: int = 0) -> None:
        with self._server.client("orders") as client:
            client.put(body.encode(), 1024, delay_s, 90)  # pheanstalk's priority, Laravel's retry_after

    def run(self) -> list[dict[str, Any]]:
        return told(in_php("beanstalkd", str(self._server.port), "orders"))

    def bodies(self) -> list[str]:
        found = []
        with self._server.client("orders") as client:
            try:
                while True:
                    found.append(client.reserve(0))
                    client.delete(found[-1])
            except greenstalk.TimedOutError:
                return [job.body.decode() for job in found]


class OnSqs:
    def __init__(self, server: Sqs, folder: Path) -> None:
        self._server = server
        self._url = server.make("orders")
        self.options = {**server.options, "laravel": "sqs", "failed": str(folder)}

    def put(self, body: str, delay_s: int = 0) -> None:
        with self._server.client() as client:
            client.send_message(QueueUrl=self._url, MessageBody=body, DelaySeconds=delay_s)

    def run(self) -> list[dict[str, Any]]:
        with self._server.client() as client:
            counted = "ApproximateReceiveCount"
            [message] = client.receive_message(QueueUrl=self._url, AttributeNames=[counted])["Messages"]
            said = told(in_php("run", message["Attributes"][counted], given=message["Body"]))
            released = "release" in (said[-1]["data"] or {})
            if released:
                client.change_message_visibility(
                    QueueUrl=self._url, ReceiptHandle=message["ReceiptHandle"], VisibilityTimeout=0
                )
            else:
                client.delete_message(QueueUrl=self._url, ReceiptHandle=message["ReceiptHandle"])
        return said

    def bodies(self) -> list[str]:
        found: list[str] = []
        with self._server.client() as client:
            while messages := client.receive_message(QueueUrl=self._url, MaxNumberOfMessages=10).get("Messages"):
                found += [message["Body"] for message in messages]
                for message in messages:
                    client.delete_message(QueueUrl=self._url, ReceiptHandle=message["ReceiptHandle"])
        return found


@pytest.fixture(scope="session")
def beanstalkd() -> Iterator[Beanstalkd]:
    with closing(Beanstalkd()) as server:
        server.start()
        yield server


@pytest.fixture(scope="session")
def sqs_server() -> Iterator[Sqs]:
    with sqs() as server:
        yield server


@pytest.fixture(params=["beanstalkd", "sqs"])
def place(request: pytest.FixtureRequest, beanstalkd: Beanstalkd, sqs_server: Sqs, tmp_path: Path) -> Iterator[Place]:
    """Each of the two, empty."""
    folder = tmp_path / "failed"
    on: Place = OnBeanstalkd(beanstalkd, folder) if request.param == "beanstalkd" else OnSqs(sqs_server, folder)
    on.bodies()
    yield on
    on.bodies()


@pytest.fixture
def make_side() -> Iterator[Callable[..., PythonSide]]:
    """Makes Python sides with these options."""
    sides: list[PythonSide] = []

    def make(**options: Any) -> PythonSide:
        manager = Manager(Settings(connections={"laravel": options}), LocalRunner(current_manager))
        connection = manager.connection("laravel")
        assert isinstance(connection, BrokerConnection)
        sides.append(PythonSide(manager, connection))
        return sides[-1]

    yield make
    for side in sides:
        side.close()


@pytest.fixture
def python(place: Place, make_side: Callable[..., PythonSide]) -> PythonSide:
    return make_side(**place.options)


def test_an_encrypted_payload_travels_hidden_and_is_opened_by_a_worker_with_the_key(place: Place) -> None:
    card = {"card": "4111-1111"}
    manager = Manager(Settings(connections={"laravel": place.options}, keys=key("new")), LocalRunner(current_manager))
    connection = manager.connection("laravel")
    assert isinstance(connection, BrokerConnection)
    with closing(PythonSide(manager, connection)) as side:
        side.push("pay", card, encrypted=True)
        [body] = place.bodies()
        assert "4111" not in body
        side.push("pay", card, encrypted=True)
        envelope = envelope_of(side.one(side.consumer()))
        assert "4111" not in str(envelope.data)
        assert json.loads(bytes(open_data(ring("new"), envelope, envelope.id).data)) == card


def test_python_runs_what_php_queued(place: Place, python: PythonSide) -> None:
    body = made(job="Mailer@send", data=ORDER)
    place.put(body)
    place.put(made(object=42), delay_s=1)
    consumer = python.consumer()
    first = python.one(consumer)
    envelope = envelope_of(first)
    assert (first.id, envelope.name, data_of(first)) == (json.loads(body)["uuid"], "Mailer@send", ORDER)
    assert (envelope.attempts, envelope.tries) == (0, None)
    assert python.end(consumer, first)
    second = python.one(consumer)
    assert (envelope_of(second).name, data_of(second)["order_id"]) == ("App\\CloseOrder", 42)
    assert (envelope_of(second).tries, envelope_of(second).backoff) == (4, [1000, 5000])
    assert python.end(consumer, second)
    assert place.bodies() == []


def test_php_runs_what_python_queued(place: Place, python: PythonSide) -> None:
    ref = python.push("Mailer@send", ORDER, tries=3, backoff=["2s", "7s"], timeout="30s")
    assert ref.state is State.READY
    asked, ran = place.run()
    assert asked == {"tries": 3, "backoff": "2,7", "timeout": 30}
    assert ran == {"did": "Mailer@send", "uuid": ref.id, "attempts": 1, "data": ORDER}
    assert place.bodies() == []


def test_a_job_of_phps_that_failed_here_stays_phps(place: Place, python: PythonSide) -> None:
    body = made(job="Mailer@send", data={"n": 1})
    place.put(body)
    consumer = python.consumer()
    for attempts in range(2):
        delivery = python.one(consumer)
        assert (delivery.id, envelope_of(delivery).attempts) == (json.loads(body)["uuid"], attempts)
        assert python.end(consumer, delivery, again(delivery))
    _, ran = place.run()
    assert ran == {"did": "Mailer@send", "uuid": json.loads(body)["uuid"], "attempts": 1, "data": {"n": 1}}


def test_a_job_of_pythons_that_php_released_comes_back_whole(place: Place, python: PythonSide) -> None:
    ref = python.push("Mailer@send", {"release": 0}, tries=5, tags=["a"], headers={"h": "1"})
    place.run()
    delivery = python.one(consumer := python.consumer())
    envelope = envelope_of(delivery)
    assert (delivery.id, delivery.recoveries) == (ref.id, 0)
    assert (envelope.attempts, envelope.tries, envelope.tags, envelope.headers) == (0, 5, ["a"], {"h": "1"})
    assert python.end(consumer, delivery)


def test_what_was_not_started_goes_back_as_it_was(place: Place, python: PythonSide) -> None:
    body = made(job="Mailer@send", data={"n": 1})
    place.put(body)
    consumer = python.consumer()
    consumer.hand_back([python.one(consumer)])
    delivery = python.one(consumer)
    assert (envelope_of(delivery).attempts, delivery.recoveries) == (0, 0)
    consumer.hand_back([delivery])
    assert wait_until(place.bodies, what="it is ready") == [body]


@pytest.mark.parametrize("body", ["no JSON", '{"job":"Illuminate\\\\Queue\\\\CallQueuedHandler@call","data":{}}'])
def test_what_only_php_can_run_is_kept_with_the_reason(place: Place, python: PythonSide, body: str) -> None:
    place.put(body)
    delivery = python.one(consumer := python.consumer())
    assert delivery.unreadable
    assert python.end(consumer, delivery, GiveUp(1, 1, ValueError(delivery.unreadable)))
    kept = python.failed(delivery.id)
    assert kept is not None
    assert (kept.payload.decode(), kept.queue) == (body, "orders")
    assert place.bodies() == []


def test_a_failed_job_of_phps_is_put_back_for_php(place: Place, python: PythonSide, tmp_path: Path) -> None:
    body = made(job="Mailer@send", data={"n": 1})
    place.put(body)
    delivery = python.one(consumer := python.consumer())
    assert python.end(consumer, delivery, give_up(delivery, ValueError("no")))
    cli = using(place, tmp_path)
    assert cli.ok("--connection", "laravel", "failed", "retry", delivery.id, "--queue", "orders").code == 0
    _, ran = place.run()
    assert ran == {"did": "Mailer@send", "uuid": delivery.id, "attempts": 1, "data": {"n": 1}}


def test_a_whole_worker_runs_jobs_of_both(place: Place, python: PythonSide, tmp_path: Path) -> None:
    place.put(made(job="Mailer@send", data={"throw": "no"}))
    python.push("Mailer@send", {"n": 2})
    said = tmp_path / "said"
    cli = using(place, tmp_path, DELAYQ_TEST_SAID=str(said))
    words = ("work", "--app", "tests.laravel.jobs", "--stop-when-empty", "--queue", "orders", "--backoff", "0s")
    ended = cli("--connection", "laravel", *words, "--tries", "2")
    assert ended.code == 0, ended.err
    ran = [json.loads(line) for line in said.read_text(encoding="utf-8").splitlines()]
    assert sorted(map(str, ran)) == sorted(
        map(str, [["send", 1, {"throw": "no"}], ["send", 2, {"throw": "no"}], ["send", 1, {"n": 2}]])
    )
    failed = cli.ok("--connection", "laravel", "failed", "list", "--queue", "orders", "--json").documents
    assert [one["name"] for one in failed] == ["Mailer@send"]


def test_what_php_could_not_follow_is_refused_before_it_is_sent(place: Place, python: PythonSide) -> None:
    with pytest.raises(DelayqError, match="chain"):
        python.push("Mailer@send", chain=Chain(id="c-1", next=[Link()]))
    assert place.bodies() == []


def test_sqs_holds_nothing_for_longer_than_php_would_wait(
    sqs_server: Sqs, make_side: Callable[..., PythonSide], tmp_path: Path
) -> None:
    sqs_server.make("orders.fifo")
    python = make_side(**OnSqs(sqs_server, tmp_path / "failed").options)
    with pytest.raises(InvalidInput, match="can hold a job for 15m at most"):
        python.push("Mailer@send", delay="16m")
    with pytest.raises(InvalidInput, match="a PHP worker would run the job at once"):
        python.push("Mailer@send", queue="orders.fifo", delay="1s")
    assert python.push("Mailer@send", queue="orders.fifo").state is State.READY


def using(place: Place, folder: Path, **variables: str) -> Cli:
    """Commands with the connection in their settings."""
    lines = "".join(f"{word} = {json.dumps(value)}\n" for word, value in place.options.items())
    (folder / "delayq.toml").write_text(f"[connections.laravel]\n{lines}", encoding="utf-8")
    return Cli(folder, environment(**variables))
