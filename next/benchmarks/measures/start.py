"""The whole command `delayq schedule`, beside a Python that only imports what delayq stands on."""

import subprocess
import sys
import time

from benchmarks.figures import Figure, Found, Measure

IMPORTS = "import redis, typer, pydantic_settings, msgspec"


def run(url: str) -> Found:
    """Time both once, after a first run that fills the caches of the file system."""
    command = [sys.executable, "-m", "delayq", "--url", url, "schedule", "noop", "--in", "1h"]
    imports = [sys.executable, "-c", IMPORTS]
    _seconds(imports)
    bare = _seconds(imports)
    whole = _seconds(command)
    return {"command": 1000 * whole, "imports": 1000 * bare, "command / imports": whole / bare}


def _seconds(words: list[str]) -> float:
    started = time.perf_counter()
    subprocess.run(words, check=True, capture_output=True)
    return time.perf_counter() - started


MEASURE = Measure(
    "start",
    run,
    (
        Figure(name="command", unit="ms"),
        Figure(name="imports", unit="ms"),
        Figure(name="command / imports", unit="×", most=1.35),
    ),
    pairs=15,
)
