"""Encrypted jobs and their keys on the command line."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest
import redis

from delayq import DelayQ
from delayq.core.encryption import KeyRing, new_key
from delayq.jobs.registry import registry
from delayq.manager import set_manager
from tests.cli.conftest import Run, Tell
from tests.cli.test_show import rows_of
from tests.support.dump import dump

KEY = new_key()
APPLICATION = """
from delayq import job

@job("enc.here", encrypted=True)
def here(iban: str) -> None:
    with open("paid", "a") as file:
        file.write(iban)
"""


@pytest.fixture
def with_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DELAYQ_KEYS", KEY)


@pytest.fixture
def app(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "enc_jobs.py").write_text(APPLICATION)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(registry, "_handlers", dict(registry._handlers))
    monkeypatch.delitem(sys.modules, "enc_jobs", raising=False)
    set_manager(None)


def test_key_new_prints_a_key_without_a_server(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DELAYQ_URL", "redis://127.0.0.1:1")
    printed = run("key", "new").stdout.strip()
    made = json.loads(run("key", "new", "--json").stdout)
    assert made.keys() == {"key"}
    assert made["key"] != printed
    assert len(KeyRing([printed, made["key"]])) == 2


@pytest.mark.usefixtures("with_key")
def test_a_job_is_scheduled_shown_and_listed_without_its_payload(run: Run, server: redis.Redis) -> None:
    words = ("schedule", "pay", "--id", "a", "--in", "1h", "--data", '{"iban": "DE:02"}', "--encrypted")
    assert run(*words).exit_code == 0
    assert "DE:02" not in repr(dump(server))
    shown, as_json = run("show", "a").stdout, json.loads(run("show", "a", "--json").stdout)
    assert rows_of(shown)["data"] == "(encrypted)"
    assert "result" not in rows_of(shown)
    (listed,) = [json.loads(line) for line in run("list", "--json").stdout.splitlines()]
    for row in (as_json, listed):
        assert (row["encrypted"], row["data"]) == (True, None)
    assert "a " in run("list").stdout
    assert run("list", "--waiting-for-code").exit_code == 0


def test_without_a_key_nothing_is_sent(tell: Tell, server: redis.Redis) -> None:
    code, told = tell("schedule", "pay", "--data", '{"iban": "DE:02"}', "--encrypted")
    assert (code, told) == (
        2,
        "delayq: The job 'pay' must be encrypted, but no keys are set. Make a key with `delayq key new`, and set "
        "DELAYQ_KEYS or DELAYQ_KEYS_FILE.\n",
    )
    assert not server.keys("*")


@pytest.mark.parametrize("variable", ["DELAYQ_KEYS", "DELAYQ_KEYS_FILE"])
def test_a_broken_key_is_not_printed(
    tell: Tell, server: redis.Redis, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, variable: str
) -> None:
    (tmp_path / "keys").write_text("s3cret")
    monkeypatch.setenv(variable, "s3cret" if variable == "DELAYQ_KEYS" else str(tmp_path / "keys"))
    code, told = tell("schedule", "pay", "--encrypted")
    assert (code, "Key 1 of 1 is malformed. `delayq key new` makes a key." in told, "s3cret" in told) == (
        2,
        True,
        False,
    )
    assert variable in told or str(tmp_path / "keys") in told
    assert not server.keys("*")


def test_without_cryptography_the_error_names_the_command(
    tell: Tell, server: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DELAYQ_KEYS", KEY)
    monkeypatch.setitem(sys.modules, "cryptography.fernet", None)
    code, told = tell("schedule", "pay", "--encrypted")
    assert (code, "Install it: pip install 'delayq[encryption]'." in told) == (2, True)
    assert not server.keys("*")


@pytest.mark.usefixtures("with_key")
def test_keys_are_masked_among_the_settings(run: Run) -> None:
    text, lines = run("config", "show", "--origin").stdout, run("config", "show", "--json").stdout.splitlines()
    values = {row["name"]: row["value"] for row in map(json.loads, lines)}
    assert values["keys"] == "***"
    assert KEY not in text + "".join(lines)


def test_why_names_a_key_that_is_missing_here(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setenv("DELAYQ_KEYS", KEY)
        run("schedule", "pay", "--id", "a", "--in", "1h", "--encrypted")
        assert "decrypted" not in run("why", "a").stdout
    reasons: Any = json.loads(run("why", "a", "--json").stdout)["reasons"]
    assert reasons[-1]["code"] == "not-decrypted"
    assert "The payload of the job 'a' is encrypted, and no keys are set." in run("why", "a").stdout


@pytest.mark.usefixtures("with_key")
def test_a_retry_encrypts_another_payload(run: Run, tell: Tell, url: str, server: redis.Redis) -> None:
    run("schedule", "pay", "--id", "a", "--in", "1h", "--data", '{"iban": "DE:02"}', "--encrypted")
    run("archive", "a")
    assert rows_of(run("failed", "show", "a").stdout)["data"] == "(encrypted)"
    assert run("failed", "retry", "a", "--data", '{"iban": "DE:03"}').exit_code == 0
    assert "DE:03" not in repr(dump(server))
    with DelayQ(url) as client:
        info = client.get("a")
        assert info is not None and info.data == {"iban": "DE:03"}


@pytest.mark.usefixtures("with_key", "app")
def test_a_job_runs_here(run: Run, server: redis.Redis) -> None:
    for id in ("a", "b"):
        run("schedule", "enc.here", "--app", "enc_jobs", "--id", id, "--in", "1h", "--data", '{"iban": "DE:02"}')
        run("archive", id)
    assert "DE:02" not in repr(dump(server))
    assert run("failed", "retry", "--here", "a", "--app", "enc_jobs").exit_code == 0
    assert Path("paid").read_text() == "DE:02"
    other = ("--data", '{"iban": "DE:03"}')
    assert run("failed", "retry", "--here", "b", "--app", "enc_jobs", *other).exit_code == 0
    assert Path("paid").read_text() == "DE:02DE:03"


@pytest.mark.usefixtures("app")
def test_a_job_does_not_run_here_without_its_key(run: Run, tell: Tell, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setenv("DELAYQ_KEYS", KEY)
        run("schedule", "enc.here", "--id", "a", "--in", "1h", "--data", '{"iban": "DE:02"}', "--encrypted")
        run("archive", "a")
    code, told = tell("failed", "retry", "--here", "a", "--app", "enc_jobs")
    assert (code, "The payload of the job 'a' is encrypted, and no keys are set." in told) == (1, True)
    assert not Path("paid").exists()
