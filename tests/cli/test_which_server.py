"""Which Redis is meant: it is said first, an application's own settings reach its worker, and none starts unasked."""

from __future__ import annotations

import os
import shutil
import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from delayq import AsyncDelayQ, DelayQ
from delayq.core.errors import ConfigError
from delayq.redis.server_binary import ServerBinary
from delayq.settings import Settings
from tests.cli.conftest import Inline
from tests.support.cli import Cli, environment
from tests.support.leftovers import pids_that_show

APP = """
import os
from delayq import job, make_manager, set_manager
from delayq.settings import Settings

{set_up}

@job("here")
def here() -> None:
    pass
"""
IN_CODE = "set_manager(make_manager(Settings(url={url!r}{more})))"
IN_ENVIRONMENT = 'os.environ["DELAYQ_URL"] = {url!r}'


def write_app(folder: Path, set_up: str, url: str, more: str = "") -> None:
    (folder / "site_worker.py").write_text(APP.format(set_up=set_up.format(url=url, more=more)))


@pytest.fixture
def nowhere(tmp_path: Path) -> Cli:
    """Commands without a URL and without a server that they could start."""
    return Cli(tmp_path, environment(DELAYQ_REDIS_SERVER=str(tmp_path / "none"), DELAYQ_DATA_DIR=str(tmp_path / "d")))


def work(cli: Cli, *before: str) -> tuple[int, str]:
    done = cli(*before, "work", "--app", "site_worker", "--stop-when-empty")
    return done.code, done.err


# -- it is said --------------------------------------------------------------------------------------------------------


def test_the_first_line_says_which_redis(cli: Cli, inline: Inline) -> None:
    url = cli.env["DELAYQ_URL"]
    done = cli.ok("work", "--app", "shop", "--stop-when-empty", "--processes", "2", "--threads", "3")
    assert f"Serving default, orders with 4 job names. From {url}, 6 jobs at a time." in done.err.splitlines()[0]
    assert inline("doctor").err.splitlines()[0] == f"Looking at {url}."
    mover = cli.start("move")
    assert mover.stderr is not None
    assert mover.stderr.readline() == f"Moving what is due, in all queues of {url}. Stop with Ctrl-C.\n"
    mover.send_signal(signal.SIGTERM)
    assert mover.wait(timeout=30) == 0


def test_no_password_is_said(nowhere: Cli) -> None:
    done = nowhere("--url", "redis://ann:hunter2@127.0.0.1:1/0", "doctor")
    assert done.err.splitlines()[0] == "Looking at redis://ann:***@127.0.0.1:1/0."
    assert "hunter2" not in done.out + done.err


async def test_clients_show_where_they_lead() -> None:
    url = "redis://:hunter2@shop.example:6380/3"
    with DelayQ(url, prefix="shop") as q:
        assert repr(q) == "DelayQ('redis://:***@shop.example:6380/3', prefix='shop')"
    async with AsyncDelayQ(url) as async_q:
        assert repr(async_q) == "AsyncDelayQ('redis://:***@shop.example:6380/3', prefix='delayq')"


# -- the application's settings ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("set_up", [IN_CODE, IN_ENVIRONMENT])
def test_a_worker_uses_the_redis_that_its_application_sets(nowhere: Cli, redis_url: str, set_up: str) -> None:
    write_app(nowhere.folder, set_up, redis_url)
    with DelayQ(redis_url) as q:
        q.schedule("here", id="one")
        code, said = work(nowhere)
        assert code == 0, said
        assert f"From {redis_url}," in said
        assert q.get("one") is None, "it ran"


@pytest.mark.redis_prefix("shop")
def test_what_the_application_sets_besides_counts_too(nowhere: Cli, redis_url: str) -> None:
    write_app(nowhere.folder, IN_CODE, redis_url, ', prefix="shop", queue="orders"')
    with DelayQ(redis_url, prefix="shop", queue="orders") as q:
        q.schedule("here", id="one")
        code, said = work(nowhere)
        assert code == 0, said
        assert said.startswith("Serving orders with 1 job name.")
        assert q.get("one") is None, "it ran"


@pytest.mark.parametrize(
    ("by", "set_up"),
    [
        ("flag", IN_CODE),
        ("environment", IN_CODE),
        ("file", IN_CODE),
        ("flag", IN_ENVIRONMENT),
        ("environment", IN_ENVIRONMENT),
        ("file", IN_ENVIRONMENT),
    ],
)
def test_another_redis_than_the_applications_is_refused(nowhere: Cli, redis_url: str, by: str, set_up: str) -> None:
    other = "redis://ann:hunter2@127.0.0.1:1/0"
    write_app(nowhere.folder, set_up, redis_url)
    flags: tuple[str, ...] = ()
    if by == "flag":
        flags = ("--url", other)
    elif by == "environment":
        nowhere.env["DELAYQ_URL"] = other
    else:
        (nowhere.folder / "delayq.toml").write_text(f'url = "{other}"\n')
    code, said = work(nowhere, *flags)
    assert code == 2, said
    assert "redis://ann:***@127.0.0.1:1/0" in said
    assert redis_url in said
    assert "hunter2" not in said


def test_the_same_redis_said_twice_is_fine(nowhere: Cli, redis_url: str) -> None:
    write_app(nowhere.folder, IN_CODE, redis_url)
    assert work(nowhere, "--url", redis_url)[0] == 0


@pytest.mark.redis_prefix("delayq", "shop")
def test_another_prefix_than_the_applications_is_refused(nowhere: Cli, redis_url: str) -> None:
    write_app(nowhere.folder, IN_CODE, redis_url, ', prefix="shop"')
    code, said = work(nowhere, "--prefix", "mall")
    assert code == 2
    assert "mall" in said
    assert "shop" in said


def test_doctor_finds_an_address_that_is_not_the_applications(nowhere: Cli, redis_url: str) -> None:
    write_app(nowhere.folder, IN_CODE, "redis://127.0.0.1:1/0")
    done = nowhere("--url", redis_url, "doctor", "--app", "site_worker", "--json")
    assert done.code == 1
    found = {one["code"]: one for one in done.json["findings"]}["address"]
    assert redis_url in found["what"]
    assert "redis://127.0.0.1:1/0" in found["what"]
    write_app(nowhere.folder, IN_CODE, redis_url)
    done = nowhere("doctor", "--app", "site_worker")
    assert done.err.splitlines()[0] == f"Looking at {redis_url}."


# -- none is started unasked -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("by", ["flag", "environment", "file"])
def test_embedded_never(local: Cli, by: str) -> None:
    flags: tuple[str, ...] = ()
    if by == "flag":
        flags = ("--embedded", "never")
    elif by == "environment":
        local.env["DELAYQ_EMBEDDED"] = "never"
    else:
        (local.folder / "delayq.toml").write_text('embedded = "never"\n')
    for command in (("stats",), ("work", "--app", "shop"), ("move",), ("schedule", "x"), ("up",)):
        done = local(*flags, *command)
        assert done.code == 2, done.err
        assert "none may be started (embedded = never" in done.err
        assert "DELAYQ_URL" in done.err
    assert not (local.folder / "data").exists()


def test_embedded_never_in_a_program(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DELAYQ_EMBEDDED", "never")
    for make in (DelayQ, AsyncDelayQ):
        with pytest.raises(ConfigError, match="none may be started"):
            make()
    assert Settings().embedded == "never"
    monkeypatch.setenv("DELAYQ_EMBEDDED", "no")
    with pytest.raises(ConfigError, match=r"DELAYQ_EMBEDDED cannot be used: 'no' is wrong"):
        Settings()


# -- one directory for each project ------------------------------------------------------------------------------------


@pytest.fixture
def ann(tmp_path: Path, default_server: ServerBinary) -> Iterator[Cli]:
    """Commands of a user with a data directory of her own; her servers are gone at the end."""
    sockets = tempfile.mkdtemp(prefix="dq-ann-", dir="/tmp")
    cli = Cli(
        tmp_path,
        environment(
            DELAYQ_REDIS_SERVER=str(default_server.path), XDG_DATA_HOME=str(tmp_path / "ann"), XDG_RUNTIME_DIR=sockets
        ),
    )
    cli.env.pop("DELAYQ_DATA_DIR", None)
    yield cli
    cli.close()
    for pid in pids_that_show(sockets):
        os.kill(pid, signal.SIGKILL)
    shutil.rmtree(sockets, ignore_errors=True)


def data_dir(cli: Cli, folder: Path) -> Path:
    """Where a command in that folder finds its server's data."""
    folder.mkdir(parents=True, exist_ok=True)
    cli.folder = folder
    return Path(cli.ok("down", "--json").json["data_dir"])


def test_each_project_has_a_directory(ann: Cli) -> None:
    home, of_user = ann.folder, ann.folder / "ann" / "delayq"
    for name, marker in (("shop", "delayq.toml"), ("mall", "pyproject.toml")):
        (home / name / "src" / "deep").mkdir(parents=True)
        (home / name / marker).touch()
    shop, mall = data_dir(ann, home / "shop"), data_dir(ann, home / "mall")
    assert shop != mall
    assert [one.parent for one in (shop, mall)] == [of_user / "projects"] * 2
    assert (shop.name.rpartition("-")[0], mall.name.rpartition("-")[0]) == ("shop", "mall")
    assert data_dir(ann, home / "shop" / "src" / "deep") == shop
    assert data_dir(ann, home / "elsewhere") == of_user
    ann.env["DELAYQ_CONFIG"] = str(home / "shop" / "delayq.toml")
    assert data_dir(ann, home / "elsewhere") == shop, "a named settings file is that of its project"
    ann.env["DELAYQ_DATA_DIR"] = str(home / "mine")
    assert data_dir(ann, home / "shop") == home / "mine"


def test_jobs_of_two_projects_do_not_meet_and_old_ones_are_found_again(ann: Cli) -> None:
    home, of_user = ann.folder, ann.folder / "ann" / "delayq"
    ann.ok("schedule", "old", "--id", "old", "--in", "1h")
    shop = home / "shop"
    shop.mkdir()
    (shop / "pyproject.toml").touch()
    ann.folder = shop
    said = ann.ok("schedule", "new", "--id", "new", "--in", "1h").err
    assert f"DELAYQ_DATA_DIR={of_user} uses them" in said
    assert "DELAYQ_DATA_DIR" not in ann.ok("list").err, "it is said once"
    assert [job["id"] for job in ann.ok("list", "--json").documents] == ["new"]
    assert str(of_user / "projects" / "shop-") in ann("doctor").err.splitlines()[0]
    ann.env["DELAYQ_DATA_DIR"] = str(of_user)
    assert [job["id"] for job in ann.ok("list", "--json").documents] == ["old"]


def test_a_very_long_project_name_leaves_room_for_the_socket(ann: Cli) -> None:
    folder = ann.folder / ("ü x" * 60)
    folder.mkdir()
    (folder / "pyproject.toml").touch()
    ann.folder = folder
    ann.ok("schedule", "x", "--id", "x", "--in", "1h")
    assert ann.ok("show", "x").code == 0
