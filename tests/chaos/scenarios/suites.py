"""Tests of the suite that have a full tier of their own; each part is a unit, so that a run can go on between them."""

from __future__ import annotations

import os
import re
import subprocess
import sys

from tests.chaos.engine import ROOT, Lot, Tally

Parts = tuple[tuple[str, ...], ...]
"""What pytest is told for each unit."""

_FAILOVERS = "tests/topology/test_failovers.py"
TOPOLOGIES: Parts = (
    (f"{_FAILOVERS}::test_the_primary_that_owns_the_queue",),
    (f"{_FAILOVERS}::test_the_primary_behind_sentinels",),
    (f"{_FAILOVERS}::test_one_failover_after_another",),
    ("tests/topology", f"--ignore={_FAILOVERS}"),
)
DATABASES: Parts = (
    ("tests/chaos/test_database.py",),
    ("tests/chaos/test_outbox.py",),
    ("tests/chaos/test_beanstalkd.py",),
)
MIGRATIONS: Parts = (("tests/contract/test_migrating.py", "-k", "killed"),)


def databases(lot: Lot) -> Tally:
    """Workers on a database, an outbox and beanstalkd are killed."""
    return _suite(lot, DATABASES)


def topologies(lot: Lot) -> Tally:
    """Primaries killed and frozen, ordered failovers, slots that move, nodes that are away."""
    return _suite(lot, TOPOLOGIES)


def migrations(lot: Lot) -> Tally:
    """100,000 jobs to another backend, killed on the way."""
    return _suite(lot, MIGRATIONS)


def _suite(lot: Lot, parts: Parts) -> Tally:
    command = [sys.executable, "-m", "pytest", "-q", "-n", "0", "-p", "no:cacheprovider", "--seed", str(lot.own_seed)]
    full = {**os.environ, "DELAYQ_CHAOS": "full"}
    words = [*command, *parts[lot.number]]
    done = subprocess.run(words, cwd=ROOT, env=full, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-8_000:]
    section = re.search(r"^=+ chaos =+$\n(.*?)^=", done.stdout, re.MULTILINE | re.DOTALL)
    sys.stdout.write(section.group(1) if section else "")
    passed = re.search(r"(\d+) passed", done.stdout)
    assert passed is not None
    return Tally().add(tests_passed=int(passed.group(1)))
