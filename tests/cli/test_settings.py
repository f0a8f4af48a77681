"""flag > environment > file > default, as `config show --origin` tells."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from delayq.settings.tables import NAMES as TABLES
from tests.support.cli import Cli, environment


@pytest.fixture
def bare(tmp_path: Any) -> Cli:
    return Cli(tmp_path, environment())


def shown(cli: Cli, *words: str, **env: str) -> dict[str, tuple[str, str]]:
    done = cli(*words, "config", "show", "--origin", "--json", env=env)
    assert done.code == 0, done.err
    return {row["name"]: (row["value"], row["origin"]) for row in done.documents}


def test_who_wins(bare: Cli) -> None:
    assert shown(bare)["lease"] == ("30s", "default")
    (bare.folder / "delayq.toml").write_text('lease = "20s"\n')
    assert shown(bare)["lease"] == ("20s", f"file {bare.folder}/delayq.toml")
    assert shown(bare, DELAYQ_LEASE="10s")["lease"] == ("10s", "env DELAYQ_LEASE")
    assert shown(bare, "--lease", "5s", DELAYQ_LEASE="10s")["lease"] == ("5s", "flag")


def test_the_scripts_are_where_it_says(bare: Cli) -> None:
    where = bare.ok("scripts", "path").out.strip()
    assert (Path(where) / "ack.lua").is_file()
    assert bare.ok("scripts", "path", "--json").documents == [{"path": where}]


def test_every_setting_that_is_no_option_of_a_command_is_one_of_delayq(bare: Cli) -> None:
    options = bare.ok("--help").out
    for name in shown(bare):
        # A key in the words of a command would stand in every list of processes.
        unlike = {"queue", "app", "tries", "backoff", "timeout", "grace", "retention", "connection", "keys", "database"}
        if name not in unlike | {"metrics_port", *TABLES}:
            assert f"--{name.replace('_', '-')} " in options, name


def test_another_file(bare: Cli) -> None:
    (bare.folder / "other.toml").write_text('queue = "orders"\n')
    assert shown(bare, "--config", "other.toml")["queue"][0] == "orders"
    assert shown(bare, DELAYQ_CONFIG="other.toml")["queue"][0] == "orders"


def test_passwords_are_masked(bare: Cli) -> None:
    assert shown(bare, "--url", "redis://ann:hunter2@db:6379/0")["url"] == ("redis://ann:***@db:6379/0", "flag")


def test_for_people(bare: Cli) -> None:
    lines = bare.ok("config", "show").lines
    assert lines[0].split() == ["setting", "value"]
    assert ["prefix", "delayq"] in [line.split() for line in lines]
    assert bare.ok("config", "show", "--origin").lines[0].split() == ["setting", "value", "origin"]
