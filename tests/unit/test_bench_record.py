"""What a run of the benchmarks keeps: as it goes, for the next one that goes on, and with what it may be compared."""

from __future__ import annotations

import json
import re
import signal
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from xml.etree import ElementTree as Xml

import pytest

from benchmarks import __main__ as command
from benchmarks import machine
from benchmarks.figures import Report, Row, Samples, Target, compared
from benchmarks.machine import commit, describe
from benchmarks.peers.__main__ import main as peers_main
from benchmarks.peers.book import Book
from benchmarks.plan import Plan
from benchmarks.record import Record
from benchmarks.report import document, read_reports
from benchmarks.server import choose

RATE = Report(
    [compared("one at a time", Samples((8.0, 10.0), "jobs/s"), Samples((10.0, 10.0), "jobs/s"), Target("≥", 0.8, 1.0))],
    ["A note."],
)
LATE = Report(
    [Row("lateness", Samples((4.0, 2.0, 3.0), "ms"), target=Target("≤", 2.5)), Row("sent", Samples((1.0,), "s"))]
)


class Broken(Exception):
    """The machine fails in the middle of a run."""


@pytest.fixture
def measured(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """Two measures in place of all; what was measured. The second breaks once."""
    done, broken = list[str](), [True]

    def first(plan: Plan) -> Report:
        done.append("first")
        return RATE

    def second(plan: Plan) -> Report:
        done.append("second")
        if broken:
            broken.clear()
            raise Broken
        return LATE

    measures = {"first": SimpleNamespace(NAME="first", run=first), "second": SimpleNamespace(NAME="second", run=second)}
    monkeypatch.setattr(command, "MEASURES", measures)
    before = signal.getsignal(signal.SIGTERM)
    yield done
    signal.signal(signal.SIGTERM, before)


def test_a_run_that_stops_keeps_what_it_had_and_goes_on_there(
    measured: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["--out", str(tmp_path)]
    with pytest.raises(Broken):
        command.main(words)
    kept = json.loads((tmp_path / "results.json").read_text(encoding="utf-8"))
    assert list(kept["measures"]) == ["first"]
    assert kept["measures"]["first"]["rows"][0]["ours"]["runs"] == [8.0, 10.0]
    assert "| one at a time | 9 jobs/s (8 – 10) |" in (tmp_path / "results.md").read_text(encoding="utf-8")
    capsys.readouterr()
    assert command.main([*words, "--go-on"]) == 0
    assert measured == ["first", "second", "second"]
    said = capsys.readouterr()
    assert f"Kept in {tmp_path}, not measured again: first." in said.err
    assert "| one at a time |" in said.out
    assert "| lateness |" in said.out
    assert sorted(path.name for path in tmp_path.iterdir()) == ["results.json", "results.md", "results.svg"]


def test_without_asking_everything_is_measured_again(measured: list[str], tmp_path: Path) -> None:
    for _ in range(2):
        assert command.main(["--out", str(tmp_path), "--only", "first"]) == 0
    assert measured == ["first", "first"]


def test_figures_of_another_commit_or_asked_for_otherwise_are_not_kept_beside_these(tmp_path: Path) -> None:
    about = {**describe(choose()), "quick": False, "repeats": 5, "growth": 7}
    Record.open(tmp_path, about).add("first", RATE)
    assert list(Record.open(tmp_path, about).reports) == ["first"]
    for other in (
        {"commit": "abc"},
        {"repeats": 2},
        {"growth": 8},
        {"quick": True},
        {"server": "other"},
        {"cores": 999},
    ):
        assert Record.open(tmp_path, about | other).reports == {}, other


def test_what_was_written_is_read_as_it_was() -> None:
    reports = {"first": RATE, "second": LATE}
    written = document(reports, {})
    assert document(read_reports(json.loads(written)["measures"]), {}) == written


def test_a_smoke_run_judges_nothing_and_writes_over_nothing(
    measured: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert command.main(["--only", "first"]) == 0
    assert "| met |" in capsys.readouterr().out
    assert command.main(["--only", "first", "--quick", "--strict"]) == 0
    said = capsys.readouterr().out
    assert not re.search(r"\b(met|missed)\b", said)
    assert "A smoke run" in said
    smoke = json.loads(Path("build/bench/quick/results.json").read_text(encoding="utf-8"))
    assert smoke["measures"]["first"]["rows"][0]["verdict"] == ""
    assert json.loads(Path("build/bench/results.json").read_text(encoding="utf-8"))["quick"] is False


def test_the_picture_shows_each_row_that_stands_beside_something(tmp_path: Path) -> None:
    record = Record.open(tmp_path, {**describe(choose()), "quick": False, "repeats": 5, "growth": 7})
    record.add("first", RATE)
    record.add("second", LATE)
    drawn = Xml.parse(tmp_path / "results.svg")
    words = [element.text for element in drawn.iter("{http://www.w3.org/2000/svg}text")]
    assert words == [
        "one at a time, jobs/s", "delayq", "9", "bare protocol", "10",
        "lateness, ms", "delayq", "3", "wanted ≤", "2.5",
    ]  # fmt: skip


def test_figures_carry_their_commit_and_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    about = describe(choose())
    assert about["commit"] == commit()
    assert about["cores"] > 0
    assert about["processor"]
    monkeypatch.setattr(machine, "ROOT", tmp_path)
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    assert commit() == "unknown", "an archive has no git"


def test_a_comparison_does_not_go_on_with_figures_of_another_commit(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "results.json"
    path.write_text(json.dumps({"about": {"commit": "abc"}, "runs": {"delayq: lone": [1.0]}, "broken": {}}))
    before = signal.getsignal(signal.SIGTERM)
    try:
        assert peers_main(["--results", str(path), "--peer", "delayq", "--only", "lone", "--repeats", "1"]) == 2
    finally:
        signal.signal(signal.SIGTERM, before)
    assert f"The runs in {path} are of commit abc" in capsys.readouterr().err
    assert Book.open(path, {}, fresh=False).runs == {"delayq: lone": [1.0]}
