"""The sources of settings: their order, the settings file, and what is refused in it."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from delayq.core.errors import ConfigError
from delayq.settings.connections import Route, Routes
from delayq.settings.model import Settings, load_settings
from delayq.settings.sources import FILE_NAME, Origin, find_origins

SECRET = "redis://:s3cret@host:6379/0"


def write(folder: Path, text: str, name: str = FILE_NAME) -> Path:
    path = folder / name
    path.write_text(text)
    return path


def refusal(**given: Any) -> ConfigError:
    with pytest.raises(ConfigError) as refused:
        load_settings(**given)
    assert refused.value.exit_code == 2
    return refused.value


def test_given_goes_before_environment_before_file_before_default(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write(folder, 'lease = "1m"\nqueue = "of-file"\nprefix = "of-file"\n')
    monkeypatch.setenv("DELAYQ_QUEUE", "of-variable")
    monkeypatch.setenv("DELAYQ_PREFIX", "of-variable")
    settings = load_settings(prefix="of-flag")
    assert (settings.prefix, settings.queue, settings.lease, settings.tries) == ("of-flag", "of-variable", 60_000, 5)
    assert find_origins(Settings, {"prefix": "of-flag", "url": None}) == {
        "prefix": Origin("flag", "--prefix"),
        "queue": Origin("environment", "DELAYQ_QUEUE"),
        "lease": Origin("file", str(path)),
    }


def test_the_nearest_file_upwards_counts_alone(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(folder.parent, 'queue = "far"\napp = "far"\n')
    write(folder, 'queue = "near"\n')
    inner = folder / "a" / "b"
    inner.mkdir(parents=True)
    monkeypatch.chdir(inner)
    assert (load_settings().queue, load_settings().app) == ("near", "")


def test_a_named_file_goes_before_the_nearest_and_a_given_name_before_a_variable(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(folder, 'queue = "nearest"\n')
    named = write(folder.parent, 'queue = "named"\n', "named.toml")
    write(folder.parent, 'queue = "given"\n', "given.toml")
    monkeypatch.setenv("DELAYQ_CONFIG", str(named))
    assert load_settings().queue == "named"
    assert load_settings(config="../given.toml").queue == "given"


def test_without_a_working_directory_there_is_no_file(folder: Path) -> None:
    folder.rmdir()
    assert load_settings().queue == "default"


def test_a_named_file_must_exist(folder: Path) -> None:
    assert str(refusal(config="nope.toml")) == (
        f"The settings file {folder / 'nope.toml'} does not exist. "
        "Correct --config or DELAYQ_CONFIG, or leave out the option and the variable."
    )


def test_a_file_of_another_user_is_refused_above_the_working_directory(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write(folder.parent, 'redis_server = "/tmp/evil"\n')
    if os.geteuid() == 0:
        os.chown(path, 12345, -1)
    else:
        monkeypatch.setattr(os, "geteuid", lambda: -1)
    owner = path.stat().st_uid
    assert str(refusal()) == (
        f"The settings file {path} belongs to another user (uid {owner}). "
        "To use this file, name it with --config or DELAYQ_CONFIG."
    )
    assert load_settings(config=str(path)).redis_server == "/tmp/evil"


def test_paths_are_relative_to_the_file(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(folder, 'data_dir = "data"\nredis_server = "bin/valkey-server"\n')
    (folder / "inner").mkdir()
    monkeypatch.chdir(folder / "inner")
    settings = load_settings()
    assert (settings.data_dir, settings.redis_server) == (f"{folder}/data", f"{folder}/bin/valkey-server")
    write(folder, 'data_dir = "/var/lib/delayq"\nredis_server = "valkey-server"\n')
    settings = load_settings()
    assert (settings.data_dir, settings.redis_server) == ("/var/lib/delayq", "valkey-server")
    write(folder, 'data_dir = "~/data"\n')
    assert load_settings().data_dir == os.path.expanduser("~/data")


def test_connections_and_routes(folder: Path) -> None:
    write(
        folder,
        """
        url = "redis://own"
        routes = {"order.*" = "orders", "report.*" = {queue = "slow", connection = "reports"}}

        [connections.reports]
        url = "redis://elsewhere"
        prefix = "reports"
        """,
    )
    settings = load_settings()
    routes = Routes(settings.routes)
    assert routes.of("order.close") == Route(queue="orders")
    assert routes.of("report.daily") == Route(queue="slow", connection="reports")
    assert routes.of("mail.send") == Route()
    reports = settings.of_connection("reports")
    assert (reports.must_have_url(), reports.prefix, reports.queue) == ("redis://elsewhere", "reports", "default")
    assert settings.chosen() is settings
    assert load_settings(connection="reports").chosen().must_have_url() == "redis://elsewhere"


def test_what_is_given_goes_before_the_table_of_the_connection(folder: Path) -> None:
    write(folder, 'connection = "reports"\n[connections.reports]\nurl = "redis://elsewhere"\nprefix = "reports"\n')
    chosen = load_settings(url="redis://given").chosen()
    assert (chosen.must_have_url(), chosen.prefix) == ("redis://given", "reports")


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ('laese = "30s"', "Unknown setting 'laese' in FILE. Did you mean lease?"),
        ("zzz = 1", "Unknown setting 'zzz' in FILE. Remove it."),
        ('config = "x"', "Unknown setting 'config' in FILE."),
        ("[conections.a]", "Unknown setting 'conections' in FILE. Did you mean connections?"),
        (
            '[connections.a]\nulr = "redis://:s3cret@h"',
            "Unknown setting 'ulr' in [connections.a] of FILE. Did you mean url?",
        ),
        (
            '[routes]\n"order.*" = {que = "orders"}',
            "Unknown setting 'que' in [routes.order.*] of FILE. Did you mean queue?",
        ),
        (
            "lease = 30",
            "The value of lease in FILE is not valid: 30 is not a duration. Write it with its unit, such as",
        ),
        ('lease = "soon"', "The value of lease in FILE is not valid: value 'soon' is not a duration. Write 500ms,"),
        ('tries = "many"', "The value of tries in FILE is not valid: 'many': Input should be a valid integer"),
        ("routes = 3", "The value of routes in FILE is not valid: 3: Input should be a valid dictionary."),
        (
            '[routes]\n"order.*" = "two words"',
            "The value of routes.order.*.queue in FILE is not valid: The queue name 'two words' is not valid.",
        ),
        (
            '[connections.a]\ndriver = "s3cret"',
            "The value of connections.a.driver in FILE is not valid: A driver is `redis`, or the class of another",
        ),
        ('[connections.a]\nurl = ["redis://:s3cret@h"]', "The value of connections.a.url in FILE is not valid: Input"),
        ('[connections.a]\nprefix = "{}"', "The value of connections.a.prefix in FILE is not valid: String should"),
        (
            'url = "redis://:s3cret@h"\nqueue =\napp = "x"',
            "The settings file FILE is not valid TOML: Invalid value (at line 2,",
        ),
        ('url = "redis://:s3cret@h', "The settings file FILE is not valid TOML: "),
    ],
)
def test_a_refusal_names_the_file_and_the_name(folder: Path, text: str, told: str) -> None:
    path = write(folder, text)
    error = refusal()
    assert str(error).startswith(told.replace("FILE", str(path)))
    assert "s3cret" not in repr(error)


def test_a_file_that_is_no_text_or_cannot_be_read(folder: Path) -> None:
    path = folder / FILE_NAME
    path.write_bytes(b'queue = "\xff"')
    assert str(refusal()) == f"The settings file {path} is not valid TOML: it is not UTF-8."
    if os.geteuid() != 0:
        path.chmod(0)
        assert str(refusal()) == f"The settings file {path} cannot be read: Permission denied."


def test_tables_are_no_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DELAYQ_ROUTES", "{}")
    assert str(refusal()) == "Unknown setting DELAYQ_ROUTES. Write [routes] in delayq.toml."


def test_secrets_of_a_file_are_never_shown(folder: Path) -> None:
    write(folder, f'url = "{SECRET}"\n[connections.a]\nurl = "{SECRET}"\n')
    settings = load_settings()
    shown = [repr(settings), str(settings), repr(settings.connections), str(settings.model_dump())]
    shown += [settings.model_dump_json(), settings.connections["a"].model_dump_json()]
    assert not [text for text in shown if "s3cret" in text]


@pytest.mark.parametrize(("text", "is_read"), [(None, False), ("", True)])
def test_the_reader_of_toml_is_loaded_for_a_file_alone(folder: Path, text: str | None, is_read: bool) -> None:
    if text is not None:
        write(folder, text)
    program = (
        "import sys; from delayq.settings.model import load_settings; load_settings(); print('tomllib' in sys.modules)"
    )
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert run.stdout == f"{is_read}\n"
