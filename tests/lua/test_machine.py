"""The scripts on real servers, beside an independent model, in sequences that nobody would think of.

`tests/support/model*.py` holds the model, the rules and the checks; `failure-modes` I1 to I9 are asserted after every
step. `DELAYQ_HYPOTHESIS=deep` runs forty times as many sequences, drawn anew each time.
"""

from __future__ import annotations

import pytest
import redis
from hypothesis.stateful import run_state_machine_as_test

from tests.support.flavours import Flavour, default_flavour
from tests.support.model_profile import deep, profile
from tests.support.model_rig import Rig
from tests.support.model_rules import machine

DEFAULT_EXAMPLES = 300
OTHER_EXAMPLES = 60
LONG_S = 6 * 3600 if deep() else 600


@pytest.mark.slow
@pytest.mark.timeout(LONG_S)
def test_scripts_and_model_agree(redis_client: redis.Redis) -> None:
    run_state_machine_as_test(machine(Rig(redis_client)), settings=profile(DEFAULT_EXAMPLES))


@pytest.mark.slow
@pytest.mark.timeout(LONG_S)
def test_on_the_other_servers_too(each_flavour: Flavour, each_redis_client: redis.Redis) -> None:
    if each_flavour is default_flavour():
        pytest.skip("the test above runs on this one")
    run_state_machine_as_test(machine(Rig(each_redis_client)), settings=profile(OTHER_EXAMPLES))
