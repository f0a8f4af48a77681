"""What a newcomer meets first: help, version, completion, and how fast they come."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import typer

import delayq
from delayq.cli import families
from tests.cli.conftest import Inline
from tests.support.cli import Cli, environment
from tests.support.processor import processor_s


def commands(group: typer.Typer, path: tuple[str, ...] = ()) -> list[tuple[str, ...]]:
    """Every command and group, by the words that call it."""
    found = [(*path, str(command.name)) for command in group.registered_commands]
    for inner in group.registered_groups:
        assert inner.typer_instance is not None
        found += [(*path, str(inner.name)), *commands(inner.typer_instance, (*path, str(inner.name)))]
    return found


LISTED = families.COMMANDS
WHOLE = {family: families.family_of(name) for name, (family, _) in LISTED.items()}
COMMANDS = [path for family in WHOLE.values() for path in commands(family)]


@pytest.fixture
def bare(tmp_path: Path) -> Cli:
    """Commands that need no server."""
    return Cli(tmp_path, environment())


def test_the_commands_of_the_design_are_there() -> None:
    assert {" ".join(path) for path in COMMANDS} == {
        "schedule", "cancel", "archive", "run-now", "show", "why",
        "reschedule", "list", "stats", "job-types", "upcoming", "work", "move", "up",
        "activity", "down", "demo", "doctor", "failed", "failed list", "failed show", "failed retry", "failed forget",
        "failed groups",
        "failed flush", "failed prune", "failed kick", "pause", "resume", "drain", "clear", "workers", "queue",
        "workers quiet", "workers resume", "workers stop", "workers restart",
        "queue set", "queue show", "queue remove",
        "config", "config show", "scripts", "scripts path", "restart", "top", "listen", "maintenance", "maintenance on",
        "maintenance off", "maintenance show", "migrate", "relay", "outbox", "outbox sql", "outbox list",
        "outbox retry", "outbox forget",
        "limit", "limit list", "limit show", "limit free", "audit", "lock", "lock list", "lock show", "lock free",
        "batch", "batch list", "batch show", "batch cancel", "batch retry",
        "serve", "push", "healthcheck", "api-key", "api-key create", "api-key list", "api-key revoke",
        "key", "key new", "key list", "database", "database migrate", "database sql",
    }  # fmt: skip


def test_the_list_of_commands_is_what_they_say_of_themselves() -> None:
    told = {
        name: (family, command.get_short_help_str(200))
        for family, whole in WHOLE.items()
        for name, command in typer.main.get_group(whole).commands.items()
    }
    assert told == LISTED
    modules = {path.stem.removesuffix("_commands") for path in Path(families.__file__).parent.glob("*_commands.py")}
    assert set(WHOLE) == modules, "a family that no command is listed of"


@pytest.mark.parametrize("path", [(), *COMMANDS], ids=lambda path: " ".join(path) or "delayq")
def test_help_has_an_example_of_the_command_itself(inline: Inline, path: tuple[str, ...]) -> None:
    done = inline.ok(*path, "--help")
    assert "Example" in done.out
    example = done.out.split("Example", 1)[1]
    assert f"  delayq {' '.join(path)}".rstrip() in example
    assert "\x1b" not in done.out
    assert done.err == ""


@pytest.mark.parametrize("path", COMMANDS, ids=" ".join)
def test_the_list_of_commands_is_not_cut(inline: Inline, path: tuple[str, ...]) -> None:
    rows = [line for line in inline.ok(*path[:-1], "--help").lines if line.strip().startswith(path[-1])]
    assert rows
    assert not any(row.endswith("...") for row in rows)


@pytest.mark.parametrize("path", [(), ("failed",), ("queue",), ("config",), ("maintenance",), ("key",)], ids=" ".join)
def test_no_command_is_bad_usage_and_shows_the_help(bare: Cli, path: tuple[str, ...]) -> None:
    done = bare(*path)
    assert done.code == 2
    assert "Usage: delayq" in done.out + done.err


def test_version(bare: Cli) -> None:
    assert bare.ok("--version").out == f"delayq {delayq.__version__}\n"


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion(bare: Cli, shell: str) -> None:
    done = bare("--show-completion", shell, env={"_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION": "1"})
    assert done.code == 0
    assert "_DELAYQ_COMPLETE" in done.out
    if shell == "bash":
        subprocess.run(["bash", "-n"], input=done.out, text=True, check=True, timeout=10)


def test_completion_knows_the_commands(bare: Cli) -> None:
    asked = {"_DELAYQ_COMPLETE": "complete_bash", "COMP_WORDS": "delayq res", "COMP_CWORD": "1"}
    assert bare("", env=asked).lines == ["reschedule", "resume", "restart"]


def test_an_option_behind_the_command_is_named(bare: Cli) -> None:
    done = bare("list", "--url", "redis://localhost")
    assert done.code == 2
    assert "--url stands before the command" in done.err


def test_an_option_that_the_command_has_too_is_not_misplaced(bare: Cli) -> None:
    done = bare("queue", "set", "orders", "--lease", "1ms")
    assert done.code == 2
    assert done.err.splitlines() == ["Error: The lease '1ms' is out of range.", "Use 100ms to 1d, such as 30s."]


# For its own types typer needs pydantic as soon as a command is named; nothing of ours is needed then either.
@pytest.mark.parametrize(
    ("words", "heavy"),
    [
        (["--help"], {"redis", "pydantic", "pydantic_settings", "msgspec", "rich.table", "asyncio", "tenacity"}),
        (["schedule", "--help"], {"redis", "pydantic_settings", "msgspec", "rich.table", "tenacity"}),
    ],
)
def test_help_loads_nothing_it_does_not_need(words: list[str], heavy: set[str]) -> None:
    script = (
        "import sys, delayq.cli\n"
        f"try: delayq.cli.main({words})\n"
        "except SystemExit: pass\n"
        f"print('LOADED', sorted({heavy} & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], env=environment(), capture_output=True, text=True, timeout=30, check=True
    )
    assert done.stdout.splitlines()[-1] == "LOADED []"


def test_help_takes_at_most_twice_as_long_as_typer_itself() -> None:
    programs = ["-c", "import typer"], ["-m", "delayq", "--help"]
    # In turns: whatever slows the machine for a while slows both.
    rounds = [[processor_s([sys.executable, *words], env=environment()) for words in programs] for _ in range(7)]
    typer_s, help_s = map(min, zip(*rounds, strict=True))
    assert help_s <= 2 * typer_s, f"--help takes {help_s * 1000:.0f} ms, import typer {typer_s * 1000:.0f} ms"
