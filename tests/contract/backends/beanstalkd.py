"""beanstalkd, the distribution's. Its tubes come and go by themselves."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import replace
from functools import partial
from typing import Any

from delayq.drivers.beanstalkd import CAPABILITIES
from tests.contract.backend import IT, Backend
from tests.support.beanstalkd import Beanstalkd


class BeanstalkdHere:
    """One server for all tests."""

    def __init__(self, address: str, folder: str, laravel: str) -> None:
        self._options = {
            "driver": "beanstalkd",
            "url": f"beanstalkd://{address}",
            "failed": folder,
            "laravel": laravel,
        }

    def settings(self, *, lease: str) -> Mapping[str, Any]:
        """Queues are new in each test, so tubes are."""
        return {"connections": {IT: {**self._options, "lease": lease}}}

    def away(self) -> Mapping[str, Any]:
        """A socket that is not there."""
        return {"connections": {IT: {"driver": "beanstalkd", "url": "unix:///tmp/delayq-nobody-is-here.sock"}}}


@contextmanager
def start(laravel: str = "") -> Iterator[BeanstalkdHere]:
    with closing(Beanstalkd()) as server:
        server.start()
        yield BeanstalkdHere(server.address, str(server.folder / "failed"), laravel)


BACKENDS = [
    Backend("beanstalkd", CAPABILITIES, start),
    Backend("beanstalkd-laravel", replace(CAPABILITIES, chains=False), partial(start, "beanstalkd")),
]
