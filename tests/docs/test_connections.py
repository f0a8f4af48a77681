"""docs/connections.md says what the drivers declare, and its settings can be read."""

from __future__ import annotations

import re
import tomllib
from typing import Any

import pytest

from delayq.drivers import known
from delayq.drivers.known import KEEP_NOTHING
from delayq.jobs.current import make_manager
from delayq.settings import Settings
from tests.docs.capability_table import MODULES, PAGE, ROWS, between, capabilities_of, column, columns_of

TEXT = PAGE.read_text(encoding="utf-8")
EXAMPLES = re.findall(r"```toml\n(.*?)```", TEXT, re.DOTALL)


@pytest.mark.parametrize("driver", list(MODULES))
def test_the_table_is_what_the_drivers_declare(driver: str) -> None:
    assert columns_of(between(TEXT))[driver] == column(driver), "run: python -m tests.docs.capability_table"


def test_the_table_says_all_and_says_it_in_order() -> None:
    columns = columns_of(between(TEXT))
    assert list(columns) == ["", *MODULES]
    assert columns[""] == ["", *ROWS]


def test_a_table_that_is_out_of_date_is_seen() -> None:
    stale = between(TEXT).replace("| cancel | yes |", "| cancel | – |", 1)
    assert columns_of(stale)["redis"] != column("redis")


@pytest.mark.parametrize("driver", list(known.BROKERS))
def test_every_driver_declares_what_it_can_and_how_it_is_made(driver: str) -> None:
    assert capabilities_of(driver).serves
    assert callable(known.module_of(driver).backend)


def test_every_driver_has_a_row_and_an_example() -> None:
    for driver in (*MODULES, *KEEP_NOTHING):
        assert f"`{driver}`" in TEXT
    shown = {one["driver"] for text in EXAMPLES for one in tomllib.loads(text).get("connections", {}).values()}
    assert shown >= {*MODULES, "background", "failover", "outbox"}


def test_the_connections_of_the_examples_can_be_made() -> None:
    tables: dict[str, Any] = {}
    for text in EXAMPLES:
        tables |= tomllib.loads(text).get("connections", {})
    manager = make_manager(Settings(connections=tables))
    for name, table in tables.items():
        assert manager.connection(name).name == name
        assert table["driver"] in (*MODULES, *KEEP_NOTHING)
    manager.close()
