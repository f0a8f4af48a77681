"""docker/prometheus and docker/grafana ask for metrics that exist, and for nothing else."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.docs.manuals import ROOT
from tests.docs.test_metrics import process, state
from tests.support.metrics import names, promtool, promtool_test, samples

RULES = ROOT / "docker/prometheus/delayq.rules.yml"
BOARD = ROOT / "docker/grafana/dashboards/delayq.json"
WANTED = {"DelayqMoverStalled", "DelayqLate", "DelayqFailed", "DelayqRedisDown", "DelayqOverdue", "DelayqWritesRefused"}
WANTED |= {"DelayqMemoryNearLimit", "DelayqClockSkew", "DelayqSilentWorker", "DelayqPausedQueueWaits"}


def asked(text: str) -> set[str]:
    """The metrics that are named in queries."""
    return set(re.findall(r"\bdelayq_[a-z_]+\b", text))


def labels() -> dict[str, set[str]]:
    """The labels of each metric."""
    found: dict[str, set[str]] = {}
    for text in (state(), process()):
        for name, said in re.findall(r"^(\w+)(\{[^}]*\})?", text, re.MULTILINE):
            found.setdefault(name, set()).update(re.findall(r'(\w+)="', said))
    return found


def queries() -> list[str]:
    """Every query of the dashboard."""
    board: dict[str, Any] = json.loads(BOARD.read_text())
    return [target["expr"] for panel in board["panels"] for target in panel["targets"]]


@pytest.mark.parametrize("path", [RULES, BOARD], ids=["rules", "board"])
def test_every_metric_that_is_asked_for_exists(path: Any) -> None:
    missing = asked(path.read_text()) - names(state()) - names(process())
    assert not missing
    assert len(asked(path.read_text())) > 5


def test_a_name_that_does_not_exist_would_be_seen() -> None:
    assert asked("rate(delayq_jobs_eaten_total[5m])") - names(state()) == {"delayq_jobs_eaten_total"}


def test_every_label_that_is_selected_exists() -> None:
    known = labels()
    selected = [
        found for text in (*queries(), RULES.read_text()) for found in re.findall(r"(delayq_\w+)\{([^}]*)\}", text)
    ]
    assert selected
    for name, said in selected:
        assert set(re.findall(r"(\w+)=", said)) <= known[name], name


def test_labels_that_prometheus_gives_itself_are_left_as_they_are() -> None:
    theirs = {"job", "instance"}
    assert any("job" in said for said in labels().values())
    jobs = yaml.safe_load(RULES.with_name("prometheus.yml").read_text())["scrape_configs"]
    by_name = {one["job_name"]: one.get("honor_labels", False) for one in jobs}
    for kind, text in (("state", state()), ("processes", process())):
        clash = theirs & set(re.findall(r'[{,](\w+)="', text))
        assert by_name[f"delayq-{kind}"] or not clash, f"{clash} would be called exported_…"


def test_the_alerts_that_everybody_needs_are_there() -> None:
    assert set(re.findall(r"- alert: (\w+)", RULES.read_text())) >= WANTED


def test_the_rules_are_rules() -> None:
    assert promtool("rules", "", str(RULES)) == ""
    assert promtool("config", "", "--syntax-only", str(RULES.with_name("prometheus.yml"))) == ""


def test_the_alerts_fire_when_they_should_and_only_then(tmp_path: Path) -> None:
    assert promtool_test(RULES, ROOT / "tests/docs/alerts.test.yml", tmp_path) == ""


def test_an_alert_that_cannot_fire_is_found(tmp_path: Path) -> None:
    blind = tmp_path / "rules.yml"
    blind.write_text(RULES.read_text().replace("delayq_redis_writable == 0", "delayq_redis_writable == 2"))
    found = promtool_test(blind, ROOT / "tests/docs/alerts.test.yml", tmp_path)
    assert "DelayqWritesRefused" in found or shutil.which("promtool") is None


def test_the_board_is_whole() -> None:
    board = json.loads(BOARD.read_text())
    ids = [panel["id"] for panel in board["panels"]]
    assert len(set(ids)) == len(ids)
    spots = [tuple(panel["gridPos"][side] for side in "xy") for panel in board["panels"]]
    assert len(set(spots)) == len(spots)
    assert all(panel["title"] and panel["targets"] for panel in board["panels"])
    assert samples(state())
