"""How long each page of the dashboard takes with a million jobs that wait and a hundred thousand that failed."""

from __future__ import annotations

import http.client
import re
import sys
import time
from typing import Any, Final
from urllib.parse import urlsplit

from benchmarks.figures import Report, Row, Samples, Target
from benchmarks.measures.http import started
from benchmarks.plan import Plan
from benchmarks.work import QUEUE, raw_jobs
from delayq.core import failure as failures
from delayq.core.envelope import rewrite
from delayq.core.failure import Failure, Ran
from delayq.redis.keys import Globals, Keys

NAME = "dashboard"
TARGET = Target("≤", 300)
FAILED = 100_000
HOURS_MS = 4 * 3_600_000
"""Over which the waiting jobs fall due, and in which the failed ones failed."""
_AT_ONCE: Final = 1_000
_NEXT: Final = re.compile(r'href="([^"]*cursor=[^"]*)" rel="next"')
PAGES: Final = (
    ("overview", "/"),
    ("queues", "/queues"),
    ("one queue", f"/queues/{QUEUE}"),
    ("jobs that wait", "/jobs"),
    ("the latest of them", "/jobs?order=newest"),
    ("jobs by name, all fit", "/jobs?name=order.*"),
    ("jobs by name, none fits", "/jobs?name=nothing"),
    ("jobs by tag and time", "/jobs?tag=vip&since=%2B1h&until=%2B2h"),
    ("one that waits", f"/job?queue={QUEUE}&id={0:026d}"),
    ("failed", "/failed"),
    ("failed by name, none fits", "/failed?name=nothing"),
    ("one that failed", f"/job?queue={QUEUE}&id=failed{0:020d}"),
    ("preview: retry all", "/failed/all?act=retry"),
    ("preview by name, none fits", "/failed/all?act=retry&name=nothing"),
    ("workers", "/workers"),
    ("batches", "/batches"),
    ("limits", "/limits"),
    ("audit log", "/audit"),
    ("a job nobody knows", "/job?id=nobody"),
)

_FILL: Final = """
local first, step = tonumber(ARGV[1]), tonumber(ARGV[2])
local from, count, width = tonumber(ARGV[3]), tonumber(ARGV[4]), ARGV[5]
local places, jobs, errors = {}, {}, {}
for n = from, from + count - 1 do
  local id = string.format(width, n)
  places[#places + 1], places[#places + 2] = string.format('%.0f', first + n * step), id
  jobs[#jobs + 1], jobs[#jobs + 2] = id, ARGV[6] .. id .. ARGV[7]
  errors[#errors + 1], errors[#errors + 2] = id, ARGV[8]
end
redis.call('ZADD', KEYS[1], unpack(places))
redis.call('HSET', KEYS[2], unpack(jobs))
if ARGV[8] ~= '' then redis.call('HSET', KEYS[3], unpack(errors)) end
"""


def run(plan: Plan) -> Report:
    """Every page in turn, again and again; the first round finds a server that has shown nothing yet."""
    waiting, failed = plan.size(plan.growth), plan.size(FAILED)
    took: dict[str, list[float]] = {what: [] for what, _ in PAGES}
    took["a later page of jobs"] = []
    with plan.server() as server, server.client() as client:
        fill(client, waiting, failed)
        ours = (sys.executable, "-m", "delayq", "--url", server.url, "--log-level", "error", "serve", "--port", "0")
        with started(ours) as url:
            for _ in range(plan.runs):
                for what, path in PAGES:
                    ms, text = get(url, path, 404 if what == "a job nobody knows" else 200)
                    took[what].append(ms)
                    if path == "/jobs":
                        took["a later page of jobs"].append(get(url, _next_of(text))[0])
    rows = [Row(f"page: {what}", Samples(tuple(times), "ms"), target=TARGET) for what, times in took.items()]
    slowest = max(ms for times in took.values() for ms in times)
    rows.append(Row("the slowest of all requests", Samples((slowest,), "ms"), target=TARGET))
    return Report(rows, [f"Pages with {waiting:,} jobs that wait and {failed:,} that failed."])


def fill(client: Any, waiting: int, failed: int) -> None:
    """Jobs in the shape that `schedule` and `fail` leave."""
    names = Globals("delayq")
    keys = Keys("delayq", QUEUE)
    client.sadd(names.queues, QUEUE)
    client.hset(keys.of("meta"), mapping={"schema": "1", "lease_ms": "30000"})
    now_ms = int(time.time() * 1000)
    job_id, plain = raw_jobs(1)[0]
    history = [Failure("ConnectionError", "the bank is away", at_ms=now_ms - 9_000, attempt=n) for n in (1, 2)]
    lines = 'File "shop/jobs.py", line 42, in pay\n    bank.take(card)\n' * 20
    way = Ran(now_ms - 9_000, now_ms - 8_999, now_ms - 8_998)
    failure = Failure("ConnectionError", "the bank is away", lines, now_ms, 3, history, way)
    waits = (keys.of("scheduled"), now_ms + 60_000, HOURS_MS / waiting, "%026d", rewrite(plain, tags=["shop"]), b"")
    gone = (keys.of("failed"), now_ms - HOURS_MS, HOURS_MS / failed, "failed%020d", rewrite(plain, attempts=3))
    script = client.register_script(_FILL)
    for count, (place, first, step, width, envelope, error) in (
        (waiting, waits),
        (failed, (*gone, failures.encode(failure))),
    ):
        before, after = envelope.split(job_id.encode())
        for start in range(0, count, _AT_ONCE):
            some = min(_AT_ONCE, count - start)
            where = [place, keys.of("jobs"), keys.of("errors")]
            script(where, [first, step, start, some, width, before, after, error])


def get(url: str, path: str, status: int = 200) -> tuple[float, str]:
    """How many ms the page took over a connection of its own, and its text."""
    parts = urlsplit(url)
    began = time.perf_counter()
    connection = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=30)
    try:
        connection.request("GET", path, headers={"Accept": "text/html"})
        answer = connection.getresponse()
        text = answer.read().decode()
    finally:
        connection.close()
    took_ms = (time.perf_counter() - began) * 1000
    if answer.status != status:
        raise RuntimeError(f"{path} was answered with {answer.status}")
    return took_ms, text


def _next_of(text: str) -> str:
    found = _NEXT.search(text)
    if found is None:
        raise RuntimeError("the first page of jobs has no next one")
    return found[1].replace("&amp;", "&")
