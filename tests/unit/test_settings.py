"""Settings: who wins, where a value came from, and what is said about a wrong one."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from delayq.core.backoff import DEFAULT, Steps
from delayq.core.durability import Durability
from delayq.core.errors import ConfigError
from delayq.core.options import Options
from delayq.settings import Embedded, LogFormat, LogLevel, Settings, origins
from delayq.settings.tables import NAMES as TABLES
from tests.support.keys import key, ring

ROOT = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def empty_place(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A working directory without files and an environment without our variables."""
    for name in list(os.environ):
        if name.startswith("DELAYQ_"):
            monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)


def _origin(settings: Settings, name: str) -> tuple[str, str]:
    row = next(row for row in origins(settings) if row.name == name)
    return row.value, row.origin


def test_the_defaults_are_the_engines() -> None:
    settings = Settings()

    assert settings.options() == Options()
    assert settings.url is None
    assert (settings.log_format, settings.log_level) == (LogFormat.CONSOLE, LogLevel.INFO)
    assert {row.origin for row in origins(settings)} == {"default"}
    assert settings.warnings == ()


def test_a_flag_beats_the_environment_beats_the_file(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    file = tmp_path / "delayq.toml"
    file.write_text('lease = "1s"\ntries = 7\nqueue = "from-file"\n')
    monkeypatch.setenv("DELAYQ_LEASE", "2s")
    monkeypatch.setenv("DELAYQ_TRIES", "8")

    settings = Settings(lease="3s", queue=None)

    assert (settings.lease_ms, settings.tries, settings.queue, settings.high_water) == (3000, 8, "from-file", 100_000)
    assert _origin(settings, "lease") == ("3s", "flag")
    assert _origin(settings, "tries") == ("8", "env DELAYQ_TRIES")
    assert _origin(settings, "queue") == ("from-file", f"file {file}")
    assert _origin(settings, "high_water") == ("100000", "default")


def test_no_limit_of_tries_can_be_the_default(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DELAYQ_TRIES", "0")
    assert Settings().options().tries == 0


GIVEN = {
    "URL": "redis://h/2",
    "PREFIX": "shop",
    "QUEUE": "orders",
    "APP": "shop.jobs:app",
    "LEASE": "5s",
    "TIDY_EVERY": "500ms",
    "MAX_RECOVERIES": "0",
    "TRIES": "9",
    "BACKOFF": "10s,1m",
    "RETENTION": "0s",
    "TIMEOUT": "90s",
    "MAX_PAYLOAD": "1MiB",
    "HIGH_WATER": "10",
    "DURABILITY": "replicas:2",
    "ENCRYPT": "payment.*, order.close",
    "KEYS": ",".join(map(key, ("new", "old"))),
    "LOG_FORMAT": "JSON",
    "LOG_LEVEL": "debug",
    "EMBEDDED": "Never",
    "DATA_DIR": "/var/lib/delayq",
    "REDIS_SERVER": "/opt/redis-server",
}


def test_every_setting_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in GIVEN.items():
        monkeypatch.setenv(f"DELAYQ_{name}", value)
    settings = Settings()
    assert settings.options() == Options(
        prefix="shop",
        queue="orders",
        lease_ms=5000,
        tidy_every_ms=500,
        max_recoveries=0,
        tries=9,
        backoff=Steps((10_000, 60_000)),
        retention_ms=0,
        max_payload=1024 * 1024,
        high_water=10,
        keyring=ring("new", "old"),
        encrypt=("payment.*", "order.close"),
        durability=Durability(replicas=2),
    )
    assert str(settings.url) == "redis://h/2"
    assert (settings.app, settings.log_format, settings.log_level) == ("shop.jobs:app", LogFormat.JSON, LogLevel.DEBUG)
    assert [str(settings.data_dir), str(settings.redis_server)] == [GIVEN["DATA_DIR"], GIVEN["REDIS_SERVER"]]
    assert settings.timeout_ms == 90_000
    assert settings.embedded is Embedded.NEVER
    assert {row.name for row in origins(settings) if row.origin == "default"} == {
        "connection",
        "keys_file",
        "api_keys_file",
        "max_overdue",
        "grace",
        "metrics_port",
        "redact",
        "database",
        *TABLES,
    }


def test_the_url_of_a_database(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DELAYQ_DATABASE", "postgresql://shop:secret@db/shop")
    database = Settings().database
    assert database is not None
    assert (str(database), database.url) == ("postgresql://shop:***@db/shop", "postgresql://shop:secret@db/shop")
    with pytest.raises(ConfigError, match="shop is no URL of a database"):
        Settings(database="shop")


def test_an_empty_variable_counts_as_not_set(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DELAYQ_URL", "")
    monkeypatch.setenv("DELAYQ_TRIES", "")

    settings = Settings()

    assert (settings.url, settings.tries, settings.warnings) == (None, 5, ())


def test_a_file_with_routes(tmp_path: Path) -> None:
    (tmp_path / "delayq.toml").write_text('backoff = ["1s", "2s"]\n[routes]\n"order.*" = "orders"\n"*" = "rest"\n')

    options = Settings().options()

    assert options.backoff == Steps((1000, 2000))
    assert [options.queue_for(name) for name in ("order.close", "mail.send")] == ["orders", "rest"]


def test_a_table_in_pyproject_counts_unless_there_is_a_delayq_toml(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text('[project]\nname = "shop"\n[tool.delayq]\nqueue = "orders"\n')
    assert Settings().queue == "orders"

    (tmp_path / "delayq.toml").write_text("tries = 2\n")
    settings = Settings()

    assert (settings.queue, settings.tries) == ("default", 2)


def test_somebody_elses_pyproject_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text("this is [no TOML")

    assert Settings().options() == Options()


def test_parent_directories_are_not_searched(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "delayq.toml").write_text("tries = 2\n")
    (tmp_path / "below").mkdir()
    monkeypatch.chdir(tmp_path / "below")

    assert Settings().tries == 5


def test_a_named_file_replaces_the_others(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "delayq.toml").write_text("tries = 2\n")
    (tmp_path / "conf").mkdir()
    other = tmp_path / "conf" / "other.toml"
    other.write_text('lease = "9s"\ndata_dir = "data"\n')
    monkeypatch.setenv("DELAYQ_CONFIG", str(other))

    settings = Settings()

    assert (settings.tries, settings.lease_ms) == (5, 9000)
    assert settings.data_dir == other.parent / "data", "a path in a file is seen from that file"
    assert settings.warnings == ()


def test_a_home_directory_is_expanded(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))

    assert Settings(data_dir="~/queue").data_dir == tmp_path / "queue"


REFUSED_FLAGS = [
    ({"lease": "30"}, "--lease cannot be used: '30' is no duration", "--lease 30s"),
    ({"lease": 30}, "--lease cannot be used: 30 is no duration", "--lease 30s"),
    ({"lease": "0s"}, "'0s' is out of range; use 100ms to 1d", "--lease 30s"),
    ({"tidy_every": "2d"}, "--tidy-every cannot be used: '2d' is out of range", "--tidy-every 10s"),
    ({"tries": "-1"}, "'-1' is no whole number from 0 to 1,000,000", "--tries 5"),
    ({"tries": "５"}, "'５' is no whole number", "--tries 5"),
    ({"tries": True}, "True is no whole number", "--tries 5"),
    ({"tries": 2.0}, "2.0 is no whole number", "--tries 5"),
    ({"max_payload": "1GB"}, "'1GB' is no size from 1 to 67,108,864 bytes", "--max-payload 256KiB"),
    ({"max_payload": "0"}, "'0' is no size", "--max-payload 256KiB"),
    ({"backoff": "10s,soon"}, "'soon' is no duration", "--backoff 10s,1m,10m"),
    ({"backoff": 5}, "5 is no backoff", "--backoff 10s,1m,10m"),
    ({"queue": "a{b}"}, "'a{b}' cannot name a queue", "--queue default"),
    ({"prefix": "a b"}, "'a b' is no prefix", "--prefix delayq"),
    ({"app": "shop/jobs.py"}, "'shop/jobs.py' is no module", "--app shop.jobs"),
    ({"log_format": "xml"}, "--log-format cannot be used: 'xml' is wrong", "--log-format json"),
    ({"data_dir": ""}, "'' is no path", "--data-dir /var/lib/delayq"),
    ({"data_dir": "~nobody-here/x"}, "a home directory that is not known", "--data-dir /var/lib/delayq"),
    ({"url": 5}, "5 is no URL", "--url redis://:password@localhost:6379/0"),
    ({"quue": "x"}, "There is no setting quue", "Did you mean queue?"),
    ({"routes": {"": "a"}}, "'' is no pattern", "--routes"),
]


@pytest.mark.parametrize(("flags", "says", "example"), REFUSED_FLAGS, ids=lambda value: str(value)[:30])
def test_a_wrong_value_is_one_sentence_with_an_example(flags: dict[str, object], says: str, example: str) -> None:
    with pytest.raises(ConfigError) as refused:
        Settings(**flags)

    assert says in refused.value.message
    assert example in refused.value.hint
    assert "\n" not in str(refused.value)
    assert "pydantic" not in str(refused.value)


def test_a_wrong_variable_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DELAYQ_LEASE", "soon")

    with pytest.raises(ConfigError, match=r"^DELAYQ_LEASE cannot be used: 'soon' .* For example: DELAYQ_LEASE=30s$"):
        Settings()


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("# ours\n\nlease = 30\n", "lease in {file}, line 3 cannot be used: 30 is no duration"),
        ('leese = "3s"\n', "There is no setting leese in {file}, line 1. Did you mean lease?"),
        ('"tidy-every" = "3s"\n', "There is no setting tidy-every in {file}, line 1. Did you mean tidy_every?"),
        ("zzz = 1\n", "There is no setting zzz in {file}, line 1. Known are url, prefix,"),
        (
            'tries = 1\n[routes]\n"order.*" = "a b"\n',
            "routes in {file}, line 3 cannot be used: 'a b' cannot name a queue",
        ),
        ('[routes]\n"order.*" = 3\n', "routes in {file}, line 2 cannot be used: 3 cannot name a queue"),
        ("routes = 3\n", "routes in {file}, line 1 cannot be used: 3 is no table"),
        ("tries = \n", "The settings file {file} is no TOML: "),
        ("tries = 1\ntries = 2\n", "The settings file {file} is no TOML: "),
    ],
)
def test_a_wrong_file_is_named_with_its_line(tmp_path: Path, text: str, says: str) -> None:
    file = tmp_path / "delayq.toml"
    file.write_text(text)

    with pytest.raises(ConfigError) as refused:
        Settings()

    assert says.format(file=file) in str(refused.value)


def test_a_wrong_line_of_pyproject_is_named(tmp_path: Path) -> None:
    file = tmp_path / "pyproject.toml"
    file.write_text('[tool.other]\nlease = "1s"\n\n[tool.delayq]\ntries = 3\nlease = "x"\n')

    with pytest.raises(ConfigError, match=rf"lease in {file}, line 6 cannot be used"):
        Settings()


ENTRIES = [
    pytest.param('[forwards]\nok = "fine"\n\n# why\nold = "a b"\n', 5, "forwards", id="an entry of forwards"),
    pytest.param('[forwards]\nok = "fine"\n"a b" = "new"\n', 3, "forwards", id="a name in forwards"),
    pytest.param('[forwards]\na = "b"\nb = "c"\n', 2, "forwards", id="a forward to a forward"),
    pytest.param('[routes]\n"ok.*" = "fine"\n" x" = "q"\n', 3, "routes", id="a quoted key"),
    pytest.param('[routes]\n"ok" = "fine"\n"x" = { queue = "a b" }\n', 3, "routes", id="an inline table"),
    pytest.param('[routes."x"]\nconnection = "c"\nqueue = "a b"\n', 3, "routes", id="a table of one route"),
    pytest.param('[routes]\nx.connection = "c"\nx.queue = "a b"\n', 3, "routes", id="a dotted key in a table"),
    pytest.param('tries = 1\nroutes."x.y".queue = "a b"\n', 2, "routes", id="a dotted key of the file"),
    pytest.param('[routes]\n"x" = { qeue = "q" }\n', 2, "routes", id="a word in an inline table"),
    pytest.param('[connections.x]\ndriver = "redis"\nurl = 3\n', 3, "connections", id="a url that is no text"),
    pytest.param('[connections.x]\nurl = "redis://h:0x"\n', 2, "connections", id="a url"),
    pytest.param('[connections.x]\n\nprefix = "{"\n', 3, "connections", id="a prefix"),
    pytest.param('[connections.x]\nqueue = "a b"\n', 2, "connections", id="a queue"),
    pytest.param('[connections.x]\ndriver = "a b"\n', 2, "connections", id="a driver"),
    pytest.param('[connections.x]\nafter_commit = "yes"\n', 2, "connections", id="a flag"),
    pytest.param('tries = 1\n[connections."a b"]\nurl = "redis://h"\n', 2, "connections", id="a connection's name"),
    pytest.param("[connections]\nx = 3\n", 2, "connections", id="no table"),
    pytest.param('[push.q]\nurl = "https://h/"\ntries = -1\n', 3, "push", id="an option of a push"),
    pytest.param('[push.q]\nurl = "https://h/"\nzzz = 1\n', 3, "push", id="an unknown option of a push"),
    pytest.param("tries = 1\n[push.q]\ntries = 2\n", 2, "push", id="a push without a url"),
    pytest.param(
        'tries = 1\nredis_server = """\n[routes]\nx = 1\n"""\n[routes]\nx = 3\n', 7, "routes", id="beside a text"
    ),
    pytest.param('redact = [\n  "a",\n]\n[routes]\nx = 3\n', 5, "routes", id="behind an array of several lines"),
    pytest.param("tries = 1\r\n[routes]\r\nx = 3\r\n", 3, "routes", id="lines that end with CR LF"),
    pytest.param('[ "routes" ] # ours\n  x = 3\n', 2, "routes", id="a quoted header"),
]


@pytest.mark.parametrize("shared", [False, True], ids=["delayq.toml", "pyproject.toml"])
@pytest.mark.parametrize(("text", "line", "setting"), ENTRIES)
def test_a_wrong_entry_of_a_table_is_named_with_its_own_line(
    tmp_path: Path, text: str, line: int, setting: str, *, shared: bool
) -> None:
    file = tmp_path / ("pyproject.toml" if shared else "delayq.toml")
    if shared:
        before = '[project]\nname = "shop"\n[tool.routes]\nx = 3\n[tool.delayq]\n'
        text = before + re.sub(r"^\[ ?", "[tool.delayq.", text, flags=re.MULTILINE)
        line += before.count("\n")
    file.write_bytes(text.encode())

    with pytest.raises(ConfigError) as refused:
        Settings()

    assert str(refused.value).startswith(f"{setting} in {file}, line {line} cannot be used: ")


@pytest.mark.parametrize("kind", ["missing", "directory", "latin-1"])
def test_a_named_file_that_cannot_be_read(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, kind: str) -> None:
    file = tmp_path / "named.toml"
    if kind == "directory":
        file.mkdir()
    elif kind == "latin-1":
        file.write_bytes(b'queue = "caf\xe9"\n')
    monkeypatch.setenv("DELAYQ_CONFIG", str(file))

    with pytest.raises(ConfigError, match=str(file)):
        Settings()


def test_a_variable_that_sets_nothing_is_a_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DELAYQ_LEAZE", "3s")
    monkeypatch.setenv("DELAYQ_ZZZ", "1")
    monkeypatch.setenv("DELAYQ_TEST_REDIS", "container")

    warnings = Settings().warnings

    assert len(warnings) == 2
    assert warnings[0] == "The environment variable DELAYQ_LEAZE sets nothing. Did you mean DELAYQ_LEASE?"
    assert warnings[1].startswith("The environment variable DELAYQ_ZZZ sets nothing. Known are DELAYQ_URL, ")


def test_a_password_shows_nowhere(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DELAYQ_URL", "redis://ann:s3cret@h/1")
    settings = Settings()

    assert settings.url is not None
    assert settings.url.login.password == "s3cret"
    assert _origin(settings, "url") == ("redis://ann:***@h/1", "env DELAYQ_URL")
    shown = [settings, repr(settings), settings.model_dump(), settings.model_dump_json(), origins(settings)]
    assert "s3cret" not in str(shown)

    monkeypatch.setenv("DELAYQ_URL", "redis://ann:s3c/ret@h/1")
    with pytest.raises(ConfigError) as refused:
        Settings()
    assert "DELAYQ_URL cannot be used" in str(refused.value)
    assert "s3c" not in str(refused.value)
    assert refused.value.__cause__ is None


def test_the_origin_of_a_backoff_is_readable() -> None:
    assert _origin(Settings(), "backoff")[0] == "5s x 2 up to 1h, with jitter"
    assert _origin(Settings(backoff="10s,1m"), "backoff")[0] == "10s,1m"
    assert Settings().backoff == DEFAULT


def test_the_engine_does_without_pydantic() -> None:
    code = "import sys, delayq.redis.connect, delayq.core.options; sys.exit('pydantic' in sys.modules)"

    assert subprocess.run([sys.executable, "-c", code], check=False, cwd=ROOT).returncode == 0


def test_a_refused_setting_leaves_no_value_behind() -> None:
    """Tools that walk through `__context__` print what pydantic's error holds: the URL with its password."""
    with pytest.raises(ConfigError) as told:
        Settings(url="redis://:hunter2@localhost/zz")
    error: BaseException | None = told.value
    while error is not None:
        assert "hunter2" not in f"{error!r}"
        error = error.__context__ or error.__cause__
