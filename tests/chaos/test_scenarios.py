"""The smoke tier: a little of each scenario that costs little. `make chaos` plays all of them in full.

Every run prints its seed; `--seed N` (or DELAYQ_SEED) plays it again, as far as processes can be played again.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable

import pytest

from tests.chaos.catalogue import SCENARIOS
from tests.chaos.engine import play_lot
from tests.chaos.scenarios import clocks
from tests.support.flavours import missing

pytestmark = [pytest.mark.chaos, pytest.mark.slow, pytest.mark.timeout(300), pytest.mark.timed]


@pytest.fixture
def seed(request: pytest.FixtureRequest) -> int:
    given = request.config.getoption("--seed") or os.environ.get("DELAYQ_SEED")
    return int(given) if given is not None else random.SystemRandom().randrange(10**6)


@pytest.mark.parametrize("name", [name for name, one in SCENARIOS.items() if one.smoke])
def test_it_holds(name: str, seed: int, record_property: Callable[[str, object], None]) -> None:
    one = SCENARIOS[name]
    if reason := one.missing():
        missing(f"{name}: {reason}", allowed=one.missing is not clocks.missing or not clocks.wanted())
    tally = play_lot(one, seed=seed, number=0, units=one.smoke, smoke=True)
    record_property("chaos", f"{name}, seed {seed}: {tally}")
