"""The real worker, a supervisor and its child, over every connection that one can serve."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tests.contract.backend import IT
from tests.contract.rig import Rig
from tests.support.cli import ROOT, Cli, end, environment
from tests.support.waiting import wait_until

pytestmark = pytest.mark.needs("serves")


@pytest.fixture
def cli(rig: Rig, tmp_path: Path) -> Iterator[Cli]:
    """`delayq --connection it …` with the settings of the rig in a file, and the suite's own driver installed."""
    told = tmp_path / "delayq.toml"
    told.write_text("\n".join(_toml(dict(rig.given))) + "\n", encoding="utf-8")
    plugin = tmp_path / "site" / "delayq_shelf-1.0.dist-info"
    plugin.mkdir(parents=True)
    (plugin / "METADATA").write_text("Metadata-Version: 2.1\nName: delayq-shelf\nVersion: 1.0\n")
    (plugin / "entry_points.txt").write_text("[delayq.drivers]\nshelf = tests.support.shelf:backend\n")
    paths = f"{plugin.parent}:{ROOT}"
    with closing(Cli(tmp_path, {**environment(DELAYQ_CONFIG=str(told)), "PYTHONPATH": paths})) as cli:
        yield cli


def work(cli: Cli, rig: Rig, *queues: str) -> tuple[str, ...]:
    """The words of a worker that leaves when nothing is left to do."""
    served = ",".join(queues or (rig.queue,))
    return ("--connection", IT, "work", "--app", "tests.contract.shop", "--queue", served)


def test_a_worker_runs_what_is_there_and_leaves(rig: Rig, cli: Cli, tmp_path: Path) -> None:
    high, path = rig.new_queue(), tmp_path / "said"
    for n in range(3):
        rig.schedule("contract.note", {"path": str(path), "text": f"low {n}"})
    rig.schedule("contract.note", {"path": str(path), "text": "high"}, queue=high)
    failed = rig.schedule("contract.fails", {"path": str(tmp_path / "tries")})
    done = cli(*work(cli, rig, high, rig.queue), "--stop-when-empty")
    assert (done.code, path.read_text().split("\n")) == (0, ["high", "low 0", "low 1", "low 2", ""]), done.err
    assert (tmp_path / "tries").read_text() == "tried\n" * 2
    assert rig.failure_of(failed.id) == "never works"
    assert rig.nothing(rig.consumer())


@pytest.mark.lease("2s")
def test_a_job_survives_the_death_of_its_process(rig: Rig, cli: Cli, tmp_path: Path) -> None:
    path = tmp_path / "said"
    worker = cli.start(*work(cli, rig))
    rig.schedule("contract.kills", {"path": str(path)})
    wait_until(lambda: path.exists() and "done" in path.read_text(), timeout=40, what="the job runs to its end")
    assert path.read_text() == "started\nstarted\ndone\n"
    worker.terminate()
    assert end(worker).code == 0
    assert rig.nothing(rig.consumer())


def _toml(table: Mapping[str, Any], name: str = "") -> Iterator[str]:
    """Settings as a file has them: plain members first, then the tables."""
    if name:
        yield f"[{name}]"
    inner = {key: value for key, value in table.items() if isinstance(value, Mapping)}
    for key, value in table.items():
        if key not in inner:
            yield f"{key} = {json.dumps(value)}"
    for key, value in inner.items():
        yield from _toml(value, f"{name}.{key}" if name else key)
