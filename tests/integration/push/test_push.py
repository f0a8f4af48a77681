"""A pushed queue, from the schedule to the receiver and back, by real workers."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import time
from collections.abc import Mapping
from email.utils import formatdate

from delayq.core.states import State
from delayq.core.when import format_instant
from delayq.jobs.function import job
from delayq.jobs.registry import using
from tests.integration.push.conftest import KEYS, Push
from tests.support.posts import Post, Receiver
from tests.support.station import QUEUE, Station
from tests.support.waiting import wait_until


def signatures(post: Post) -> list[str]:
    text = f"{post.headers['webhook-id']}.{post.headers['webhook-timestamp']}.".encode() + post.body
    return ["v1," + base64.b64encode(hmac.new(key, text, hashlib.sha256).digest()).decode() for key in KEYS]


def test_every_job_of_the_queue_is_one_signed_post_of_its_envelope(
    station: Station, receiver: Receiver, push: Push
) -> None:
    push()
    headers = {"traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", "x-secret": "no"}
    before = int(time.time())
    station.client.schedule("order.close", {"order_id": 42}, id="o-1", headers=headers, tags=["vip"])
    station.client.schedule("päckchen", [1, 2], id="o-2")
    station.drain()
    assert (station.ends("o-1"), station.ends("o-2")) == (["done"], ["done"])
    posts = {post.headers["delayq-id"]: post for post in receiver.posts}
    first, second = posts["o-1"], posts["o-2"]
    body = json.loads(first.body)
    assert (body["id"], body["name"], body["queue"], body["data"]) == ("o-1", "order.close", QUEUE, {"order_id": 42})
    assert (body["v"], body["attempts"], body["tags"]) == (1, 0, ["vip"])
    assert first.headers["content-type"] == "application/json"
    assert (first.headers["delayq-name"], first.headers["delayq-queue"]) == ("order.close", QUEUE)
    assert first.headers["delayq-attempt"] == "1"
    assert before * 1000 <= body["created_ms"]
    assert format_instant(body["created_ms"])[:10] == first.headers["delayq-due"][:10]
    assert first.headers["webhook-id"] == f"{QUEUE}:o-1:{body['created_ms']}"
    assert before <= int(first.headers["webhook-timestamp"]) <= time.time()
    assert first.headers["webhook-signature"].split(" ") == signatures(first)
    assert (first.headers["traceparent"], "x-secret" in first.headers) == (headers["traceparent"], False)
    assert second.headers["delayq-name"] == "p%C3%A4ckchen"


ANSWERS: Mapping[str, tuple[int, Mapping[str, str], str]] = {
    "200": (200, {}, "done"),
    "204": (204, {}, "done"),
    "301": (301, {"location": "http://127.0.0.1:1/"}, "failed"),
    "308": (308, {"location": "http://127.0.0.1:1/"}, "failed"),
    "400": (400, {}, "failed"),
    "404": (404, {"retry-after": "5"}, "failed"),
    "410": (410, {}, "discarded"),
    "422": (422, {}, "failed"),
    "429-s": (429, {"retry-after": "600"}, "snoozed"),
    "429": (429, {}, "released"),
    "500": (500, {"retry-after": "600"}, "released"),
    "503-d": (503, {"retry-after": "a date"}, "snoozed"),
    "503-past": (503, {"retry-after": "Wed, 21 Oct 2015 07:28:00 GMT"}, "released"),
    "503-odd": (503, {"retry-after": "soon"}, "released"),
    "504": (504, {}, "released"),
}


def test_what_the_answer_says_is_done(station: Station, receiver: Receiver, push: Push) -> None:
    push(failures=0, backoff="1h")
    receiver.by_id = {job_id: (status, dict(heads)) for job_id, (status, heads, _) in ANSWERS.items()}
    receiver.by_id["503-d"] = (503, {"retry-after": formatdate(time.time() + 7200, usegmt=True)})
    now_ms = time.time() * 1000
    for job_id in ANSWERS:
        station.client.schedule("order.close", id=job_id)
    station.drain(threads=4)
    assert {job_id: station.ends(job_id) for job_id in ANSWERS} == {
        job_id: [end] for job_id, (_, _, end) in ANSWERS.items()
    }
    assert len(receiver.posts) == len(ANSWERS), "no redirect was followed"
    snoozed, dated, released = station.job("429-s"), station.job("503-d"), station.job("500")
    assert (snoozed.state, snoozed.attempts) == (State.SCHEDULED, 0)
    assert (dated.attempts, released.attempts) == (0, 1)
    assert 590_000 < (snoozed.due_ms or 0) - now_ms < 700_000
    assert 7_100_000 < (dated.due_ms or 0) - now_ms < 7_300_000
    assert 3_590_000 < (released.due_ms or 0) - now_ms < 3_700_000
    assert station.state("410") is State.ABSENT
    assert station.state("400") is State.FAILED
    failure = station.job("422").failure
    assert failure is not None
    assert "The push to 127.0.0.1 was answered with 422" in failure.message
    assert "/hook" not in failure.message


def test_the_ladder_is_what_a_push_waits_by(station: Station, receiver: Receiver, push: Push) -> None:
    push()
    receiver.answers = [(500, {})]
    now_ms = time.time() * 1000
    station.client.schedule("order.close", id="o-1")
    station.drain()
    assert 59_000 < (station.job("o-1").due_ms or 0) - now_ms < 170_000
    station.client.run_now("o-1")
    station.drain()
    assert 179_000 < (station.job("o-1").due_ms or 0) - now_ms < 290_000
    assert [post.headers["delayq-attempt"] for post in receiver.posts] == ["1", "2"]
    assert len({post.headers["webhook-id"] for post in receiver.posts}) == 1


def test_nobody_there_costs_an_attempt_and_then_fails(station: Station, push: Push) -> None:
    push(url="http://127.0.0.1:1/hook?token=s3cret", tries=2, backoff="10ms")
    station.client.schedule("order.close", id="o-1")
    with station.working(mover=True):
        station.until("o-1", State.FAILED)
    assert station.ends("o-1") == ["released", "failed"]
    failure = station.job("o-1").failure
    assert failure is not None
    assert "did not arrive" in failure.message
    assert "s3cret" not in failure.message + failure.traceback + station.said()


def test_a_silent_receiver_is_left_after_the_time(station: Station, receiver: Receiver, push: Push) -> None:
    push(timeout="100ms", tries=1)
    receiver.silent.set()
    station.client.schedule("order.close", id="o-1")
    station.drain()
    receiver.silent.clear()
    assert station.ends("o-1") == ["failed"]
    assert station.job("o-1").failure is not None


def test_the_circuit_leaves_a_broken_receiver_alone(station: Station, receiver: Receiver, push: Push) -> None:
    push(failures=3, rest="1h", backoff="1h")
    receiver.answers = [(503, {})]
    for number in range(8):
        station.client.schedule("order.close", id=f"o-{number}")
    station.drain()
    assert len(receiver.posts) == 3
    ends = [station.ends(f"o-{number}") for number in range(8)]
    assert sorted(ends) == [["released"]] * 3 + [["snoozed"]] * 5
    assert all((station.job(f"o-{number}").attempts or 0) <= 1 for number in range(8))


def test_the_rate_of_a_host_holds(station: Station, receiver: Receiver, push: Push) -> None:
    push(rate="2/h")
    for number in range(4):
        station.client.schedule("order.close", id=f"o-{number}")
    station.drain(threads=4)
    assert len(receiver.posts) == 1  # two an hour, evenly
    assert sorted(station.ends(f"o-{number}") for number in range(4)) == [["done"], *[["snoozed"]] * 3]


def test_so_many_requests_at_a_time(station: Station, receiver: Receiver, push: Push) -> None:
    push(concurrency=1, timeout="5m")
    receiver.silent.set()
    ids = [f"o-{number}" for number in range(3)]
    for job_id in ids:
        station.client.schedule("order.close", id=job_id)
    with station.working(threads=3, mover=True):
        wait_until(lambda: sum(station.ends(job_id)[:1] == ["snoozed"] for job_id in ids) == 2, what="two are put back")
        wait_until(lambda: receiver.posts, what="the third is posted")
        assert len(receiver.posts) == 1
        receiver.silent.clear()
        station.until_gone(ids)
    assert len(receiver.posts) == 3


def test_other_queues_of_the_same_worker_have_their_handlers(station: Station, receiver: Receiver, push: Push) -> None:
    push()
    ran = station.tape()
    with using(station.registry):
        job("order.close", queue="inside")(lambda: ran.append("ran"))
    station.client.schedule("order.close", id="o-1")
    station.client.schedule("order.close", id="o-1", queue="inside")
    assert station.registry.queues() == ("inside", QUEUE)
    station.drain(queues=(QUEUE, "inside"))
    assert list(ran) == ["ran"]
    assert [post.headers["delayq-queue"] for post in receiver.posts] == [QUEUE]


def test_a_body_over_the_bound_is_not_sent(station: Station, receiver: Receiver, push: Push) -> None:
    push(max_body=1000)
    station.client.schedule("order.close", {"text": "x" * 1000}, id="o-1")
    station.drain()
    assert (station.ends("o-1"), receiver.posts) == (["failed"], [])


def test_without_a_secret_there_is_no_signature_if_that_is_meant(
    station: Station, receiver: Receiver, push: Push
) -> None:
    push(secrets=None, unsigned=True)
    station.client.schedule("order.close", id="o-1")
    station.drain()
    assert "webhook-signature" not in receiver.posts[0].headers
    assert receiver.posts[0].headers["webhook-id"].startswith(f"{QUEUE}:o-1:")


def test_a_host_inside_is_refused_at_every_attempt(station: Station, receiver: Receiver, push: Push) -> None:
    push(url=f"https://127.0.0.1:{receiver.port}/hook", allow=[])
    station.client.schedule("order.close", id="o-1")
    station.drain()
    assert station.ends("o-1") == ["failed"]
    station.client.retry("o-1")
    station.client.run_now("o-1")
    station.drain()
    assert (station.ends("o-1"), receiver.posts) == (["failed", "failed"], [])
