"""The jobs of a Python worker beside Laravel. Each run is a line in the file that DELAYQ_TEST_SAID names."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from delayq import JobContext, handles, job


def say(*what: Any) -> None:
    with Path(os.environ["DELAYQ_TEST_SAID"]).open("a", encoding="utf-8") as file:
        file.write(json.dumps(what) + "\n")


@handles("Mailer")
class Mailer:
    """String jobs."""

    def send(self, context: JobContext, data: dict[str, Any]) -> None:
        say("send", context.attempt, data)
        if "throw" in data:
            raise ValueError(data["throw"])


@job("App\\CloseOrder")
def close(order_id: int, note: str, lines: list[dict[str, str]]) -> None:
    """An object of PHP's."""
    say("close", order_id, note, lines)
