"""What is said of shards holds where they lie on different nodes: the load, and what people ask, again on a cluster."""

from __future__ import annotations

import pytest

from tests.integration.shards.test_under_load import test_nothing_is_lost_or_run_twice
from tests.integration.shards.test_whole_queue import (
    four,
    test_a_client_that_knows_no_shards_finds_every_job,
    test_a_layout_that_the_first_shard_lost_is_written_back,
    test_a_pause_and_a_lease_are_of_all_shards_and_of_those_that_join,
    test_counts_and_pages_are_of_all_shards,
    test_failed_jobs_of_all_shards_are_found_retried_and_forgotten,
    test_shards_that_are_left_over_are_forgotten_when_they_are_empty,
)
from tests.support.topologies import Kind

__all__ = [
    "four",
    "test_a_client_that_knows_no_shards_finds_every_job",
    "test_a_layout_that_the_first_shard_lost_is_written_back",
    "test_a_pause_and_a_lease_are_of_all_shards_and_of_those_that_join",
    "test_counts_and_pages_are_of_all_shards",
    "test_failed_jobs_of_all_shards_are_found_retried_and_forgotten",
    "test_nothing_is_lost_or_run_twice",
    "test_shards_that_are_left_over_are_forgotten_when_they_are_empty",
]


@pytest.fixture
def topology() -> Kind:
    return Kind.CLUSTER
