"""Payloads of the command line: in words, from a file, from stdin."""

from pathlib import Path

from typer.testing import CliRunner

from delayq import DelayQ
from delayq.cli import main as cli
from tests.cli.conftest import Run, Tell

ORDER = ("schedule", "order.close", "--id", "order-42", "--in", "1h")


def payload_of(url: str) -> object:
    with DelayQ(url) as client:
        job = client.get("order-42")
    assert job is not None
    return job.data


def test_a_payload_is_read_from_a_file(run: Run, url: str, tmp_path: Path) -> None:
    file = tmp_path / "order.json"
    file.write_text('{"order_id": 42}\n')
    assert run(*ORDER, "--data", f"@{file}").exit_code == 0
    assert payload_of(url) == {"order_id": 42}


def test_a_payload_is_read_from_stdin(run: Run, url: str) -> None:
    end = CliRunner().invoke(cli.app, [*ORDER, "--data", "-"], input=b'{"order_id": 43}')
    assert end.exit_code == 0
    assert payload_of(url) == {"order_id": 43}


def test_a_payload_that_cannot_be_used_is_wrong_use(tell: Tell, tmp_path: Path) -> None:
    broken = tmp_path / "broken.json"
    broken.write_text("{order_id: 42}")
    large = tmp_path / "large.json"
    large.write_text(f'"{"x" * 300_000}"')
    for data, told in (
        (f"@{tmp_path}/none.json", f"--data @{tmp_path}/none.json cannot be read: No such file or directory."),
        (f"@{broken}", f"--data @{broken} is not JSON: JSON is malformed"),
        (f"@{large}", "the limit is 262,144"),
        ("", "--data is not JSON: it is empty."),
        ("{", "--data is not JSON: "),
    ):
        code, message = tell(*ORDER, "--data", data)
        assert (code, told in message) == (2, True), message
