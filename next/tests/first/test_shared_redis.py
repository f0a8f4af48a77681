"""Both editions share one Redis: plain jobs that one writes are listed, cancelled, run and retried by the other."""

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import pytest
import redis

from tests.first.conftest import Edition
from tests.support.lines import complete_lines

pytestmark = pytest.mark.oracle

QUEUE: Final = "shared"
HOUR_MS: Final = 3_600_000

SOON: Final = [f"soon-{n:02}" for n in range(60)]
KEPT: Final = [f"kept-{n:02}" for n in range(20)]
FRAGILE: Final = [f"fragile-{n:02}" for n in range(40)]
LATER: Final = [f"later-{n:02}" for n in range(80)]
READY: Final = SOON + KEPT + FRAGILE

CANCELLED: Final = SOON[:15] + FRAGILE[:5] + LATER[:20]
POSTPONED: Final = SOON[15:25]
PULLED_FORWARD: Final = LATER[20:40]


@pytest.fixture(params=["first to second", "second to first"])
def sides(request: pytest.FixtureRequest, first: Edition, second: Edition) -> tuple[Edition, Edition]:
    """The edition that writes the jobs, and the other one."""
    return (first, second) if request.param == "first to second" else (second, first)


@pytest.fixture
def redis_client(address: str) -> Iterator[Any]:
    with redis.Redis.from_url(address, decode_responses=True, protocol=2) as client:
        yield client


def test_jobs_of_one_edition_are_jobs_of_the_other(
    sides: tuple[Edition, Edition], redis_client: Any, tmp_path: Path
) -> None:
    writer, other = sides
    jobs = all_jobs()
    started_ms = time.time() * 1000
    assert writer.ask("schedule", queue=QUEUE, jobs=jobs) == ["created"] * 200

    # The other one lists them, with names and payloads, in their order.
    assert other.ask("queues") == [QUEUE]
    assert counts(other) == {"scheduled": 80, "ready": 120, "reserved": 0, "failed": 0, "completed": 0}
    for state, ids in (("ready", READY), ("scheduled", LATER)):
        rows = other.ask("jobs", queue=QUEUE, state=state)
        assert [row[0] for row in rows] == ids
        assert [row[1:3] for row in rows] == [[job["name"], job["data"]] for job in jobs if job["id"] in ids]
        assert rows == writer.ask("jobs", queue=QUEUE, state=state)
    assert all(row[3] >= started_ms + HOUR_MS - 1 for row in other.ask("jobs", queue=QUEUE, state="scheduled"))
    check_sums(redis_client, 200)

    # It keeps, postpones and replaces them, cancels some, and gives some another due time.
    again = {"name": "note", "data": {"id": LATER[79]}, "id": LATER[79], "delay": "2h"}
    for on_conflict, word in (("keep", "kept"), ("postpone", "postponed"), ("replace", "replaced")):
        outcome, state, due_ms = other.ask("schedule_again", queue=QUEUE, job=again, on_conflict=on_conflict)
        assert (outcome, state) == (word, "scheduled")
        assert (due_ms >= started_ms + 2 * HOUR_MS - 1) == (word != "kept")
    assert other.ask("cancel", queue=QUEUE, ids=CANCELLED) == ["cancelled"] * 40
    assert writer.ask("cancel", queue=QUEUE, ids=CANCELLED[:1]) == ["unknown"]
    assert other.ask("reschedule", queue=QUEUE, ids=POSTPONED, delay="1h") == ["rescheduled"] * 10
    assert other.ask("reschedule", queue=QUEUE, ids=PULLED_FORWARD, delay="100ms") == ["rescheduled"] * 20
    check_sums(redis_client, 160)

    # Its worker runs what is due: each once, and nothing else.
    with other.working():
        wait_until(lambda: is_done(other))
    expected_to_run = [*SOON[25:], *KEPT, *PULLED_FORWARD]
    assert sorted(ran(tmp_path)) == sorted(expected_to_run)
    expected = {"scheduled": 50, "ready": 0, "reserved": 0, "failed": 35, "completed": 20}
    assert counts(writer) == counts(other) == expected
    for edition in sides:
        for state, ids in (("completed", KEPT), ("failed", FRAGILE[5:])):
            assert sorted(row[0] for row in edition.ask("jobs", queue=QUEUE, state=state)) == ids
        assert edition.ask("ends", queue=QUEUE, ids=KEPT) == [["completed", 1, f"noted {id}", ""] for id in KEPT]
        assert edition.ask("ends", queue=QUEUE, ids=FRAGILE[5:]) == [["failed", 1, None, "LookupError"]] * 35
    check_sums(redis_client, 105)

    # What failed there is retried by both, and run by the worker of the writer.
    (tmp_path / "mended").touch()
    (tmp_path / "ran").unlink()
    assert writer.ask("retry", queue=QUEUE, ids=FRAGILE[5:20]) == ["scheduled"] * 15
    assert other.ask("retry", queue=QUEUE, ids=FRAGILE[20:35]) == ["scheduled"] * 15
    with writer.working():
        wait_until(lambda: is_done(writer))
    assert sorted(ran(tmp_path)) == FRAGILE[5:35]
    assert writer.ask("forget", queue=QUEUE, ids=FRAGILE[35:]) == ["forgotten"] * 5
    assert other.ask("forget", queue=QUEUE, ids=KEPT) == ["forgotten"] * 20
    expected = {"scheduled": 50, "ready": 0, "reserved": 0, "failed": 0, "completed": 0}
    assert counts(writer) == counts(other) == expected
    check_sums(redis_client, 50)


def test_workers_of_both_editions_share_a_queue(
    first: Edition, second: Edition, redis_client: Any, tmp_path: Path
) -> None:
    scheduled: list[str] = []
    with first.working(), second.working():
        # On until either worker has run some of them, as it happens within the first rounds.
        while len(scheduled) < 400 or len(workers(tmp_path)) < 2:
            writer = (first, second)[len(scheduled) // 20 % 2]
            ids = [f"{n:05}" for n in range(len(scheduled), len(scheduled) + 20)]
            jobs = [{"name": "note", "data": {"id": id}, "id": id, "delay": "300ms"} for id in ids]
            assert writer.ask("schedule", queue=QUEUE, jobs=jobs) == ["created"] * 20
            scheduled += ids
            assert len(scheduled) < 20_000
        wait_until(lambda: is_done(second))
    assert sorted(ran(tmp_path)) == scheduled
    assert counts(first) == counts(second) == dict.fromkeys(counts(first), 0)
    assert redis_client.hget(f"delayq:{{{QUEUE}}}:meta", "reclaimed_total") is None
    check_sums(redis_client, 0)


def all_jobs() -> list[dict[str, Any]]:
    """Return the 200 jobs that one edition writes."""
    shapes: list[tuple[list[str], dict[str, Any]]] = [
        (SOON, {"name": "note"}),
        (KEPT, {"name": "note", "retention": "1h"}),
        (FRAGILE, {"name": "fragile", "tries": 1}),
        (LATER, {"name": "note", "delay": "1h"}),
    ]
    return [{"id": id, "data": {"id": id}, **shape} for ids, shape in shapes for id in ids]


def counts(edition: Edition) -> dict[str, int]:
    found: dict[str, int] = edition.ask("counts", queue=QUEUE)
    return found


def is_done(edition: Edition) -> bool:
    """Whether nothing runs, nothing is ready, and what waits in the set is not due for long."""
    soon_ms = (time.time() + 60) * 1000
    waits_only = all(row[3] > soon_ms for row in edition.ask("jobs", queue=QUEUE, state="scheduled"))
    found = counts(edition)  # later, because what is due goes from the set to the stream
    return waits_only and found["ready"] + found["reserved"] == 0


def ran(folder: Path) -> list[str]:
    """Return the ids of the jobs that ran, each as often as it ran."""
    return [line.split()[0] for line in _lines(folder)]


def workers(folder: Path) -> set[str]:
    """Return the process ids of the workers that ran jobs."""
    return {line.split()[1] for line in _lines(folder)}


def _lines(folder: Path) -> list[str]:
    path = folder / "ran"
    return complete_lines(path)


def wait_until(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def check_sums(client: Any, jobs: int) -> None:
    """Check that every job is in exactly one place, and how many there are."""
    key = f"delayq:{{{QUEUE}}}:"
    in_stream = client.hlen(f"{key}entries")
    in_sets = sum(client.zcard(f"{key}{place}") for place in ("scheduled", "failed", "completed"))
    assert client.xlen(f"{key}stream") == in_stream
    assert in_sets + in_stream == client.hlen(f"{key}jobs") == jobs
