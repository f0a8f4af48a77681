"""Operations that search for jobs in several queues."""

from collections.abc import AsyncIterator

from delayq.core.job_search import FoundJobs, JobSearch
from delayq.core.job_spec import check_whole_number
from delayq.redis.calls import inspect
from delayq.redis.operations.base import OperationsBase, RefT
from delayq.redis.search import MAX_LOOKS, open_search


class SearchOperations(OperationsBase[RefT]):
    """Operations that search for jobs in several queues."""

    async def search(self, search: JobSearch, *, cursor: str = "", limit: int = 100) -> FoundJobs:
        """Read one page of the jobs that a search finds. The jobs of all queues are sorted together by time.

        `cursor`: the cursor of the previous page; '' = the first page. `limit`: maximum number of jobs, 1 to 2,000.

        For one page, at most 2,000 jobs are checked (with more than 1,000 shards, two jobs of each). So a page may have
        fewer than `limit` jobs, or none, although more pages follow. The cursor of the last page is ''. If a queue
        cannot be read, its error is in `errors`, and the page has the jobs of the other queues.

        Raises InvalidInput for a wrong search, cursor or limit. If the search names no queue, and the cluster node that
        has the list of queues does not answer, BackendUnavailable is raised.
        """
        check_whole_number("limit", limit, least=1, most=MAX_LOOKS)
        return await (await open_search(self._session, search, cursor=cursor)).page(limit)

    async def iter_search(self, search: JobSearch) -> AsyncIterator[FoundJobs]:
        """Iterate over all pages of a search. A page has up to 500 jobs. For errors, see `search`."""
        under_way = await open_search(self._session, search)
        while True:
            page = await under_way.page(inspect.MAX_PAGE)
            yield page
            if not page.cursor:
                return
