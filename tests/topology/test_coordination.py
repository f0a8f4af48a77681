"""What the suites of coordination, limits and workers say of one server holds of a cluster: they are run again there.

Chains, batches, limits and unique keys reach over queues, so over nodes: no script may touch two of these at once.
"""

from __future__ import annotations

import pytest

from tests.integration.coordination.test_batches import (
    test_a_batch_in_a_batch_is_one_member,
    test_a_failure_cancels_what_has_not_started,
    test_a_member_may_add_more,
    test_all_succeed,
    test_many_members_travel_in_chunks,
)
from tests.integration.coordination.test_chains import (
    test_a_batch_in_a_chain_ends_before_it_goes_on,
    test_a_failed_link_stops_the_chain_and_tells_who_catches,
    test_a_link_whose_worker_vanishes_is_caught,
    test_a_link_with_a_unique_key_waits_for_its_owner,
    test_each_link_starts_when_the_one_before_has_succeeded,
)
from tests.integration.coordination.test_unique import (
    test_a_second_one_is_told_who_owns_the_key,
    test_a_window_outlives_its_job_and_ends_by_itself,
    test_the_last_of_many_dispatches_runs,
)
from tests.integration.limits.test_places import (
    test_a_place_is_free_as_soon_as_its_job_has_another_entry,
    test_one_at_a_time_for_each_key_unless_shared,
)
from tests.integration.limits.test_rates import test_a_timeout_is_a_failure_of_what_hangs
from tests.integration.worker.test_damage import test_a_plain_xack_closes_the_job
from tests.integration.worker.test_outages import (
    test_damage_that_comes_while_a_worker_is_idle_keeps_nobody_from_the_other_queue,
)
from tests.integration.worker.test_queues import (
    test_a_higher_queue_goes_before_a_lower_one,
    test_a_paused_queue_is_left_alone_until_it_is_resumed,
    test_an_idle_worker_hears_of_every_queue_it_serves,
    test_what_a_blocked_reader_still_gets_is_handed_back_uncounted,
)
from tests.support.topologies import Kind

__all__ = [
    "test_a_batch_in_a_batch_is_one_member",
    "test_a_batch_in_a_chain_ends_before_it_goes_on",
    "test_a_failed_link_stops_the_chain_and_tells_who_catches",
    "test_a_failure_cancels_what_has_not_started",
    "test_a_higher_queue_goes_before_a_lower_one",
    "test_a_link_whose_worker_vanishes_is_caught",
    "test_a_link_with_a_unique_key_waits_for_its_owner",
    "test_a_member_may_add_more",
    "test_a_paused_queue_is_left_alone_until_it_is_resumed",
    "test_a_place_is_free_as_soon_as_its_job_has_another_entry",
    "test_a_plain_xack_closes_the_job",
    "test_a_second_one_is_told_who_owns_the_key",
    "test_a_timeout_is_a_failure_of_what_hangs",
    "test_a_window_outlives_its_job_and_ends_by_itself",
    "test_all_succeed",
    "test_an_idle_worker_hears_of_every_queue_it_serves",
    "test_damage_that_comes_while_a_worker_is_idle_keeps_nobody_from_the_other_queue",
    "test_each_link_starts_when_the_one_before_has_succeeded",
    "test_many_members_travel_in_chunks",
    "test_one_at_a_time_for_each_key_unless_shared",
    "test_the_last_of_many_dispatches_runs",
    "test_what_a_blocked_reader_still_gets_is_handed_back_uncounted",
]

pytestmark = pytest.mark.usefixtures("manager")


@pytest.fixture
def topology() -> Kind:
    return Kind.CLUSTER
