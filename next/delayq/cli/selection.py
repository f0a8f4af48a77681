"""Selects the failed jobs of a command, by id or by filters. Without --queue, all queues are searched."""

import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from delayq.cli.errors import sentence_of
from delayq.cli.output import print_note
from delayq.cli.session import check_queue_known
from delayq.client import DelayQ
from delayq.core.errors import CallRefused, DelayqError, FoundElsewhere, InvalidInput, JobNotFailed, JobNotFound
from delayq.core.exit_codes import ExitCode
from delayq.core.failed import failed_filter
from delayq.core.queue_order import parse_queues
from delayq.core.views import JobInfo


class Refusals:
    """Prints errors of single jobs or queues, after which the command continues.

    `exit_code` is the highest exit code of these errors.
    """

    def __init__(self) -> None:
        self.exit_code = ExitCode.OK

    def tell(self, error: DelayqError) -> None:
        """Print an error on stderr."""
        print_note(sentence_of(error))
        self.exit_code = max(self.exit_code, error.exit_code)


@dataclass(frozen=True)
class Selection:
    """The failed jobs that a command selects, by `ids` or by filters.

    `is_all`: select all failed jobs, without a filter.
    """

    ids: Sequence[str] = ()
    is_all: bool = False
    queue: Sequence[str] | None = None
    name: str | None = None
    since: str | None = None
    until: str | None = None
    signature: str | None = None

    @property
    def narrowing(self) -> dict[str, str]:
        """The filter options with their values, except for --queue."""
        options = {"--name": self.name, "--since": self.since, "--until": self.until, "--signature": self.signature}
        return {option: value for option, value in options.items() if value is not None}

    def check(self) -> None:
        """Raise InvalidInput unless either ids, or --all or a filter, are given."""
        narrowing = [*self.narrowing, *(["--all"] if self.is_all else [])]
        if self.ids and narrowing:
            raise InvalidInput(f"Ids and {narrowing[0]} are both given.", hint="Leave out one of them.")
        if not self.ids and not narrowing:
            raise InvalidInput(
                "No failed job is named.",
                hint="Give ids, or --name, --since, --until, --signature, or --all for all failed jobs.",
            )

    def queues(self, client: DelayQ) -> list[str]:
        """Return the queues to search. Raises QueueNotFound."""
        if not self.queue:
            return client.queues()
        named = parse_queues(*self.queue)
        for name in named:
            check_queue_known(client, name)
        return named

    def jobs(self, client: DelayQ, refusals: Refusals) -> Iterator[JobInfo]:
        """Yield the matching failed jobs, queue by queue. A queue that cannot be read becomes a refusal.

        Raises InvalidInput for an invalid filter, even if there are no queues.
        """
        now_ms = time.time_ns() // 1_000_000
        failed_filter(name=self.name, since=self.since, until=self.until, signature=self.signature, now_ms=now_ms)
        for queue in self.queues(client):
            try:
                yield from client.iter_failed(
                    queue, name=self.name, since=self.since, until=self.until, signature=self.signature
                )
            except CallRefused as error:
                refusals.tell(error)

    def counts(self, client: DelayQ) -> dict[str, int]:
        """Return the number of matching failed jobs by queue, without zeros."""
        if self.narrowing:
            return dict(Counter(job.queue for job in self.jobs(client, Refusals())))
        if not self.queue:
            found = client.stats()
        else:
            found = [one for queue in self.queues(client) for one in client.stats(queue)]
        return {one.queue: one.failed for one in found if one.failed}

    def find(self, client: DelayQ, job_id: str) -> JobInfo:
        """Return a failed job from the given queues, or from any queue.

        Raises JobNotFound, JobNotFailed, and InvalidInput if jobs with this id have failed in several queues.
        """
        found = self._with_id(client, job_id)
        failed = [job for job in found if job.state == "failed"]
        if len(failed) > 1:
            where = ", ".join(job.queue for job in failed)
            raise InvalidInput(
                f"The job {job_id!r} has failed in several queues: {where}.", hint="Name one queue with --queue."
            )
        if not found:
            where = f"the queue {', '.join(self.queue)!r}" if self.queue else "any queue"
            raise JobNotFound(f"No job {job_id!r} is known in {where}.", hint="`delayq failed list` lists the ids.")
        if not failed:
            raise JobNotFailed(
                f"The job {job_id!r} in the queue {found[0].queue!r} is {found[0].state}, not failed.",
                hint=f"Use `delayq show {job_id} --queue {found[0].queue}`.",
            )
        return failed[0]

    def _with_id(self, client: DelayQ, job_id: str) -> list[JobInfo]:
        queues: Sequence[str | None] = self.queues(client) if self.queue else [None]
        try:
            found = [client.get(job_id, queue=queue) for queue in queues]
        except FoundElsewhere as error:
            if not error.queues:
                raise
            found = [client.get(job_id, queue=queue) for queue in error.queues]
        return [job for job in found if job is not None]

    def __str__(self) -> str:
        """Return the text for questions and the audit log: 'failed jobs of orders with --name order.*'."""
        if self.ids:
            more = len(self.ids) - 20
            return ", ".join(self.ids[:20]) + (f" and {more} more" if more > 0 else "")
        narrowed = " ".join(f"{option} {value}" for option, value in self.narrowing.items())
        return f"failed jobs of {', '.join(self.queue or ['all queues'])}{f' with {narrowed}' if narrowed else ''}"


def spread(counts: dict[str, int]) -> str:
    """Return '10 in orders, 2 in mail'."""
    return ", ".join(f"{count:,} in {queue}" for queue, count in counts.items() if count)
