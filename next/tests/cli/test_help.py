"""Help, hints at what was mistyped, and what a command imports."""

import importlib
import subprocess
import sys
from collections.abc import Iterator

import pytest
import typer

from delayq.cli.families import COMMANDS
from delayq.core.times import format_duration
from delayq.settings.model import load_settings
from tests.cli.conftest import Run


@pytest.mark.parametrize("name", COMMANDS)
def test_the_line_of_a_command_is_the_first_of_its_docstring(name: str) -> None:
    module, _, attribute = COMMANDS[name].place.partition(":")
    found = getattr(importlib.import_module(f"delayq.cli.commands.{module}"), attribute)
    documented = found.info.help if isinstance(found, typer.Typer) else found.__doc__
    assert documented
    assert documented.startswith(COMMANDS[name].line.removesuffix("."))


def test_the_help_has_sections(run: Run) -> None:
    help = run("--help").stdout
    sections = [line for line in help.splitlines() if line.endswith(":")]
    assert sections == [
        "Options:",
        *[f"{section}:" for section in dict.fromkeys(one.section for one in COMMANDS.values())],
    ]
    for name, command in COMMANDS.items():
        assert f"  {name} " in help
        assert command.line in " ".join(help.split())


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("scedule",), "No such command 'scedule'. Did you mean 'schedule'"),
        (("retry", "order-42"), "No such command 'retry'. Did you mean 'failed retry'?"),
        (("list", "orders"), "Got unexpected extra argument(s) (orders). Put --queue before it."),
        (("work", "shop"), "Got unexpected extra argument(s) (shop). Put --app or --queue before it."),
        (("cancel", "a", "b"), "Got unexpected extra argument(s) (b). Put --queue before it."),
        (("stats", "--quee", "orders"), "No such option: --quee (Possible options: --queue)"),
        (("list", "--state", "redy"), "'redy' is not one of"),
    ],
)
def test_what_is_mistyped_is_answered_with_what_is_like_it(run: Run, words: list[str], told: str) -> None:
    end = run(*words)
    assert (end.exit_code, end.stdout, told in end.stderr) == (2, "", True), end.stderr


def commands() -> Iterator[tuple[str, ...]]:
    for name, command in COMMANDS.items():
        module, _, attribute = command.place.partition(":")
        found = getattr(importlib.import_module(f"delayq.cli.commands.{module}"), attribute)
        if isinstance(found, typer.Typer):
            yield from ((name, str(one.name)) for one in found.registered_commands)
        else:
            yield (name,)


@pytest.mark.parametrize("words", list(commands()), ids=" ".join)
def test_the_help_of_a_command_has_an_example(run: Run, words: tuple[str, ...]) -> None:
    assert f"\n  delayq {' '.join(words)}" in run(*words, "-h").stdout


def test_an_option_that_stands_before_the_command_is_told_so(run: Run) -> None:
    end = run("stats", "--url", "redis://localhost")
    told = "No such option: --url. Put it before the command: delayq --url … stats"
    assert (end.exit_code, told in end.stderr) == (2, True)
    end = run("queue", "show", "orders", "--prefix", "shop")
    assert (end.exit_code, "delayq --prefix … queue show" in end.stderr) == (2, True)
    assert "before the command" not in run("stats", "--nothing").stderr


@pytest.mark.parametrize(
    ("words", "right"),
    [
        (("schedule", "n", "--delay", "5m"), "--in"),
        (("schedule", "n", "--eta", "2035-01-01"), "--at"),
        (("work", "--concurrency", "4"), "--processes"),
    ],
)
def test_an_option_of_another_tool_is_told_with_the_right_one(run: Run, words: tuple[str, ...], right: str) -> None:
    end = run(*words)
    assert (end.exit_code, f"No such option: {words[-2]}" in end.stderr, right in end.stderr) == (2, True, True)


def imported(*words: str, url: str) -> set[str]:
    program = "import sys; from delayq.cli.main import app; app(standalone_mode=False)"
    return modules_of(program, "--url", url, *words)


def modules_of(program: str, *words: str) -> set[str]:
    program += "; import sys; print(*sys.modules, file=sys.stderr)"
    run = subprocess.run([sys.executable, "-c", program, *words], capture_output=True, text=True, check=True)
    return set(run.stderr.split())


def test_the_help_imports_no_client(url: str) -> None:
    assert not {"redis", "pydantic_settings", "delayq.client"} & imported("--help", url=url)


def test_schedule_imports_what_it_needs_alone(url: str) -> None:
    modules = imported("schedule", "n", "--in", "1h", url=url)
    ours = {name for name in modules if name.startswith("delayq.")}
    assert "delayq.client" in ours
    assert not [name for name in ours if name.startswith(("delayq.worker", "delayq.loops", "delayq.jobs"))]
    assert [name for name in ours if name.startswith("delayq.cli.commands.")] == ["delayq.cli.commands.jobs"]
    needed = modules_of("import redis, typer, msgspec, pydantic_settings")
    more = {name.partition(".")[0] for name in modules - needed} - sys.stdlib_module_names
    assert more <= {"delayq", "typer"}


def test_work_describes_options_that_are_settings_as_other_commands_do(run: Run) -> None:
    work, schedule = (" ".join(run(command, "--help").stdout.split()) for command in ("work", "schedule"))
    for text in ("Maximum number of attempts", "Maximum running time of one attempt"):
        assert text in work and text in schedule
    defaults = load_settings()
    for name in ("tries", "timeout", "grace"):
        value = getattr(defaults, name)
        assert f"[DELAYQ_{name.upper()}, else {value if name == 'tries' else format_duration(value)}]" in work
    assert "[DELAYQ_BACKOFF]" in work
