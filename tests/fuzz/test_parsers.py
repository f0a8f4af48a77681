"""The corpus, and what hypothesis makes of it: a few examples here, as many as there is time with `make fuzz`.

    make fuzz                               two minutes for each parser: this, and `guided`
    make fuzz SECONDS=600 ONLY=envelope

What is found belongs into `corpus/<parser>/`, as a file of its own, with the mend.
"""

from __future__ import annotations

import os
import random
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from hashlib import sha256
from importlib.util import find_spec
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from delayq.core.options import Options
from delayq.core.states import State
from delayq.redis.client import Client
from delayq.redis.connect import Connector
from tests.fuzz.parsers import CORPUS, PARSERS, feed, refusal, seeds

ROOT = Path(__file__).resolve().parents[2]
SECONDS = float(os.environ.get("DELAYQ_FUZZ_SECONDS", "0"))


@pytest.mark.parametrize("parser", PARSERS)
def test_the_corpus(parser: str) -> None:
    for raw in seeds(parser):
        feed(parser, raw)


@pytest.mark.parametrize("parser", PARSERS)
def test_examples(parser: str) -> None:
    """Derived from the corpus, the same ones each time: what CI says of a commit does not depend on chance."""
    known = seeds(parser)
    pieces = st.sampled_from(known) if known else st.binary(max_size=64)
    made = st.one_of(
        st.binary(max_size=200),
        st.text(max_size=60).map(lambda text: text.encode("utf-8", "surrogatepass")),
        st.tuples(pieces, st.binary(max_size=8), st.integers(0, 400), st.integers(0, 8)).map(_spliced),
        st.lists(pieces, max_size=3).map(b"".join),
    )

    @settings(max_examples=60, derandomize=True, database=None)
    @given(made)
    def check(raw: bytes) -> None:
        feed(parser, raw)

    check()


def test_guided(tmp_path: Path) -> None:
    """A planted find ends the run and is written down; `guided` finds it by itself, from the corpus of durations."""
    if not find_spec("atheris"):
        assert not os.environ.get("CI"), "atheris is part of the extra `test` on Linux"
        pytest.skip("SKIPPED: atheris is not installed (pip install atheris)")
    given = [sys.executable, "-m", "tests.fuzz.guided", "duration", "--runs", "20000", "--seed", "7", "--plant"]
    words = [*given, "--kept", str(tmp_path / "kept"), "--found", str(tmp_path)]
    done = subprocess.run(words, capture_output=True, text=True, check=False, cwd=ROOT)
    assert done.returncode == 77, done.stderr[-2_000:]
    [found] = tmp_path.glob("crash-*")
    assert b"h" in found.read_bytes()


def _spliced(parts: tuple[bytes, bytes, int, int]) -> bytes:
    raw, more, at, gone = parts
    at %= len(raw) + 1
    return raw[:at] + more + raw[at + gone :]


def test_cursors(redis_url: str) -> None:
    """They are read by a script; whatever is sent as one, the answer is a page or one of delayq's own errors."""
    chance = random.Random(7)
    connector = Connector(redis_url)
    q = Client(connector, Options())
    q.schedule_many([{"name": "n", "id": f"j{n}", "delay": "1h"} for n in range(5)])
    pieces = [
        "j1",
        "0",
        "-1",
        "1e400",
        "nan",
        " ",
        "\0",
        "(",
        "[",
        "+",
        "-",
        "9" * 40,
        "1-1",
        "x",
        "\u202e",
        "1800000000000",
    ]
    for _ in range(150):
        cursor = "".join(chance.choices(pieces, k=chance.randrange(1, 4)))
        for state in (State.SCHEDULED, State.READY, State.FAILED):
            said = refusal(partial(_page, q, state), cursor)
            assert said is None or said.exit_code in (1, 2), cursor
    assert q.stats("default")[0].scheduled == 5
    q.clear()
    connector.close()


def _page(q: Client, state: State, cursor: str) -> object:
    return q.list_jobs(state, cursor=cursor, limit=3)


if SECONDS:

    @pytest.mark.timeout(0)
    @pytest.mark.parametrize("parser", PARSERS)
    def test_for_long(parser: str, record_property: Callable[[str, object], None]) -> None:
        """Bytes changed at random, for a while; what raises anything of others is written into the corpus."""
        seed = int(os.environ.get("DELAYQ_FUZZ_SEED", "0")) or random.randrange(1, 1 << 32)
        chance, known, tried = random.Random(seed), seeds(parser) or [b"x"], 0
        end = time.monotonic() + SECONDS
        while time.monotonic() < end:
            raw, tried = _mutated(chance, known), tried + 1
            try:
                feed(parser, raw)
            except Exception:
                found = CORPUS / parser / sha256(raw).hexdigest()[:12]
                found.parent.mkdir(exist_ok=True)
                found.write_bytes(raw)
                raise
        record_property("chaos", f"{parser}: {tried} examples, seed {seed}")


def _mutated(chance: random.Random, known: list[bytes]) -> bytes:
    raw = bytearray(chance.choice(known)[:4_000])
    for _ in range(chance.randrange(1, 6)):
        at = chance.randrange(len(raw) + 1)
        piece = chance.choice([chance.randbytes(chance.randrange(6)), chance.choice(known)])
        raw[at : at + chance.randrange(4)] = piece
    return bytes(raw)
