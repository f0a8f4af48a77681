"""Makes the clients of one connection to SQS. Reading what botocore knows of the service is slow; it is done once."""

from __future__ import annotations

import os
import threading
from functools import cache
from typing import Any, Final

import boto3
from botocore.config import Config
from botocore.loaders import create_loader
from botocore.session import Session as BotocoreSession

from delayq.drivers.sqs.place import Place

CONNECT_S: Final = 3.0


class Clients:
    """Of one connection, in whichever process asks: what a fork has copied is not used."""

    def __init__(self, place: Place) -> None:
        self._place = place
        self._lock = threading.Lock()
        self._pid = 0
        self._session: Any = None

    def make(self, *, answer_s: float, attempts: int) -> Any:
        """A client that waits so long for an answer and asks so often. Raises what botocore raises."""
        config = Config(
            connect_timeout=min(CONNECT_S, answer_s),
            read_timeout=answer_s,
            retries={"total_max_attempts": attempts, "mode": "standard"},
        )
        place = self._place
        with self._lock:
            if self._pid != os.getpid():
                self._pid, self._session = os.getpid(), None
            if self._session is None:
                core = BotocoreSession(profile=place.profile)
                core.register_component("data_loader", _loader())
                self._session = boto3.session.Session(botocore_session=core, region_name=place.region)
            return self._session.client("sqs", endpoint_url=place.endpoint_url, config=config)


@cache
def _loader() -> Any:
    """Reads the descriptions of services, and remembers them; a fork may go on with what it has read."""
    return create_loader()
