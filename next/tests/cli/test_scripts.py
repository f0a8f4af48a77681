"""`delayq scripts export`: whole scripts that a program in another language can use."""

import hashlib
import json
from pathlib import Path

import pytest
import redis
from typer.testing import CliRunner, Result

from delayq.cli import main as cli
from delayq.core.errors import DelayqError
from delayq.redis.scripts import load, script_names


def export(*words: str) -> Result:
    return CliRunner().invoke(cli.app, ["scripts", "export", *words])


def test_each_script_is_one_file_with_its_manual_and_its_hash(tmp_path: Path) -> None:
    folder = tmp_path / "made" / "lua"
    told = export(str(folder)).stdout
    names = script_names()
    assert told == f"{len(names)} scripts and index.json written to {folder}\n"
    index = json.loads((folder / "index.json").read_text())
    assert sorted(index) == names
    assert sorted(path.name for path in folder.iterdir()) == sorted([*(f"{name}.lua" for name in names), "index.json"])
    for name, about in index.items():
        raw = (folder / about["file"]).read_bytes()
        assert hashlib.sha1(raw).hexdigest() == about["sha1"] == load(name).sha
        assert raw.startswith(b"-- ")
        assert b"-- include:" not in raw
        assert [line.split()[2] for line in raw.decode().splitlines() if line.startswith("-- KEYS ")] == about["keys"]


def test_an_exported_script_schedules_a_job(tmp_path: Path, server: redis.Redis) -> None:
    """As a program in another language does it: by the index, the text and the keys of the queue."""
    export(str(tmp_path))
    about = json.loads((tmp_path / "index.json").read_text())["schedule"]
    said = {"now": "", "taken": "kept", "queue": "orders", "wake": "delayq:wake", "high_water": "100000"}
    said |= {"lease_ms": "30000", "once_ms": "0", "shards": "1"}
    row = {"id": "order-42", "envelope": '{"v":1,"id":"order-42","name":"order.close","queue":"orders"}'}
    row |= {"when": "+60000", "lock": ""}
    arguments = [said[name] for name in about["argv"]] + [row[name] for name in about["row"]]
    keys = [f"delayq:{{orders}}:{key}" for key in about["keys"]]
    server.eval((tmp_path / about["file"]).read_text(), len(keys), *keys, *arguments)
    server.sadd("delayq:queues", "orders")
    assert server.zrange("delayq:{orders}:scheduled", 0, -1) == ["order-42"]
    assert server.script_exists(about["sha1"]) == [True]


def test_a_directory_with_other_files_is_refused_without_force(tmp_path: Path) -> None:
    assert [export(str(tmp_path)).exit_code, export(str(tmp_path)).exit_code] == [0, 0]
    (tmp_path / "notes.txt").write_text("mine")
    (tmp_path / "ack.lua").unlink()
    error = export(str(tmp_path)).exception
    assert isinstance(error, DelayqError)
    assert (str(error), error.exit_code) == (
        f"The directory {tmp_path} has other files, such as 'notes.txt'. Name an empty directory, or add --force.",
        2,
    )
    assert not (tmp_path / "ack.lua").exists()
    assert export(str(tmp_path), "--force").exit_code == 0
    assert ((tmp_path / "ack.lua").exists(), (tmp_path / "notes.txt").read_text()) == (True, "mine")


@pytest.mark.parametrize("inner", ["", "inside"])
def test_a_file_is_no_directory(tmp_path: Path, inner: str) -> None:
    (tmp_path / "file").write_text("mine")
    error = export(str(tmp_path / "file" / inner)).exception
    assert isinstance(error, DelayqError)
    assert str(error).startswith("The scripts cannot be written to ")
    assert error.exit_code == 2
