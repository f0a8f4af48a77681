"""The root options, and the settings that they and the other sources give, as commands see them."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
import redis
from typer.testing import CliRunner, Result

from delayq.cli import main as cli
from delayq.settings.model import Settings
from tests.cli.conftest import Tell

FILE = """
url = "URL"
prefix = "own"
tries = 7
lease = "1m"

[connections.reports]
url = "URL"
prefix = "reports"
queue = "slow"

[routes]
"order.*" = "orders"
"""


@pytest.fixture
def shop(tmp_path: Path, url: str, server: redis.Redis, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project whose file names the server of the tests, and a second connection."""
    for name in Settings.model_fields:
        monkeypatch.delenv(f"DELAYQ_{name.upper()}", raising=False)
    (tmp_path / "delayq.toml").write_text(FILE.replace("URL", url))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run(*words: str) -> Result:
    return CliRunner().invoke(cli.app, words)


def shown(*words: str) -> dict[str, tuple[object, str, str | None]]:
    lines = [json.loads(line) for line in run(*words, "config", "show", "--origin", "--json").stdout.splitlines()]
    return {line["name"]: (line["value"], line["source"], line["place"]) for line in lines}


def test_each_value_names_its_source(shop: Path, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DELAYQ_TRIES", "3")
    rows = shown("--prefix", "of-flag")
    file = str(shop / "delayq.toml")
    assert rows["prefix"] == ("of-flag", "flag", "--prefix")
    assert rows["tries"] == (3, "environment", "DELAYQ_TRIES")
    assert rows["lease"] == ("1m", "file", file)
    assert rows["timeout"] == ("1m", "default", None)
    assert rows["app"] == (None, "default", None)
    assert rows["config"][0] == file
    assert rows["connections.reports.queue"] == ("slow", "file", file)
    assert rows["routes.order.*.queue"] == ("orders", "file", file)
    assert set(Settings.model_fields) - {"connections", "routes"} <= set(rows)


def test_the_table_for_people_has_the_same(shop: Path) -> None:
    lines = [line.split() for line in run("config", "show", "--origin").stdout.splitlines()]
    assert ["lease", "1m", "file", str(shop / "delayq.toml")] in lines
    assert ["retention", "0s", "default"] in lines
    assert ["lease", "1m"] in [line.split() for line in run("config", "show").stdout.splitlines()]
    first = json.loads(run("config", "show", "--json").stdout.splitlines()[0])
    assert set(first) == {"name", "value"}


def test_the_values_are_those_of_the_chosen_connection(shop: Path) -> None:
    rows = shown("--connection", "reports", "--prefix", "of-flag")
    table = f"{shop / 'delayq.toml'} [connections.reports]"
    assert rows["queue"] == ("slow", "file", table)
    assert rows["prefix"] == rows["connections.reports.prefix"] == ("of-flag", "flag", "--prefix")


def test_passwords_are_masked(shop: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DELAYQ_URL", "redis://user:s3cret@host/0?password=s3cret")
    (shop / "delayq.toml").write_text('[connections.a]\nurl = "rediss://:s3cret@elsewhere"\n')
    for words in ((), ("--json",), ("--origin",)):
        text = run("config", "show", *words).stdout
        assert ("s3cret" in text, "redis://user:***@host/0" in text, "rediss://:***@elsewhere" in text) == (
            False,
            True,
            True,
        )


def test_a_command_uses_the_connection_that_is_named(
    shop: Path, server: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    scheduled = ("schedule", "n", "--in", "1h", "--json")
    assert json.loads(run(*scheduled).stdout)["queue"] == "default"
    assert json.loads(run("--connection", "reports", *scheduled).stdout)["queue"] == "slow"
    assert server.smembers("own:queues") == {"default"}
    assert server.smembers("reports:queues") == {"slow"}
    monkeypatch.setenv("DELAYQ_CONNECTION", "reports")
    assert [one["queue"] for one in json.loads(run("stats", "--json").stdout)["queues"]] == ["slow"]
    assert [one["queue"] for one in json.loads(run("--prefix", "own", "stats", "--json").stdout)["queues"]] == [
        "default"
    ]


@pytest.mark.processes
def test_a_worker_serves_the_connection_that_is_named(shop: Path, server: redis.Redis) -> None:
    (shop / "shop.py").write_text(
        "from delayq import job\n\n@job('first')\ndef first() -> None:\n    second.job().dispatch()\n\n"
        "@job('second')\ndef second() -> None:\n    print('done', flush=True)\n"
    )
    run("--connection", "reports", "schedule", "first")
    command = [sys.executable, "-m", "delayq", "--connection", "reports", "work", "--app", "shop", "--max-jobs", "2"]
    worker = subprocess.run(command, cwd=shop, capture_output=True, text=True, timeout=60, check=False)
    assert (worker.returncode, worker.stdout) == (0, "done\n"), worker.stderr
    assert "working on slow" in worker.stderr
    assert not server.keys("own:*")


@pytest.mark.parametrize(
    ("words", "text", "told"),
    [
        (("stats",), 'laese = "30s"', "Unknown setting 'laese' in FILE. Did you mean lease?"),
        (("stats",), "lease =", "The settings file FILE is not valid TOML: Invalid value (at end of document)."),
        (("--config", "nope.toml", "stats"), "", "The settings file HERE/nope.toml does not exist."),
        (("--connection", "nope", "stats"), "", "Unknown connection 'nope'. Known connections: none."),
        (
            ("--prefix", "{}", "config", "show"),
            "",
            "The value of --prefix is not valid: '{}': String should match pattern",
        ),
        (("-v", "-q", "stats"), "", "-v and -q are both given. Leave out one of them."),
    ],
)
def test_a_refusal_is_one_sentence_and_exit_code_2(
    shop: Path, tell: Tell, words: tuple[str, ...], text: str, told: str
) -> None:
    (shop / "delayq.toml").write_text(text)
    code, message = tell(*words)
    sentence = told.replace("FILE", str(shop / "delayq.toml")).replace("HERE", str(shop))
    assert (code, message.startswith(f"delayq: {sentence}")) == (2, True), message


def test_the_version(shop: Path) -> None:
    assert run("--version").stdout.startswith("delayq 2.")


def test_verbose_shows_the_traceback_of_an_error(shop: Path, tell: Tell) -> None:
    assert "Traceback" not in tell("show", "nope")[1]
    code, message = tell("-v", "show", "nope")
    assert (code, "Traceback" in message, "DEBUG delayq[" in message) == (3, True, True)


def test_quiet_leaves_out_that_a_server_was_started(project: Path) -> None:
    quiet = run("-q", "schedule", "order.close", "--id", "order-42")
    assert (quiet.exit_code, quiet.stderr) == (0, "")


@pytest.mark.parametrize("level", [[], ["-v"], ["-q"]])
def test_root_options_are_handed_on_to_a_command_that_is_started(
    shop: Path, monkeypatch: pytest.MonkeyPatch, level: list[str]
) -> None:
    started: list[list[str]] = []

    def listen(_: Path, words: list[str]) -> int:
        started.append(words)
        return 0

    monkeypatch.setattr("delayq.cli.listening.listen", listen)
    root = ["--url", "redis://host", "--connection", "reports", "--prefix", "p", "--config", "delayq.toml"]
    assert run(*level, *root, "listen", "--app", "shop").exit_code == 0
    assert started == [[*level, *root, "work", "--app", "shop"]]
