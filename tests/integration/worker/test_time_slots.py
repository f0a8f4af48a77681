"""A job for each slot of time, asked for by several programs at once: delayq has no periodic jobs, ids do it."""

from __future__ import annotations

import threading
from collections import Counter
from contextlib import closing

from delayq.core.options import Options
from delayq.redis.client import Client
from delayq.redis.connect import Connector
from tests.support.station import QUEUE, Station

PROGRAMS, SLOTS = 5, 12
IDS = [f"report-2026-11-21T{slot:02}" for slot in range(SLOTS)]


def test_five_programs_that_ask_for_every_slot_are_one_job_each(station: Station, redis_url: str) -> None:
    """Also when one of them comes late, and asks for slots that have run: their ids are known while they are kept."""
    ran = station.tape()
    station.handles("note", lambda slot: ran.append(slot))  # noqa: PLW0108  (a handler takes its arguments by name)
    said: list[str] = []
    together = threading.Barrier(PROGRAMS)

    def program() -> None:
        with closing(Client(Connector(redis_url), Options())) as client:
            together.wait()
            said.extend(ask(client, job_id) for job_id in IDS)

    programs = [threading.Thread(target=program) for _ in range(PROGRAMS)]
    for one in programs:
        one.start()
    for one in programs:
        one.join()
    station.drain(mover=True)
    late = [ask(station.client, job_id) for job_id in IDS]
    station.drain(mover=True)

    assert Counter(said) == {"created": SLOTS, "kept": SLOTS * (PROGRAMS - 1)}
    assert late == ["kept"] * SLOTS
    assert Counter(ran[:]) == Counter(IDS)


def ask(client: Client, job_id: str) -> str:
    return str(client.schedule("note", {"slot": job_id}, id=job_id, queue=QUEUE, retention="1h").outcome)
