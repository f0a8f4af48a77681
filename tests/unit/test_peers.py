"""The book of a comparison with other queues, its table and its picture: what was measured, and what broke."""

from __future__ import annotations

import signal
from pathlib import Path
from xml.etree import ElementTree as Xml

import pytest

from benchmarks.machine import describe
from benchmarks.peers.__main__ import main
from benchmarks.peers.book import Book
from benchmarks.peers.catalog import HERE, PEERS, PROGRAMS
from benchmarks.peers.measures import MEASURES
from benchmarks.peers.table import markdown, picture, standing
from benchmarks.server import choose

OURS, BULLMQ, RQ = (next(peer for peer in PEERS if peer.name == name) for name in ("delayq", "BullMQ", "RQ"))
BULK, LONE = (next(measure for measure in MEASURES if measure.name == name) for name in ("enqueue", "lone"))


@pytest.fixture
def book(tmp_path: Path) -> Book:
    found = Book.open(tmp_path / "results.json", {"cores": 2}, fresh=False)
    for figure in (90_000.0, 110_000.0, 100_000.0):
        found.add(OURS, BULK, figure)
    found.add(OURS, LONE, 0.5)
    found.add(BULLMQ, BULK, 30_000.0)
    found.add(BULLMQ, LONE, 1.5)
    found.give_up(RQ, BULK, "the worker ended: <no> reason & rhyme")
    return found


def test_a_run_that_was_stopped_goes_on_where_it_was(book: Book) -> None:
    again = Book.open(book.path, {"cores": 64}, fresh=False)
    assert again.about == {"cores": 2}, "figures stay with the machine they are of"
    assert [again.done(OURS, BULK), again.done(BULLMQ, BULK), again.done(RQ, LONE)] == [3, 1, 0]
    assert again.done(RQ, BULK) > 100, "what broke is not tried again"
    assert Book.open(book.path, {}, fresh=True).done(OURS, BULK) == 0


def test_a_run_that_goes_on_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    book = Book.open(tmp_path / "results.json", describe(choose()), fresh=False)
    book.add(OURS, LONE, 0.5)
    words = ["--results", str(book.path), "--peer", "delayq", "--only", "lone", "--repeats", "1"]
    before = signal.getsignal(signal.SIGTERM)
    try:
        assert main(words) == 0
    finally:
        signal.signal(signal.SIGTERM, before)
    assert capsys.readouterr().err.splitlines() == [
        f"Runs kept in {book.path}, not measured again: 1; --fresh begins anew."
    ]


def test_the_table_has_medians_their_spread_and_what_broke(book: Book) -> None:
    lines = markdown(book, [OURS, BULLMQ, RQ], [BULK, LONE]).splitlines()
    assert lines[0] == "|  | bulk enqueue, jobs/s | lone job to its start, ms |"
    assert "| delayq | 100,000 (90,000 – 110,000) | 0.5 |" in lines
    assert "| RQ | broke | – |" in lines
    assert lines[-1] == "* RQ, bulk enqueue: the worker ended: <no> reason & rhyme."


def test_delayq_stands_beside_the_best_of_the_others(book: Book) -> None:
    lines = standing(book, [OURS, BULLMQ, RQ], [BULK, LONE]).splitlines()
    assert lines[2:] == ["| bulk enqueue | – | 3.33 × BullMQ |", "| lone job to its start | – | 3.00 × BullMQ |"]


def test_the_picture_is_drawn_the_best_on_top(book: Book) -> None:
    drawn = Xml.fromstring(picture(book, [OURS, BULLMQ, RQ], [BULK, LONE]))
    words = [element.text for element in drawn.iter("{http://www.w3.org/2000/svg}text")]
    assert words == [
        "bulk enqueue, jobs/s (more is better)", "delayq", "100,000", "BullMQ", "30,000",
        "lone job to its start, ms (less is better)", "delayq", "0.5", "BullMQ", "1.5",
    ]  # fmt: skip
    widths = [float(bar.attrib["width"]) for bar in drawn.iter("{http://www.w3.org/2000/svg}rect")]
    assert widths[0] / widths[1] == pytest.approx(100 / 30, rel=0.01)


def test_every_peer_has_its_program_and_exact_pins() -> None:
    for peer in PEERS:
        assert (PROGRAMS / peer.program).is_file()
        if peer.requires.endswith(".txt"):
            assert all("==" in line for line in peer.pinned.read_text(encoding="utf-8").split())
    assert {path.name for path in (HERE / "requirements").iterdir()} == {peer.requires for peer in PEERS} - {""}
