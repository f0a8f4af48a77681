"""`delayq --connection laravel work`, the whole worker, on queues that PHP filled."""

from __future__ import annotations

import json
from pathlib import Path

from tests.laravel.side import PythonSide
from tests.support.cli import Cli, environment
from tests.support.laravel import Laravel


def test_a_worker_beside_laravel(app: Laravel, python: PythonSide, tmp_path: Path) -> None:
    app.push(
        {"object": 42, "lines": [{"sku": "x"}], "queue": "orders"},
        {"object": 43, "chained": True, "queue": "orders"},
        {"job": "Mailer@send", "data": {"throw": "no"}, "queue": "mails"},
        {"job": "Mailer@send", "data": {"n": 1}, "queue": "mails"},
    )
    python.push("Mailer@send", {"n": 2}, queue="mails", delay="10ms")
    said = tmp_path / "said"
    (tmp_path / "delayq.toml").write_text(
        f'[connections.laravel]\ndriver = "laravel_redis"\nurl = "unix://{app.socket}"\nprefix = "{app.prefix}"\n',
        encoding="utf-8",
    )
    cli = Cli(tmp_path, environment(DELAYQ_TEST_SAID=str(said)))
    words = ("work", "--app", "tests.laravel.jobs", "--stop-when-empty", "--queue", "mails,orders")
    ended = cli("--connection", "laravel", *words, "--backoff", "0s", "--tries", "2")
    assert ended.code == 0, ended.err
    ran = [json.loads(line) for line in said.read_text(encoding="utf-8").splitlines()]
    assert sorted(map(str, ran)) == sorted(
        map(
            str,
            [
                ["send", 1, {"throw": "no"}],
                ["send", 2, {"throw": "no"}],
                ["send", 1, {"n": 1}],
                ["send", 1, {"n": 2}],
                ["close", 42, 'ü "quoted"', [{"sku": "x"}]],
            ],
        )
    )
    assert "goes before a chain of 2, and only Laravel can send the next one" in ended.err
    assert (app.size("orders"), app.size("mails")) == (0, 0)
    store = python.connection.backend.failed
    assert store is not None
    kept = store().page().jobs
    assert sorted((job.queue, job.name, job.failure.message[:12]) for job in kept) == [
        ("mails", "Mailer@send", "no"),
        ("orders", "", "The PHP job "),
    ]
