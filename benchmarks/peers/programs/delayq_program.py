"""delayq: one worker process with its mover, as `delayq work` starts it; with PEER_ASYNC=1 the handler is async."""

from __future__ import annotations

from datetime import UTC, datetime

import roles

from delayq import DelayQ, JobSpec
from delayq.cli import main as command_line


class Sender:
    """One client for all that is sent."""

    def __init__(self) -> None:
        self.client = DelayQ(roles.URL)

    def send(self, payloads: list[dict[str, object]], at: float) -> None:
        """One job by itself, many in one call."""
        due = datetime.fromtimestamp(at, UTC) if at else None
        if len(payloads) == 1:
            self.client.schedule("note", payloads[0], at=due, queue="bench")
        else:
            self.client.schedule_many([JobSpec(name="note", data=data, at=due, queue="bench") for data in payloads])


def work() -> None:
    """Until the signal."""
    command_line(["-q", "--url", roles.URL, "work", "--app", "delayq_tasks", "--queue", "bench"])


if __name__ == "__main__":
    roles.main(Sender().send, work)
