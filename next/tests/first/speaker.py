"""What the test asks of a client, in values that JSON can carry: the same text speaks to either edition.

As a program it reads one request a line and writes one answer a line: `python speaker.py URL`. The first edition is
asked that way, with its own Python; the second one in process.
"""

import json
import sys
from typing import Any

from delayq import DelayQ, DelayqError, JobSpec


class Speaker:
    """A client of the edition that imports this."""

    def __init__(self, url: str) -> None:
        self._client = DelayQ(url)

    def ask(self, verb: str, **said: Any) -> Any:
        """Carry one request out."""
        return getattr(self, verb)(**said)

    def schedule(self, queue: str, jobs: list[dict[str, Any]]) -> list[str]:
        """Schedule jobs, and return what became of each."""
        refs = self._client.schedule_many([JobSpec(queue=queue, **job) for job in jobs])
        return [str(ref.outcome) for ref in refs]

    def schedule_again(self, queue: str, job: dict[str, Any], on_conflict: Any) -> list[Any]:
        """Schedule one job under an id that may be taken. Returns its state and its due time too."""
        ref = self._client.schedule(queue=queue, on_conflict=on_conflict, **job)
        return [str(ref.outcome), str(ref.state), ref.due_ms]

    def cancel(self, queue: str, ids: list[str]) -> list[str]:
        """Cancel jobs."""
        return [str(self._client.cancel(id, queue=queue)) for id in ids]

    def reschedule(self, queue: str, ids: list[str], delay: str) -> list[str]:
        """Give jobs a new due time."""
        return [str(self._client.reschedule(id, queue=queue, delay=delay).outcome) for id in ids]

    def retry(self, queue: str, ids: list[str]) -> list[str]:
        """Retry failed jobs."""
        return [str(self._client.retry(id, queue=queue).outcome) for id in ids]

    def forget(self, queue: str, ids: list[str]) -> list[str]:
        """Drop jobs that have ended."""
        return [str(answer) for answer in self._client.forget(ids, queue=queue)]

    def jobs(self, queue: str, state: Any) -> list[list[Any]]:
        """List all jobs in a state: id, name, payload, due time."""
        return [[job.id, job.name, job.data, job.due_ms] for job in self._client.iter_jobs(state, queue=queue)]

    def ends(self, queue: str, ids: list[str]) -> list[list[Any]]:
        """Tell how jobs ended: state, attempts, result, type of the failure."""
        jobs = [self._client.get(id, queue=queue) for id in ids]
        return [
            [str(job.state), job.attempts, job.result, job.failure.type if job.failure else ""] for job in jobs if job
        ]

    def counts(self, queue: str) -> dict[str, int]:
        """Count the jobs in each state."""
        (stats,) = self._client.stats(queue)
        return {state: getattr(stats, state) for state in ("scheduled", "ready", "reserved", "failed", "completed")}

    def queues(self) -> list[str]:
        """List the queues."""
        return self._client.queues()

    def close(self) -> None:
        """Close the connections."""
        self._client.close()


def main() -> None:
    """Answer requests until there are no more."""
    speaker = Speaker(sys.argv[1])
    for line in sys.stdin:
        try:
            answer = {"answer": speaker.ask(**json.loads(line))}
        except DelayqError as error:
            answer = {"error": f"{type(error).__name__}: {error}"}
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
