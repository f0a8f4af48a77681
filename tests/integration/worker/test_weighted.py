"""Weighted order on a server: a busy queue leaves the others their share; strict order leaves them nothing."""

from __future__ import annotations

import pytest

from tests.support.station import Station
from tests.support.tape import Tape

JOBS = 400


def filled(station: Station, *queues: str) -> Tape[str]:
    """More jobs in each queue than will be run; what runs is on the tape, by its queue."""
    ran = station.tape()
    station.handles("note", lambda tag: ran.append(tag))  # noqa: PLW0108  (a handler takes its arguments by name)
    for tag in queues:
        station.client.schedule_many([{"name": "note", "data": {"tag": tag}, "queue": tag} for _ in range(JOBS)])
    return ran


@pytest.mark.parametrize(
    ("weights", "least", "most"),
    [((3, 1), 50, 150), ((1, 1), 140, 260), ((), 0, 0)],
    ids=["three to one", "as much", "strict"],
)
def test_a_low_queue_gets_its_share_of_a_busy_worker(
    station: Station, weights: tuple[int, ...], least: int, most: int
) -> None:
    """One job a read, so 400 draws: 100 of them by 3 to 1, give or take nine; 50 away is out of reach for chance."""
    ran = filled(station, "critical", "low")
    station.run(queues=("critical", "low"), weights=weights, max_jobs=JOBS, rest_ms=1)
    assert len(ran) == JOBS
    assert least <= ran.count("low") <= most


def test_a_queue_with_nothing_costs_the_others_nothing(station: Station) -> None:
    """The heaviest is empty and the next is paused: all reads go to the last."""
    ran = filled(station, "calm", "low")
    station.client.pause("calm")
    station.run(queues=("empty", "calm", "low"), weights=(100, 100, 1), max_jobs=100)
    assert ran[:] == ["low"] * 100
