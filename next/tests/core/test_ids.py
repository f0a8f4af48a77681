"""The ids that delayq makes."""

import base64
import subprocess
import sys
import uuid

import pytest

from delayq.core import ids
from delayq.core.names import check_id


def test_ids_are_unique_and_fit_the_grammar() -> None:
    made = {ids.new_id() for _ in range(10_000)}
    assert len(made) == 10_000
    assert all(len(check_id(job_id)) == 26 for job_id in made)


FORKS = """
import multiprocessing
from delayq.core import ids

def tails_of_ids():
    return [ids.new_id()[-16:] for _ in range(10)]

ids.new_id()  # from here on a stock of noise is there
with multiprocessing.get_context("fork").Pool(2, maxtasksperchild=1) as children:
    made = [children.apply(tails_of_ids) for _ in range(3)]
made.append(tails_of_ids())
assert len({tail for tails in made for tail in tails}) == 4 * 10
"""
"""Compares the ends of ids, which do not come from the clock. A process of the tests has threads, and is not forked."""


def test_a_forked_process_makes_ids_of_its_own() -> None:
    subprocess.run([sys.executable, "-c", FORKS], check=True)


def test_the_noise_of_an_id_uses_every_letter_that_its_fixed_bits_allow() -> None:
    tails = [ids.new_id()[-16:] for _ in range(2_000)]
    letters = ["".join(sorted({tail[place] for tail in tails})) for place in range(16)]
    every = "0123456789abcdefghijklmnopqrstuv"
    assert letters == ["opqrstuv", every, every[1::2], every[:16], *[every] * 11, every[::4]]


def test_an_id_is_a_uuid_of_version_7_with_the_time_in_front(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("delayq.core.ids.time.time_ns", lambda: 1_800_000_000_123_999_999)
    padded = f"{ids.new_id()}======".upper()
    made = uuid.UUID(bytes=base64.b32hexdecode(padded))
    assert (made.version, made.variant) == (7, uuid.RFC_4122)
    assert made.int >> 80 == 1_800_000_000_123


def test_ids_of_later_milliseconds_sort_later(monkeypatch: pytest.MonkeyPatch) -> None:
    made = []
    for ms in (1, 31, 32, 1_800_000_000_000, 1_800_000_000_001, 2**48 - 1):
        monkeypatch.setattr("delayq.core.ids.time.time_ns", lambda ms=ms: ms * 1_000_000)
        made.append(ids.new_id())
    assert made == sorted(made)


def test_ids_need_no_fork() -> None:
    """Windows has no `register_at_fork`, but it has clients."""
    program = "import os; del os.fork, os.register_at_fork; import delayq; delayq.DelayQ('redis://127.0.0.1:1')"
    subprocess.run([sys.executable, "-c", program], timeout=60, check=True)
