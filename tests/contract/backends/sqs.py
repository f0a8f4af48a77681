"""SQS, as moto's server speaks it."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import Any

from delayq.drivers.sqs import CAPABILITIES
from delayq.drivers.sqs.place import HOP_S
from tests.contract.backend import IT, Backend
from tests.support.sqs import REGION, Sqs, sqs

# A second less half of one is little to receive a message in, settle it, and be asked about it, over HTTP.
SHORTEST = "2s"


class SqsHere:
    """One server for all tests."""

    def __init__(self, server: Sqs, folder: str, laravel: str) -> None:
        self._options = {**server.options, "create": True, "failed": folder, "laravel": laravel}

    def settings(self, *, lease: str) -> Mapping[str, Any]:
        """Queues are new in each test, and made when they are first used."""
        longer = SHORTEST if lease == "1s" else lease
        return {"connections": {IT: {**self._options, "lease": longer}}}

    def away(self) -> Mapping[str, Any]:
        """A port where nobody listens."""
        return {"connections": {IT: {"driver": "sqs", "region": REGION, "endpoint_url": "http://127.0.0.1:9"}}}


@contextmanager
def start(laravel: str = "") -> Iterator[SqsHere]:
    with sqs() as server, tempfile.TemporaryDirectory(prefix="dq-sqs-") as folder:
        yield SqsHere(server, folder, laravel)


BESIDE = replace(CAPABILITIES, chains=False, max_delay_ms=HOP_S * 1000)
BACKENDS = [Backend("sqs", CAPABILITIES, start), Backend("sqs-laravel", BESIDE, partial(start, "sqs"))]
