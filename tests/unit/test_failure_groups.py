"""Which failures count as the same error, and how they are counted."""

from __future__ import annotations

import time

import pytest

from delayq.core.errors import InvalidInput
from delayq.core.failure import Failure
from delayq.core.failure_groups import GROUPS_KEPT, Grouping, check_signature, common_message, signature_of
from delayq.core.states import State
from delayq.core.views import JobInfo

UUID = "550e8400-e29b-41d4-a716-446655440000"


@pytest.mark.parametrize(
    ("one", "other", "common"),
    [
        ("order 41 is gone", "order 7 is gone", "order # is gone"),
        ("timed out after 3.5s", "timed out after 12.25s", "timed out after #s"),
        (f"no user {UUID}", "no user 6ba7b810-9dad-11d1-80b4-00c04fd430c8", "no user #"),
        ("object at 0x7f00aa10", "object at 0x7FFFE120", "object at #"),
        ("commit deadbee1 failed", "commit 0badcafe failed", "commit # failed"),
        ("no key 'name'", "no key 'address'", "no key #"),
        ('no key "name"', 'no key "a b c"', "no key #"),
        ("10.0.0.1:6379 refused", "192.168.17.4:80 refused", "# refused"),
        ("line one\n  line 2", "line one line 3", "line one line #"),
        ("id 01HV9K4X8Q3ZJ6T5N7M2P0RABC", "id 9z8y7x6w5v4u3t2s1r", "id #"),
    ],
)
def test_details_do_not_tell_errors_apart(one: str, other: str, common: str) -> None:
    assert common_message(one) == common
    assert common_message(other) == common
    assert signature_of("a", Failure("E", one)) == signature_of("a", Failure("E", other))


def test_words_apostrophes_name_and_type_do() -> None:
    assert common_message("it can't be, and won't be") == "it can't be, and won't be"
    assert common_message("deadbeef beefcafe") == "deadbeef beefcafe"  # words without a digit
    signatures = {
        signature_of(name, Failure(kind, message))
        for name in ("a", "b")
        for kind in ("E", "F")
        for message in ("no stock", "no money")
    }
    assert len(signatures) == 8
    assert signature_of("a", None) != signature_of("a", Failure("E", ""))


def test_a_message_made_to_be_slow_is_not() -> None:
    started = time.process_time()
    for text in ("'a" * 2_000, '"' * 4_000, "a-" * 2_000, "a" * 4_000, "1." * 2_000, "0x" * 2_000):
        common_message(text)
    assert time.process_time() - started < 0.5


def failed(number: int, message: str, queue: str = "orders") -> JobInfo:
    return JobInfo(f"j{number}", queue, State.FAILED, b"", None, failed_ms=number, failure=Failure("E", message))


def test_groups_have_count_first_last_sample_and_queues() -> None:
    grouping = Grouping()
    grouping.add([failed(3, "no 3"), failed(9, "no 9", "mail"), failed(5, "other"), failed(1, "no 1")])
    large, small = grouping.groups("", 4).groups
    assert (large.count, large.first_ms, large.last_ms, large.queues) == (3, 1, 9, ("mail", "orders"))
    assert (large.message, large.sample.id) == ("no #", "j9")
    assert (small.count, small.first_ms, small.last_ms, small.message) == (1, 5, 5, "other")


def test_the_number_of_groups_is_bounded_and_the_rest_counted() -> None:
    letters = [f"{chr(97 + n // 676)}{chr(97 + n // 26 % 26)}{chr(97 + n % 26)}" for n in range(GROUPS_KEPT + 7)]
    grouping = Grouping()
    grouping.add(failed(n, text) for n, text in enumerate([*letters, letters[0]]))
    found = grouping.groups("", len(letters) + 1)
    assert len(found.groups) == GROUPS_KEPT
    assert found.others == 7
    assert sum(group.count for group in found.groups) + found.others == found.looked


@pytest.mark.parametrize("text", ["", "x", "3F2A91C04BE7D815", "3f2a91c04be7d8151", "'; drop"])
def test_what_is_no_signature_is_refused(text: str) -> None:
    with pytest.raises(InvalidInput, match="not a signature"):
        check_signature(text)
