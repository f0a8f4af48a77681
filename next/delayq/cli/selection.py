"""Options that select jobs, and searches that print their progress and the queues that cannot be read."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice

from delayq.cli.errors import sentence_of
from delayq.cli.output import print_json, print_note
from delayq.cli.progress import Progress
from delayq.cli.session import check_queue_known
from delayq.client import DelayQ
from delayq.core.errors import (
    CallRefused,
    Conflict,
    DelayqError,
    FoundElsewhere,
    InvalidInput,
    JobNotFailed,
    JobNotFound,
    NodeError,
)
from delayq.core.exit_codes import ExitCode
from delayq.core.job_search import JobSearch
from delayq.core.json_shapes.answers import OutcomeShape
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


def print_refusal(error: DelayqError, job_id: str, queue: str | None) -> None:
    """Print the outcome as JSON if the job was not found, or if its state forbids the change. Ignore other errors.

    `queue`: the queue of the job; None = the error names it, or no queue is known.
    """
    if isinstance(error, JobNotFailed):
        queue = queue or error.queue
    if isinstance(error, JobNotFound) and not isinstance(error, FoundElsewhere):
        print_json(OutcomeShape(job_id, queue, "unknown"))
    elif isinstance(error, Conflict):
        print_json(OutcomeShape(job_id, queue, "refused"))


@dataclass(frozen=True)
class Selection:
    """The failed jobs that a command selects, by `ids` or by filters.

    `is_all`: select all failed jobs, without a filter.
    """

    ids: Sequence[str] = ()
    is_all: bool = False
    queue: Sequence[str] | None = None
    name: str | None = None
    tag: str | None = None
    since: str | None = None
    until: str | None = None
    signature: str | None = None

    @property
    def narrowing(self) -> dict[str, str]:
        """The filter options with their values, except for --queue."""
        options = {
            "--name": self.name,
            "--tag": self.tag,
            "--since": self.since,
            "--until": self.until,
            "--signature": self.signature,
        }
        return {option: value for option, value in options.items() if value is not None}

    def check(self) -> None:
        """Raise InvalidInput if ids and another choice (--all or a filter) are both given, or neither of them."""
        narrowing = [*self.narrowing, *(["--all"] if self.is_all else [])]
        if self.ids and narrowing:
            raise InvalidInput(f"Ids and {narrowing[0]} are both given.", hint="Leave out one of them.")
        if not self.ids and not narrowing:
            raise InvalidInput(
                "No failed job is named.",
                hint="Give ids, or --name, --tag, --since, --until, --signature, or --all for all failed jobs.",
            )

    def search(self, client: DelayQ, *, newest_first: bool | None = None) -> JobSearch:
        """Return a search with these filters. Raises QueueNotFound."""
        return JobSearch(
            state="failed",
            queues=named_queues(client, self.queue),
            name=self.name,
            tag=self.tag,
            since=self.since,
            until=self.until,
            signature=self.signature,
            newest_first=newest_first,
        )

    def counts(self, client: DelayQ, refusals: Refusals) -> dict[str, int]:
        """Return the number of matching failed jobs by queue, without zeros. An unreadable queue becomes a refusal."""
        if self.narrowing:
            return dict(Counter(job.queue for job in found_jobs(client, self.search(client), refusals)))
        queues = named_queues(client, self.queue)
        found = client.stats() if queues is None else [one for queue in queues for one in client.stats(queue)]
        for one in found:
            if one.error:
                refusals.tell(CallRefused(f"The queue {one.queue!r} cannot be read. {one.error}"))
        return {one.queue: one.failed for one in found if one.failed}

    def __str__(self) -> str:
        """Return the text for questions and the audit log: 'failed jobs of orders with --name order.*'."""
        if self.ids:
            more = len(self.ids) - 20
            return ", ".join(self.ids[:20]) + (f" and {more} more" if more > 0 else "")
        narrowed = " ".join(f"{option} {value}" for option, value in self.narrowing.items())
        return f"failed jobs of {', '.join(self.queue or ['all queues'])}{f' with {narrowed}' if narrowed else ''}"


def named_queues(client: DelayQ, words: Sequence[str] | None) -> list[str] | None:
    """Return the queues of --queue, or None for all queues. Raises InvalidInput, QueueNotFound."""
    if not words:
        return None
    queues = parse_queues(*words)
    for queue in queues:
        with suppress(CallRefused, NodeError):  # the search reports a queue that cannot be read
            check_queue_known(client, queue)
    return queues


def only_queue(queues: Sequence[str] | None) -> str | None:
    """Return the queue if exactly one is named, else None."""
    return queues[0] if queues is not None and len(queues) == 1 else None


def found_jobs(client: DelayQ, search: JobSearch, refusals: Refusals) -> Iterator[JobInfo]:
    """Yield the jobs that a search finds, and print the progress. A queue that cannot be read becomes a refusal."""
    progress, looked = Progress("jobs searched"), 0
    for page in client.iter_search(search):
        for error in page.errors.values():
            refusals.tell(error)
        yield from page.jobs
        looked += page.looked
        progress.tell(looked)


def head(found: Iterator[JobInfo], limit: int) -> tuple[list[JobInfo], bool]:
    """Return the first jobs, up to `limit`, and True if more jobs follow."""
    jobs = list(islice(found, limit))
    return jobs, next(found, None) is not None


def spread(counts: Mapping[str, int]) -> str:
    """Return '2 in mail, 10 in orders'."""
    return ", ".join(f"{count:,} in {queue}" for queue, count in sorted(counts.items()) if count)
