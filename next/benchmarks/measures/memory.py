"""What a waiting job takes of the server's memory: 100,000 jobs, payload 100 bytes, due in an hour."""

from benchmarks.figures import Figure, Found, Measure
from benchmarks.jobs import BATCH, plain_client, preload

JOBS = 100_000


def run(url: str) -> Found:
    """Compare the memory before and after, with the scripts loaded before."""
    preload(url, BATCH, delay="1h")
    with plain_client(url) as client:
        before = client.info("memory")["used_memory"]
        preload(url, JOBS, delay="1h")
        after = client.info("memory")["used_memory"]
    return {"bytes": (after - before) / JOBS}


MEASURE = Measure("memory", run, (Figure(name="bytes", unit="a job", most_ratio=1.0),), pairs=3)
