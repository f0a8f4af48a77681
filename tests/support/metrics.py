"""A page of metrics, read and held to the rules that `promtool check metrics` knows, and to ours."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from pathlib import Path

from prometheus_client.parser import text_string_to_metric_families

LABELS = {"queue", "state", "job", "outcome", "loop", "version", "le"}
"""No other label is made; none of them ever holds an id."""
MANY = 2_000
_NAME = re.compile(r"delayq_[a-z0-9]+(_[a-z0-9]+)*")
_UNITS = re.compile(r"_(ms|millis|milliseconds|minutes|hours|kb|kilobytes|percent|us)\b")


def promtool(what: str, page: str, *files: str) -> str:
    """What `promtool check` complains of; '' where there is none, which CI does not allow."""
    program = shutil.which("promtool")
    if program is None:
        assert os.environ.get("CI", "") != "true", "CI needs promtool: apt-get install prometheus"
        return ""
    checked = subprocess.run(
        [program, "check", what, *files], input=page, capture_output=True, text=True, check=False, timeout=30
    )
    said = checked.stdout + checked.stderr
    return said if checked.returncode or what == "metrics" else ""


def promtool_test(rules: Path, tests: Path, folder: Path) -> str:
    """What `promtool test rules` says is wrong when these unit tests run on these rules; '' when all hold."""
    program = shutil.which("promtool")
    if program is None:
        assert os.environ.get("CI", "") != "true", "CI needs promtool: apt-get install prometheus"
        return ""
    whole = folder / tests.name
    whole.write_text(f"rule_files: [{json.dumps(str(rules))}]\n{tests.read_text()}")
    ran = subprocess.run(
        [program, "test", "rules", str(whole)], capture_output=True, text=True, check=False, timeout=30
    )
    return ran.stdout + ran.stderr if ran.returncode else ""


def samples(page: str) -> dict[tuple[str, ...], float]:
    """Every sample: its name and the values of its labels, in the order of their names."""
    found = {}
    for family in text_string_to_metric_families(page):
        for sample in family.samples:
            found[sample.name, *sample.labels.values()] = sample.value
    return found


def names(page: str) -> set[str]:
    """The names that a query may use: of samples, so also `_bucket`, `_sum`, `_count`."""
    families = list(text_string_to_metric_families(page))
    found = {sample.name for family in families for sample in family.samples}
    for family in families:  # one without a sample yet has a name all the same
        ends = (
            ("_bucket", "_sum", "_count")
            if family.type == "histogram"
            else ("_total",)
            if family.type == "counter"
            else ("",)
        )
        found |= {f"{family.name}{end}" for end in ends}
    return found


def complaints(page: str) -> list[str]:
    """What breaks a rule."""
    said = []
    for family in text_string_to_metric_families(page):
        name = family.name + ("_total" if family.type == "counter" else "")
        if not _NAME.fullmatch(name):
            said.append(f"{name} is no name of ours")
        if name.endswith("_total") != (family.type == "counter"):
            said.append(f"{name} is a {family.type}")
        if re.search(r"_(count|sum|bucket)$", family.name):
            said.append(f"{name} ends as a part of a histogram does")
        if _UNITS.search(name):
            said.append(f"{name} has no base unit")
        if not family.documentation:
            said.append(f"{name} has no HELP")
        if strange := {label for sample in family.samples for label in sample.labels} - LABELS:
            said.append(f"{name} has labels {sorted(strange)}")
        if len(family.samples) > MANY:
            said.append(f"{name} has {len(family.samples)} samples")
    return said
