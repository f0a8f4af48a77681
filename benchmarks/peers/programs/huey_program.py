"""huey: one thread, blocking pop, results off, the scheduler every second. It has no bulk call."""

from __future__ import annotations

from datetime import datetime

import roles
from huey import RedisHuey

huey = RedisHuey("bench", url=roles.URL, results=False, blocking=True)


@huey.task(name="note")
def note(data: dict[str, float]) -> None:
    roles.record(data["at"])


def send(payloads: list[dict[str, object]], at: float) -> None:
    due = datetime.fromtimestamp(at) if at else None  # noqa: DTZ006  # it takes local time
    for data in payloads:
        if due:
            note.schedule((data,), eta=due)
        else:
            note(data)


def work() -> None:
    huey.create_consumer(workers=1, worker_type="thread", scheduler_interval=1, periodic=False).run()


if __name__ == "__main__":
    roles.main(send, work)
