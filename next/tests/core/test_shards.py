"""The names of shards, and the shard of a job."""

from collections import Counter

import pytest

from delayq.core.errors import InvalidInput
from delayq.core.ids import new_id
from delayq.core.shards import check_shards, queue_of, shard_names, shard_number, shard_of


def test_the_first_shard_has_the_name_of_the_queue() -> None:
    assert shard_names("orders", 3) == ["orders", "orders#1", "orders#2"]
    assert shard_names("orders", 1) == ["orders"]
    assert {queue_of(shard) for shard in shard_names("orders", 64)} == {"orders"}


def test_the_id_decides_the_shard() -> None:
    """These are the numbers of CRC-32, which programs in other languages compute too."""
    assert [shard_number(job_id, 8) for job_id in ("order-1", "order-2", "order-3", "order-15")] == [7, 5, 3, 0]
    assert shard_of("orders", "order-1", 8) == "orders#7"
    assert shard_of("orders", "order-15", 8) == "orders"
    assert shard_of("orders", "order-1", 1) == "orders"


def test_ids_are_spread_evenly() -> None:
    counts = Counter(shard_number(new_id(), 8) for _ in range(40_000))
    assert all(abs(count - 5_000) <= 500 for count in counts.values())


@pytest.mark.parametrize("count", [0, 65, -1, True, "8", 2.0, None])
def test_a_number_of_shards_that_is_refused(count: object) -> None:
    with pytest.raises(InvalidInput, match="shards is "):
        check_shards(count)  # type: ignore[arg-type]
