"""Names and ids: what is let in, how refusals read, and that ids sort, never repeat and are real UUIDs."""

from __future__ import annotations

import base64
import os
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Callable
from enum import Enum

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from delayq.core import names
from delayq.core.errors import InvalidName
from delayq.core.names import check_batch_name, check_id, check_job_name, check_queue, new_id

FORK_TIMEOUT_S = 20


def as_uuid(made: str) -> uuid.UUID:
    """The UUID an id stands for, read with the standard library alone."""
    return uuid.UUID(bytes=base64.b32hexdecode(made.upper() + "======"))


class Queue(str, Enum):  # noqa: UP042  (the older form, whose members format as 'Queue.ORDERS', is the point)
    ORDERS = "orders"


@pytest.mark.parametrize("name", ["a", "0", "orders", "Orders.v2", "a:b-c_d.e", "9lives", "x" * 128])
def test_a_queue_name_is_let_in(name: str) -> None:
    assert check_queue(name) == name


@pytest.mark.parametrize(
    "name",
    [
        "", " ", ".a", "-a", ":a", "_a", "a b", "a{b}", "{orders}", "orders#3", "a/b", "a\n", "\na", "a\x00",
        "größe", "ｏrders", "１", "a\ud800", "x" * 129,
        pytest.param("x" * 1_000_000, id="huge"), "a,b", "a*", "a\\b", "a'b",
    ],
)  # fmt: skip
def test_a_queue_name_is_refused(name: str) -> None:
    with pytest.raises(InvalidName, match="cannot name a queue"):
        check_queue(name)


@pytest.mark.parametrize(
    "name", ["a", "order.close", "App\\Jobs\\CloseOrder", "größe", "注文.閉じる", "a{b}", "🙂", "x" * 255]
)
def test_a_job_name_is_let_in(name: str) -> None:
    assert check_job_name(name) == name


@pytest.mark.parametrize(
    "name",
    [
        "", " ", "a b", "a\tb", "a\n", "\x00", "a\x7f", "a\x85b", "a\u00a0b", "a\u3000b", "a\u200bb", "a\u202eb",
        "a\u2028b", "\ufeffa", "a\ud800", "x" * 256,
    ],
)  # fmt: skip
def test_a_job_name_is_refused(name: str) -> None:
    with pytest.raises(InvalidName, match="cannot name a job"):
        check_job_name(name)


@pytest.mark.parametrize("job_id", ["1", "!", "~", "order-42", "{a}", "a:b/c?d=e", "x" * 255])
def test_an_id_is_let_in(job_id: str) -> None:
    assert check_id(job_id) == job_id


@pytest.mark.parametrize("job_id", ["", " ", "a b", "a\n", "\x7f", "\x00", "é", "１", "x" * 256])
def test_an_id_is_refused(job_id: str) -> None:
    with pytest.raises(InvalidName, match="cannot be the id of a job"):
        check_id(job_id)


@pytest.mark.parametrize("name", ["", "x" * 255, "Rechnungen im März", "two\nlines"])
def test_a_batch_name_is_let_in(name: str) -> None:
    assert check_batch_name(name) == name


@pytest.mark.parametrize("name", ["x" * 256, "\ud800"])
def test_a_batch_name_is_refused(name: str) -> None:
    with pytest.raises(InvalidName, match="cannot name a batch"):
        check_batch_name(name)


CHECKS = [check_queue, check_job_name, check_id, check_batch_name]


@pytest.mark.parametrize("check", CHECKS)
@pytest.mark.parametrize("value", [None, 1, 1.5, True, b"orders", ["orders"], pytest.param(10**5000, id="huge")])
def test_what_is_no_text_is_refused(check: Callable[[str], str], value: object) -> None:
    with pytest.raises(InvalidName):
        check(value)  # type: ignore[arg-type]


@pytest.mark.parametrize("check", CHECKS)
def test_a_member_of_a_text_enum_becomes_plain_text(check: Callable[[str], str]) -> None:
    checked = check(Queue.ORDERS)
    assert type(checked) is str
    assert f"{checked}" == "orders"


@pytest.mark.parametrize("check", CHECKS)
@given(text=st.text(st.characters(categories=None)))
@example("\ud800")
@example("\x1b[31m{")
@example("\u202e{}\n" * 500)
def test_a_refusal_is_one_short_line_that_can_be_printed(check: Callable[[str], str], text: str) -> None:
    try:
        check(text)
    except InvalidName as refused:
        said = str(refused)
        said.encode("utf-8")
        assert said.isprintable()
        assert len(said) < 600  # 40 characters of the value, each escaped to ten at worst, and our own words
        assert "Use 1 to" in said


def test_a_refusal_shows_the_value_and_the_way_out() -> None:
    with pytest.raises(InvalidName) as refused:
        check_queue("a{b}\x07")
    assert refused.value.message == "'a{b}\\x07' cannot name a queue."
    assert "A-Z a-z 0-9 . _ : -" in refused.value.hint
    assert refused.value.exit_code == 2


def test_an_id_is_a_uuid_version_7_of_this_moment() -> None:
    before = time.time_ns() // 1_000_000
    made = new_id()
    after = time.time_ns() // 1_000_000
    assert len(made) == 26
    assert set(made) <= set("0123456789abcdefghijklmnopqrstuv")
    assert check_id(made) == made
    read = as_uuid(made)
    assert read.version == 7
    assert read.variant == uuid.RFC_4122
    # Other tests may have run the process's ids ahead of a stopped clock by a few ticks, not by a second.
    assert before <= read.int >> 80 <= after + 1_000


@pytest.mark.parametrize(
    ("clock_ns", "head"),
    [
        # 2022-02-22T19:22:22Z is the example of RFC 9562, A.6; half a millisecond later is 2048 of 4096 ticks.
        (0x017F22E279B0 * 1_000_000, "017f22e2-79b0-7000"),
        (0x017F22E279B0 * 1_000_000 + 500_000, "017f22e2-79b0-7800"),
        (0x017F22E279B7 * 1_000_000 + 999_999, "017f22e2-79b7-7fff"),
        (0x017F22E279B8 * 1_000_000, "017f22e2-79b8-7000"),
    ],
)
def test_the_time_stands_in_an_id_as_rfc_9562_has_it(monkeypatch: pytest.MonkeyPatch, clock_ns: int, head: str) -> None:
    monkeypatch.setattr("delayq.core.names.time.time_ns", lambda: clock_ns)
    made = as_uuid(names._Ids().make())
    assert str(made)[:18] == head
    assert made.variant == uuid.RFC_4122


def test_ids_sort_as_they_were_made_as_text_and_as_uuids() -> None:
    made = [new_id() for _ in range(20_000)]
    assert made == sorted(made)
    assert len(set(made)) == len(made)
    assert [as_uuid(one) for one in made] == sorted(as_uuid(one) for one in made)


@given(steps=st.lists(st.integers(-3_600_000_000_000, 20_000_000), min_size=1, max_size=60))
def test_ids_keep_their_order_whatever_the_clock_does(steps: list[int]) -> None:
    clock = 1_700_000_000_000_000_000
    ids = names._Ids()
    made = []
    with pytest.MonkeyPatch.context() as patched:
        for step in steps:
            clock += step
            patched.setattr("delayq.core.names.time.time_ns", lambda now=clock: now)
            made += [ids.make(), ids.make()]
    assert made == sorted(set(made))


def test_every_random_bit_takes_both_values() -> None:
    ones, zeros = 0, 0
    for _ in range(2_000):
        number = as_uuid(new_id()).int
        ones |= number
        zeros |= ~number
    random_bits = (1 << 62) - 1
    assert ones & random_bits == random_bits
    assert zeros & random_bits == random_bits


def test_ids_are_unique_over_threads_and_sorted_within_each() -> None:
    made: list[list[str]] = [[] for _ in range(8)]
    start = threading.Barrier(len(made))

    def work(mine: list[str]) -> None:
        start.wait()
        mine.extend(new_id() for _ in range(3_000))

    threads = [threading.Thread(target=work, args=(mine,)) for mine in made]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for mine in made:
        assert len(mine) == 3_000
        assert mine == sorted(mine)
    assert len({one for mine in made for one in mine}) == 24_000


FORK = """
import os
from delayq.core.names import new_id
new_id()  # so that random ends are at hand when the process forks
reader, writer = os.pipe()
child = os.fork()
made = "\\n".join(new_id() for _ in range(300))
if child == 0:
    os.write(writer, made.encode())
    os._exit(0)
os.waitpid(child, 0)
print(os.read(reader, 65536).decode())
print(made)
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_forked_child_shares_no_random_ends() -> None:
    ran = subprocess.run(
        [sys.executable, "-c", FORK], capture_output=True, text=True, timeout=FORK_TIMEOUT_S, check=True
    )
    made = ran.stdout.split()
    assert len(made) == 600
    assert len({one[-12:] for one in made}) == 600
