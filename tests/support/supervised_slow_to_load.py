"""An application that takes its time to load."""

from __future__ import annotations

import time

from tests.support.supervised_jobs import note

note("loading", "-")
time.sleep(30)
