"""How long the state machine runs: a minute's worth in CI, always the same; or deep, and different every time."""

from __future__ import annotations

import os

from hypothesis import HealthCheck, Phase, settings

CI_STEPS = 40
DEEP_STEPS = 60
DEEP_FACTOR = 40


def deep() -> bool:
    """Whether `DELAYQ_HYPOTHESIS=deep` asks for the long run. Another value would silently mean something else."""
    named = os.environ.get("DELAYQ_HYPOTHESIS", "")
    assert named in {"", "ci", "deep"}, f"DELAYQ_HYPOTHESIS is '{named}'; the values are 'ci' and 'deep'"
    return named == "deep"


def profile(examples: int) -> settings:
    """Settings for `examples` runs in CI, and forty times as many, of more steps each, in a deep run.

    A step talks to a server a few times, so there is no deadline for one. CI draws the same runs every time; a deep
    run draws its own, and prints what brings a failure back.
    """
    common = settings(deadline=None, suppress_health_check=list(HealthCheck), phases=(Phase.generate, Phase.shrink))
    if deep():
        return settings(common, max_examples=DEEP_FACTOR * examples, stateful_step_count=DEEP_STEPS, print_blob=True)
    return settings(
        common, max_examples=examples, stateful_step_count=CI_STEPS, derandomize=True, database=None, print_blob=False
    )


def hunt(examples: int) -> settings:
    """Settings to find something at all: always the same runs, and no time spent on making the finding short."""
    return settings(
        max_examples=examples,
        stateful_step_count=CI_STEPS,
        deadline=None,
        derandomize=True,
        database=None,
        suppress_health_check=list(HealthCheck),
        phases=(Phase.generate,),
    )
