"""The scripts against an independent model, step by step, on real servers."""

from __future__ import annotations

import redis
from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import run_state_machine_as_test

from tests.support.model_rig import Rig
from tests.support.model_rules import DelayqMachine

S = settings(max_examples=60, stateful_step_count=40, deadline=None, suppress_health_check=list(HealthCheck))


def test_the_scripts_do_what_the_model_says(redis_client: redis.Redis) -> None:
    run_state_machine_as_test(lambda: DelayqMachine(Rig(redis_client)), settings=S)
