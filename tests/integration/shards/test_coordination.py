"""Chains and batches whose jobs lie in the shards of their queues: the stories of queues that are whole, again."""

from __future__ import annotations

import pytest

from tests.integration.coordination.test_batches import (
    steps,
    test_a_failure_cancels_what_has_not_started,
    test_all_succeed,
)
from tests.integration.coordination.test_chains import (
    test_a_batch_in_a_chain_ends_before_it_goes_on,
    test_a_failed_link_stops_the_chain_and_tells_who_catches,
    test_each_link_starts_when_the_one_before_has_succeeded,
)
from tests.integration.jobs.conftest import bare, manager, station
from tests.support.station import Station
from tests.support.steps import QUEUES

__all__ = [
    "bare",
    "manager",
    "station",
    "steps",
    "test_a_batch_in_a_chain_ends_before_it_goes_on",
    "test_a_failed_link_stops_the_chain_and_tells_who_catches",
    "test_a_failure_cancels_what_has_not_started",
    "test_all_succeed",
    "test_each_link_starts_when_the_one_before_has_succeeded",
]

pytestmark = pytest.mark.usefixtures("manager", "in_shards")


@pytest.fixture
def in_shards(station: Station) -> None:
    """Every queue of a story has three shards."""
    for queue in QUEUES:
        station.client.queue_set(queue, shards=3)
