"""Starts the web services of consumers/."""

import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import httpx

from tests.consumers.programs import Programs
from tests.support.waiting import wait_until

Serve = Callable[..., httpx.Client]


@contextmanager
def serving(programs: Programs, folder: Path, app: str) -> Iterator[Serve]:
    """Give a function that starts a web server in the folder of the test, and returns a client of it."""
    words = [sys.executable, "-m", "uvicorn", app, "--app-dir", str(folder), "--uds"]
    with ExitStack() as stack:

        def start(name: str = "web", **environment: str) -> httpx.Client:
            path = programs.folder / f"{name}.sock"
            programs.start(*words, str(path), log=name, **environment)
            wait_until(path.exists)
            transport = httpx.HTTPTransport(uds=str(path))
            return stack.enter_context(httpx.Client(transport=transport, base_url="http://shop", timeout=20))

        yield start


def told(response: httpx.Response) -> tuple[int, str]:
    """Return the status of a response, and the state of the order or the detail."""
    body = response.json()
    return response.status_code, body.get("state", body.get("detail"))
