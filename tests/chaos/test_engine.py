"""The engine keeps its word: a broken promise is told, a stopped run goes on, a seed plays the same lot again."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.chaos.catalogue import SCENARIOS
from tests.chaos.engine import Lot, Record, Scenario, Tally, play, play_lot


class Stopped(Exception):
    """As if somebody had stopped the run."""


class Told:
    """A scenario that writes down its lots, and stops before one of them."""

    def __init__(self, stop_before: int = -1) -> None:
        self.lots: list[tuple[int, int, int]] = []
        self.stop_before = stop_before

    def scenario(self) -> Scenario:
        return Scenario(
            name="told", holds="it is told", promises=("P1",), unit="lots", units=25, lot=10, play=self._play
        )

    def _play(self, lot: Lot) -> Tally:
        if lot.number == self.stop_before:
            raise Stopped
        self.lots.append((lot.number, lot.units, lot.own_seed))
        return Tally().add(done=lot.units).time("took", float(lot.number))


def silent(line: str) -> None:
    assert line


def test_a_run_that_was_stopped_goes_on_where_it_was(tmp_path: Path) -> None:
    first, second = Told(stop_before=1), Told()
    with pytest.raises(Stopped):
        play(first.scenario(), Record(tmp_path, "told", seed=7), 25, silent)
    total = play(second.scenario(), Record(tmp_path, "told"), 25, silent)
    assert [(number, units) for number, units, _ in first.lots + second.lots] == [(0, 10), (1, 10), (2, 5)]
    assert total.counts == {"done": 25}
    assert total.times_ms == {"took": [0.0, 1.0, 2.0]}
    assert Record(tmp_path, "told").seed == 7


def test_the_same_seed_plays_the_same_lots(tmp_path: Path) -> None:
    runs = [Told() for _ in range(3)]
    for run, seed in zip(runs, (7, 7, 8), strict=True):
        play(run.scenario(), Record(tmp_path / str(id(run)), "told", seed), 25, silent)
    assert runs[0].lots == runs[1].lots
    assert runs[0].lots != runs[2].lots
    assert len({seed for _, _, seed in runs[0].lots}) == 3, "each lot has its own numbers"


def test_another_seed_or_size_begins_anew(tmp_path: Path) -> None:
    play(Told().scenario(), Record(tmp_path, "told", seed=7), 25, silent)
    assert Record(tmp_path, "told", seed=8).lots == {}
    record = Record(tmp_path, "told", seed=7)
    assert record.has(2, 5)
    assert not record.has(2, 10)


def test_so_many_lots_and_no_more(tmp_path: Path) -> None:
    told = Told()
    for _ in range(2):
        play(told.scenario(), Record(tmp_path, "told"), 25, silent, most=1)
    assert [number for number, _, _ in told.lots] == [0, 1]


def test_a_broken_promise_is_not_written_down(tmp_path: Path) -> None:
    def broken(lot: Lot) -> Tally:
        raise AssertionError(f"{lot.units} were lost")

    one = Scenario(name="told", holds="it", promises=(), unit="lots", units=1, lot=1, play=broken)
    with pytest.raises(AssertionError, match="1 were lost"):
        play(one, Record(tmp_path, "told"), 1, silent)
    assert not Record(tmp_path, "told").path.exists()
    with pytest.raises(AssertionError):
        play_lot(one, seed=1, number=0, units=1)


def test_a_figure_is_readable() -> None:
    tally = Tally().add(jobs=1_000_000, lost=0).time("started_again_after", 3.0, 1.0, 2.0)
    assert str(tally) == "1,000,000 jobs, 0 lost, started again after p50 2 ms, p99 3 ms, worst 3 ms"


def test_scenarios_are_sized_sensibly() -> None:
    for one in SCENARIOS.values():
        assert 0 <= one.smoke <= one.units
        assert one.lot <= one.units
        assert one.promises
