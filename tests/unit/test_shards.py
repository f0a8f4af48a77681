"""Where a job lies: pure."""

from __future__ import annotations

from collections import Counter
from zlib import crc32

import pytest
from hypothesis import given
from hypothesis import strategies as st

from delayq.core.errors import InvalidInput
from delayq.core.names import made_here, new_id
from delayq.core.shards import (
    MOST,
    MOST_BEFORE,
    PLAIN,
    Layout,
    all_shards,
    in_turn,
    is_shard,
    key_of,
    next_cursor,
    number_for,
    number_of,
    queue_of,
    read_cursor,
    read_layout,
    shard_of,
)

counts = st.integers(1, MOST)


def test_the_number_is_the_crc_32_of_the_key_modulo_the_count() -> None:
    assert crc32(b"123456789") == 0xCBF43926  # the check value of CRC-32: what other languages compare theirs with
    assert number_for("123456789", 4) == 0xCBF43926 % 4
    assert number_for("anything", 1) == 0


def test_keys_spread_evenly() -> None:
    found = Counter(number_for(f"order-{n}", 8) for n in range(80_000))
    assert sorted(found) == list(range(8))
    assert all(9_000 < jobs < 11_000 for jobs in found.values())


def test_the_unique_key_decides_before_the_id_and_its_window_does_not() -> None:
    assert key_of("order-1", "") == "order-1"
    assert key_of("order-1", "d1g3st") == "d1g3st"
    assert key_of("order-1", "d1g3st.60000") == "d1g3st"


@given(st.from_regex(r"[A-Za-z0-9][A-Za-z0-9._:-]{0,20}", fullmatch=True), st.integers(0, MOST - 1))
def test_a_shard_is_called_by_its_queue_and_number(queue: str, number: int) -> None:
    shard = shard_of(queue, number)
    assert (queue_of(shard), number_of(shard)) == (queue, number)
    assert is_shard(shard) is (number > 0)


@given(st.integers(0, 2**50), counts, st.lists(counts, max_size=MOST_BEFORE, unique=True))
def test_a_layout_comes_back_as_it_was_written(epoch: int, count: int, before: list[int]) -> None:
    layout = Layout(count, epoch, tuple(before)) if epoch else PLAIN
    assert read_layout(str(layout)) == layout


@pytest.mark.parametrize("text", ["", "1", "4", "x", "4:", ":4", "5:4<", "5:0", "5:300", "05:4", "5:4<300", "5:4\n"])
def test_what_is_no_layout_reads_as_one_shard(text: str) -> None:
    assert read_layout(text) == PLAIN


def test_a_queue_that_was_never_sharded_is_written_as_ever() -> None:
    assert str(PLAIN) == "1"
    assert PLAIN.shards("orders") == ("orders",)
    assert not PLAIN.spread


def test_a_change_keeps_the_earlier_numbers_and_lists_every_shard_of_theirs() -> None:
    four = PLAIN.changed(4, 1_000)
    two = four.changed(2, 900)  # a clock that went back makes no older layout
    assert str(four) == "1000:4<1"
    assert str(two) == "1001:2<4<1"
    assert two.shards("orders") == ("orders", "orders#1", "orders#2", "orders#3")
    assert str(two.changed(4, 2_000)) == "2000:4<2<1"
    assert str(two.ended(2_000)) == "2000:2"
    assert two.ended(2_000).shards("orders") == ("orders", "orders#1")


@pytest.mark.parametrize("count", [0, -1, MOST + 1])
def test_a_number_that_cannot_be_is_refused(count: int) -> None:
    with pytest.raises(InvalidInput, match="1 to 256 shards"):
        PLAIN.changed(count, 1)


def test_more_earlier_numbers_than_can_be_asked_for_are_refused_and_going_back_is_not() -> None:
    layout = PLAIN
    for count in range(2, MOST_BEFORE + 2):
        layout = layout.changed(count, 1)
    with pytest.raises(InvalidInput, match="no more can be kept apart"):
        layout.changed(100, 1)
    assert layout.changed(3, 1).count == 3


def test_each_shard_of_a_queue_comes_first_in_its_turn_and_queues_keep_their_order() -> None:
    shards = {"a": ["a", "a#1", "a#2"], "b": ["b"]}
    assert in_turn(shards, ["a", "b"], 0) == ["a", "a#1", "a#2", "b"]
    assert in_turn(shards, ["a", "b"], 1) == ["a#1", "a#2", "a", "b"]
    assert in_turn(shards, ["b", "a"], 5) == ["b", "a#2", "a", "a#1"]


def test_queues_that_are_served_bring_their_shards_and_no_others() -> None:
    known = ["orders#10", "mail#1", "orders", "orders#2", "x"]
    assert all_shards(("orders", "new"), known) == ("orders", "orders#2", "orders#10", "new")


def test_a_cursor_goes_from_shard_to_shard() -> None:
    assert next_cursor(0, "5 a b", 1) == "5 a b"
    assert read_cursor("5 a b") == (0, "5 a b")
    assert read_cursor(next_cursor(0, "5 a b", 3)) == (0, "5 a b")
    assert read_cursor(next_cursor(0, "", 3)) == (1, "")
    assert next_cursor(2, "", 3) == ""


def test_ids_made_here_are_told_from_others() -> None:
    assert made_here(new_id())
    assert not made_here("order-1")
