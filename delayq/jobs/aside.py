"""The process of its own that a background connection starts for one job: `python -m delayq.jobs.aside`, job on stdin.

It ends with 0 when the job is done, with `RECORDED` when it failed and is kept among the failed, and otherwise when
even that was not possible: then whoever started it keeps it there.
"""

from __future__ import annotations

import logging
import sys

import msgspec

from delayq.core import envelope as envelopes
from delayq.core.failure import in_a_line
from delayq.core.views import Fate
from delayq.drivers.background import RECORDED, Told, keep_failed
from delayq.drivers.failed.choosing import choose
from delayq.drivers.serving.given import Given
from delayq.drivers.sync import run_with_chain
from delayq.jobs.current import current_manager, make_manager, set_manager
from delayq.jobs.registry import load_app
from delayq.jobs.running import LocalRunner
from delayq.settings import Settings
from delayq.settings.tables import ConnectionSettings

log = logging.getLogger("delayq.background")


def main() -> int:
    """Run the job that stands on stdin, and what follows it; the exit code."""
    logging.basicConfig(format="%(asctime)s %(levelname)s %(name)s: %(message)s", level=logging.INFO)
    told = msgspec.json.decode(sys.stdin.buffer.read(), type=Told)
    settings = Settings()
    set_manager(make_manager(settings))
    given = ConnectionSettings(driver="background", options={"failed": told.failed})
    make_store = choose(told.connection, Given(told.connection, given), settings.options())
    failed = 0

    def fail(envelope: bytes, error: BaseException) -> None:
        nonlocal failed
        failed += 1
        log.error("job %s failed: %s", envelopes.decode(envelope).id, in_a_line(error), exc_info=error)
        keep_failed(make_store(), told.connection, envelope, error)

    envelope = told.envelope.encode()
    try:
        load_app(told.app)
        fate = run_with_chain(LocalRunner(current_manager), envelope, fail)
    except Exception as error:  # noqa: BLE001  (no such module or handler, say: whatever it is, it is not lost)
        fail(envelope, error)
        return RECORDED
    if fate in (Fate.RELEASED, Fate.SNOOZED):
        log.warning("the job %s asks to be tried again, and nobody does that here", envelopes.decode(envelope).id)
    return RECORDED if failed else 0


if __name__ == "__main__":
    sys.exit(main())
