"""An application that takes its time to load: meanwhile somebody calls on all workers to restart."""

from __future__ import annotations

import json
import sys

from delayq.core.options import Options
from delayq.redis.client import Client
from delayq.redis.connect import Connector

with Client(Connector(json.loads(sys.argv[1])["url"]), Options()) as client:
    client.restart_workers()
