"""Chains and batches over queues whose shards lie on the nodes of a cluster."""

from __future__ import annotations

import pytest

from tests.integration.coordination.test_batches import test_all_succeed
from tests.integration.coordination.test_chains import test_a_batch_in_a_chain_ends_before_it_goes_on
from tests.integration.shards.test_coordination import in_shards
from tests.support.topologies import Kind

__all__ = [
    "in_shards",
    "test_a_batch_in_a_chain_ends_before_it_goes_on",
    "test_all_succeed",
]

pytestmark = pytest.mark.usefixtures("manager", "in_shards")


@pytest.fixture
def topology() -> Kind:
    return Kind.CLUSTER
